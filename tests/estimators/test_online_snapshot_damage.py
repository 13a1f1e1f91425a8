"""Forged snapshots of online estimators: rejected or harmless, and never expensive."""

import itertools
import tracemalloc
import warnings

import numpy as np
import pytest
from sklearn.base import is_classifier

import robustfd as rf
from robustfd.estimators._online import OnlineEstimator
from tests.damage import REMOVED, damaged, put, rewritten
from tests.estimators.saved_estimators import assert_same, dicts, healthy, stream

S = "states.0."
NONSENSE = [
    # feature statistics
    ("untuned@dense", {"tensors": {S + "feature": put(1, 0)}}),
    ("untuned@dense", {"tensors": {S + "feature": put(0, 1)}}),
    ("untuned@dense", {"tensors": {S + "feature": put(-1, 7)}}),
    ("untuned@dense", {"tensors": {S + "feature": lambda a: a[::-1]}}),
    ("untuned@dense", {"tensors": {S + "feature": lambda a: a[:-1]}}),
    ("untuned@dense", {"tensors": {S + "feature": lambda a: a.astype(np.int64)}}),
    ("untuned@dense", {"tensors": {S + "table": put((2, 7), 9.0)}}),
    ("untuned@dense", {"tensors": {S + "table": put((2, 7), 0.0)}}),
    ("untuned@dense", {"tensors": {S + "table": put((2, 0), -1.0)}}),
    ("untuned@dense", {"tensors": {S + "table": put((2, 5), np.nan)}}),
    ("untuned@dense", {"tensors": {S + "table": lambda a: a[:, :-1]}}),
    ("untuned@dense", {"tensors": {S + "centre": lambda a: a[:, :-1]}}),
    ("untuned@dense", {"tensors": {S + "totals": lambda a: a[:, :-2]}}),
    ("untuned@dense", {"tensors": {S + "totals": put((0, 0), -3.0)}}),
    ("untuned@dense", {"tensors": {S + "totals": put((0, 0), 1e9)}}),  # more rows than the trace has windows for
    # experts and their mixture
    ("untuned@dense", {"tensors": {S + "weights": lambda a: a[:, :-1]}}),
    ("untuned@dense", {"tensors": {S + "weights": lambda a: a.astype(float)}}),
    ("untuned@dense", {"tensors": {S + "weights": put((0, 0), np.inf)}}),
    ("untuned@dense", {"tensors": {S + "share": lambda a: a[:, :-1]}}),
    ("untuned@dense", {"tensors": {S + "share": put((0, 0), -1.0)}}),
    ("untuned@dense", {"tensors": {S + "plain": lambda a: a[:-1]}}),
    ("untuned@dense", {"tensors": {S + "follow": lambda a: a[..., :-1]}}),
    ("untuned@dense", {"tensors": {S + "trace": lambda a: a[:-1]}}),
    ("untuned@dense", {"tensors": {S + "targets": lambda a: a[:, :-1]}}),
    ("untuned@dense", {"tensors": {S + "targets": put((0, 0), 1.0)}}),
    ("untuned@dense", {"tensors": {S + "targets": put((0, 10), 0.0)}}),
    ("untuned@dense", {"tensors": {S + "targets": put((0, 11), 1.0)}}),
    ("untuned@dense", {"tensors": {S + "targets": put((0, 13), -1.0)}}),
    # the sketch
    ("untuned@dense", {"tensors": {S + "sketch.lam": lambda a: np.ones(30)}}),
    ("untuned@dense", {"tensors": {S + "sketch.lam": put(0, -1.0)}}),
    ("untuned@dense", {"tensors": {S + "sketch.u": lambda a: a[:-1]}}),
    ("untuned@dense", {"tensors": {S + "sketch.buffer": lambda a: np.zeros((9, 7))}}),
    ("untuned@dense", {"tensors": {S + "sketch.weights": lambda a: a[:, :-1]}}),
    ("untuned@dense", {"document": {"states/0/form": "diagonal"}}),
    ("untuned@dense", {"document": {"states/0/form": "exact"}}),
    ("untuned@dense", {"document": {"states/0/form": "good"}}),
    ("untuned@dense", {"document": {"states/0/size": 4}}),
    ("untuned@dense", {"document": {"states/0/edition": 3}}),
    ("untuned@dense", {"document": {"states/0/outputs": 4}}),
    ("untuned@dense", {"document": {"states/0/features": 7}}),
    ("untuned@dense", {"document": {"states/0/seen": -3}}),
    ("untuned@dense", {"document": {"states/0/gain": "1"}}),
    ("untuned@dense", {"document": {"states/0/gain": float("inf")}}),
    ("untuned@dense", {"tensors": {S + "kept.y": np.ones(3)}}),
    ("untuned@dense", {"document": {"params/sketch_size": 4}}),
    ("untuned@dense", {"document": {"params/sketch_size": "big"}}),
    ("untuned-huber@dense", {"document": {"params/loss": "eval"}}),
    ("untuned-huber@dense", {"tensors": {"classes": np.array([1, 2])}}),
    ("untuned-huber@dense", {"meta": {"kind": "SketchedNewtonClassifier"}}),
    ("untuned@dense", {"meta": {"kind": "SketchedNewtonRegressor"}}),
    ("untuned@dense", {"meta": {"kind": "RFDSONClassifier"}}),
    ("untuned@dense", {"meta": {"kind": "UntunedEstimator"}}),
    ("untuned@dense", {"meta": {"kind": "OnlineEstimator"}}),
    ("untuned@dense", {"meta": {"kind": "SavedEstimator"}}),
    # the first rows
    ("untuned@first", {"tensors": {S + "kept.data": lambda a: a[:-1]}}),
    ("untuned@first", {"tensors": {S + "kept.data": put(0, 1e200)}}),
    ("untuned@first", {"tensors": {S + "kept.y": lambda a: a[:-1]}}),
    ("untuned@first", {"tensors": {S + "kept.weight": put(0, -1.0)}}),
    ("untuned@first", {"tensors": {S + "kept.weight": REMOVED}}),
    ("untuned@first", {"document": {"states/0/seen": 8}}),
    ("untuned@wide-first", {"tensors": {S + "kept.indices": put(0, 700)}}),
    ("untuned@wide-first", {"tensors": {S + "kept.indices": put(0, -1)}}),
    ("untuned@wide-first", {"tensors": {S + "kept.indices": lambda a: a[::-1]}}),
    ("untuned@wide-first", {"tensors": {S + "kept.indices": lambda a: a.astype(np.int64)}}),
    ("untuned@wide-first", {"tensors": {S + "kept.indices": lambda a: a[:-1]}}),
    ("untuned@wide-first", {"tensors": {S + "kept.indptr": put(1, 10**9)}}),
    ("untuned@wide-first", {"tensors": {S + "kept.indptr": put(0, 1)}}),
    ("untuned@wide-first", {"tensors": {S + "kept.indptr": put(-1, 3)}}),
    ("untuned@wide-first", {"tensors": {S + "kept.indptr": put(1, -3)}}),
    ("untuned@wide-first", {"tensors": {S + "kept.indptr": lambda a: a[:-1]}}),
    ("untuned@wide", {"document": {"n_features": 699}}),
    ("untuned@wide", {"document": {"n_features": 701}}),
    # labels
    ("untuned@dense", {"tensors": {"classes": REMOVED}}),
    ("untuned@dense", {"tensors": {"classes": np.array([1, 2])}}),
    ("untuned@dense", {"tensors": {"classes": np.array([1, 2, 3, 4])}}),
    ("untuned@dense", {"tensors": {"classes": np.array([1, 2, 1])}}),
    ("untuned@dense", {"tensors": {"classes": np.array([1, 2, np.nan])}}),
    ("untuned@dense", {"tensors": {"classes": np.array([[1], [2], [3]])}}),
    ("untuned@dense", {"tensors": {"classes": np.array([[1], [2], [2**31]], np.uint32)}}),
    ("untuned@dense", {"tensors": {"classes": np.array([[1], [2], [2]], np.uint32)}}),
    ("untuned@dense", {"tensors": {"classes": np.zeros((3, 0), np.uint32)}}),
    ("untuned@dense", {"tensors": {"classes": np.array(7)}}),
    ("untuned@dense", {"tensors": {"classes": np.array([0, 1, 2], np.uint8).view(bool)}}),
    ("untuned@dense", {"document": {"classes": ["a", "b", "c"]}}),  # in addition to the tensor
    ("untuned@dense", {"tensors": {"classes": REMOVED}, "document": {"classes": ["a", "b", "b"]}}),
    ("untuned@dense", {"tensors": {"classes": REMOVED}, "document": {"classes": ["a", "b", ["c"]]}}),
    ("untuned@dense", {"tensors": {"classes": REMOVED}, "document": {"classes": ["a", "b", None]}}),
    ("untuned@dense", {"tensors": {"classes": REMOVED}, "document": {"classes": "abc"}}),
    ("untuned@dense", {"document": {"open": 1}}),
    ("untuned@dense", {"document": {"open": REMOVED}}),
    ("untuned@dense", {"document": {"rows": "dicts"}}),
    ("untuned@dense", {"document": {"rows": "pairs"}}),
    ("untuned@dense", {"document": {"rows": "many"}}),
    ("untuned@dense", {"document": {"rows": ["rows"]}}),
    # names
    ("rfdson@dicts", {"tensors": {"vocabulary": REMOVED}}),
    ("rfdson@dicts", {"tensors": {"vocabulary": np.frombuffer(b'["a", "a"]', np.uint8)}}),
    ("rfdson@dicts", {"tensors": {"vocabulary": np.frombuffer(b"[1, 1.0]", np.uint8)}}),
    ("rfdson@dicts", {"tensors": {"vocabulary": np.frombuffer(b'["a", ["b"]]', np.uint8)}}),
    ("rfdson@dicts", {"tensors": {"vocabulary": np.frombuffer(b'{"a": 10000000}', np.uint8)}}),
    ("rfdson@dicts", {"tensors": {"vocabulary": np.frombuffer(b"[" * 10**5, np.uint8)}}),
    ("rfdson@dicts", {"tensors": {"vocabulary": np.frombuffer(b"\xff\xfe", np.uint8)}}),
    ("rfdson@dicts", {"tensors": {"vocabulary": np.frombuffer(str(list(range(99))).encode(), np.uint8)}}),
    ("rfdson@dicts", {"tensors": {"vocabulary": np.ones(3)}}),
    ("rfdson@dicts", {"document": {"n_features": 10**6}}),
    ("rfdson@dicts", {"document": {"open": False}}),
    ("rfdson@dicts", {"document": {"rows": "rows"}}),
    # one state for each output, of the same sizes
    ("rfdson@dense", {"document": {"states": lambda states: states[:2]}}),
    ("rfdson@dense", {"tensors": {"states.1.basis": lambda a: a[:-1]}}),
    ("rfdson@dense", {"document": {"states/1/sparse": True}}),
    ("rfdson@dense", {"document": {"params/sketch_size": 10**6}}),
    ("rfdson@dense", {"document": {"params/fit_intercept": False}}),
    ("rfdson-numbers@dense", {"document": {"states/0/unit": -1.0}}),
    ("rfdson-numbers@dense", {"document": {"states/0/unit": REMOVED}}),
    ("rfdson-numbers@dense", {"document": {"params/bound": "big"}}),
]


