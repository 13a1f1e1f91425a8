"""The public interface is that of tests/data/api.txt, which `python tests/test_api.py` writes after a wanted change."""

import importlib
import inspect
from pathlib import Path

import pytest

STORED = Path(__file__).parent / "data" / "api.txt"
PACKAGES = ["", ".datasets", ".decisions", ".estimators", ".learners", ".linalg", ".sketch", ".streams"]


def signature(value):
    """Return the parameters with their defaults, without annotations."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in found.parameters.values()]
    return str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty)).replace("self, ", "")


def members(value):
    """Yield the public methods and properties of a class that this package defines, with their parameters."""
    own = [each for each in value.__mro__ if each.__module__.startswith("robustfd")]
    for name in sorted({name for each in own for name in vars(each) if not name.startswith("_")}):
        member = inspect.getattr_static(value, name)
        member = getattr(member, "__func__", member)
        yield f"{name}{signature(member) if callable(member) else ''}"


def interface(packages):
    """Yield one line for each public name and each member of a public class."""
    for package in packages:
        module = importlib.import_module("robustfd" + package)
        for name in sorted(module.__all__):
            value = getattr(module, name)
            full = f"{module.__name__}.{name}"
            if inspect.isclass(value):
                bases = {each.__name__ for each in value.__mro__ if issubclass(each, BaseException)}
                yield f"class {full}{signature(value)}{' raises' if bases else ''}"
                if package and not bases:  # the classes of the top level are those of the packages
                    yield f"  {' | '.join(members(value))}"
            else:
                yield f"{full}{signature(value) if callable(value) else ''}"


def command_line():
    """Yield each command with its arguments and options."""
    pytest.importorskip("click")
    from robustfd.cli import COMMANDS
    from robustfd.cli._command import Commands

    commands = Commands(COMMANDS)
    named = {name: commands.get_command(None, name) for name in commands.list_commands(None)}
    group = named.pop("bandit")
    named |= {f"bandit {name}": group.get_command(None, name) for name in group.list_commands(None)}
    for name, command in named.items():
        options = sorted(" ".join(sorted(each.opts + each.secondary_opts)) for each in command.params)
        yield f"{name}: {' | '.join(options)}"


SECTIONS = {
    "packages": lambda: interface(PACKAGES),
    "commands": command_line,
    "river": lambda: interface([".river"]),
    "dask": lambda: interface([".distributed.dask"]),
    "pyspark": lambda: interface([".distributed.spark"]),
}


@pytest.mark.parametrize("section", SECTIONS)
def test_the_public_interface_is_as_stored(section):
    if section in ("river", "dask", "pyspark"):
        pytest.importorskip(section)
    stored = STORED.read_text().split(f"# {section}\n")[1].split("\n\n")[0]
    assert [line.split(" | ") for line in SECTIONS[section]()] == [line.split(" | ") for line in stored.splitlines()]


if __name__ == "__main__":
    STORED.write_text("\n".join(f"# {name}\n" + "\n".join(lines()) + "\n" for name, lines in SECTIONS.items()))
