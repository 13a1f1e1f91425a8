"""The decorator that turns a function into a command: option groups, file checks, errors as exit statuses."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_type_hints

from robustfd.cli._file_use import READ, WRITE, FileUse, refuse_overlaps
from robustfd.cli._options import CheckpointOptions, ConsoleOptions, InputOptions
from robustfd.cli._parameters import Command

_GROUPS = (InputOptions, ConsoleOptions, CheckpointOptions)


def command(function: Callable[..., Any]) -> Command:
    """Return the command that calls a function. A parameter annotated with an option group becomes its options."""
    hints = get_type_hints(function, include_extras=True)
    groups = {name: hints[name] for name in inspect.signature(function).parameters if hints[name] in _GROUPS}
    parameters = _flat_parameters(function, hints, groups)
    uses = {each.name: use for each in parameters if (use := file_use(each)) is not None}

    def with_groups(**given: Any) -> Any:
        reads, writes = _files(uses, given)
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        from robustfd.cli._errors import exit_on_error

        with exit_on_error(verbose=given["console"].verbose if "console" in given else False):
            refuse_overlaps(reads, writes)
            return function(**given)

    return Command(function.__name__, parameters, callback=with_groups, help=inspect.getdoc(function))


def _flat_parameters(
    function: Callable[..., Any], hints: dict[str, Any], groups: dict[str, Any]
) -> list[inspect.Parameter]:
    """Return the parameters of a function with each option group replaced by its options."""
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name]))
            continue
        options = get_type_hints(groups[name], include_extras=True)
        for field in fields(groups[name]):
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(
                inspect.Parameter(field.name, kind, default=field.default, annotation=options[field.name])
            )
    return sorted(parameters, key=lambda parameter: parameter.kind)


def file_use(parameter: inspect.Parameter) -> FileUse | None:
    """Return whether a command reads or writes the file that a parameter names, None if it names no file."""
    found = getattr(parameter.annotation, "__metadata__", ())
    return next((each for each in found if isinstance(each, FileUse)), None)


def _files(uses: dict[str, FileUse], given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the given files to read, and the given files to write by option name."""
    reads: list[Any] = []
    for name, use in uses.items():
        if use is READ and given[name] is not None:
            reads += given[name] if isinstance(given[name], list) else [given[name]]
    writes = {f"--{name}": given[name] for name, use in uses.items() if use is WRITE and given[name] is not None}
    return reads, writes
