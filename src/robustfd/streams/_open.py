"""`open_stream`: what a source is, and the stream for it."""

import os
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from robustfd._validation import check_choice, check_integer
from robustfd.streams._base import Position, Stream
from robustfd.streams._errors import StreamError
from robustfd.streams._inputs import Input
from robustfd.streams._text import undamaged
from robustfd.streams.limits import BLOCK_BYTES, MOST_BITS

# Format: the class that reads it, and which options it has.
_TABLE = ("target", "weight", "id", "columns", "drop", "categories", "hash_bits", "missing", "unseen")
_FORMATS = {
    "libsvm": ("libsvm", "LibsvmStream", ("n_features", "zero_based", "hash_bits", "unseen")),
    "vw": ("vw", "VwStream", ("n_features", "zero_based", "hash_bits", "unseen", "unlabelled")),
    "jsonl": ("jsonl", "JsonlStream", ("target", "weight", "id", "columns", "drop", "hash_bits", "unlabelled")),
    "csv": ("csv", "CsvStream", (*_TABLE, "header", "delimiter")),
    "parquet": ("arrow", "ParquetStream", _TABLE),
    "arrow": ("arrow", "ArrowStream", _TABLE),
    "npy": ("arrays", "NpyStream", ("target", "columns")),
    "npz": ("sparse", "NpzStream", ("n_features",)),
    "python": ("python", "PythonStream", ("hash_bits", "missing")),
}
FORMATS = tuple(name for name in _FORMATS if name != "python")
_SUFFIXES = {
    ".svm": "libsvm", ".libsvm": "libsvm", ".svmlight": "libsvm", ".vw": "vw", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".csv": "csv", ".tsv": "csv", ".tab": "csv",
    ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow",
    ".npy": "npy", ".npz": "npz",
}  # fmt: skip
_MAGIC = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow",
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "npz",
}
# Numbers, perhaps a tag, and a bar; a tag without a quote is one only behind a number.
_HEAD_OF_VW = re.compile(rb"(?:(?:[-+.\deE]+[ \t]+){0,3}(?:'[^|,;\s]*[ \t]*)?|(?:[-+.\deE]+[ \t]+){1,3}[^|,;\s]*)\|")


