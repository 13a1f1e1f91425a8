"""Snapshots restore the exact state, replace files atomically, and refuse invalid content."""

import copy
import json
import os
import pickle
import stat
import tracemalloc

import numpy as np
import pytest
import safetensors.numpy
import scipy.sparse as sp

import robustfd as rf
from robustfd import _container
from robustfd.sketch._base import BaseSketch

CLASSES = {
    "fd": (rf.FrequentDirections, {"sketch_size": 5}),
    "rfd": (rf.RobustFrequentDirections, {"sketch_size": 5}),
    "pfd": (rf.ParameterizedFrequentDirections, {"sketch_size": 5, "beta": 0.5}),
    "cfd": (rf.CompensativeFrequentDirections, {"sketch_size": 5}),
    "greedy": (rf.GreedySketch, {"sketch_size": 5}),
    "dfd": (rf.DiagonalFrequentDirections, {"sketch_size": 5}),
    "projection": (rf.RandomProjectionSketch, {"sketch_size": 5, "random_state": 0}),
    "oja": (rf.OjaSketch, {"sketch_size": 5, "random_state": 0}),
    "exact": (rf.ExactSecondMoment, {}),
    "sliding": (rf.SlidingFrequentDirections, {"window": 60, "sketch_size": 4}),
}
D = 50


def make(kind, **params):
    cls, own = CLASSES[kind]
    if kind == "sliding":
        params.pop("decay", None)  # not a parameter of this sketch
    return cls(**own, **params)


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
    if hasattr(one, "__dataclass_fields__"):
        return all(same(getattr(one, name), getattr(two, name)) for name in one.__dataclass_fields__)
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
@pytest.mark.parametrize("kind", CLASSES)
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


@pytest.mark.parametrize("kind", CLASSES)
def test_saving_changes_nothing_and_is_deterministic(kind):
    sketch = make(kind, center=True).fit(rows(33))
    untouched = copy.deepcopy(sketch)
    tensors = [safetensors.numpy.load(sketch.to_bytes()) for _ in range(2)]
    assert_same(sketch, untouched)
    assert tensors[0].keys() == tensors[1].keys()
    assert_same(again(sketch), again(again(sketch)))


@pytest.mark.parametrize("kind", ["rfd", "dfd"])
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
    restored = again(make("rfd").fit(rows(9))).set_params(sketch_size=6)
    with pytest.raises(ValueError, match="sketch_size was changed from 5 to 6"):
        restored.partial_fit(rows(1))


def test_parameters_that_are_not_plain_cannot_be_saved():
    sketch = rf.RandomProjectionSketch(3, random_state=np.random.RandomState(0)).fit(rows(5))
    with pytest.raises(TypeError, match="random_state"):
        sketch.to_bytes()
    with pytest.raises(ValueError, match="seen no rows"):
        rf.RobustFrequentDirections().to_bytes()


def test_load_returns_the_saved_class_and_from_bytes_requires_it(tmp_path):
    for kind in CLASSES:
        sketch = make(kind).fit(rows(9))
        sketch.save(tmp_path / "file.rfd")
        assert_same(rf.load(tmp_path / "file.rfd"), sketch)
        assert_same(rf.load(str(tmp_path / "file.rfd")), sketch)
    data = make("rfd").fit(rows(9)).to_bytes()
    assert isinstance(rf.RobustFrequentDirections.from_bytes(bytearray(data)), rf.RobustFrequentDirections)
    with pytest.raises(rf.SnapshotError, match="holds a RobustFrequentDirections, not a OjaSketch"):
        rf.OjaSketch.from_bytes(data)


# -- files


@pytest.mark.parametrize("broken", ["fsync", "replace", "chmod"])
def test_a_crash_while_saving_leaves_the_old_file(tmp_path, monkeypatch, broken):
    path = tmp_path / "file.rfd"
    old, new = make("rfd").fit(rows(9)), make("rfd").fit(rows(40))
    old.save(path)
    before = path.read_bytes()

    def crash(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, broken, crash)
    with pytest.raises(KeyboardInterrupt):
        new.save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["file.rfd"]
    new.save(path)
    assert_same(rf.load(path), new)


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file.rfd"
    make("rfd").fit(rows(9)).save(path)
    before = path.read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        make("rfd").fit(rows(40)).save(path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_the_new_file_is_whole_and_synced_before_it_gets_its_name(tmp_path, monkeypatch):
    sketch, order = make("rfd").fit(rows(9)), []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (order.append("fsync"), fsync(handle))[1])

    def watched(source, target):
        order.append("replace")
        assert_same(rf.load(source), sketch)
        replace(source, target)

    monkeypatch.setattr(os, "replace", watched)
    sketch.save(tmp_path / "file.rfd")
    assert order[:2] == ["fsync", "replace"]


