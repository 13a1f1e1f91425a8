"""Snapshots find their class by its name: classes register themselves, and a table names their packages."""

import subprocess
import sys

import pytest

import robustfd
from robustfd import _container
from robustfd._container import Saved, SnapshotError


def saved_classes():
    """The public classes that can be saved."""
    values = {name: getattr(robustfd, name) for name in robustfd.__all__}
    return {name for name, value in values.items() if isinstance(value, type) and issubclass(value, Saved)}


def test_every_public_class_that_can_be_saved_has_its_package():
    packages = {kind: package for package, kinds in _container._PACKAGES.items() for kind in kinds}
    assert set(packages) == saved_classes()
    for kind, package in packages.items():
        assert kind in sys.modules[package].__all__
        assert _container._find(kind) is getattr(robustfd, kind)


@pytest.mark.slow
def test_loading_imports_only_the_package_that_is_needed(tmp_path):
    path = tmp_path / "sketch.rfd"
    robustfd.FrequentDirections(4).fit([[1.0, 2.0], [3.0, 4.0]]).save(path)
    code = (
        "import sys; from robustfd._container import load; assert load(sys.argv[1]).n_samples_seen_ == 2; "
        "assert not {'robustfd.learners', 'robustfd.estimators', 'robustfd.streams'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, path], check=True)


@pytest.mark.parametrize("kind", ["Nothing", "os.system", "merge"])
def test_other_names_are_refused(kind):
    data = b"".join(_container.seal(kind, {"params": {}}, {}))
    with pytest.raises(SnapshotError, match="does not have"):
        Saved.from_bytes(data)


def test_classes_from_outside_are_not_registered():
    class Mine(robustfd.FrequentDirections):
        pass

    assert _container._find("Mine") is None
    with pytest.raises(TypeError, match="Only robustfd's own"):
        Mine(4).fit([[1.0, 2.0]]).to_bytes()