def named(case):
    which, change = case
    return f"{which}-{'-'.join(name for part in change.values() for name in part)}"


@pytest.mark.parametrize("which, change", NONSENSE, ids=map(named, NONSENSE))
def test_senseless_content_is_refused(which, change):
    data = rewritten(healthy(which).to_bytes(), **change)
    with pytest.raises(rf.SnapshotError, match=r"does not make sense|does not have|not a OnlineEstimator"):
        OnlineEstimator.from_bytes(data)


def test_rewriting_nothing_is_accepted():
    for which in dict(NONSENSE):
        model = healthy(which)
        assert_same(OnlineEstimator.from_bytes(rewritten(model.to_bytes())), model)


@pytest.mark.parametrize("which", ["untuned@wide", "untuned@first", "rfdson@dicts", "rfdson-numbers@dense"])
def test_a_file_that_claims_to_be_huge_costs_no_memory(which):
    data = healthy(which).to_bytes()
    tracemalloc.start()
    try:
        for change in ({"n_features": 10**8}, {"params/sketch_size": 10**5}):
            with pytest.raises(rf.SnapshotError):
                OnlineEstimator.from_bytes(rewritten(data, document=change))
        assert tracemalloc.get_traced_memory()[1] < 1e6 + 8 * len(data)
    finally:
        tracemalloc.stop()


