"""Damaged or forged snapshots of online learners: they raise an error or are harmless, and never use much memory."""

import itertools
import tracemalloc
import warnings

import numpy as np
import pytest

import robustfd as rf
from robustfd.learners.learner import OnlineLearner
from tests.damage import REMOVED, damaged, put, rewritten
from tests.learners.saved_learners import assert_same, healthy, pairs, stream

S = "states.0."
NONSENSE = [
    # counts that follow from lengths
    ("rfd", {"tensors": {S + "products": lambda a: np.vstack([a, a])}}),
    ("rfd", {"tensors": {S + "products": lambda a: a[:-1]}}),
    ("rfd", {"tensors": {S + "products": lambda a: a[:, :-1]}}),
    ("rfd", {"tensors": {S + name: lambda a: np.vstack([a] * 4) for name in ("products", "rows", "buffer")}}),
    ("rfd", {"tensors": {S + "buffer": lambda a: a[:, :-1]}}),
    ("rfd", {"tensors": {S + "buffer": REMOVED}}),
    ("rfd", {"tensors": {S + "basis": lambda a: a.T}}),
    ("rfd", {"tensors": {S + "basis": lambda a: a[:-1]}}),
    ("rfd", {"tensors": {S + "basis": lambda a: np.zeros((10**12, 0))}}),
    ("rfd", {"tensors": {S + "basis": put((0, 0), np.nan)}}),
    ("rfd", {"tensors": {S + "basis": lambda a: a.astype(np.float32)}}),
    ("rfd", {"tensors": {S + "lam": put(0, -1.0)}}),
    ("rfd", {"tensors": {S + "scalars": put(0, -1.0)}}),
    ("rfd", {"tensors": {S + "scalars": put(0, 0.0)}}),  # then K is required
    ("rfd", {"document": {"states/0/factor": 0.0}}),
    ("rfd", {"document": {"states/0/factor": REMOVED}}),
    ("rfd", {"tensors": {S + "gram": lambda a: a[:, :-1]}}),
    ("early", {"tensors": {S + "k": put((0, 0), np.inf)}}),
    ("early", {"tensors": {S + "k": REMOVED}}),
    ("early", {"document": {"states/0/careful": False}, "tensors": {S + "k": REMOVED}}),
    ("rfd", {"tensors": {"more": np.ones(3)}}),
    ("rfd", {"tensors": {S + "more": np.ones(3)}}),
    ("rfd", {"tensors": {"states.1.basis": np.ones(3)}}),
    ("rfd", {"document": {"states/0/shrinks": -1}}),
    ("rfd", {"document": {"states/0/shrinks": 0.5}}),
    ("rfd", {"document": {"states/0/shrinks": 2**63}}),
    ("rfd", {"document": {"states/0/shrinks": 2**53 + 1}}),
    ("rfd", {"document": {"states/0/seen": "1"}}),
    ("rfd", {"document": {"states/0/sparse": True}}),
    ("rfd", {"document": {"states/0/sparse": 0}}),
    ("rfd", {"document": {"states/0/more": 1}}),
    ("rfd", {"document": {"states/0/seen": REMOVED}}),
    ("rfd", {"document": {"states": []}}),
    ("rfd", {"document": {"states": [{}]}}),
    ("rfd", {"document": {"states": [None]}}),
    ("rfd", {"document": {"states": {}}}),
    ("rfd", {"document": {"states": lambda s: s * 2}}),
    ("rfd", {"document": {"more": 1}}),
    ("rfd", {"document": {"n_features": 8}}),
    ("rfd", {"document": {"n_features": 0}}),
    ("rfd", {"document": {"n_features": 2**31}}),
    ("rfd", {"document": {"n_features": 9.0}}),
    ("rfd", {"document": {"feature_names": ["a"]}}),
    ("rfd", {"document": {"feature_names": None}}),
    ("rfd", {"document": {"params/sketch_size": 5}}),
    ("rfd", {"document": {"params/sketch_size": 10**6}}),
    ("rfd", {"document": {"params/sketch_size": "4"}}),
    ("rfd", {"document": {"params/buffer_size": 4}}),  # the block has more rows
    ("rfd", {"document": {"params/buffer_size": 10**9}}),
    ("rfd", {"document": {"params/buffer_size": 2**32}}),  # its square overflows
    ("rfd", {"document": {"params/buffer_size": 10**30}}),
    ("rfd", {"document": {"params/sketch": "full"}}),
    ("rfd", {"document": {"params/sketch": "oja"}}),
    ("rfd", {"document": {"params/sketch": ["rfd"]}}),
    ("rfd", {"document": {"params/loss": "eval"}}),
    ("rfd", {"document": {"params/rate": "os.system"}}),
    ("rfd", {"document": {"params/bound": 0.0}}),
    ("rfd", {"document": {"params/alpha0": 10**400}}),
    ("rfd", {"document": {"params/random_state": 0.5}}),
    ("rfd", {"document": {"params/more": 0.5}}),
    ("rfd", {"document": {"params": []}}),
    ("rfd", {"meta": {"kind": "AdaGrad"}}),
    ("rfd", {"meta": {"kind": "OnlineLearner"}}),
    ("rfd", {"meta": {"kind": "SavedLearner"}}),
    ("rfd", {"meta": {"kind": "Saved"}}),
    ("rfd", {"meta": {"kind": "SketchedPCA"}}),
    ("rfd", {"meta": {"kind": "load"}}),
    ("rfd", {"meta": {"kind": "__class__"}}),
    ("rfd", {"meta": {"kind": "RobustFrequentDirections"}}),
    ("rfd", {"meta": {"kind": "SketchedNewtonClassifier"}}),
    # the progress, whose number of rows is used as an index
    ("rfd", {"tensors": {"progress": put((0, 3), 1e300)}}),
    ("rfd", {"tensors": {"progress": put((0, 3), -1.0)}}),
    ("rfd", {"tensors": {"progress": put((0, 3), np.nan)}}),
    ("rfd", {"tensors": {"progress": put((0, 3), 2.5)}}),
    ("rfd", {"tensors": {"progress": lambda a: a[:-1]}}),
    ("rfd", {"tensors": {"progress": lambda a: a[:, :3]}}),
    ("rfd", {"tensors": {"progress": lambda a: a.astype(np.float32)}}),
    ("rfd", {"tensors": {"progress": REMOVED}}),
    # the run of wide rows
    ("wide", {"tensors": {S + "age": put(3, 200)}}),
    ("wide", {"tensors": {S + "age": lambda a: a.astype(np.int32)}}),
    ("wide", {"tensors": {S + "age": lambda a: a[:-1]}}),
    ("wide", {"tensors": {S + "history": lambda a: np.zeros((128, *a.shape[1:]))}}),
    ("wide", {"tensors": {S + "history": lambda a: np.zeros((0, 0, 0))}}),
    ("wide", {"tensors": {S + "run.feature": put(0, -1)}}),
    ("wide", {"tensors": {S + "run.feature": put(0, 700)}}),
    ("wide", {"tensors": {S + "run.feature": lambda a: np.full_like(a, 3)}}),
    ("wide", {"tensors": {S + "run.feature": lambda a: a.astype(np.int64)}}),
    ("wide", {"tensors": {S + "run.feature": lambda a: a[:-1]}}),
    ("wide", {"tensors": {S + "run.gathered": lambda a: a[:-1]}}),
    ("wide", {"tensors": {S + "run.where": put(0, -1)}}),
    ("wide", {"tensors": {S + "run.where": put(0, 10**6)}}),
    ("wide", {"tensors": {S + "run.where": lambda a: a[:-1]}}),
    ("wide", {"tensors": {S + "run.row": put(0, -1)}}),
    ("wide", {"tensors": {S + "run.row": put(-1, 10**6)}}),
    ("wide", {"tensors": {S + "run.row": put(-1, 256)}}),
    ("wide", {"tensors": {S + "run.row": lambda a: a[::-1]}}),
    ("wide", {"tensors": {S + "run.value": lambda a: a[:-1]}}),
    ("wide", {"tensors": {S + "run.value": put(0, np.inf)}}),
    ("wide", {"tensors": {S + "run.coefficients": lambda a: a[:2]}}),
    ("wide", {"tensors": {S + "run.coefficients": lambda a: np.zeros((260, a.shape[1]))}}),
    ("wide", {"tensors": {S + "run.coefficients": lambda a: np.zeros((254, a.shape[1]))}}),
    ("wide", {"tensors": {S + name: lambda a: a[:0] for name in ("run.value", "run.row", "run.where")}}),
    ("wide", {"document": {"states/0/sparse": False}}),
    ("wide", {"document": {"params/buffer_size": 10**9}}),
    # states of methods without blocks
    ("adagrad", {"tensors": {S + "w": lambda a: a[:-1]}}),
    ("adagrad", {"tensors": {S + "w": lambda a: a[:, None]}}),
    ("adagrad", {"tensors": {S + "squares": put(0, -1.0)}}),
    ("adagrad", {"tensors": {S + "basis": np.ones((9, 4))}}),
    ("descent", {"tensors": {S + "w": REMOVED}}),
    ("rp", {"tensors": {S + "bt": lambda a: a[:, :-1]}}),
    ("rp", {"tensors": {S + "bt": lambda a: a[:-1]}}),
    ("rp", {"tensors": {S + "gram": lambda a: a[:-1]}}),
    ("rp", {"tensors": {S + "c": lambda a: np.ones(10**5)}}),
    ("rp", {"document": {"params/sketch_size": 10**6}}),
    ("rp", {"document": {"states/0/generator": "{}"}}),
    ("rp", {"document": {"states/0/generator": "print('hello')"}}),
    ("rp", {"document": {"states/0/generator": '{"bit_generator": "MT19937"}'}}),
    ("rp", {"document": {"states/0/generator": 5}}),
    ("rp", {"document": {"states/0/generator": REMOVED}}),
    ("oja", {"document": {"states/0/generator": "{}"}}),
    ("oja", {"tensors": {S + "f": lambda a: a[:-1, :-1]}}),
    ("oja", {"tensors": {S + "yt": lambda a: a.T}}),
    ("oja", {"tensors": {S + "energy": put(0, -1.0)}}),
]


