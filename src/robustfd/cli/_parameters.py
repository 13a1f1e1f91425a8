"""Options and arguments of commands, written as annotations and translated to click."""

import inspect
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

import click


@dataclass(frozen=True)
class Given:
    """An option, or an argument if `names` is None. It is part of the annotation of a parameter."""

    names: tuple[str, ...] | None
    help: str
    metavar: str | None = None
    panel: str = "Options"
    min: float | None = None
    max: float | None = None


def option(*names: str, help: str, **more: Any) -> Given:
    """Return an option. Its default name is that of the parameter, with dashes."""
    return Given(names, help, **more)


def argument(metavar: str, help: str) -> Given:
    """Return an argument."""
    return Given(None, help, metavar, panel="Arguments")


def _given(parameter: inspect.Parameter) -> Given:
    """Return the option or argument in the annotation of a parameter."""
    return next(each for each in parameter.annotation.__metadata__ if isinstance(each, Given))


def _click_parameter(parameter: inspect.Parameter) -> click.Parameter:
    """Translate a parameter to click."""
    annotated, given = get_args(parameter.annotation)[0], _given(parameter)
    kind, several = _kind(annotated), get_origin(annotated) is list
    required = parameter.default is inspect.Parameter.empty
    more: dict[str, Any] = {"required": True} if required else {"default": parameter.default}
    if issubclass(kind, StrEnum):
        more["type"] = click.Choice([each.value for each in kind])
        more["callback"] = lambda context, this, value: kind(value) if value is not None else None
        if isinstance(parameter.default, kind):
            more["default"] = parameter.default.value
    elif (given.min, given.max) != (None, None):
        limits: Any = click.IntRange if kind is int else click.FloatRange
        more["type"] = limits(given.min, given.max)
    else:
        more["type"] = click.Path(path_type=Path) if kind is Path else kind
    if given.names is None:
        if several:
            more |= {"nargs": -1, "callback": lambda context, this, value: list(value)}
        return click.Argument([parameter.name], metavar=f"{given.metavar}..." if several else given.metavar, **more)
    names = given.names or ("--" + parameter.name.replace("_", "-"),)
    return click.Option(
        [*names, parameter.name], help=given.help, metavar=given.metavar, is_flag=kind is bool,
        show_default=kind is not bool and "default" not in given.help.lower(), **more,
    )  # fmt: skip


def _kind(annotated: Any) -> type:
    """Return the type of one value: Path of list[Path], int of int | None."""
    found: list[type] = [each for each in get_args(annotated) or (annotated,) if each is not NoneType]
    return found[0]


class Command(click.Command):
    """A command whose help lists its arguments with their meaning, and its options by panel."""

    def __init__(self, name: str, parameters: list[inspect.Parameter], **more: Any):
        super().__init__(name, params=[_click_parameter(each) for each in parameters], **more)
        self.parameters = {each.name: each for each in parameters}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the panels."""
        panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for each in self.get_params(ctx):
            own = self.parameters.get(each.name or "")  # --help has none
            panel, record = _given(own).panel if own else "Options", each.get_help_record(ctx)
            if own and isinstance(each, click.Argument):
                record = (each.make_metavar(ctx), _given(own).help)
            if record is not None:
                panels.setdefault(panel, []).append(record)
        for panel, records in panels.items():
            if records:
                with formatter.section(panel):
                    formatter.write_dl(records)