def use(model, which):
    """Use a model as users do. Numbers may be absurd, but compiled loops must not access memory out of bounds."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            if which.endswith("dicts"):
                for i, row in enumerate(dicts(20, seed=4)):
                    model.predict_one(row)
                    model.learn_one(row, model.classes_.tolist()[i % 3] if i % 5 else "new")
            else:
                X, y = stream(model, "wide" if "wide" in which else "dense", 30, seed=4)
                model.predict(X)
                for part in (slice(0, 1), slice(1, 30)):
                    model.partial_fit(X[part], model.classes_[y[part]] if is_classifier(model) else y[part])
                model.predict(X)
        except (ArithmeticError, ValueError, IndexError, np.linalg.LinAlgError):
            pass


@pytest.mark.parametrize(
    "which",
    ["untuned@dense", "untuned@wide", "untuned@first", "untuned@dicts", "untuned-huber@wide-first", "rfdson@dicts"],
)
def test_made_up_files_are_refused_or_harmless(which):
    kinds = ("SketchedNewtonClassifier", "SketchedNewtonRegressor", "RFDSONClassifier", "RFDSONRegressor", "AdaGrad")
    data, accepted = healthy(which).to_bytes(), 0
    for _, bad in itertools.islice(damaged(data, 0, kinds), 150):
        try:
            model = OnlineEstimator.from_bytes(bad)
        except rf.SnapshotError:
            continue
        accepted += 1
        use(model, which)
    assert 5 <= accepted <= 75  # a changed number that is still valid cannot be detected
