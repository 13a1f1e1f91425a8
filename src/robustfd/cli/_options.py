"""Options and arguments that several commands share, each defined once."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from robustfd.cli._file_use import READ, WRITE
from robustfd.cli._parameters import Given, argument, option

Format = StrEnum("Format", ["auto", "libsvm", "vw", "jsonl", "csv", "parquet", "arrow", "npy", "npz"])
Categories = StrEnum("Categories", ["hash", "onehot"])
Missing = StrEnum("Missing", ["error", "zero", "nan"])
OnError = StrEnum("OnError", {"stop": "raise", "skip": "skip"})
Task = StrEnum("Task", ["auto", "classification", "regression"])


Files = Annotated[
    list[str],
    READ,
    argument(
        "FILES", help="LIBSVM, Vowpal Wabbit, JSON lines, CSV, Parquet, Arrow, .npy or .npz files; - is standard input."
    ),
]
ModelFile = Annotated[Path, READ, argument("MODEL", help="Model file from `robustfd train`.")]
SavedFile = Annotated[Path, READ, argument("FILE", help="Sketch or model file.")]
Output = Annotated[Path, WRITE, option("-o", "--output", help="Output file.")]
TableOutput = Annotated[
    Path | None,
    WRITE,
    option("-o", "--output", help="Output file: .csv, .tsv or .parquet. Default: CSV on standard output."),
]
SketchSize = Annotated[
    int,
    option("-m", "--sketch-size", metavar="ROWS", min=2, help="Rows of the sketch. More rows are more accurate."),
]
AutoSketchSize = Annotated[
    int | None,
    option(
        "-m",
        "--sketch-size",
        metavar="ROWS",
        min=2,
        help="Rows of the sketch. Default: the exact matrix for few features, 50 rows for many.",
    ),
]
Jobs = Annotated[
    int,
    option(
        "-j", "--jobs", metavar="N", help="Process N parts of the rows in parallel and merge them; -1 uses all cores."
    ),
]
TaskOption = Annotated[
    Task, option(metavar="TASK", help="classification or regression. Default: decided by the labels.")
]
Classes = Annotated[
    str | None,
    option(metavar="A,B,...", help="All labels, separated by commas. Saves the extra pass that collects them."),
]


def _input(*names: str, help: str, metavar: str | None = None) -> Given:
    return option(*names, help=help, metavar=metavar, panel="Input")


@dataclass(frozen=True)
class InputOptions:
    """How to read the input files."""

    format: Annotated[
        Format,
        _input(
            "--format",
            help="libsvm, vw, jsonl, csv, parquet, arrow, npy or npz. Default: detected by file name or content.",
            metavar="FORMAT",
        ),
    ] = Format.auto
    target: Annotated[str | None, _input("--target", help="Column of labels, by name or number.", metavar="COLUMN")] = (
        None
    )
    weight: Annotated[
        str | None, _input("--weight", help="Column of row weights, in tables and JSON lines.", metavar="COLUMN")
    ] = None
    id: Annotated[
        str | None, _input("--id", help="Column of row names, which predict copies to its output.", metavar="COLUMN")
    ] = None
    drop: Annotated[str | None, _input("--drop", help="Columns to ignore, separated by commas.", metavar="A,B,...")] = (
        None
    )
    columns: Annotated[
        str | None, _input("--columns", help="Columns to use as features, separated by commas.", metavar="A,B,...")
    ] = None
    categories: Annotated[
        Categories | None,
        _input("--categories", help="Encoding of text columns: hash (default) or onehot.", metavar="HOW"),
    ] = None
    hash_bits: Annotated[
        int | None, _input("--hash-bits", help="Hash named features into 2^BITS columns.", metavar="BITS")
    ] = None
    n_features: Annotated[
        int | None,
        _input(
            "--features",
            help="Number of features in LIBSVM or VW text. Saves the extra pass that counts them.",
            metavar="N",
        ),
    ] = None
    zero_based: Annotated[
        bool | None, _input("--zero-based/--one-based", help="First index of LIBSVM text. Default: detected.")
    ] = None
    header: Annotated[
        bool | None,
        _input("--header/--no-header", help="Whether CSV starts with column names. Default: detected."),
    ] = None
    delimiter: Annotated[
        str | None, _input("--delimiter", help="CSV field delimiter. Default: detected.", metavar="CHARACTER")
    ] = None
    missing: Annotated[
        Missing | None,
        _input(
            "--missing",
            help="Missing numbers: error, zero or nan. Default: nan where the learner supports it, else error.",
            metavar="HOW",
        ),
    ] = None
    interactions: Annotated[
        str | None,
        _input(
            "--interactions",
            help="Add products of columns A and B, or of namespaces. Two letters work as -q in Vowpal Wabbit.",
            metavar="A:B,...",
        ),
    ] = None
    on_error: Annotated[
        OnError,
        _input(
            "--on-error",
            help="Rows that cannot be read: raise an error (default), or skip and count them.",
            metavar="HOW",
        ),
    ] = OnError.stop


@dataclass(frozen=True)
class ConsoleOptions:
    """How much to print, and in which form."""

    json: Annotated[bool, option("--json", help="Print the result as JSON.", panel="Console")] = False
    quiet: Annotated[bool, option("-q", "--quiet", help="Print only the result.", panel="Console")] = False
    verbose: Annotated[
        bool, option("-v", "--verbose", help="Print more, and tracebacks of errors.", panel="Console")
    ] = False


@dataclass(frozen=True)
class CheckpointOptions:
    """Where and how often to save the state of a pass."""

    checkpoint: Annotated[
        Path | None, WRITE, option(help="File for checkpoints.", panel="Checkpoints", metavar="FILE")
    ] = None
    every: Annotated[int, option(min=1, metavar="ROWS", help="Rows between checkpoints.", panel="Checkpoints")] = (
        100_000
    )
    resume: Annotated[
        bool,
        option("--resume", help="Continue from the checkpoint, if there is one.", panel="Checkpoints"),
    ] = False
