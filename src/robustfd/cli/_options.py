"""Declarations of options and arguments, and those that several commands share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

READ, WRITE = "read", "write"  # what a command does with the file that a parameter names


@dataclass(frozen=True)
class Given:
    """An option, or an argument if `names` is None. It is part of the annotation of a parameter."""

    names: tuple[str, ...] | None
    help: str
    metavar: str | None = None
    panel: str = "Options"
    min: float | None = None
    max: float | None = None
    use: str | None = None


def option(help: str, *names: str, **more: Any) -> Given:
    """Return an option. Its default name is that of the parameter, with dashes."""
    return Given(names, help, **more)


def argument(metavar: str, help: str, use: str | None = None) -> Given:
    """Return an argument."""
    return Given(None, help, metavar, panel="Arguments", use=use)


_FORMATS = "LIBSVM, Vowpal Wabbit, JSON lines, CSV, Parquet, Arrow, .npy or .npz files; - is standard input."
Files = Annotated[list[str], argument("FILES", _FORMATS, READ)]
ModelFile = Annotated[Path, argument("MODEL", "Model file from `robustfd train`.", READ)]
SavedFile = Annotated[Path, argument("FILE", "Sketch or model file.", READ)]
Output = Annotated[Path, option("Output file.", "-o", "--output", use=WRITE)]
TableOutput = Annotated[
    Path | None,
    option("Output file: .csv, .tsv or .parquet. Default: CSV on standard output.", "-o", "--output", use=WRITE),
]
Jobs = Annotated[
    int,
    option("Process N parts of the rows in parallel and merge them; -1 uses all cores.", "-j", "--jobs", metavar="N"),
]
Task = Annotated[
    Literal["auto", "classification", "regression"],
    option("classification or regression. Default: decided by the labels.", metavar="TASK"),
]
Classes = Annotated[
    str | None,
    option("All labels, separated by commas. Saves the extra pass that collects them.", metavar="A,B,..."),
]


def sketch_size(help: str, least: int = 2) -> Given:
    """Return the option for the size of a sketch."""
    return option(help, "-m", "--sketch-size", metavar="ROWS", min=least)


AutoSketchSize = Annotated[
    int | None, sketch_size("Rows of the sketch. Default: the exact matrix for few features, 50 rows for many.")
]


def _input(metavar: str | None, help: str, *names: str) -> Given:
    return option(help, *names, metavar=metavar, panel="Input")


_FORMAT = (
    "libsvm, vw, cb or adf (logs of bandits), jsonl, csv, parquet, arrow, npy or npz. Default: detected by file name "
    "or content."
)
_N_FEATURES = "Number of features in LIBSVM or VW text. Saves the extra pass that counts them."
_ZERO_BASED = _input(None, "First index of LIBSVM text. Default: detected.", "--zero-based/--one-based")
_HEADER = _input(None, "Whether CSV starts with column names. Default: detected.", "--header/--no-header")
_MISSING = "Missing numbers: error, zero or nan. Default: nan where the learner supports it, else error."
_INTERACTIONS = "Add products of columns A and B, or of namespaces. Two letters work as -q in Vowpal Wabbit."
_MAX_COLUMNS = "Most columns that a file may claim. Default: 2^20, and 2^24 in LIBSVM text and .npz."
_PROBABILITY = "Column of the probabilities of the choices. Default: probability or propensity."
_ON_ERROR = "Rows that cannot be read: raise an error (default), or skip and count them."


@dataclass(frozen=True)
class RowOptions:
    """How to read the input files. The fields are arguments of `open_stream`."""

    format: Annotated[
        Literal["auto", "libsvm", "vw", "cb", "adf", "jsonl", "csv", "parquet", "arrow", "npy", "npz"],
        _input("FORMAT", _FORMAT),
    ] = "auto"
    target: Annotated[str | None, _input("COLUMN", "Column of labels, by name or number.")] = None
    id: Annotated[str | None, _input("COLUMN", "Column of row names, which predict copies to its output.")] = None
    drop: Annotated[str | None, _input("A,B,...", "Columns to ignore, separated by commas.")] = None
    columns: Annotated[str | None, _input("A,B,...", "Columns to use as features, separated by commas.")] = None
    categories: Annotated[
        Literal["hash", "onehot"] | None, _input("HOW", "Encoding of text columns: hash (default) or onehot.")
    ] = None
    hash_bits: Annotated[int | None, _input("BITS", "Hash named features into 2^BITS columns.")] = None
    n_features: Annotated[int | None, _input("N", _N_FEATURES, "--features")] = None
    zero_based: Annotated[bool | None, _ZERO_BASED] = None
    header: Annotated[bool | None, _HEADER] = None
    delimiter: Annotated[str | None, _input("CHARACTER", "CSV field delimiter. Default: detected.")] = None
    decimal: Annotated[
        Literal[".", ","] | None, _input("MARK", "CSV decimal mark, . or a comma. Default: detected.")
    ] = None
    missing: Annotated[Literal["error", "zero", "nan"] | None, _input("HOW", _MISSING)] = None
    interactions: Annotated[str | None, _input("A:B,...", _INTERACTIONS)] = None
    on_error: Annotated[Literal["raise", "skip"], _input("HOW", _ON_ERROR)] = "raise"
    max_columns: Annotated[int | None, _input("N", _MAX_COLUMNS)] = None
    max_line_bytes: Annotated[int | None, _input("N", "Longest line of text. Default: 2^26.")] = None


@dataclass(frozen=True)
class InputOptions(RowOptions):
    """How to read rows."""

    weight: Annotated[str | None, _input("COLUMN", "Column of row weights, in tables and JSON lines.")] = None


@dataclass(frozen=True)
class LogOptions(RowOptions):
    """How to read logs of bandits. The columns are those of tables and of JSON lines."""

    target: Annotated[str | None, _input("COLUMN", "Column of rewards. Default: reward.", "--reward")] = None
    cost: Annotated[str | None, _input("COLUMN", "Column of costs, if there are no rewards. Default: cost.")] = None
    arm: Annotated[str | None, _input("COLUMN", "Column of the chosen arms. Default: arm or action.")] = None
    probability: Annotated[str | None, _input("COLUMN", _PROBABILITY)] = None


@dataclass(frozen=True)
class ConsoleOptions:
    """How much to print, and in which form."""

    json: Annotated[bool, option("Print the result as JSON.", panel="Console")] = False
    quiet: Annotated[bool, option("Print only the result.", "-q", "--quiet", panel="Console")] = False
    verbose: Annotated[bool, option("Print more, and tracebacks of errors.", "-v", "--verbose", panel="Console")] = (
        False
    )


def _checkpoint(help: str, *names: str, **more: Any) -> Given:
    return option(help, *names, panel="Checkpoints", **more)


@dataclass(frozen=True)
class CheckpointOptions:
    """Where and how often to save the state of a pass."""

    checkpoint: Annotated[Path | None, _checkpoint("File for checkpoints.", metavar="FILE", use=WRITE)] = None
    every: Annotated[int, _checkpoint("Rows between checkpoints.", metavar="ROWS", min=1)] = 100_000
    resume: Annotated[bool, _checkpoint("Continue from the checkpoint, if there is one.")] = False
