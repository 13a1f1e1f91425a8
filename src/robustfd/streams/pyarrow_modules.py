"""The modules of pyarrow that read tables, with one error if pyarrow is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager

from robustfd.streams._errors import StreamError

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pcsv
    import pyarrow.ipc as ipc
    import pyarrow.parquet as pq
except ImportError as error:
    raise ImportError("CSV, Parquet and Arrow need pyarrow: pip install 'robustfd[arrow]'.") from error

__all__ = ["ipc", "named_errors", "pa", "pc", "pcsv", "pq"]


@contextmanager
def named_errors(name: str) -> Iterator[None]:
    """Raise `StreamError` with the name of the file for errors of pyarrow about its content."""
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise StreamError(f"{name} cannot be read: {error}") from error
    except MemoryError as error:  # a damaged file may claim any size
        raise StreamError(f"{name} cannot be read: it claims a size larger than the memory.") from error
    except OSError as error:
        if error.errno is not None:  # an error of the operating system, not of the format
            raise
        raise StreamError(f"{name} is damaged or truncated: {error}") from error
