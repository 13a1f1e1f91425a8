"""Limits on the size of functions, checked by parsing the source of the learners."""

import ast
from pathlib import Path

import pytest

import robustfd

PACKAGE = Path(robustfd.__file__).parent
LINES, PARAMETERS = 60, 8


def too_large(source):
    """Return the functions that have too many lines or, except for constructors, too many parameters."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            count = len(names) - (names[:1] in (["self"], ["cls"]))
            lines = node.end_lineno - node.lineno + 1
            if lines > LINES or (count > PARAMETERS and node.name != "__init__"):
                found.append(f"{node.name}: {lines} lines, {count} parameters")
    return found


@pytest.mark.parametrize("folder", ["online", "estimators"])
def test_functions_are_small(folder):
    files = sorted((PACKAGE / folder).glob("*.py"))
    assert len(files) > 10
    assert {file.name: found for file in files if (found := too_large(file.read_text()))} == {}


def test_large_functions_are_found():
    many = ", ".join("abcdefghi")
    assert too_large(f"def f({many}): pass") == ["f: 1 lines, 9 parameters"]
    assert too_large(f"class A:\n    def f(self, {many[:-3]}): pass\n    def __init__(self, {many}): pass") == []
    assert too_large("def f():\n" + "    pass\n" * 60) == ["f: 61 lines, 0 parameters"]
