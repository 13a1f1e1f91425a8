"""Options that several commands share, each written once."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from robustfd.cli._guard import READ, WRITE, Use, refuse_overlaps

Format = StrEnum("Format", ["auto", "libsvm", "vw", "jsonl", "csv", "parquet", "arrow", "npy", "npz"])
Categories = StrEnum("Categories", ["hash", "onehot"])
Missing = StrEnum("Missing", ["error", "zero", "nan"])
OnError = StrEnum("OnError", {"stop": "raise", "skip": "skip"})

Files = Annotated[
    list[str],
    READ,
    typer.Argument(
        metavar="FILES...",
        help="LIBSVM, Vowpal Wabbit, JSON lines, CSV, Parquet, Arrow, .npy or .npz; - is standard input.",
        show_default=False,
    ),
]
Output = Annotated[Path, WRITE, typer.Option("-o", "--output", help="Output file.", show_default=False)]
TableOutput = Annotated[
    Path | None,
    WRITE,
    typer.Option("-o", "--output", help="CSV, TSV or Parquet; CSV on standard output by default.", show_default=False),
]
SketchSize = Annotated[
    int, typer.Option("-m", "--sketch-size", min=2, help="Rows of the sketch; larger is more accurate.")
]

AutoSketchSize = Annotated[
    int | None,
    typer.Option(
        "-m",
        "--sketch-size",
        min=2,
        help="Rows of the sketch; by default the exact matrix of few features, and 50 rows for many.",
        show_default=False,
    ),
]

Jobs = Annotated[
    int,
    typer.Option(
        "-j", "--jobs", metavar="N", help="Parts of the rows to take in side by side and merge; -1 for all cores."
    ),
]


def _reading(*names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel="How files are read", show_default=False)


@dataclass(frozen=True)
class Reading:
    """How files are read."""

    format: Annotated[Format, _reading("--format", help="By default what names or first bytes tell.")] = Format.auto
    target: Annotated[
        str | None, _reading("--target", help="Column of labels, by name or number.", metavar="COLUMN")
    ] = None
    weight: Annotated[
        str | None, _reading("--weight", help="Column of a table: how much each row counts.", metavar="COLUMN")
    ] = None
    id: Annotated[
        str | None, _reading("--id", help="Column of a table: names of rows, which predict writes.", metavar="COLUMN")
    ] = None
    drop: Annotated[
        str | None,
        _reading("--drop", help="Columns of a table to leave out, with commas between them.", metavar="A,B,..."),
    ] = None
    columns: Annotated[
        str | None, _reading("--columns", help="Features to keep, with commas between them.", metavar="A,B,...")
    ] = None
    categories: Annotated[
        Categories | None, _reading("--categories", help="Columns of text: hashed (the default), or a column a value.")
    ] = None
    hash_bits: Annotated[
        int | None, _reading("--hash-bits", help="Named features become 2^BITS columns.", metavar="BITS")
    ] = None
    n_features: Annotated[
        int | None,
        _reading("--features", help="Features of LIBSVM or VW text; saves the pass that counts them.", metavar="N"),
    ] = None
    zero_based: Annotated[
        bool | None, _reading("--zero-based/--one-based", help="Whether indices of LIBSVM text begin with 0.")
    ] = None
    header: Annotated[
        bool | None,
        _reading("--header/--no-header", help="Whether CSV begins with names of columns; by default its columns tell."),
    ] = None
    delimiter: Annotated[str | None, _reading("--delimiter", help="Between fields of CSV.", metavar="CHARACTER")] = None
    missing: Annotated[
        Missing | None,
        _reading(
            "--missing",
            help="Empty fields of numbers: nan for what the learner makes of them (the default of train), an error "
            "(that of others), or zero.",
        ),
    ] = None
    interactions: Annotated[
        str | None,
        _reading(
            "--interactions",
            help="Products of columns a and b, or of namespaces; of two letters as -q of Vowpal Wabbit.",
            metavar="A:B,...",
        ),
    ] = None
    on_error: Annotated[
        OnError, _reading("--on-error", help="Lines that cannot be read: stop there, or skip and count them.")
    ] = OnError.stop


@dataclass(frozen=True)
class Talk:
    """How much is said, and how."""

    json: Annotated[bool, typer.Option("--json", help="The result as JSON.", rich_help_panel="Output")] = False
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Say nothing but the result.", rich_help_panel="Output")
    ] = False
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Say more, and where an error came from.", rich_help_panel="Output")
    ] = False


@dataclass(frozen=True)
class Keeping:
    """Checkpoints."""

    checkpoint: Annotated[
        Path | None,
        WRITE,
        typer.Option(help="File that keeps how far it came.", rich_help_panel="Nothing lost", show_default=False),
    ] = None
    every: Annotated[
        int, typer.Option(min=1, metavar="ROWS", help="Rows between checkpoints.", rich_help_panel="Nothing lost")
    ] = 100_000
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on from the checkpoint, if there is one.", rich_help_panel="Nothing lost"),
    ] = False


def command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command for typer: parameters that are of the groups above become their options."""
    hints = get_type_hints(function, include_extras=True)
    signature = inspect.signature(function)
    groups = {name: hints[name] for name in signature.parameters if hints[name] in (Reading, Talk, Keeping)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name]))
            continue
        options = get_type_hints(groups[name], include_extras=True)
        for field in fields(groups[name]):
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(
                inspect.Parameter(field.name, kind, default=field.default, annotation=options[field.name])
            )
    parameters.sort(key=lambda parameter: parameter.kind)
    uses = {each.name: use for each in parameters if (use := use_of(each)) is not None}

    @wraps(function)
    def with_groups(**given: Any) -> Any:
        reads, writes = _files_of(uses, given)
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        from robustfd.cli._light import import_scikit_learn
        from robustfd.cli._talk import reporting_errors

        import_scikit_learn()
        with reporting_errors(verbose=given["talk"].verbose if "talk" in given else False):
            refuse_overlaps(reads, writes)
            return function(**given)

    # Lines of a paragraph are broken where the terminal ends, not where those of the source do.
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    with_groups.__doc__ = "\n\n".join(" ".join(each.split()) for each in paragraphs)
    with_groups.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_groups.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_groups


def use_of(parameter: inspect.Parameter) -> Use | None:
    """Return what a command does with the file that a parameter names, None if it names none."""
    return next((each for each in getattr(parameter.annotation, "__metadata__", ()) if isinstance(each, Use)), None)


def _files_of(uses: dict[str, Use], given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the files to read that were given, and those to write by the name of their option."""
    reads: list[Any] = []
    for name, use in uses.items():
        if use is READ and given[name] is not None:
            reads += given[name] if isinstance(given[name], list) else [given[name]]
    writes = {f"--{name}": given[name] for name, use in uses.items() if use is WRITE and given[name] is not None}
    return reads, writes