def victim(which):
    if which == "early":  # alpha is still zero
        return healthy("rfd", n=5)
    return healthy("rfd", "wide") if which == "wide" else healthy(which)


def named(case):
    which, change = case
    return f"{which}-{'-'.join(name for part in change.values() for name in part)}"


@pytest.mark.parametrize("which, change", NONSENSE, ids=map(named, NONSENSE))
def test_invalid_content_is_refused(which, change):
    data = rewritten(victim(which).to_bytes(), **change)
    with pytest.raises(rf.SnapshotError, match=r"does not make sense|does not have|not a OnlineLearner"):
        OnlineLearner.from_bytes(data)


@pytest.mark.parametrize("form", ["dense", "wide"])
def test_a_file_that_claims_to_be_huge_costs_no_memory(form):
    data = healthy("rfd", form).to_bytes()
    assert len(data) < 150_000
    tracemalloc.start()
    try:
        for change in (
            {"n_features": 10**8},
            {"params/sketch_size": 10**5},
            {"params/sketch": "full"},
            {"params/sketch": "rp", "params/sketch_size": 10**5},
            {"params/sketch": "oja", "n_features": 10**8},
        ):
            with pytest.raises(rf.SnapshotError):
                OnlineLearner.from_bytes(rewritten(data, document=change))
        assert tracemalloc.get_traced_memory()[1] < 2e6
    finally:
        tracemalloc.stop()


