"""What the source of the package must keep to, so that compiled loops stay safe: read, not run.

A function of `loops` counts no references: it must make no array, and return none but a `view`. It has no entry for
Python: only compiled functions may call it, and Python what `entry` made of it. Either mistake corrupts memory.
"""

import ast
from pathlib import Path

import robustfd

PACKAGE = Path(robustfd.__file__).parent
COMPILED = {"compiled", "inner", "loops", "entry"}
VIEWS = {"view", "view_as"}
MAKERS = {
    "arange", "array", "asarray", "ascontiguousarray", "atleast_1d", "concatenate", "copy", "diag", "dot", "empty",
    "empty_like", "eye", "full", "full_like", "linspace", "ones", "ones_like", "outer", "stack", "where", "zeros",
    "zeros_like",
}  # fmt: skip


def name_of(node):
    """Return the name of a decorator, a function called, or an attribute."""
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


class Module:
    """A source file: its functions, how each is compiled, and the names that it imports from the package."""

    def __init__(self, source: str, name: str):
        self.name, self.tree = name, ast.parse(source)
        self.functions = {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)}
        self.how = {name: [name_of(each) for each in node.decorator_list] for name, node in self.functions.items()}
        self.imported, self.modules = {}, {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("robustfd"):
                for each in node.names:
                    self.imported[each.asname or each.name] = (node.module, each.name)
                    self.modules[each.asname or each.name] = f"{node.module}.{each.name}"
        # Functions that are handed to `compiled_routine`, by themselves or in a table, are compiled as well.
        self.routines = set()
        if "compiled_routine" in self.imported:
            used = {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)}
            self.routines = {name for name in self.functions if name in used and not self.how[name]}

    def is_part(self, name):
        """Return whether only compiled code may call a function."""
        return name in self.how and bool({"loops", "inner"} & set(self.how[name])) and "entry" not in self.how[name]


def read_package():
    modules = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = Module(path.read_text(), name)
    return modules


def calls_from_python(module, modules):
    """Return where Python calls what only compiled code may call."""
    found = []

    def part(function):
        if isinstance(function, ast.Name):
            if module.is_part(function.id):
                return True
            home, name = module.imported.get(function.id, ("", ""))
            return home in modules and modules[home].is_part(name)
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            home = module.modules.get(function.value.id, "")
            return home in modules and modules[home].is_part(function.attr)
        return False

    def visit(node, compiled):
        if isinstance(node, ast.FunctionDef):
            mine = set(map(name_of, node.decorator_list)) & COMPILED or node.name in module.routines
            for each in node.decorator_list:
                visit(each, compiled)
            for each in node.body:
                visit(each, compiled or bool(mine))
            return
        if isinstance(node, ast.Call) and not compiled and part(node.func):
            found.append(f"{module.name}:{node.lineno}: Python calls {ast.unparse(node.func)}")
        for child in ast.iter_child_nodes(node):
            visit(child, compiled)

    visit(module.tree, False)
    return found


def arrays_made(function):
    """Return where a function of `loops` makes an array, or returns one that is no view."""
    found, arrays = [], set()
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            numpy = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) in ("np", "numpy")
            if (numpy and node.func.attr in MAKERS) or (
                isinstance(node.func, ast.Attribute) and node.func.attr == "copy"
            ):
                found.append(f"{function.name}:{node.lineno} makes an array")
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            arrays.add(node.value.id)  # what has places is an array, or a record of one
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
            for target, value in pairs:
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                    pairs += zip(target.elts, value.elts, strict=True)
                if isinstance(target, ast.Name) and is_slice(value):
                    arrays.add(target.id)
    views = {
        target.id
        for node in ast.walk(function) if isinstance(node, ast.Assign) and name_of(node.value) in VIEWS
        for target in node.targets if isinstance(target, ast.Name)
    }  # fmt: skip
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None:
            for part in returned(node.value):
                if is_slice(part) or (isinstance(part, ast.Name) and part.id in arrays - views):
                    found.append(f"{function.name}:{node.lineno} returns {ast.unparse(part)}")
    return found


def is_slice(node):
    return isinstance(node, ast.Subscript) and any(isinstance(each, ast.Slice) for each in ast.walk(node.slice))


def returned(node):
    """Return all that a result is made of: items of a tuple, fields of a record."""
    if isinstance(node, ast.Tuple | ast.List):
        return [part for each in node.elts for part in returned(each)]
    if isinstance(node, ast.IfExp):
        return returned(node.body) + returned(node.orelse)
    if isinstance(node, ast.Call) and name_of(node)[:1].isupper():  # a named tuple
        return [part for each in node.args for part in returned(each)]
    return [node]


def test_python_calls_no_part_of_compiled_code():
    modules = read_package()
    assert sum(module.is_part(name) for module in modules.values() for name in module.functions) > 50
    assert [found for module in modules.values() for found in calls_from_python(module, modules)] == []


def test_loops_make_and_return_no_arrays():
    modules = read_package()
    loops = [node for m in modules.values() for name, node in m.functions.items() if "loops" in m.how[name]]
    assert len(loops) > 50
    assert [found for node in loops for found in arrays_made(node)] == []


WRONG = """
from robustfd._compile import entry, loops
from robustfd.linalg.lapack import view

@loops
def part(x):
    return x[1:]

@loops
def tail(x):
    rest = x[1:]
    return len(x), rest

@loops
def fresh(n):
    return np.zeros(n)

@loops
def given(x):
    x[0] = 1.0
    return x

@loops
def right(x):
    out = view(x, 0, (2, 3))
    return out, view(x, 0, (1,)), x[0]

def python(x):
    return part(x)

late = part(1)

@entry
@loops
def fine(x):
    return right(x)[2]

def also_fine(x):
    return fine(x), part.py_func(x)
"""


def test_the_reader_sees_what_is_wrong():
    module = Module(WRONG, "wrong")
    assert len(calls_from_python(module, {"wrong": module})) == 2
    loops = [node for name, node in module.functions.items() if "loops" in module.how[name]]
    assert [len(arrays_made(node)) for node in loops] == [1, 1, 1, 1, 0, 0]
