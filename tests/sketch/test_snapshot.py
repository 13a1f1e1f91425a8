"""Snapshots restore the exact state and replace files atomically."""

import copy
import os
import stat
from dataclasses import fields, is_dataclass

import numpy as np
import pytest
import safetensors.numpy
import scipy.sparse as sp

import robustfd as rf
from tests.sketch.family import SKETCHES, made

D = 50


def make(name, **params):
    return made(SKETCHES[name], **params)


def rows(n, seed=0, d=D):
    X = np.random.default_rng(seed).standard_normal((n, d))
    return np.where(np.random.default_rng(seed + 1).random((n, d)) < 0.06, X, 0.0)


def again(sketch):
    return type(sketch).from_bytes(sketch.to_bytes())


def same(one, two):
    """Return whether two states, queues, arrays or numbers are equal bit for bit."""
    if isinstance(one, np.ndarray):
        return isinstance(two, np.ndarray) and one.dtype == two.dtype and np.array_equal(one, two)
    if isinstance(one, tuple):
        return len(one) == len(two) and all(map(same, one, two))
    if is_dataclass(one):
        return all(same(getattr(one, f.name), getattr(two, f.name)) for f in fields(one))
    return one == two


def assert_same(one, two):
    assert type(one) is type(two) and one.get_params() == two.get_params()
    assert same(one._state, two._state)
    assert len(one._queue) == len(two._queue)
    if len(one._queue):
        ours, theirs = one._queue.all(), two._queue.all()
        assert ours.is_sparse == theirs.is_sparse
        assert same(ours.weight, theirs.weight) and same(ours.decay, theirs.decay) and same(ours.clock, theirs.clock)
        a, b = (r.x.toarray() if r.is_sparse else r.x for r in (ours, theirs))
        assert same(a, b)
    for name in ("_tail", "_n_seen", "_single", "_seen_structure", "n_features_in_"):
        assert getattr(one, name) == getattr(two, name), name
    for name in ("sketch_", "singular_values_", "alpha_", "error_bound_", "squared_norm_", "weight_sum_"):
        assert same(getattr(one, name), getattr(two, name)), name
    assert same(getattr(one, "diagonal_", None), getattr(two, "diagonal_", None))


# -- round trips


@pytest.mark.parametrize("n", [1, 9, 10, 33, 300])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("forms", ["dense", "sparse", "mixed", "float32"])
@pytest.mark.parametrize("kind", SKETCHES)
def test_a_restored_sketch_continues_bit_for_bit(kind, forms, center, n):
    as_given = {
        "dense": lambda i, X: X,
        "sparse": lambda i, X: sp.csr_array(X),
        "mixed": lambda i, X: sp.csr_matrix(X) if i % 2 else X,
        "float32": lambda i, X: X.astype(np.float32),
    }[forms]
    original = make(kind, center=center, decay=0.99, alpha0=0.5)
    weight = np.random.default_rng(7).random(n) + 0.1
    for i, part in enumerate(np.array_split(np.arange(n), 3)):
        if len(part):
            original.partial_fit(as_given(i, rows(n)[part]), sample_weight=weight[part])
    if kind != "sliding":
        original.forget(0.75)
    restored = again(original)
    assert_same(original, restored)
    for i, more in enumerate([1, 7, 40, 200]):
        for sketch in (original, restored):
            sketch.partial_fit(as_given(i, rows(more, seed=i + 10)))
        assert_same(original, restored)


def test_dense_rows_after_sparse_ones_are_rounded_as_without_a_snapshot():
    # After sparse rows B is stored in column-major order, which affects the last bit of its products.
    original = rf.RobustFrequentDirections(8).fit(sp.csr_array(rows(60, d=250)))
    restored = again(original)
    assert original._state.b.flags.c_contiguous == restored._state.b.flags.c_contiguous
    for sketch in (original, restored):
        sketch.partial_fit(rows(60, seed=1, d=250))
    assert_same(original, restored)


@pytest.mark.parametrize("kind", SKETCHES)
def test_saving_changes_nothing_and_is_deterministic(kind):
    sketch = make(kind, center=True).fit(rows(33))
    untouched = copy.deepcopy(sketch)
    tensors = [safetensors.numpy.load(sketch.to_bytes()) for _ in range(2)]
    assert_same(sketch, untouched)
    assert tensors[0].keys() == tensors[1].keys()
    assert_same(again(sketch), again(again(sketch)))


@pytest.mark.parametrize("kind", ["RFD", "DFD"])
def test_restored_sketches_merge(kind):
    one, two = (make(kind, center=True).fit(rows(33, seed)) for seed in (0, 1))
    assert_same(again(one) + again(two), one + two)