def test_a_place_that_cannot_be_written_is_an_oserror(tmp_path):
    sketch = make("rfd").fit(rows(9))
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "none" / "file.rfd", tmp_path / "file" / "file.rfd", tmp_path):
        with pytest.raises(OSError):  # noqa: PT011
            sketch.save(path)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert len(list(tmp_path.parent.glob(".robustfd-*"))) == 0
    with pytest.raises(FileNotFoundError):
        rf.load(tmp_path / "none.rfd")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory_is_an_oserror(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PermissionError):
            make("rfd").fit(rows(9)).save(tmp_path / "file.rfd")
        assert list(tmp_path.iterdir()) == []
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.skipif(os.name != "posix", reason="permissions and links of POSIX")
def test_permissions_follow_the_umask_or_the_old_file_and_links_stay(tmp_path):
    sketch, path = make("rfd").fit(rows(9)), tmp_path / "file.rfd"
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
    make("fd").fit(rows(9)).save(link)
    assert link.is_symlink() and isinstance(rf.load(path), rf.FrequentDirections)


def test_names_as_long_as_the_system_allows(tmp_path):
    path = tmp_path / ("x" * 251 + ".rfd")
    make("rfd").fit(rows(9)).save(path)
    assert isinstance(rf.load(path), rf.RobustFrequentDirections)


# -- damage


@pytest.fixture(scope="module", params=["rfd", "projection"])
def victim(request):
    sketch = make(request.param, center=True).fit(sp.csr_array(rows(13, d=6)))
    return sketch, sketch.to_bytes()


def test_every_truncation_is_noticed(victim):
    _, data = victim
    for length in range(len(data)):
        with pytest.raises(rf.SnapshotError):
            BaseSketch.from_bytes(data[:length])
    for more in (b"\0", data):
        with pytest.raises(rf.SnapshotError):
            BaseSketch.from_bytes(data + more)


@pytest.mark.parametrize("flip", [0x01, 0x04, 0x20, 0x80, 0xFF])
def test_every_changed_byte_is_noticed(victim, flip):
    _, data = victim
    for i in range(len(data)):
        with pytest.raises(rf.SnapshotError):
            BaseSketch.from_bytes(data[:i] + bytes([data[i] ^ flip]) + data[i + 1 :])


def test_random_damage_is_noticed_or_harmless(victim):
    sketch, data = victim
    rng = np.random.default_rng(0)
    for _ in range(1500):
        damaged = bytearray(data)
        for _ in range(rng.integers(1, 4)):
            at = rng.integers(len(damaged))
            match rng.integers(3):
                case 0:
                    damaged[at] = rng.integers(256)
                case 1:
                    del damaged[at : at + rng.integers(1, 40)]
                case 2:
                    damaged[at:at] = rng.bytes(rng.integers(1, 40))
        try:
            restored = BaseSketch.from_bytes(bytes(damaged))
        except rf.SnapshotError:
            continue
        assert_same(restored, sketch)


class _Trap:
    def __reduce__(self):
        return (pytest.fail, ("something in a file was run",))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 8,
        b"\0" * 1000,
        b"Dear sketch, how are you?\n" * 10,
        pickle.dumps(_Trap()),
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + b"\0" * 100,
        safetensors.numpy.save({"weights": np.ones(3)}),
        safetensors.numpy.save({"weights": np.ones(3)}, {"robustfd": "1"}),
        safetensors.numpy.save({}, {"robustfd": "one", "kind": "", "document": "", "sha256": ""}),
        (3).to_bytes(8, "little") + b"[1]",
        (100_000).to_bytes(8, "little") + b"[" * 100_000,
        None,
        "text",
        17,
    ],
    ids=lambda data: repr(data)[:25],
)
def test_foreign_files_are_refused(data, tmp_path):
    with pytest.raises(rf.SnapshotError, match="Not a robustfd snapshot"):
        BaseSketch.from_bytes(data)
    if isinstance(data, bytes):
        (tmp_path / "file.rfd").write_bytes(data)
        with pytest.raises(rf.SnapshotError, match="Not a robustfd snapshot"):
            rf.load(tmp_path / "file.rfd")


