"""Tables written block by block: CSV, TSV or Parquet, by the suffix of the file."""

import contextlib
import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from robustfd.cli._errors import write_errors
from robustfd.cli._files import open_output

SUFFIXES = (".csv", ".tsv", ".parquet")

WriteColumns = Callable[[dict[str, Any]], None]  # writes some rows, given as {column name: values}


@contextlib.contextmanager
def table_writer(path: Path | None) -> Iterator[WriteColumns]:
    """Yield a function that writes rows. Its first call decides the columns."""
    suffix = ".csv" if path is None or str(path) == "-" else path.suffix
    if suffix not in SUFFIXES:
        raise ValueError(f"The name of {path} must end with one of {', '.join(SUFFIXES)}, which selects the format.")
    with open_output(path) as file, contextlib.ExitStack() as closing:
        if suffix == ".parquet":
            write = _parquet_writer(file, closing)
        else:
            write = csv_writer(file, "\t" if suffix == ".tsv" else ",")

        def write_columns(columns: dict[str, Any]) -> None:
            with write_errors("Standard output" if path is None else path):
                write(columns)

        yield write_columns


def csv_writer(file: Any, delimiter: str = ",") -> WriteColumns:
    """Return a function that writes rows as CSV: a header first, numbers with all digits."""
    has_header = False

    def write(columns: dict[str, Any]) -> None:
        nonlocal has_header
        text = io.StringIO()
        lines = csv.writer(text, delimiter=delimiter, lineterminator="\n")
        if not has_header:
            lines.writerow(columns)
            has_header = True
        lines.writerows(zip(*(values.tolist() for values in columns.values())))
        file.write(text.getvalue().encode())

    return write


def _parquet_writer(file: Any, closing: contextlib.ExitStack) -> WriteColumns:
    """Return a function that writes rows as Parquet."""
    from robustfd.streams.columns import pa, pq

    writer: Any = None

    def write(columns: dict[str, Any]) -> None:
        nonlocal writer
        table = pa.table(columns)
        if writer is None:
            writer = pq.ParquetWriter(file, table.schema)
            closing.callback(writer.close)
        writer.write_table(table)

    return write
