"""The parts of pyarrow that tables are read with."""

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
    raise ImportError("CSV, Parquet and Arrow are read by pyarrow: pip install 'robustfd[arrow]'.") from error

__all__ = ["ipc", "named_errors", "pa", "pc", "pcsv", "pq"]


@contextmanager
def named_errors(name: str) -> Iterator[None]:
    """Make a `StreamError` that has the name of a file of whatever pyarrow says about what is in it."""
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise StreamError(f"{name} cannot be read: {error}") from error
    except MemoryError as error:  # a damaged file may claim any size
        raise StreamError(f"{name} cannot be read: it says that it takes more memory than there is.") from error
    except OSError as error:
        if error.errno is not None:  # the system's word, not that of a reader of a format
            raise
        raise StreamError(f"{name} is damaged or cut short: {error}") from error
