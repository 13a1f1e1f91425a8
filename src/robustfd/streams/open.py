"""`open_stream`: detect the format of a source, open the right stream, and add products of features to its rows."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from robustfd._validation import check_choice, check_integer
from robustfd.streams.base import Block, Options, Stream, Survey
from robustfd.streams.crossing import Crossing, namer, pair_of, read_products
from robustfd.streams.inputs import BLOCK_BYTES, LONGEST_LINE, Input, Position, StreamError
from robustfd.streams.layout import MOST_BITS, MOST_COLUMNS, ROLES, not_a_layout


class _Format(NamedTuple):
    """Where the stream of a format is, the options it has, and how its files are recognised."""

    stream: str  # module and class
    options: tuple[str, ...]
    max_columns: int  # by default: tables need about 100 bytes of memory per column, and sparse rows none
    suffixes: tuple[str, ...] = ()
    magic: tuple[bytes, ...] = ()  # the first bytes of a file


_FEW, _MANY = 2**20, 2**24  # columns
_TABLE = (*ROLES, "columns", "drop", "categories", "hash_bits", "missing", "unseen")
_TEXT = ("n_features", "zero_based", "hash_bits", "unseen")
_JSON = (*ROLES, "columns", "drop", "hash_bits", "unlabelled")
_FORMATS = {
    "libsvm": _Format("text.LibsvmStream", _TEXT, _MANY, (".svm", ".libsvm", ".svmlight")),
    "vw": _Format("text.VwStream", (*_TEXT, "unlabelled"), _MANY, (".vw",)),
    "cb": _Format("logs.ActionStream", (*_TEXT, "unlabelled"), _MANY),
    "adf": _Format("logs.BlockStream", (*_TEXT, "unlabelled"), _MANY),
    "jsonl": _Format("jsonl.JsonlStream", _JSON, _FEW, (".jsonl", ".ndjson")),
    "csv": _Format("csv.CsvStream", (*_TABLE, "header", "delimiter", "decimal"), _FEW, (".csv", ".tsv", ".tab")),
    "parquet": _Format("arrow.ParquetStream", _TABLE, _FEW, (".parquet", ".pq"), (b"PAR1",)),
    "arrow": _Format("arrow.ArrowStream", _TABLE, _FEW, (".arrow", ".feather", ".ipc"), (b"ARROW1", b"\xff" * 4)),
    "npy": _Format("arrays.NpyStream", ("target", "columns"), _FEW, (".npy",), (b"\x93NUMPY",)),
    "npz": _Format("arrays.NpzStream", ("n_features",), _MANY, (".npz",), (b"PK\x03\x04",)),
    "python": _Format("python.PythonStream", ("hash_bits", "missing"), MOST_COLUMNS),
}
FORMATS = tuple(name for name in _FORMATS if name != "python")
# Labels, an optional tag, and a bar. A tag without a quote must follow a label. The stream refuses labels other than
# numbers, such as costs and those of contextual bandits, with an explanation.
_LABELS_OF_VW = rb"(?:(?:[-+.\deE]+(?:[:,][-+.\deE]+)*|shared|ccb|slates|ca)[ \t]+)"
_ACTION = re.compile(rb"(?:\d+[ \t]+)*\d+:[-+.\w]+:[-+.\w]+[ \t][^|]*\|")
_HEAD_OF_VW = re.compile(rb"(?:%b*(?:'[^|,;\s]*[ \t]*)?|%b+[^|,;\s]*)\|" % (_LABELS_OF_VW, _LABELS_OF_VW))


def open_stream(
    source: Any,
    *,
    format: Literal["auto", "libsvm", "vw", "cb", "adf", "jsonl", "csv", "parquet", "arrow", "npy", "npz"] = "auto",
    target: str | int | tuple[str, ...] | None = None,
    weight: str | int | None = None,
    id: str | int | None = None,
    arm: str | int | tuple[str, ...] | None = None,
    cost: str | int | tuple[str, ...] | None = None,
    probability: str | int | tuple[str, ...] | None = None,
    columns: Iterable[str | int] | None = None,
    drop: Iterable[str | int] | None = None,
    categories: Literal["hash", "onehot"] | None = None,
    hash_bits: int | None = None,
    n_features: int | None = None,
    zero_based: bool | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    decimal: Literal[".", ","] | None = None,
    missing: Literal["error", "zero", "nan"] | None = None,
    unseen: Literal["error", "drop"] | None = None,
    unlabelled: Literal["keep", "skip"] | None = None,
    interactions: Iterable[str] | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    block_bytes: int = BLOCK_BYTES,
    max_columns: int | None = None,
    max_line_bytes: int = LONGEST_LINE,
    layout: dict[str, Any] | None = None,
    start: Position | None = None,
) -> Stream:
    r"""Return a stream of blocks (X, y) of rows, which uses constant memory for sources of any size.

    Parameters
    ----------
    source : path, "-", binary file, list of these, or iterable of rows
        Files may be compressed with gzip, bzip2 or xz. "-" is standard input. A directory stands for its files,
        sorted by name. An iterable yields blocks X or (X, y), or rows given as dicts or (dict, label).
    format : {"auto", "libsvm", "vw", "cb", "adf", "jsonl", "csv", "parquet", "arrow", "npy", "npz"}, default="auto"
        "auto" detects the format from the file name or the first bytes. "cb" and "adf" are logs of bandits in Vowpal
        Wabbit text, `action:cost:probability | features` and blocks of lines.
    target : str, int or tuple of str, optional
        The column of labels, by name or number, in tables, JSON lines and .npy; none by default. A tuple of lower-case
        names selects the first column with one of these names, ignoring case, if there is one. LIBSVM lines start with
        their label.
    weight, id : str or int, optional
        Columns with the weights of rows, numbers >= 0, and with the names of rows. They are not features. Blocks have
        them as attributes `weight` and `id`.
    arm, cost, probability : str, int or tuple of str, optional
        Columns of a log of a bandit, in tables and JSON lines: the chosen arm, its cost (or `target`, its reward), and
        the probability with which it was chosen. Blocks have the attribute `decisions`, and their y is the reward,
        -cost. A tuple selects a column as that of `target` does.
    columns : list of str or int, optional
        The features, by name or number, of tables and .npy. Default: all columns without another role.
    drop : list of str or int, optional
        Columns to ignore.
    categories : {"hash", "onehot"}, default="hash"
        Encoding of text columns: hashed into 2^hash_bits columns after the numbers, or one column per value. Values of
        several words are hashed as words and pairs of words. "onehot" needs an extra pass over the source.
    hash_bits : int, optional
        Hash named features into 2^hash_bits columns: names in LIBSVM and Vowpal Wabbit text, text in tables, dicts and
        JSON lines. Default: 18; LIBSVM text is hashed by default only from a pipe, if `n_features` is not given.
    n_features : int, optional
        Number of features of LIBSVM text. Default: the largest index, found in an extra pass. For other formats, the
        expected number of features.
    zero_based : bool, optional
        Whether indices of LIBSVM text start at 0. Default: whether the extra pass finds an index 0.
    header : bool, optional
        Whether the first line of CSV holds column names. By default it does if it has no numbers, if it contains the
        names in other arguments, or if its types differ from the columns below: a word above numbers, or whole numbers
        above fractions. The `remarks` of the stream report the decision about a line with numbers.
    delimiter : str, optional
        Field delimiter of CSV. Default: a tab, a semicolon or a comma, detected from the first line.
    decimal : {".", ","}, optional
        Decimal mark of CSV. By default it is a comma if whole columns of the first megabyte are numbers with commas
        that cannot all group thousands, such as 3,14, and no column has numbers with points. The `remarks` of the
        stream report the decision. Thousands separators are not read as numbers.
    missing : {"error", "zero", "nan"}, default="error"
        How to read missing numbers, dates and times in tables, and NaN and None in iterables. With "nan" they are NaN,
        and missing text in tables is the category "", like empty text; otherwise it has no entry. Other formats ignore
        "nan".
    unseen : {"error", "drop"}, default="error"
        How to treat indices above `n_features`, and categories that are not in `layout`.
    unlabelled : {"keep", "skip"}, default="keep"
        How to treat lines of Vowpal Wabbit text and JSON lines without a label: keep them with the label NaN (None
        among text), or skip and count them.
    interactions : list of str, optional
        Products of features, as additional columns: "a:b" for two columns, or for two namespaces of Vowpal Wabbit text.
        Two letters stand for all namespaces that start with them, as in Vowpal Wabbit's -q.
    on_error : {"raise", "skip"}, default="raise"
        Whether a row that cannot be read raises `StreamError`, or is skipped and counted.
    block_bytes : int, default=2**20
        Approximate number of source bytes per block.
    max_columns : int, optional
        The most columns that a file may have, so that a small file cannot claim much memory: by default 2^20 in tables
        and .npy, 2^24 in LIBSVM text and .npz, if `n_features` is not given, and 2^20 values in an object of JSON
        lines. Vowpal Wabbit text with numbers above 2^24 is hashed.
    max_line_bytes : int, default=2**26
        The longest line of text.
    layout : dict, optional
        The `layout` of another stream, to get the same columns.
    start : Position, optional
        The `position` of another stream of the same source, to continue there. Earlier rows are read again and compared
        with the checksum of the position; if they have changed, a `StreamError` is raised. Rows may have been appended.

    Returns
    -------
    Stream
        An iterable of blocks.

    See Also
    --------
    robustfd.streams.TableEncoder : Convert tables in memory to the same columns.

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
    check_choice("decimal", decimal, (None, ".", ","))
    check_choice("unlabelled", unlabelled, (None, "keep", "skip"))
    check_integer("block_bytes", block_bytes, 64)
    check_integer("max_line_bytes", max_line_bytes, 1)
    if max_columns is not None:
        check_integer("max_columns", max_columns, 1)
    if hash_bits is not None and check_integer("hash_bits", hash_bits, 1) > MOST_BITS:
        raise ValueError(f"hash_bits must be at most {MOST_BITS}, got {hash_bits}.")
    if n_features is not None:
        check_integer("n_features", n_features, 1)
    if layout is not None and not isinstance(layout, dict):
        raise not_a_layout(layout)
    layout, pairs, bits = _interactions(layout, interactions, hash_bits)
    given = {
        "target": target, "weight": weight, "id": id, "arm": arm, "cost": cost, "probability": probability,
        "columns": None if columns is None else list(columns),
        "drop": None if drop is None else list(drop), "categories": categories,
        "hash_bits": hash_bits, "n_features": n_features, "zero_based": zero_based, "header": header,
        "delimiter": delimiter, "decimal": decimal, "missing": missing, "unseen": unseen, "unlabelled": unlabelled,
    }  # fmt: skip
    inputs = _inputs(source)
    name = "python" if inputs is None else _format_of(inputs) if format == "auto" else format
    if format == "auto" and name == "vw" and inputs is not None:
        name = _kind_of_vw(inputs[0].head(1 << 16, line=True), layout)
    known = _FORMATS[name].options
    ignored = {"unseen", "unlabelled", "n_features", *(["missing"] if missing == "nan" else [])} - set(known)
    if "drop" not in known:  # names of columns, which neither arrays nor text have
        ignored |= {role for role, names in given.items() if isinstance(names, tuple)}
    options: dict[str, Any] = {key: value for key, value in given.items() if value is not None and key not in ignored}
    if wrong := sorted(options.keys() - set(known)):
        raise ValueError(f"{wrong[0]}={options[wrong[0]]!r} does not apply to {name}; options are {', '.join(known)}.")
    if pairs and name in ("cb", "adf"):
        raise ValueError(
            f"interactions={interactions!r:.40} does not apply to the text of bandits: features of arms are multiplied "
            "with those of contexts anyway."
        )
    if pairs:  # rows become longer
        block_bytes = min(block_bytes, max(block_bytes // 16, 1 << 14))
    module, type_name = _FORMATS[name].stream.split(".")
    result: Stream = getattr(import_module(f"robustfd.streams.{module}"), type_name)(
        source if inputs is None else inputs, Options(**options), layout,
        start=start, on_error=on_error, block_bytes=block_bytes, max_line_bytes=max_line_bytes,
        max_columns=min(_FORMATS[name].max_columns if max_columns is None else max_columns, MOST_COLUMNS),
    )  # fmt: skip
    if n_features is not None and result.n_features != n_features:
        raise StreamError(f"There are {result.n_features} features, expected n_features={n_features}.")
    return InteractionStream(result, pairs, bits) if pairs else result


def _interactions(
    layout: dict[str, Any] | None, interactions: Iterable[str] | None, hash_bits: int | None
) -> tuple[dict[str, Any] | None, list[tuple[str, str]], int | None]:
    """Return the layout of the features, the pairs of groups to multiply, and the bits for hashing the products."""
    within = layout is not None and layout.get("kind") == "interactions"
    if interactions is None and not within:
        return layout, [], None
    if layout is None or not within:
        return layout, [pair_of(each) for each in interactions or ()], hash_bits
    if interactions is not None:
        raise ValueError("interactions cannot be combined with a layout that already defines them.")
    return read_products(layout)


def _inputs(source: Any) -> list[Input] | None:
    """Return the inputs of a source, None if it is an iterable of rows."""
    if isinstance(source, list | tuple) and source and all(_is_input(each) for each in source):
        return [each for one in source for each in _files(one)]
    return list(_files(source)) if _is_input(source) else None


def _is_input(source: Any) -> bool:
    return isinstance(source, str | bytes | os.PathLike) or hasattr(source, "read")


def _files(source: Any) -> Iterator[Input]:
    """Yield the input, or those of a directory."""
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
    by_suffix = {suffix: name for name, each in _FORMATS.items() for suffix in each.suffixes}
    for suffix in reversed(path.suffixes) if path is not None else ():
        if suffix.lower() in by_suffix:
            return by_suffix[suffix.lower()]
    head = inputs[0].head(1 << 16, line=True)
    for name, each in _FORMATS.items():
        if each.magic and head.startswith(each.magic):
            return name
    if head.lstrip().startswith(b"{"):
        return "jsonl"
    if _HEAD_OF_VW.match(head.lstrip()):
        return "vw"
    tokens = head.split(b"\n", 1)[0].split()
    if any(b":" in token for token in tokens[:2]) or not any(mark in head for mark in b",;\t"):
        return "libsvm"
    return "csv"


def _kind_of_vw(head: bytes, layout: dict[str, Any] | None) -> str:
    """Return the format of Vowpal Wabbit text: "vw", or that of a log of a bandit.

    The first lines decide: a block starts with shared features, has the action 0, or has several lines.
    """
    of = {} if layout is None else layout.get("of", layout)
    if isinstance(of, dict) and of.get("kind") in ("cb", "adf"):
        return str(of["kind"])
    blocks = [block.split(b"\n") for block in re.split(rb"\n[ \t\r]*\n", head.strip())]
    if re.match(rb"shared[ \t|]", blocks[0][0]):
        return "adf"
    labels = [found[0] for block in blocks for line in block if (found := re.match(_ACTION, line))]
    if not labels:
        return "vw"
    return "adf" if labels[0].startswith(b"0:") or (len(blocks) > 1 and len(blocks[0]) > 1) else "cb"


class InteractionStream(Stream):
    """The rows of another stream, each with the products of every feature of one group with every one of another.

    A group is a column of the input, with all its features, or a namespace. The product of single columns a and b is
    named a^b. Products of hashed features are hashed too.
    """

    def __init__(self, base: Stream, pairs: Sequence[tuple[str, str]], bits: int | None = None):
        super().__init__(base.inputs, start=base._start, on_error=base.on_error, block_bytes=base.block_bytes)
        self._base = base
        self._crossing = Crossing(pairs, base.layout, base.n_features, namer(base.layout), bits)
        base.groups = self._crossing.hidden
        self.n_features = self._crossing.width

    @property
    def layout(self) -> dict[str, Any]:
        """The layout of the features, and the pairs of groups."""
        own = {"pairs": self._crossing.pairs_as_json(), "hash_bits": self._crossing.bits}
        return {"kind": "interactions", "of": self._base.layout, "n_features": self._base.n_features, **own}

    def _blocks(self) -> Iterator[tuple[Block, Position]]:
        for name in ("skipped", "_counts", "wants_ids", "seen_names"):
            setattr(self._base, name, getattr(self, name))
        from scipy.sparse import csr_matrix

        rows = 0
        for features, end in self._base._blocks():
            with np.errstate(over="ignore"):
                x = self._crossing.crossed(features.X, features.parts, self._names())
            if isinstance(x, tuple):
                x = csr_matrix(x, shape=(features.X.shape[0], self.n_features))
                x.has_canonical_format = True
            crossed = Block(x, features.y, features.weight, features.id, decisions=features.decisions)
            reason = "a product of features is not finite"
            block = self._good_rows(crossed, self._names(), rows, missing=True, reason=reason)
            rows += block.X.shape[0]
            yield block, end

    def _survey(self) -> Survey:
        return self._base.survey()

    @property
    def can_be_reread(self) -> bool:
        """Whether the features can be read more than once."""
        return self._base.can_be_reread

    def _require_rereading(self) -> None:
        self._base._require_rereading()

    def _names(self) -> str:
        return self._base._names()
