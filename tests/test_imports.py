"""The import graph of src/robustfd has no cycles. Imports inside functions count; those under TYPE_CHECKING do not."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src"
# "importing module -> imported module": why the import of another package's private module stays.
PRIVATE_IMPORTS_ALLOWED: dict[str, str] = {}


@cache
def modules() -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / "robustfd").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported_names(tree: ast.AST) -> Iterator[str]:
    """Yield the absolute names that a module imports anywhere, except under `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{each.name}" for each in node.names)
        yield from imported_names(node)


@cache
def graph() -> dict[str, set[str]]:
    """Return the modules of robustfd that each one imports; a name that a package exports counts as the package."""
    found: dict[str, set[str]] = {}
    for name, path in modules().items():
        found[name] = set()
        for target in imported_names(ast.parse(path.read_text())):
            while target and target not in modules():
                target = target.rpartition(".")[0]
            if target and target != name:
                found[name].add(target)
    return found


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one module (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def private_imports() -> list[str]:
    """Return the imports of a private module by a module outside of the package that it belongs to."""
    found = []
    for name, targets in graph().items():
        for target in sorted(targets):
            parts = target.split(".")
            for k, part in enumerate(parts[2:], 2):
                owner = ".".join(parts[:k])
                if part.startswith("_") and name != owner and not name.startswith(f"{owner}."):
                    found.append(f"{name} -> {target}")
    return found


def test_there_are_no_import_cycles():
    assert cycles(graph()) == []


def test_no_package_imports_private_modules_of_another():
    assert sorted(set(private_imports()) - set(PRIVATE_IMPORTS_ALLOWED)) == []
    assert sorted(set(PRIVATE_IMPORTS_ALLOWED) - set(private_imports())) == [], "no longer needed"


@pytest.mark.parametrize(
    "edges, expected",
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}, [["a", "b", "c"]]),
        ({"a": {"b"}, "b": {"a"}, "c": {"d", "a"}, "d": {"c"}}, [["a", "b"], ["c", "d"]]),
    ],
)
def test_cycles_are_found(edges, expected):
    assert cycles(edges) == expected


def test_imports_inside_functions_are_found():
    source = "import a.b\nif TYPE_CHECKING:\n    import x\ndef f():\n    if 1:\n        from c import d, e\n"
    assert list(imported_names(ast.parse(source))) == ["a.b", "c.d", "c.e"]
