"""Commands: functions whose annotated parameters become options and arguments of click."""

import gc
import inspect
import os
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click

from robustfd import __version__
from robustfd.cli._console import exit_on_error
from robustfd.cli._options import READ, WRITE, Given
from robustfd.cli._vowpal_wabbit import explained_options

EPILOG = (
    "Results go to standard output, everything else to standard error. Exit status: 0 success; 1 failure (data that "
    "cannot be read, a full disk, a damaged file); 2 wrong usage; 130 or 143 stopped by a signal, after saving the "
    "checkpoint."
)


def command(function: Callable[..., Any]) -> "Command":
    """Return the command that calls a function. A parameter annotated with a dataclass becomes an option per field."""
    hints = get_type_hints(function, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[tuple[str, Any, Any]] = []  # name, annotation, default
    for name, parameter in inspect.signature(function).parameters.items():
        if name in groups:
            options = get_type_hints(groups[name], include_extras=True)
            parameters += [(field.name, options[field.name], field.default) for field in fields(groups[name])]
        else:
            parameters.append((name, hints[name], parameter.default))
    return Command(function, groups, parameters)


class Command(click.Command):
    """A command that checks its files, and whose help lists arguments with their meaning and options by panel."""

    def __init__(
        self, function: Callable[..., Any], groups: dict[str, Any], parameters: list[tuple[str, Any, Any]]
    ) -> None:
        made = [_click_parameter(*each) for each in parameters]
        super().__init__(function.__name__, params=made, callback=self._call, help=inspect.getdoc(function))
        self.given: dict[str, Given] = {name: get_args(annotation)[1] for name, annotation, _ in parameters}
        self._function, self._groups = function, groups

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        with explained_options(ctx, list(args)):
            return super().parse_args(ctx, args)

    def _call(self, **values: Any) -> Any:
        reads: list[Any] = []
        for name in self._named_files(READ, values):
            reads += values[name] if isinstance(values[name], list) else [values[name]]
        writes = {f"--{name}": values[name] for name in self._named_files(WRITE, values)}
        verbose = values.get("verbose", False)
        for name, group in self._groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        with exit_on_error(verbose=verbose):
            refuse_overlaps(reads, writes)
            return self._function(**values)

    def _named_files(self, use: str, values: dict[str, Any]) -> list[str]:
        return [name for name, given in self.given.items() if given.use == use and values[name] is not None]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the panels."""
        panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for each in self.get_params(ctx):
            given, record = self.given.get(each.name or ""), each.get_help_record(ctx)  # --help is not ours
            if given is not None and isinstance(each, click.Argument):
                record = (each.make_metavar(ctx), given.help)
            if record is not None:
                panels.setdefault(given.panel if given else "Options", []).append(record)
        for panel, records in panels.items():
            if records:
                with formatter.section(panel):
                    formatter.write_dl(records)


def _click_parameter(name: str, annotation: Any, default: Any) -> click.Parameter:
    """Translate a parameter to click."""
    annotated, given = get_args(annotation)
    several = get_origin(annotated) is list
    kind = _type_of_one(annotated)
    more: dict[str, Any] = {"required": True} if default is inspect.Parameter.empty else {"default": default}
    if get_origin(kind) is Literal:
        more["type"] = click.Choice(get_args(kind))
    elif (given.min, given.max) != (None, None):
        limits: Any = click.IntRange if kind is int else click.FloatRange
        more["type"] = limits(given.min, given.max)
    else:
        more["type"] = click.Path(path_type=Path) if kind is Path else kind
    if given.names is None:
        if several:
            more |= {"nargs": -1, "callback": lambda context, this, value: list(value)}
        return click.Argument([name], metavar=f"{given.metavar}..." if several else given.metavar, **more)
    return click.Option(
        [*(given.names or ("--" + name.replace("_", "-"),)), name], help=given.help, metavar=given.metavar,
        is_flag=kind is bool, show_default=kind is not bool and "default" not in given.help.lower(), **more,
    )  # fmt: skip


def _type_of_one(annotated: Any) -> Any:
    """Return the type of one value: Path of list[Path], int of int | None."""
    if get_origin(annotated) is Literal or not get_args(annotated):
        return annotated
    return next(each for each in get_args(annotated) if each is not NoneType)


class Commands(click.Group):
    """Streaming matrix sketches that certify their own error, and online learning without tuning."""

    def __init__(
        self, panels: dict[str, dict[str, tuple[str, str]]], name: str = "robustfd", about: str | None = None
    ) -> None:
        super().__init__(
            name, help=about or self.__doc__, epilog=EPILOG, no_args_is_help=True,
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        )  # fmt: skip
        if about is None:
            click.version_option(__version__, message="%(version)s", help="Print the version.")(self)
        self._panels = panels
        self._modules = {name: module for names in panels.values() for name, (module, _) in names.items()}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments before the command; the command parses the others."""
        with explained_options(ctx, args[:2] if args and args[0].startswith("-") else []):
            return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(self._modules)

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in self._modules:
            return None
        with exit_on_error():
            found: click.Command = getattr(import_module(f"robustfd.cli.{self._modules[cmd_name]}"), cmd_name)
        if not gc.isenabled():  # `script` waits for the imports
            gc.freeze()
            gc.enable()
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by panel, without importing them."""
        for panel, names in self._panels.items():
            with formatter.section(panel):
                formatter.write_dl([(name, about) for name, (_, about) in names.items()])


# -- files: no output may replace an input or another output


def refuse_overlaps(reads: Iterable[Any], writes: Mapping[str, Any]) -> None:
    """Raise if a file to write, given by option name, is also a file to read or another file to write.

    Two paths, symbolic links or hard links to one file are the same file. Standard input, output and error count if
    they are files. A directory to read stands for the files in it, including a file that the command would add.
    """
    inputs = {str(each): _identities(each) | _identities_in(each) for each in reads}
    for option, path in writes.items():
        for name, identities in inputs.items():
            if _identities(path) & identities:
                what = "standard input" if name == "-" else "a file to read"
                raise ValueError(f"{path} is {what}, and {option} would replace it. Name another file.")
            if os.path.isdir(name) and _would_be_in(path, name):
                raise ValueError(f"{path} is inside the input directory {name}: the next run reads it. Name another.")
    for stream, label in (("stdout", "standard output"), ("stderr", "standard error")):
        for name, identities in inputs.items():
            if _identities_of_stream(stream) & identities:
                raise ValueError(f"{name} is a file to read, and {label} goes to it. Name another file.")
    seen: dict[Any, str] = {}
    for option, path in writes.items():
        for identity in _identities(path):
            if seen.setdefault(identity, option) != option:
                raise ValueError(f"{seen[identity]} and {option} are the same file, {path}. Each needs its own.")


def _would_be_in(path: Any, folder: str) -> bool:
    """Return whether a stream over the folder would read a file of this name."""
    place = Path(os.path.realpath(path))
    return str(place.parent) == os.path.realpath(folder) and not place.name.startswith((".", "_"))


def _identities(path: Any) -> set[Any]:
    """Return what identifies a file: its real path, and its device and inode if it exists."""
    if str(path) == "-":
        return _identities_of_stream("stdin")
    place = os.path.realpath(path)
    found: set[Any] = {place}
    with suppress(OSError):
        status = os.stat(place)
        if stat.S_ISCHR(status.st_mode):  # /dev/null or a terminal: writing there replaces nothing
            return set()
        found.add((status.st_dev, status.st_ino))
    return found


def _identities_in(folder: Any) -> set[Any]:
    """Return what identifies the files in a directory; nothing if this is no directory."""
    if not os.path.isdir(folder):
        return set()
    return {identity for each in Path(folder).iterdir() if each.is_file() for identity in _identities(each)}


def _identities_of_stream(name: str) -> set[Any]:
    """Return the device and inode of a standard stream that is redirected to a regular file."""
    with suppress(OSError, ValueError, AttributeError):  # the stream may be closed or have no file descriptor
        status = os.fstat(getattr(sys, name).fileno())
        if stat.S_ISREG(status.st_mode):
            return {(status.st_dev, status.st_ino)}
    return set()