def test_rewriting_nothing_is_accepted():
    for name, form in pairs():
        learner = healthy(name, form)
        assert_same(OnlineLearner.from_bytes(rewritten(learner.to_bytes())), learner)
    wide = healthy("rfd", "wide")._state.core.run
    assert wide.features > 10 and wide.reach == 0


def test_every_truncation_and_changed_byte_is_detected():
    data = healthy("rfd", "wide").to_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(data), 300):
        with pytest.raises(rf.SnapshotError):
            OnlineLearner.from_bytes(data[:place])
        with pytest.raises(rf.SnapshotError):
            OnlineLearner.from_bytes(data[:place] + bytes([data[place] ^ rng.integers(1, 256)]) + data[place + 1 :])


def use(learner, form):
    """Use a learner as users do; numbers may be absurd, but compiled loops must stay within their arrays."""
    X, y = stream(form, 40, seed=9)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            learner.decision_function(X)
            for part in (slice(0, 1), slice(1, 40)):
                learner.learn(X[part], y[part])
            learner.decision_function(X)
        except (ArithmeticError, ValueError, np.linalg.LinAlgError):
            pass
        learner.progressive_  # noqa: B018


@pytest.mark.parametrize("name, form", [("rfd", "dense"), ("rfd", "wide"), ("rp", "dense"), ("oja", "wide")])
def test_forged_files_are_refused_or_harmless(name, form):
    kinds = ("OnlineNewton", "AdaGrad", "OnlineGradientDescent", "RFDSONClassifier", "OjaSketch", "Nothing")
    data, accepted = healthy(name, form, 30).to_bytes(), 0
    for _, bad in itertools.islice(damaged(data, 0, kinds), 150):
        try:
            learner = rf.OnlineNewton.from_bytes(bad)
        except rf.SnapshotError:
            continue
        accepted += 1
        use(learner, form)
    assert 5 <= accepted <= 75  # a changed value cannot always be detected
