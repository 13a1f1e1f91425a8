"""Packages and public names are imported lazily, on first use."""

import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import robustfd

PACKAGES = ["datasets", "decisions", "estimators", "linalg", "learners", "sketch", "streams"]


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_packages_are_imported_on_first_use():
    needed = "; ".join(f"assert robustfd.{package}.__name__ == 'robustfd.{package}'" for package in PACKAGES)
    run(f"import sys, robustfd; assert 'numpy' not in sys.modules; {needed}")


def test_a_name_imports_only_the_modules_it_needs():
    code = (
        "import sys; from robustfd.learners import LOSSES; print([m for m in sys.modules if m.startswith('robustfd.')])"
    )
    assert "robustfd.learners.losses" in run(code) and "robustfd.learners.newton" not in run(code)


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_of_a_package(package):
    module = getattr(robustfd, package)
    assert module.__all__
    for name in module.__all__:
        assert not inspect.ismodule(getattr(module, name))
        assert name in dir(module)
    with pytest.raises(AttributeError, match=f"'robustfd.{package}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018


def test_top_level_names_come_from_the_packages():
    for name in robustfd.__all__:
        value = getattr(robustfd, name)
        found = [
            package for package in PACKAGES if name in getattr(robustfd, package).__all__ and package != "datasets"
        ]
        assert all(getattr(getattr(robustfd, package), name) is value for package in found)
        assert found or name in ("SnapshotError", "load")
    assert set(robustfd.__all__) | set(PACKAGES) <= set(dir(robustfd))


def test_merge_stays_a_function_after_importing_the_command():
    run("import robustfd.cli.saved, robustfd.sketch; from robustfd.sketch import merge; assert callable(merge)")


@pytest.mark.slow
def test_river_needs_an_extra():
    pytest.importorskip("river")
    run("import robustfd; assert robustfd.river.SketchedNewtonClassifier")
    code = "import inspect, sys; sys.modules['river'] = None; import robustfd; inspect.getmembers(robustfd)"
    run(code)
    lost = "import sys; sys.modules['river'] = None; import robustfd; robustfd.river"
    done = subprocess.run([sys.executable, "-c", lost], capture_output=True, text=True, check=False)
    assert "ImportError: robustfd.river needs River" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("module, engine, extra", [("dask", "dask.array", "dask"), ("spark", "pyspark", "spark")])
def test_engines_need_an_extra(module, engine, extra):
    run("import sys, robustfd; assert robustfd.distributed; assert not {'dask', 'pyspark'} & set(sys.modules)")
    lost = f"import sys; sys.modules[{engine!r}] = None; import robustfd; robustfd.distributed.{module}"
    done = subprocess.run([sys.executable, "-c", lost], capture_output=True, text=True, check=False)
    assert (
        f"ImportError: robustfd.distributed.{module} needs {extra.title()}: pip install 'robustfd[{extra}]'"
        in done.stderr
    )


def test_the_extra_all_lists_every_user_extra():
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    (everything,) = extras["all"]
    assert everything == f"robustfd[{','.join(name for name in extras if name not in ('all', 'test', 'docs', 'dev'))}]"
