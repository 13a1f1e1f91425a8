"""Every room of the library and its public names are there when asked for, and nothing is imported before that."""

import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import robustfd

ROOMS = ["datasets", "estimators", "linalg", "online", "sketch", "streams"]


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_rooms_are_imported_when_first_used():
    needed = "; ".join(f"assert robustfd.{room}.__name__ == 'robustfd.{room}'" for room in ROOMS)
    run(f"import sys, robustfd; assert 'numpy' not in sys.modules; {needed}")


def test_a_name_imports_what_it_needs_only():
    code = (
        "import sys; from robustfd.online import LOSSES; print([m for m in sys.modules if m.startswith('robustfd.')])"
    )
    assert "robustfd.online.losses" in run(code) and "robustfd.online.newton" not in run(code)


@pytest.mark.parametrize("room", ROOMS)
def test_public_names_of_a_room(room):
    module = getattr(robustfd, room)
    assert module.__all__
    for name in module.__all__:
        assert not inspect.ismodule(getattr(module, name))
        assert name in dir(module)
    with pytest.raises(AttributeError, match=f"'robustfd.{room}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018


def test_names_of_the_library_are_those_of_its_rooms():
    for name in robustfd.__all__:
        value = getattr(robustfd, name)
        homes = [room for room in ROOMS if name in getattr(robustfd, room).__all__ and room != "datasets"]
        assert all(getattr(getattr(robustfd, room), name) is value for room in homes)
        assert homes or name in ("SnapshotError", "load")
    assert set(robustfd.__all__) | set(ROOMS) <= set(dir(robustfd))


def test_the_function_that_merges_stays_a_function():
    run("import robustfd.cli.merge, robustfd.sketch; from robustfd.sketch import merge; assert callable(merge)")


def test_river_is_a_room_that_needs_an_extra():
    pytest.importorskip("river")
    run("import robustfd; assert robustfd.river.SketchedNewtonClassifier")
    code = "import inspect, sys; sys.modules['river'] = None; import robustfd; inspect.getmembers(robustfd)"
    run(code)
    lost = "import sys; sys.modules['river'] = None; import robustfd; robustfd.river"
    done = subprocess.run([sys.executable, "-c", lost], capture_output=True, text=True, check=False)
    assert "ImportError: robustfd.river needs River" in done.stderr


@pytest.mark.parametrize("module, engine, extra", [("dask", "dask.array", "dask"), ("spark", "pyspark", "spark")])
def test_engines_need_an_extra(module, engine, extra):
    run("import sys, robustfd; assert robustfd.distributed; assert not {'dask', 'pyspark'} & set(sys.modules)")
    lost = f"import sys; sys.modules[{engine!r}] = None; import robustfd; robustfd.distributed.{module}"
    done = subprocess.run([sys.executable, "-c", lost], capture_output=True, text=True, check=False)
    assert (
        f"ImportError: robustfd.distributed.{module} needs {extra.title()}: pip install 'robustfd[{extra}]'"
        in done.stderr
    )


def test_all_is_every_extra_of_users():
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    (everything,) = extras["all"]
    assert everything == f"robustfd[{','.join(name for name in extras if name not in ('all', 'test', 'docs', 'dev'))}]"
