"""Files, pipes and iterators as blocks of rows: `for X, y in open_stream("rows.svm")`."""

from robustfd.streams._base import Block, Position, Stream, StreamError, Survey
from robustfd.streams._names import namer
from robustfd.streams._open import FORMATS, open_stream

__all__ = ["FORMATS", "Block", "Position", "Stream", "StreamError", "Survey", "namer", "open_stream"]
