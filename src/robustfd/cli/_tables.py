"""Tables that are written block by block: CSV, TSV or Parquet, as the name of the file says."""

import contextlib
import csv
import io
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SUFFIXES = (".csv", ".tsv", ".parquet")


@contextlib.contextmanager
def writing(path: Path | None) -> Iterator[Any]:
    """Yield a binary file that gets its name when all is written; standard output if there is no path."""
    if path is None or str(path) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(os.path.realpath(path))
    temporary = path.parent / f".robustfd-{secrets.token_hex(8)}.part"
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def table_writer(path: Path | None) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield a function that writes columns, {name: values}, of some rows; the first call says which there are."""
    suffix = ".csv" if path is None or str(path) == "-" else path.suffix
    if suffix not in SUFFIXES:
        raise ValueError(f"{path} should end with one of {', '.join(SUFFIXES)}, which says what to write.")
    with writing(path) as file, contextlib.ExitStack() as closing:
        yield (
            _parquet_writer(file, closing)
            if suffix == ".parquet"
            else csv_writer(file, "\t" if suffix == ".tsv" else ",")
        )


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
