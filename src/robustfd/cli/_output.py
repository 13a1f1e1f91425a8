"""Files that commands write: model files, tables and plots. Each replaces an older file only when it is complete."""

import contextlib
import csv
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from robustfd._container import replacing
from robustfd.cli._console import warn, write_errors

SUFFIXES = (".csv", ".tsv", ".parquet")

WriteColumns = Callable[[dict[str, Any]], None]  # writes some rows, given as {column name: values}


def require_writable(path: Path) -> None:
    """Raise now, rather than after a long pass, if a file cannot be written."""
    folder = Path(os.path.realpath(path)).parent
    if path.is_symlink() and not path.exists() and os.path.islink(os.path.realpath(path)):
        raise OSError(f"{path} is a symbolic link to itself.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory. Name a file.")
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no directory {folder} to write {path.name} to.")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"The directory {folder} is not writable.")


@contextlib.contextmanager
def open_output(path: Path | None) -> Iterator[Any]:
    """Yield a binary file that replaces `path` when it is complete; standard output if there is no path."""
    if path is None or str(path) == "-":
        if sys.stdout is None:
            raise OSError("Standard output is closed.")
        yield sys.stdout.buffer
        with write_errors("Standard output"):
            sys.stdout.buffer.flush()
        return
    with replacing(path) as file:
        yield file
        with write_errors(path):
            file.flush()


# -- tables


@contextlib.contextmanager
def table_writer(path: Path | None) -> Iterator[WriteColumns]:
    """Yield a function that writes rows as CSV, TSV or Parquet. Its first call decides the columns."""
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


# -- plots


def new_figure() -> Any:
    """Return an empty figure, without pyplot: it belongs to no window; raise if matplotlib is not installed."""
    try:
        import matplotlib.figure
    except ImportError as error:
        raise ImportError("matplotlib is missing. Plots need an extra: pip install 'robustfd[plot]'") from error
    return matplotlib.figure.Figure(figsize=(6.4, 4.0), layout="constrained")


def require_plot(path: Path | None) -> None:
    """Raise now, rather than after the pass, if a plot cannot be drawn to this file. It draws an empty one."""
    if path is None:
        return
    figure = new_figure()
    known = figure.canvas.get_supported_filetypes()
    if _format(path) not in known:
        suffixes = ", ".join(f".{each}" for each in sorted(known))
        raise ValueError(f"The name of {path} must end with one of {suffixes}, which selects the format.")
    require_writable(path)
    figure.savefig(io.BytesIO(), format=_format(path))


def try_to_draw(draw: Callable[[], Any], path: Path) -> bool:
    """Save the figure that `draw` returns; return whether that worked.

    If not, print a warning: a plot must not cost the results.
    """
    try:
        save_figure(draw(), path)
    except Exception as error:
        warn(f"The plot {path} could not be drawn: {str(error) or type(error).__name__}")
        return False
    return True


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure to a file."""
    with open_output(path) as file:
        figure.savefig(file, format=_format(path), dpi=150)


def _format(path: Path) -> str:
    """Return the image format that the name of a file selects."""
    return path.suffix.lstrip(".").lower() or "png"
