"""Files, pipes, iterables and tables as streams of blocks of rows: `for X, y in open_stream("rows.svm")`."""

from typing import TYPE_CHECKING

from robustfd._lazy import lazily
from robustfd.streams._base import Block, Position, Stream, Survey
from robustfd.streams._errors import StreamError
from robustfd.streams._open import FORMATS, open_stream
from robustfd.streams._python_rows import is_table
from robustfd.streams.feature_names import namer

if TYPE_CHECKING:
    from robustfd.streams.frames import TableEncoder

__all__ = [
    "FORMATS", "Block", "Position", "Stream", "StreamError", "Survey", "TableEncoder", "is_table", "namer",
    "open_stream",
]  # fmt: skip

__getattr__, __dir__ = lazily(__name__, {"frames": ("TableEncoder",)})  # which needs pyarrow
