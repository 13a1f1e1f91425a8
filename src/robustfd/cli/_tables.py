"""Tables that are written block by block: CSV, Parquet or .npy, as the name of the file says."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from robustfd._container import replacing
from robustfd.cli._talk import naming

SUFFIXES = (".csv", ".tsv", ".parquet")


@contextlib.contextmanager
def writing(path: Path | None) -> Iterator[Any]:
    """Yield a binary file that gets its name when all is written; standard output if there is no path."""
    if path is None or str(path) == "-":
        if sys.stdout is None:
            raise OSError("Standard output is closed.")
        yield sys.stdout.buffer
        with naming("Standard output"):
            sys.stdout.buffer.flush()
        return
    with replacing(path) as file:
        yield file
        with naming(path):
            file.flush()


@contextlib.contextmanager
def table_writer(path: Path | None) -> Iterator[Any]:
    """Yield a function that writes columns, {name: values}, of some rows; the first call says which there are."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    suffix = ".csv" if path is None or str(path) == "-" else path.suffix
    if suffix not in SUFFIXES:
        raise ValueError(f"{path} should end with one of {', '.join(SUFFIXES)}, which says what to write.")
    with writing(path) as file, contextlib.ExitStack() as stack:
        writer: Any = None

        def write(columns: dict[str, Any]) -> None:
            with naming("Standard output" if path is None else path):
                write_named(columns)

        def write_named(columns: dict[str, Any]) -> None:
            nonlocal writer
            table = pa.table(columns)
            if writer is None:
                if suffix == ".parquet":
                    writer = pyarrow.parquet.ParquetWriter(file, table.schema)
                else:
                    style = pyarrow.csv.WriteOptions(
                        delimiter="\t" if suffix == ".tsv" else ",", quoting_style="needed"
                    )
                    writer = pyarrow.csv.CSVWriter(file, table.schema, write_options=style)
                stack.callback(writer.close)
            writer.write_table(table)

        yield write