@pytest.mark.parametrize("version", [2, 99, 0, -1])
def test_another_version_is_named(version):
    data = rewritten(make("rfd").fit(rows(9)), meta={"robustfd": str(version)})
    with pytest.raises(rf.SnapshotError, match=f"version {version}; this robustfd reads version 1"):
        BaseSketch.from_bytes(data)


@pytest.mark.parametrize("length", [2**63 - 1, 2**64 - 1, 2**40])
def test_a_header_that_claims_to_be_huge_costs_no_memory(length):
    data = make("rfd").fit(rows(9)).to_bytes()
    lying = data[8:].replace(b'"shape":[9,50]', b'"shape":[9,50000000000]')
    tracemalloc.start()
    for each in (length.to_bytes(8, "little") + data[8:], data[:8] + lying):
        with pytest.raises(rf.SnapshotError):
            BaseSketch.from_bytes(each)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e6


# -- valid checksum, invalid content


def rewritten(sketch, *, meta=None, document=None, tensors=None):
    """Return the snapshot with parts replaced (None removes one) and a valid checksum."""
    data = sketch.to_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    content = safetensors.numpy.load(data)
    parts = json.loads(header["document"])
    for path, value in (document or {}).items():
        *folders, name = path.split(".")
        place = parts
        for folder in folders:
            place = place[folder]
        if value is REMOVED:
            del place[name]
        else:
            place[name] = value
    for name, value in (tensors or {}).items():
        if value is REMOVED:
            del content[name]
        else:
            content[name] = np.ascontiguousarray(value(content[name]) if callable(value) else value)
    header |= {"document": json.dumps(parts)} | (meta or {})
    header["sha256"] = _container.digest(header, content)
    return safetensors.numpy.save(content, header)


REMOVED = object()


def put(index, number):
    def change(array):
        array = array.copy()
        array[index] = number
        return array

    return change


