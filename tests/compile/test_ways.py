"""Loops give the same results with numba's private parts, without them, and with nothing compiled."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numba.core.ccallback
import numba.core.codegen
import numba.core.compiler
import numba.core.cpu
import numba.core.registry
import numba.np.arrayobj
import numpy as np
import pytest

from robustfd import _compile
from robustfd._compile import _cache, _parts
from robustfd._compile._clock import Watch

ROOT = Path(__file__).parents[2]

PARTS = [
    (numba.core.codegen, "JITCodeLibrary"),
    (numba.core.codegen.JITCodeLibrary, "_finalize_final_module"),
    (numba.core.codegen.JITCodeLibrary, "_optimize_final_module"),
    (numba.core.compiler, "Compiler"),
    (numba.core.ccallback, "CFunc"),
    (numba.core.cpu, "CPUTargetOptions"),
    (numba.core.registry, "cpu_target"),
    (numba.np.arrayobj, "populate_array"),
    (numba.core.cpu.CPUTargetOptions, "_nrt"),
    (numba.core.cpu.CPUTargetOptions, "no_cpython_wrapper"),
]


def import_parts():
    """Import the module of private parts as for the first time."""
    spec = importlib.util.spec_from_file_location("parts_again", _parts.__file__)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


@pytest.mark.parametrize("owner, name", PARTS)
def test_a_missing_part_is_noticed(owner, name, monkeypatch):
    import_parts()
    for each in (owner, *getattr(owner, "__mro__", ())):  # an inherited one is taken from whoever has it
        if name in vars(each):
            monkeypatch.delattr(each, name)
    with pytest.raises((ImportError, AttributeError)):
        import_parts()


def test_a_part_that_takes_other_arguments_is_noticed(monkeypatch):
    monkeypatch.setattr(numba.np.arrayobj, "populate_array", lambda array, fields: None)
    with pytest.raises(ImportError, match="populate_array"):
        import_parts()


@pytest.mark.parametrize("works", [True, False])
def test_an_untried_numba_is_tried(works, monkeypatch):
    monkeypatch.setattr(numba, "version_info", numba.version_info._replace(short=(9, 9)))
    if works:
        import_parts()
    else:
        monkeypatch.setattr(numba, "njit", lambda **options: lambda function: lambda numbers: 0.0)
        with pytest.raises(ImportError, match="wrong result"):
            import_parts()


# What is done in another process, without a part or with nothing compiled, and in this one.
SMALL = """
def small():
    import numpy as np
    from robustfd import AdaGrad
    from robustfd._compile import compiled, compiled_routine, carray, entry, loops
    from tests.compile.records import OUTER, example, read_record
    from robustfd.linalg.lapack import at, call, gemm, routines, view, view_as
    from robustfd.online.lanes import add_multiple, add_outers, add_square, dot, sum_rows

    @loops
    def open_memory(memory, n):
        return view(memory, 2, (n, 3)), view_as(memory, 0, (1,), np.float64)

    @entry
    @loops
    def product(routines, memory, n, out):
        rows, first = open_memory(memory, n)
        gemm(routines, True, False, 3, 3, n, first[0], at(rows, 0), 3, at(rows, 0), 3, 0.0, at(out, 0), 3)
        return rows.shape[0]

    def double(sizes, numbers):
        for i in range(sizes[0]):
            carray(numbers, sizes[0])[i] *= 2.0

    @compiled
    def by_address(address, sizes, numbers):
        call(address, (sizes, numbers))

    @compiled
    def add(y, x, table, which, scale):
        add_multiple(y, 8, x, 16, 0.3, 8)
        sum_rows(x, table, 12, which, scale, 3, 12)

    @compiled
    def add_products(table, x, u, v):
        add_outers(table, 1, u, x, v, x[:12], 11)
        add_square(table, 0.7, x, 4)
        return dot(u, v, 4) + dot(x, x[::-1].copy(), 21)

    record = example()
    pointers = OUTER.pointers(record)
    total = read_record(pointers, pointers) + read_record(pointers, None)
    memory, out = np.arange(14.0) + 1.0, np.zeros((3, 3))
    found = [product(routines(), memory, 4, out), *out.ravel()]
    numbers = np.arange(3.0)
    by_address(compiled_routine(double, "ld").address, np.array([3]), numbers)
    sums = []
    for kind in (np.float32, np.float64):
        y, x, table = np.linspace(0, 1, 16, dtype=kind), np.linspace(1, 2, 24, dtype=kind), np.ones((4, 12), kind)
        add(y, x, table, np.array([3, 1, 0]), np.array([0.1, 2.0, -0.3]))
        sums += [*y.tolist(), *x.tolist(), *table.ravel().tolist()]
    sums += [add_products(table, x, np.arange(4.0), np.arange(2.0, 6.0)), *table.ravel().tolist()]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 4))
    margins = AdaGrad().learn(x, np.sign(x[:, 0]))
    margins = [*margins.tolist(), total, *record.inner.rows.ravel().tolist()]
    return [*map(float, found), *numbers.tolist(), *sums, *margins]
"""
RUN = """
import json, sys
{before}
{what}
print(json.dumps({name}()))
"""


def elsewhere(what, name, tmp_path, before="", **environment):
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
        **environment,
    }
    program = tmp_path / "program.py"  # numba wants the source of what it keeps
    program.write_text(RUN.format(what=what, name=name, before=before))
    done = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def here(what, name, tmp_path):
    place = tmp_path / "here.py"
    place.write_text(what)
    spec = importlib.util.spec_from_file_location("here", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)()


def test_without_private_parts_results_are_the_same(tmp_path):
    before = "import numba.core.codegen\ndel numba.core.codegen.JITCodeLibrary"
    found = elsewhere(SMALL, "small", tmp_path, before)
    np.testing.assert_allclose(found, here(SMALL, "small", tmp_path), rtol=1e-14)


def test_with_nothing_compiled_results_are_the_same(tmp_path):
    found = elsewhere(SMALL, "small", tmp_path, NUMBA_DISABLE_JIT="1")  # all learners: tests/test_switches.py
    np.testing.assert_allclose(found, here(SMALL, "small", tmp_path), rtol=1e-14)


def double(x):
    return 2 * x


def test_a_full_disk_is_said_once_and_stops_nothing(tmp_path, monkeypatch, capsys):
    watch = Watch()
    watch.made = watch.warned = False
    monkeypatch.setattr(_cache, "watch", watch)

    def save(self, key, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile.save", save)
    for _ in range(2):
        assert _compile.compiled(double)(2) == 4
    assert capsys.readouterr().err.count("NUMBA_CACHE_DIR") == 1


def test_without_a_place_nothing_is_kept(monkeypatch):
    watch = Watch()
    monkeypatch.setattr(_cache, "watch", watch)

    def nowhere(self, function):
        raise RuntimeError("no locator available")

    monkeypatch.setattr("numba.core.caching.CompileResultCacheImpl.__init__", nowhere)
    assert _compile.compiled(double)(3) == 6
    assert watch.reason == "no locator available"


def test_what_cannot_be_told_from_old_code_is_not_kept(monkeypatch):
    watch = Watch()
    monkeypatch.setattr(_cache, "watch", watch)
    made = []

    class Unknown:
        pass

    def make(cache=False):
        made.append(cache)
        return Unknown()

    assert isinstance(_cache.cached(make), Unknown)
    assert made == [True, False]
    assert watch.reason
