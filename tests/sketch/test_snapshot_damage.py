"""Damaged, foreign and senseless snapshots are refused."""

import json
import pickle
import tracemalloc

import numpy as np
import pytest
import safetensors.numpy
import scipy.sparse as sp

import robustfd as rf
from robustfd import _container
from robustfd.sketch.base import BaseSketch
from tests.sketch.test_snapshot import D, assert_same, make, rows


@pytest.fixture(scope="module", params=["RFD", "random projection"])
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
    data = rewritten(make("RFD").fit(rows(9)), meta={"robustfd": str(version)})
    with pytest.raises(rf.SnapshotError, match=f"version {version}; this robustfd reads version 1"):
        BaseSketch.from_bytes(data)


@pytest.mark.parametrize("length", [2**63 - 1, 2**64 - 1, 2**40])
def test_a_header_that_claims_to_be_huge_costs_no_memory(length):
    data = make("RFD").fit(rows(7)).to_bytes()
    lying = data[8:].replace(b'"shape":[7,50]', b'"shape":[7,50000000000]')
    assert lying != data[8:]
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


# For each snapshot: what to write in place of an array, of an entry of the document, or of the header. Several values
# of one entry are several cases.
NAN, INF = float("nan"), float("inf")
TENSORS = {
    "dense": {
        "state.b": [
            lambda b: b[:, :-1], lambda b: b[:-1], lambda b: b.ravel(), lambda b: b[None], REMOVED, put((0, 0), NAN),
            lambda b: b.astype(np.float32), lambda b: b.astype(np.int64), put((0, 0), INF),
        ],
        "state.lam": [
            lambda lam: lam[:-1], lambda lam: np.append(lam, 1.0), REMOVED, put(0, -1.0), put(0, 0.0), put(0, NAN)
        ],
        "state.mean": [lambda mean: mean[:-1], put(0, INF), REMOVED],
        "state.more": [np.ones(1)],
        "else": [np.ones(1)],
        "state.squares": [np.ones(D)],
        "queue.clock": [np.arange(3.0)],
        "queue.x": [
            lambda x: x[:-1], lambda x: x[:, :-1], lambda x: x.astype(np.int32), put((0, 0), NAN), REMOVED
        ],
        "queue.weight": [
            REMOVED, put(0, -1.0), put(0, 0.0), lambda w: w[:-1], lambda w: w[:, None], np.float64(1.0)
        ],
        "queue.decay": [put(0, 1.5), put(0, 0.0), put(0, NAN), REMOVED],
    },
    "diagonal": {
        "state.squares": [
            REMOVED, lambda x: x[:-1], lambda x: x[None], lambda x: x.astype(np.float32), put(3, -1e-300), put(3, NAN),
            put(3, INF),
        ],
    },
    "exact": {"state.mean": [np.ones(D)], "state.matrix": [np.eye(D - 1), put((1, 1), NAN)]},
    "random projection": {"state.bt": [lambda bt: bt[:, 1:], lambda bt: bt.T]},
    "Oja": {"state.energy": [lambda energy: energy[1:], put(0, -1.0)]},
    "window": {
        "state.b": [lambda b: b[:, :-1]],
        "state.dumps": [lambda dumps: dumps[1:], put((0, 0), NAN)],
        "state.dates": [lambda dates: dates[1:], put((1, 0), -1.0)],
        "state.marks": [
            lambda marks: marks[1:], lambda marks: marks[:, ::-1], put((6, 0), -1.0), put((0, 0), INF),
            lambda marks: marks[:, :0], lambda marks: marks[0],
        ],
        "state.shift": [REMOVED, lambda shift: shift[1:]],
        "queue.clock": [REMOVED, lambda clock: clock[::-1], lambda clock: clock[1:], lambda clock: clock + 100],
    },
    "sparse": {
        "queue.indptr": [
            put(1, 10**6), put(1, -5), put(0, 1), put(-1, 10**6), lambda p: p[:-1], lambda p: p.astype(np.float64)
        ],
        "queue.indices": [put(0, D), put(0, -1), put(slice(None), 3), lambda i: i[::-1], lambda i: i[:-1]],
        "queue.data": [put(0, INF), lambda x: x.astype(np.int64), lambda x: x[:, None]],
    },
}  # fmt: skip
DOCUMENTS = {
    "dense": {
        "state.squares": [None],
        "state.weight": [-1.0, NAN, None, "5", True, REMOVED],
        "state.delta": [INF, -1e-9],
        "state.squared_norm": [[1.0]],
        "state.shrunk": [1, False],
        "state.more": [1],
        "state.b": [[[1.0]]],
        "state": [[], REMOVED],
        "queue": [[3, D]],
        "n_features": [D - 1, 0, "50", 50.0, REMOVED],
        "n_seen": [-1, 1.5],
        "single": [1],
        "tail": [2.0, 0, "1", NAN],
        "column_major": [["state.c"], None, [["state.b"]]],
        "feature_names": [["a"], "a" * D, list(range(D))],
        "params.sketch_size": [1, "5", 5.0],
        "params.alpha0": [-1.0],
        "params.decay": [[1.0]],
        "params.solver": ["eval", "gram"],
        "params.center": [1],
        "params.unheard_of": [1],
        "params": [[], None],
        "structure.sketch_size": [2, "5"],
        "structure.center": [False, REMOVED],
        "structure.solver": ["auto"],
        "structure": [None],
    },
    "sparse": {"queue": [None, [10**12, D], [-1, D], "shape"]},
    "window": {
        "state.clock": ["moon"],
        "state.now": ["noon", NAN],
        "state.unit": [0.0, REMOVED],
        "state.more": [1.0],
        "params.window": [-1.0],
        "structure.window": [0],
        "structure.clock": ["moon"],
    },
    "Oja": {"state.t": [-1, 1.5], "params.random_state": ["x", [1, 2]]},
    "random projection": {"state.generator": ["{}", "print('hello')", '{"bit_generator": "MT19937"}', 5]},
}
KINDS = ["FrequentDirection", "os.system", "BaseSketch", "_FrequentDirections", "DiagonalFrequentDirections"]
HEADERS = {
    "dense": {
        "kind": [*KINDS, "ExactSecondMoment", "OjaSketch"],
        "document": ["{}", "[]", "null", "import os", "[" * 100_000],
    },
    "diagonal": {"kind": ["FrequentDirections"]},
}
NONSENSE = [
    (which, {place: {name: value}})
    for place, table in (("tensors", TENSORS), ("document", DOCUMENTS), ("meta", HEADERS))
    for which, entries in table.items()
    for name, values in entries.items()
    for value in values
] + [  # two changes that fit together
    ("dense", {"tensors": {"state.lam": np.ones(9), "state.b": np.eye(9, D)}}),
    ("dense", {"tensors": {"state.mean": REMOVED}, "document": {"state.mean": None}}),
    ("diagonal", {"tensors": {"state.squares": REMOVED}, "document": {"state.squares": None}}),
    ("Oja", {"tensors": {"state.energy": np.ones(3), "state.vt": np.eye(D, 3)}}),
    ("window", {"tensors": {"state.b": np.ones((9, D + 1)), "state.lam": np.ones(9)}}),
    ("window", {"tensors": {"state.dumps": np.ones((20, D + 1)), "state.dates": np.ones((4, 20))}}),
]


@pytest.fixture(scope="module")
def healthy():
    dense, i = make("RFD", center=True).fit(rows(1)), 0
    while not (dense._state.shrunk and len(dense._queue) == 3):  # rows in the state and rows in the queue
        dense.partial_fit(rows(1, seed=(i := i + 1)))
    return {
        "dense": dense,
        "sparse": make("RFD", center=True).fit(sp.csr_array(rows(7) + rows(7, seed=3))),
        "diagonal": make("DFD").fit(rows(13)),
        "window": rf.SlidingFrequentDirections(200, 4, center=True).fit(rows(303)),
        **{name: make(name).fit(rows(13)) for name in ("random projection", "Oja", "exact")},
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
    assert len(healthy["dense"]._state.b) == 3
    assert len(healthy["sparse"]._queue) and healthy["sparse"]._queue.is_sparse
