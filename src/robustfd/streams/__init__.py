"""Files, pipes, iterators and tables as blocks of rows: `for X, y in open_stream("rows.svm")`."""

from typing import TYPE_CHECKING, Any

from robustfd.streams._base import Block, Position, Stream, StreamError, Survey
from robustfd.streams._items import is_table
from robustfd.streams._names import namer
from robustfd.streams._open import FORMATS, open_stream

if TYPE_CHECKING:
    from robustfd.streams.frames import TableEncoder

__all__ = [
    "FORMATS", "Block", "Position", "Stream", "StreamError", "Survey", "TableEncoder", "is_table", "namer",
    "open_stream",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name != "TableEncoder":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from robustfd.streams.frames import TableEncoder  # it needs pyarrow

    return TableEncoder