SPARSE, DENSE, DIAGONAL, PROJECTION, OJA, EXACT = "sparse", "dense", "diagonal", "projection", "oja", "exact"
WINDOW = "window"
NONSENSE = [
    # the state's arrays
    (DENSE, {"tensors": {"state.b": lambda b: b[:, :-1]}}),
    (DENSE, {"tensors": {"state.b": lambda b: b[:-1]}}),
    (DENSE, {"tensors": {"state.b": lambda b: b.ravel()}}),
    (DENSE, {"tensors": {"state.b": lambda b: b[None]}}),
    (DENSE, {"tensors": {"state.b": lambda b: b.astype(np.float32)}}),
    (DENSE, {"tensors": {"state.b": lambda b: b.astype(np.int64)}}),
    (DENSE, {"tensors": {"state.b": put((0, 0), np.nan)}}),
    (DENSE, {"tensors": {"state.b": put((0, 0), np.inf)}}),
    (DENSE, {"tensors": {"state.lam": lambda lam: lam[:-1]}}),
    (DENSE, {"tensors": {"state.lam": lambda lam: np.append(lam, 1.0)}}),
    (DENSE, {"tensors": {"state.lam": put(0, -1.0)}}),
    (DENSE, {"tensors": {"state.lam": put(0, 0.0)}}),
    (DENSE, {"tensors": {"state.lam": put(0, np.nan)}}),
    (DENSE, {"tensors": {"state.lam": np.ones(9), "state.b": np.eye(9, D)}}),
    (DENSE, {"tensors": {"state.mean": lambda mean: mean[:-1]}}),
    (DENSE, {"tensors": {"state.mean": put(0, np.inf)}}),
    (DENSE, {"tensors": {"state.mean": REMOVED}}),
    (DENSE, {"tensors": {"state.mean": REMOVED}, "document": {"state.mean": None}}),
    (DENSE, {"tensors": {"state.b": REMOVED}}),
    (DENSE, {"tensors": {"state.lam": REMOVED}}),
    (DENSE, {"tensors": {"state.more": np.ones(1)}}),
    (DENSE, {"tensors": {"else": np.ones(1)}}),
    (DENSE, {"tensors": {"state.squares": np.ones(D)}}),
    (DENSE, {"document": {"state.squares": None}}),
    (DIAGONAL, {"tensors": {"state.squares": REMOVED}}),
    (DIAGONAL, {"tensors": {"state.squares": REMOVED}, "document": {"state.squares": None}}),
    (DIAGONAL, {"tensors": {"state.squares": lambda squares: squares[:-1]}}),
    (DIAGONAL, {"tensors": {"state.squares": lambda squares: squares[None]}}),
    (DIAGONAL, {"tensors": {"state.squares": lambda squares: squares.astype(np.float32)}}),
    (DIAGONAL, {"tensors": {"state.squares": put(3, -1e-300)}}),
    (DIAGONAL, {"tensors": {"state.squares": put(3, np.nan)}}),
    (DIAGONAL, {"tensors": {"state.squares": put(3, np.inf)}}),
    (DIAGONAL, {"meta": {"kind": "FrequentDirections"}}),
    (EXACT, {"tensors": {"state.mean": np.ones(D)}}),
    (EXACT, {"tensors": {"state.matrix": np.eye(D - 1)}}),
    (EXACT, {"tensors": {"state.matrix": put((1, 1), np.nan)}}),
    (PROJECTION, {"tensors": {"state.bt": lambda bt: bt[:, 1:]}}),
    (PROJECTION, {"tensors": {"state.bt": lambda bt: bt.T}}),
    (OJA, {"tensors": {"state.energy": lambda energy: energy[1:]}}),
    (OJA, {"tensors": {"state.energy": put(0, -1.0)}}),
    (OJA, {"tensors": {"state.energy": np.ones(3), "state.vt": np.eye(D, 3)}}),
    (WINDOW, {"tensors": {"state.b": lambda b: b[:, :-1]}}),
    (WINDOW, {"tensors": {"state.b": np.ones((9, D + 1)), "state.lam": np.ones(9)}}),
    (WINDOW, {"tensors": {"state.dumps": lambda dumps: dumps[1:]}}),
    (WINDOW, {"tensors": {"state.dumps": put((0, 0), np.nan)}}),
    (WINDOW, {"tensors": {"state.dumps": np.ones((20, D + 1)), "state.dates": np.ones((4, 20))}}),
    (WINDOW, {"tensors": {"state.dates": lambda dates: dates[1:]}}),
    (WINDOW, {"tensors": {"state.dates": put((1, 0), -1.0)}}),
    (WINDOW, {"tensors": {"state.marks": lambda marks: marks[1:]}}),
    (WINDOW, {"tensors": {"state.marks": lambda marks: marks[:, ::-1]}}),
    (WINDOW, {"tensors": {"state.marks": put((6, 0), -1.0)}}),
    (WINDOW, {"tensors": {"state.marks": put((0, 0), np.inf)}}),
    (WINDOW, {"tensors": {"state.marks": lambda marks: marks[:, :0]}}),
    (WINDOW, {"tensors": {"state.marks": lambda marks: marks[0]}}),
    (WINDOW, {"tensors": {"state.shift": REMOVED}}),
    (WINDOW, {"tensors": {"state.shift": lambda shift: shift[1:]}}),
    (WINDOW, {"tensors": {"queue.clock": REMOVED}}),
    (WINDOW, {"tensors": {"queue.clock": lambda clock: clock[::-1]}}),
    (WINDOW, {"tensors": {"queue.clock": lambda clock: clock[1:]}}),
    (WINDOW, {"tensors": {"queue.clock": lambda clock: clock + 100}}),
    (DENSE, {"tensors": {"queue.clock": np.arange(3.0)}}),
    (WINDOW, {"document": {"state.clock": "moon"}}),
    (WINDOW, {"document": {"state.now": "noon"}}),
    (WINDOW, {"document": {"state.now": float("nan")}}),
    (WINDOW, {"document": {"state.unit": 0.0}}),
    (WINDOW, {"document": {"state.unit": REMOVED}}),
    (WINDOW, {"document": {"state.more": 1.0}}),
    (WINDOW, {"document": {"params.window": -1.0}}),
    (WINDOW, {"document": {"structure.window": 0}}),
    (WINDOW, {"document": {"structure.clock": "moon"}}),
    # the state's scalars
    (DENSE, {"document": {"state.weight": -1.0}}),
    (DENSE, {"document": {"state.weight": float("nan")}}),
    (DENSE, {"document": {"state.weight": None}}),
    (DENSE, {"document": {"state.weight": "5"}}),
    (DENSE, {"document": {"state.weight": True}}),
    (DENSE, {"document": {"state.weight": REMOVED}}),
    (DENSE, {"document": {"state.delta": float("inf")}}),
    (DENSE, {"document": {"state.delta": -1e-9}}),
    (DENSE, {"document": {"state.squared_norm": [1.0]}}),
    (DENSE, {"document": {"state.shrunk": 1}}),
    (DENSE, {"document": {"state.shrunk": False}}),
    (DENSE, {"document": {"state.more": 1}}),
    (DENSE, {"document": {"state.b": [[1.0]]}}),
    (DENSE, {"document": {"state": []}}),
    (DENSE, {"document": {"state": REMOVED}}),
    (OJA, {"document": {"state.t": -1}}),
    (OJA, {"document": {"state.t": 1.5}}),
    (PROJECTION, {"document": {"state.generator": "{}"}}),
    (PROJECTION, {"document": {"state.generator": "print('hello')"}}),
    (PROJECTION, {"document": {"state.generator": '{"bit_generator": "MT19937"}'}}),
    (PROJECTION, {"document": {"state.generator": 5}}),
    # the queued rows
    (DENSE, {"tensors": {"queue.x": lambda x: x[:-1]}}),
    (DENSE, {"tensors": {"queue.x": lambda x: x[:, :-1]}}),
    (DENSE, {"tensors": {"queue.x": lambda x: x.astype(np.int32)}}),
    (DENSE, {"tensors": {"queue.x": put((0, 0), np.nan)}}),
    (DENSE, {"tensors": {"queue.x": REMOVED}}),
    (DENSE, {"tensors": {"queue.weight": REMOVED}}),
    (DENSE, {"tensors": {"queue.weight": put(0, -1.0)}}),
    (DENSE, {"tensors": {"queue.weight": put(0, 0.0)}}),
    (DENSE, {"tensors": {"queue.weight": lambda w: w[:-1]}}),
    (DENSE, {"tensors": {"queue.weight": lambda w: w[:, None]}}),
    (DENSE, {"tensors": {"queue.weight": np.float64(1.0)}}),
    (DENSE, {"tensors": {"queue.decay": put(0, 1.5)}}),
    (DENSE, {"tensors": {"queue.decay": put(0, 0.0)}}),
    (DENSE, {"tensors": {"queue.decay": put(0, np.nan)}}),
    (DENSE, {"tensors": {"queue.decay": REMOVED}}),
    (DENSE, {"document": {"queue": [3, D]}}),
    (SPARSE, {"document": {"queue": None}}),
    (SPARSE, {"document": {"queue": [10**12, D]}}),
    (SPARSE, {"document": {"queue": [-1, D]}}),
    (SPARSE, {"document": {"queue": "shape"}}),
    (SPARSE, {"tensors": {"queue.indptr": put(1, 10**6)}}),
    (SPARSE, {"tensors": {"queue.indptr": put(1, -5)}}),
    (SPARSE, {"tensors": {"queue.indptr": put(0, 1)}}),
    (SPARSE, {"tensors": {"queue.indptr": put(-1, 10**6)}}),
    (SPARSE, {"tensors": {"queue.indptr": lambda p: p[:-1]}}),
    (SPARSE, {"tensors": {"queue.indptr": lambda p: p.astype(np.float64)}}),
    (SPARSE, {"tensors": {"queue.indices": put(0, D)}}),
    (SPARSE, {"tensors": {"queue.indices": put(0, -1)}}),
    (SPARSE, {"tensors": {"queue.indices": put(slice(None), 3)}}),
    (SPARSE, {"tensors": {"queue.indices": lambda i: i[::-1]}}),
    (SPARSE, {"tensors": {"queue.indices": lambda i: i[:-1]}}),
    (SPARSE, {"tensors": {"queue.data": put(0, np.inf)}}),
    (SPARSE, {"tensors": {"queue.data": lambda x: x.astype(np.int64)}}),
    (SPARSE, {"tensors": {"queue.data": lambda x: x[:, None]}}),
    # the rest of the document
    (DENSE, {"document": {"n_features": D - 1}}),
    (DENSE, {"document": {"n_features": 0}}),
    (DENSE, {"document": {"n_features": "50"}}),
    (DENSE, {"document": {"n_features": 50.0}}),
    (DENSE, {"document": {"n_features": REMOVED}}),
    (DENSE, {"document": {"n_seen": -1}}),
    (DENSE, {"document": {"n_seen": 1.5}}),
    (DENSE, {"document": {"single": 1}}),
    (DENSE, {"document": {"tail": 2.0}}),
    (DENSE, {"document": {"tail": 0}}),
    (DENSE, {"document": {"tail": "1"}}),
    (DENSE, {"document": {"tail": float("nan")}}),
    (DENSE, {"document": {"column_major": ["state.c"]}}),
    (DENSE, {"document": {"column_major": None}}),
    (DENSE, {"document": {"column_major": [["state.b"]]}}),
    (DENSE, {"document": {"feature_names": ["a"]}}),
    (DENSE, {"document": {"feature_names": "a" * D}}),
    (DENSE, {"document": {"feature_names": list(range(D))}}),
    (DENSE, {"document": {"params.sketch_size": 1}}),
    (DENSE, {"document": {"params.sketch_size": "5"}}),
    (DENSE, {"document": {"params.sketch_size": 5.0}}),
    (DENSE, {"document": {"params.alpha0": -1.0}}),
    (DENSE, {"document": {"params.decay": [1.0]}}),
    (DENSE, {"document": {"params.solver": "eval"}}),
    (DENSE, {"document": {"params.center": 1}}),
    (DENSE, {"document": {"params.unheard_of": 1}}),
    (DENSE, {"document": {"params": []}}),
    (DENSE, {"document": {"params": None}}),
    (OJA, {"document": {"params.random_state": "x"}}),
    (OJA, {"document": {"params.random_state": [1, 2]}}),
    (DENSE, {"document": {"structure.sketch_size": 2}}),
    (DENSE, {"document": {"structure.sketch_size": "5"}}),
    (DENSE, {"document": {"structure.center": False}}),
    (DENSE, {"document": {"structure.center": REMOVED}}),
    (DENSE, {"document": {"structure.solver": "auto"}}),
    (DENSE, {"document": {"structure": None}}),
    # the header
    (DENSE, {"meta": {"kind": "FrequentDirection"}}),
    (DENSE, {"meta": {"kind": "os.system"}}),
    (DENSE, {"meta": {"kind": "BaseSketch"}}),
    (DENSE, {"meta": {"kind": "_FrequentDirections"}}),
    (DENSE, {"meta": {"kind": "DiagonalFrequentDirections"}}),
    (DENSE, {"meta": {"kind": "ExactSecondMoment"}}),
    (DENSE, {"meta": {"kind": "OjaSketch"}}),
    (DENSE, {"meta": {"document": "{}"}}),
    (DENSE, {"meta": {"document": "[]"}}),
    (DENSE, {"meta": {"document": "null"}}),
    (DENSE, {"meta": {"document": "import os"}}),
    (DENSE, {"meta": {"document": "[" * 100_000}}),
]