def open_stream(
    source: Any,
    *,
    format: Literal["auto", "libsvm", "vw", "jsonl", "csv", "parquet", "arrow", "npy", "npz"] = "auto",
    target: str | int | tuple[str, ...] | None = None,
    weight: str | int | None = None,
    id: str | int | None = None,
    columns: Iterable[str | int] | None = None,
    drop: Iterable[str | int] | None = None,
    categories: Literal["hash", "onehot"] | None = None,
    hash_bits: int | None = None,
    n_features: int | None = None,
    zero_based: bool | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    missing: Literal["error", "zero", "nan"] | None = None,
    unseen: Literal["error", "drop"] | None = None,
    unlabelled: Literal["keep", "skip"] | None = None,
    interactions: Iterable[str] | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    block_bytes: int = BLOCK_BYTES,
    layout: dict[str, Any] | None = None,
    start: Position | None = None,
) -> Stream:
    r"""Return a stream of blocks (X, y) of rows, in constant memory whatever the size of the source.

    Parameters
    ----------
    source : path, "-", binary file, list of these, or iterable of rows
        Files may be plain or compressed by gzip, bzip2 or xz. "-" is standard input. A directory stands for its files,
        in the order of their names. An iterable gives blocks X or (X, y), or rows as dicts or (dict, label).
    format : {"auto", "libsvm", "vw", "jsonl", "csv", "parquet", "arrow", "npy", "npz"}, default="auto"
        With "auto" the name tells, or the first bytes.
    target : str, int or tuple of str, optional
        The column of labels, by name or number, of tables, JSON lines and .npy; none by default. Of a tuple of names
        it is the first that a table has, whatever their case, or none. LIBSVM lines begin with their label.
    weight, id : str or int, optional
        Columns of tables that are no features: the weights of rows, numbers >= 0, and names of rows, which blocks have
        as text. Each block has them as attributes `weight` and `id`.
    columns : list of str or int, optional
        Features to keep, by name or number, of tables and .npy; by default all but the target.
    drop : list of str or int, optional
        Columns of tables to leave out.
    categories : {"hash", "onehot"}, default="hash"
        What becomes of columns of text: hashed into 2^hash_bits columns behind those of numbers, or a column for each
        value, for which all is read once beforehand.
    hash_bits : int, optional
        Columns for named features, 2^hash_bits: of LIBSVM text, of text in tables (default 18) and of dicts. For LIBSVM
        text from a pipe whose `n_features` is not given the default is 18 too.
    n_features : int, optional
        Features of LIBSVM text. If it is not given, all is read once beforehand to find the largest index. Of other
        formats it is what there should be.
    zero_based : bool, optional
        Whether indices of LIBSVM text begin with 0. By default they do if a 0 is found when all is read beforehand.
    header : bool, optional
        Whether the first line of CSV has the names of the columns. By default it does if none of it is a number, if it
        has the names that are asked for here, or if it does not fit the columns below it: a word above numbers, whole
        numbers above fractions. What was decided about a line with numbers in it is one of the stream's `remarks`.
    delimiter : str, optional
        Between fields of CSV: by default a tab, a semicolon or a comma, as the first line tells.
    missing : {"error", "zero", "nan"}, default="error"
        What becomes of cells of tables that are missing, among numbers, dates and times, and of NaN and None in
        iterables. With "nan" they are NaN, and text that is missing in tables is the category "", as empty text is;
        else it has no entry. Formats without cells pass over "nan".
    unseen : {"error", "drop"}, default="error"
        What becomes of entries beyond `n_features`, and of categories that are not in `layout`.
    unlabelled : {"keep", "skip"}, default="keep"
        What becomes of lines of Vowpal Wabbit's text and of JSON lines that have no label: their label is NaN (None
        among text), or they are counted among those skipped and left out.
    interactions : list of str, optional
        Products of features: "a:b" of those of two columns, or of two namespaces of Vowpal Wabbit's text; a word of two
        letters is of namespaces that begin with these, as -q of Vowpal Wabbit is. They are columns behind the others.
    on_error : {"raise", "skip"}, default="raise"
        Whether a row that cannot be read ends the stream with `StreamError`, or is counted and left out.
    block_bytes : int, default=2**20
        About how many bytes of the source are read for a block.
    layout : dict, optional
        The `layout` of another stream: columns will be the same.
    start : Position, optional
        The `position` of another stream of the same source: reading goes on there. The rows before are read again, and
        compared with the position's checksum. If they are not the same there is a `StreamError`; rows that were added
        behind them are welcome.

    Returns
    -------
    Stream

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from robustfd import RobustFrequentDirections
    >>> from robustfd.streams import open_stream
    >>> path = Path(tempfile.mkdtemp()) / "rows.svm"
    >>> _ = path.write_text("1 1:0.5 3:2\n-1 2:1.5\n1 1:1 2:1\n")
    >>> sketch = RobustFrequentDirections(sketch_size=4)
    >>> for X, y in open_stream(path):
    ...     sketch = sketch.partial_fit(X)
    >>> sketch.n_samples_seen_, sketch.n_features_in_
    (3, 3)
    """
    check_choice("format", format, ("auto", *FORMATS))
    check_choice("on_error", on_error, ("raise", "skip"))
    check_choice("categories", categories, (None, "hash", "onehot"))
    check_choice("missing", missing, (None, "error", "zero", "nan"))
    check_choice("unseen", unseen, (None, "error", "drop"))
    check_choice("unlabelled", unlabelled, (None, "keep", "skip"))
    check_integer("block_bytes", block_bytes, 64)
    if hash_bits is not None and check_integer("hash_bits", hash_bits, 1) > MOST_BITS:
        raise ValueError(f"hash_bits must be at most {MOST_BITS}, got {hash_bits}.")
    if n_features is not None:
        check_integer("n_features", n_features, 1)
    if layout is not None and not isinstance(layout, dict):
        raise StreamError(f"{layout!r:.100} is no layout of columns.")
    layout, pairs, bits = _interactions(layout, interactions, hash_bits)
    given = {
        "target": target, "weight": weight, "id": id, "columns": None if columns is None else list(columns),
        "drop": None if drop is None else list(drop), "categories": categories,
        "hash_bits": hash_bits, "n_features": n_features, "zero_based": zero_based, "header": header,
        "delimiter": delimiter, "missing": missing, "unseen": unseen, "unlabelled": unlabelled,
    }  # fmt: skip
    inputs = _inputs(source)
    kind = "python" if inputs is None else _format_of(inputs) if format == "auto" else format
    home, name, known = _FORMATS[kind]
    options = {key: value for key, value in given.items() if value is not None}
    if isinstance(target, tuple) and kind not in ("csv", "parquet", "arrow", "jsonl"):
        del options["target"]
    if missing == "nan" and "missing" not in known:
        del options["missing"]
    for key in {"unseen", "unlabelled", "n_features"} - set(known):
        options.pop(key, None)
    if wrong := sorted(options.keys() - set(known)):
        raise ValueError(f"{wrong[0]}={options[wrong[0]]!r} means nothing for {kind}; options are {', '.join(known)}.")
    stream_type = getattr(import_module(f"robustfd.streams.{home}"), name)
    result: Stream = stream_type(
        source if inputs is None else inputs,
        **options, layout=layout, start=start, on_error=on_error,
        block_bytes=min(block_bytes, max(block_bytes // 16, 1 << 14)) if pairs else block_bytes,  # rows become longer
    )  # fmt: skip
    if n_features is not None and result.n_features != n_features:
        raise StreamError(f"There are {result.n_features} features, and n_features={n_features} are wanted.")
    if not pairs:
        return result
    from robustfd.streams.interactions import InteractionStream  # compiled loops, which few need

    return InteractionStream(result, pairs, bits)


def _interactions(
    layout: dict[str, Any] | None, interactions: Iterable[str] | None, hash_bits: int | None
) -> tuple[dict[str, Any] | None, list[tuple[str, str]], int | None]:
    """Return the layout of the features alone, the pairs whose products there shall be, and how these are hashed."""
    within = layout is not None and layout.get("kind") == "interactions"
    if interactions is None and not within:
        return layout, [], None
    from robustfd.streams._crossing import pair_of, read_layout

    if within and interactions is not None:
        raise ValueError("interactions and a layout, which says that already: give one of them only.")
    if layout is not None and within:
        return read_layout(layout)
    return layout, [pair_of(each) for each in interactions or ()], hash_bits


def _inputs(source: Any) -> list[Input] | None:
    """Return the inputs that a source is, None if it is an iterable of rows."""
    if isinstance(source, list | tuple) and source and all(_is_input(each) for each in source):
        return [each for one in source for each in _files(one)]
    return list(_files(source)) if _is_input(source) else None


def _is_input(source: Any) -> bool:
    return isinstance(source, str | bytes | os.PathLike) or hasattr(source, "read")


def _files(source: Any) -> Iterator[Input]:
    """Yield the one input that this is, or those of a directory."""
    if isinstance(source, str | bytes | os.PathLike) and os.path.isdir(source):
        names = sorted(path for path in Path(os.fsdecode(source)).iterdir() if path.is_file())
        visible = [path for path in names if not path.name.startswith((".", "_"))]
        if not visible:
            raise FileNotFoundError(f"There is no file in the directory {os.fsdecode(source)!r}.")
        yield from map(Input, visible)
    else:
        yield Input(source)


def _format_of(inputs: list[Input]) -> str:
    """Return the format of the first input, by its name or its first bytes."""
    path = inputs[0].path
    for suffix in reversed(path.suffixes) if path is not None else ():
        if suffix.lower() in _SUFFIXES:
            return _SUFFIXES[suffix.lower()]
    with undamaged(inputs[0]):
        head = inputs[0].head(1 << 16, line=True)
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    if head.lstrip().startswith(b"{"):
        return "jsonl"
    if _HEAD_OF_VW.match(head.lstrip()):
        return "vw"
    tokens = head.split(b"\n", 1)[0].split()
    if any(b":" in token for token in tokens[:2]) or not any(mark in head for mark in b",;\t"):
        return "libsvm"
    return "csv"
