"""Files, pipes, iterables and tables as streams of blocks of rows: `for X, y in open_stream("rows.svm")`."""

from typing import TYPE_CHECKING

from robustfd._lazy import lazily
from robustfd.streams.base import Block, Stream, Survey, is_table
from robustfd.streams.crossing import namer
from robustfd.streams.inputs import Position, StreamError
from robustfd.streams.open import FORMATS, open_stream

if TYPE_CHECKING:
    from robustfd.streams.frames import TableEncoder

__all__ = [
    "FORMATS", "Block", "Position", "Stream", "StreamError", "Survey", "TableEncoder", "is_table", "namer",
    "open_stream",
]  # fmt: skip

__getattr__, __dir__ = lazily(__name__, {"frames": ("TableEncoder",)})  # which needs pyarrow
