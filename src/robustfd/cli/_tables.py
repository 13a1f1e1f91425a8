"""Tables that are written block by block: CSV, Parquet or .npy, as the name of the file says."""

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator
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
