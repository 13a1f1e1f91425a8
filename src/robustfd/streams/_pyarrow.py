"""The parts of pyarrow that tables are read with."""

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pcsv
    import pyarrow.ipc as ipc
    import pyarrow.parquet as pq
except ImportError as error:
    raise ImportError("CSV, Parquet and Arrow are read by pyarrow: pip install 'robustfd[arrow]'.") from error

__all__ = ["ipc", "pa", "pc", "pcsv", "pq"]