@pytest.fixture(scope="module")
def healthy():
    dense, i = make("rfd", center=True).fit(rows(1)), 0
    while not (dense._state.shrunk and len(dense._queue) == 3):  # rows in the state and rows in the queue
        dense.partial_fit(rows(1, seed=(i := i + 1)))
    return {
        DENSE: dense,
        SPARSE: make("rfd", center=True).fit(sp.csr_array(rows(7) + rows(7, seed=3))),
        DIAGONAL: make("dfd").fit(rows(13)),
        PROJECTION: make("projection").fit(rows(13)),
        OJA: make("oja").fit(rows(13)),
        EXACT: make("exact").fit(rows(13)),
        WINDOW: rf.SlidingFrequentDirections(200, 4, center=True).fit(rows(303)),
    }


def named(case):
    which, change = case
    names = [name for part in change.values() for name in part]
    return f"{which}-{'-'.join(names)}"


@pytest.mark.parametrize("which, change", NONSENSE, ids=map(named, NONSENSE))
def test_senseless_content_is_refused(healthy, which, change):
    with pytest.raises(rf.SnapshotError, match=r"does not make sense|does not have"):
        BaseSketch.from_bytes(rewritten(healthy[which], **change))


def test_rewriting_nothing_is_accepted(healthy):
    for sketch in healthy.values():
        assert_same(BaseSketch.from_bytes(rewritten(sketch)), sketch)
    assert len(healthy[DENSE]._state.b) == 4 and len(healthy[SPARSE]._queue) and healthy[SPARSE]._queue.is_sparse