def test_numpy_parameters_and_feature_names_come_back_plain():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(rows(9, d=3), columns=["a", "b", "ü"])
    sketch = rf.RobustFrequentDirections(np.int64(4), decay=np.float32(0.5)).fit(frame)
    restored = again(sketch)
    assert list(restored.feature_names_in_) == ["a", "b", "ü"]
    assert restored.get_params() == sketch.get_params()
    restored.partial_fit(frame)
    with pytest.raises(ValueError, match="feature names"):
        restored.partial_fit(frame[["b", "a", "ü"]])


def test_a_parameter_changed_after_loading_is_refused():
    restored = again(make("RFD").fit(rows(9))).set_params(sketch_size=6)
    with pytest.raises(ValueError, match="sketch_size was changed from 4 to 6"):
        restored.partial_fit(rows(1))


def test_parameters_that_are_not_plain_cannot_be_saved():
    sketch = rf.RandomProjectionSketch(3, random_state=np.random.RandomState(0)).fit(rows(5))
    with pytest.raises(TypeError, match="random_state"):
        sketch.to_bytes()
    with pytest.raises(ValueError, match="seen no rows"):
        rf.RobustFrequentDirections().to_bytes()


def test_load_returns_the_saved_class_and_from_bytes_requires_it(tmp_path):
    for kind in SKETCHES:
        sketch = make(kind).fit(rows(9))
        sketch.save(tmp_path / "file.rfd")
        assert_same(rf.load(tmp_path / "file.rfd"), sketch)
        assert_same(rf.load(str(tmp_path / "file.rfd")), sketch)
        sketch.save(str(tmp_path / "file.rfd").encode())
        assert_same(rf.load(str(tmp_path / "file.rfd").encode()), sketch)
    data = make("RFD").fit(rows(9)).to_bytes()
    assert isinstance(rf.RobustFrequentDirections.from_bytes(bytearray(data)), rf.RobustFrequentDirections)
    with pytest.raises(rf.SnapshotError, match="holds a RobustFrequentDirections, not a OjaSketch"):
        rf.OjaSketch.from_bytes(data)


# -- files


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")], ids=["crash", "full"])
@pytest.mark.parametrize("broken", ["fsync", "replace", "chmod"])
def test_a_crash_or_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, broken, error):
    path = tmp_path / "file.rfd"
    old, new = make("RFD").fit(rows(9)), make("RFD").fit(rows(40))
    old.save(path)
    before = path.read_bytes()

    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(type(error)):
        new.save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["file.rfd"]
    new.save(path)
    assert_same(rf.load(path), new)


def test_the_new_file_is_whole_and_synced_before_it_gets_its_name(tmp_path, monkeypatch):
    sketch, order = make("RFD").fit(rows(9)), []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (order.append("fsync"), fsync(handle))[1])

    def watched(source, target):
        order.append("replace")
        assert_same(rf.load(source), sketch)
        replace(source, target)

    monkeypatch.setattr(os, "replace", watched)
    sketch.save(tmp_path / "file.rfd")
    assert order[:2] == ["fsync", "replace"]


def test_a_place_that_cannot_be_written_is_an_oserror_that_names_it(tmp_path):
    sketch = make("RFD").fit(rows(9))
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileNotFoundError, match=r"none/file\.rfd"):
        sketch.save(tmp_path / "none" / "file.rfd")
    with pytest.raises(OSError, match=r"file/file\.rfd"):
        sketch.save(tmp_path / "file" / "file.rfd")
    with pytest.raises(IsADirectoryError):
        sketch.save(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert len(list(tmp_path.parent.glob(".robustfd-*"))) == 0
    with pytest.raises(FileNotFoundError):
        rf.load(tmp_path / "none.rfd")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory_is_an_oserror(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PermissionError):
            make("RFD").fit(rows(9)).save(tmp_path / "file.rfd")
        assert list(tmp_path.iterdir()) == []
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.skipif(os.name != "posix", reason="permissions and links of POSIX")
def test_permissions_follow_the_umask_or_the_old_file_and_links_stay(tmp_path):
    sketch, path = make("RFD").fit(rows(9)), tmp_path / "file.rfd"
    mask = os.umask(0o027)
    try:
        sketch.save(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        sketch.save(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o604
    finally:
        os.umask(mask)
    link = tmp_path / "link.rfd"
    link.symlink_to(path)
    make("FD").fit(rows(9)).save(link)
    assert link.is_symlink() and isinstance(rf.load(path), rf.FrequentDirections)


def test_names_as_long_as_the_system_allows(tmp_path):
    path = tmp_path / ("x" * 251 + ".rfd")
    make("RFD").fit(rows(9)).save(path)
    assert isinstance(rf.load(path), rf.RobustFrequentDirections)
