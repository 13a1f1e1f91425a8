"""Tables that are written block by block: CSV, TSV or Parquet, as the name of the file says."""

import contextlib
import csv
import io
import sys
from collections.abc import Callable, Iterator
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
def table_writer(path: Path | None) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield a function that writes columns, {name: values}, of some rows; the first call says which there are."""
    suffix = ".csv" if path is None or str(path) == "-" else path.suffix
    if suffix not in SUFFIXES:
        raise ValueError(f"{path} should end with one of {', '.join(SUFFIXES)}, which says what to write.")
    with writing(path) as file, contextlib.ExitStack() as closing:
        if suffix == ".parquet":
            write = _parquet_writer(file, closing)
        else:
            write = csv_writer(file, "\t" if suffix == ".tsv" else ",")

        def write_named(columns: dict[str, Any]) -> None:
            with naming("Standard output" if path is None else path):
                write(columns)

        yield write_named


def csv_writer(file: Any, delimiter: str = ",") -> Callable[[dict[str, Any]], None]:
    """Return a function that writes columns as text, numbers with all their digits, names first."""
    named = False

    def write(columns: dict[str, Any]) -> None:
        nonlocal named
        text = io.StringIO()
        lines = csv.writer(text, delimiter=delimiter, lineterminator="\n")
        if not named:
            lines.writerow(columns)
            named = True
        lines.writerows(zip(*(values.tolist() for values in columns.values())))
        file.write(text.getvalue().encode())

    return write


def _parquet_writer(file: Any, closing: contextlib.ExitStack) -> Callable[[dict[str, Any]], None]:
    """Return a function that writes columns as Parquet."""
    from robustfd.streams._pyarrow import pa, pq

    writer: Any = None

    def write(columns: dict[str, Any]) -> None:
        nonlocal writer
        table = pa.table(columns)
        if writer is None:
            writer = pq.ParquetWriter(file, table.schema)
            closing.callback(writer.close)
        writer.write_table(table)

    return write
