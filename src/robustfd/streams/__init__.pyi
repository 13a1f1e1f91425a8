"""The public names of robustfd.streams."""

from robustfd.streams.base import Block as Block
from robustfd.streams.base import Stream as Stream
from robustfd.streams.base import Survey as Survey
from robustfd.streams.base import is_table as is_table
from robustfd.streams.crossing import namer as namer
from robustfd.streams.frames import TableEncoder as TableEncoder
from robustfd.streams.inputs import Position as Position
from robustfd.streams.inputs import StreamError as StreamError
from robustfd.streams.open import FORMATS as FORMATS
from robustfd.streams.open import open_stream as open_stream
