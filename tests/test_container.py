"""Snapshots find their class by its name: classes register themselves, and a table names their packages."""

import hashlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import numpy as np
import pytest

import robustfd
from robustfd import _container
from robustfd._container import Saved, SnapshotError, discard, replacing


def saved_classes():
    """The public classes that can be saved."""
    values = {name: getattr(robustfd, name) for name in robustfd.__all__}
    return {name for name, value in values.items() if isinstance(value, type) and issubclass(value, Saved)}


def test_every_public_class_that_can_be_saved_has_its_package():
    found = {kind: name for name in _container._PACKAGES for kind in import_module(name).__all__}
    packages = {kind: name for kind, name in found.items() if kind in saved_classes()}
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


# -- temporary files

KILLED = """
import os, signal, sys
from robustfd._container import replacing
with replacing(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_the_temporary_file_of_a_killed_process_is_removed_by_the_next(tmp_path):
    path, other = tmp_path / "model.rfd", tmp_path / "other.rfd"
    for each in (path, path, other):
        assert subprocess.run([sys.executable, "-c", KILLED, each]).returncode < 0
    assert len(list(tmp_path.glob(".robustfd-*.part"))) == 2  # the second run removed that of the first
    with replacing(path) as file:
        file.write(b"whole")
    assert path.read_bytes() == b"whole"
    (left,) = set(tmp_path.iterdir()) - {path}  # that of the other file
    assert subprocess.run([sys.executable, "-c", KILLED, path]).returncode < 0
    discard(path)
    assert list(tmp_path.iterdir()) == [left]
    with replacing(other), pytest.raises(ZeroDivisionError), replacing(other):
        raise ZeroDivisionError
    assert not left.exists() and not list(tmp_path.glob(".robustfd-*.part"))


@pytest.mark.skipif(sys.platform == "win32", reason="needs links")
def test_a_temporary_file_in_use_or_of_another_kind_stays(tmp_path):
    path, precious = tmp_path / "model.rfd", tmp_path / "precious"
    precious.write_bytes(b"mine")
    with replacing(path) as first:
        (used,) = tmp_path.glob(".robustfd-*.part")
        with replacing(path) as second:  # as another process would
            second.write(b"second")
        first.write(b"first")
        assert used.exists() and path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"
    used.symlink_to(precious)
    with replacing(path) as file:
        file.write(b"third")
    assert path.read_bytes() == b"third" and precious.read_bytes() == b"mine" and used.is_symlink()


def test_many_threads_write_one_file(tmp_path):
    path = tmp_path / "model.rfd"

    def write(number):
        for _ in range(50):
            with replacing(path) as file:
                file.write(bytes([number]) * 1000)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(8)))
    assert len(set(path.read_bytes())) == 1 and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("threads", [True, False])
def test_the_checksum_is_that_of_the_documentation_with_and_without_a_second_thread(monkeypatch, threads):
    def refuse(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    if not threads:
        monkeypatch.setattr(_container.Thread, "start", refuse)
    meta = {"robustfd": "1", "kind": "sketch", "document": "{}"}
    tensors = {"large": np.arange(3e5), "small": np.ones((2, 3)), "none": np.zeros(0)}
    lines = [f"{key}={value}\n" for key, value in meta.items()]
    for name, value in sorted(tensors.items()):
        lines.append(f"{name} <f8 {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}\n")
    assert _container.digest(meta, tensors) == hashlib.sha256("".join(lines).encode()).hexdigest()
    assert _container.digest(meta, {}) == hashlib.sha256("".join(lines[:3]).encode()).hexdigest()
