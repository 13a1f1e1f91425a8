"""Snapshots of online estimators: batches, dicts, pairs, classes and features that appear, labels of all kinds."""

import copy
import hashlib
import itertools
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError

import robustfd as rf
from robustfd.estimators._online import OnlineEstimator
from robustfd.online import _columns
from tests.damage import REMOVED, damaged, put, rewritten

M = 3  # 12 first rows of the untuned
MODELS = {
    "untuned": rf.SketchedNewtonClassifier(M),
    "untuned-numbers": rf.SketchedNewtonRegressor(M),
    "untuned-huber": rf.SketchedNewtonRegressor(M, loss="huber"),
    "rfdson": rf.RFDSONClassifier(M),
    "rfdson-logistic": rf.RFDSONClassifier(M, loss="logistic", fit_intercept=True, bound=5.0),
    "rfdson-numbers": rf.RFDSONRegressor(M),
    "rfdson-bound": rf.RFDSONRegressor(M, bound=3.0, fit_intercept=False, alpha0=0.1),
}
FORMS = ("dense", "sparse", "wide")
MOMENTS = (1, 2, 3, 4, 5, 8, 9, 11, 12, 13, 17, 21, 22, 23, 40, 41, 90, 140)


def stream(model, form, n=140, seed=0, classes=3):
    """Rows and labels or targets."""
    rng = np.random.default_rng(seed)
    d = 700 if form == "wide" else 6
    X = rng.standard_normal((n, d)) / 2 + (form == "dense")
    if form != "dense":
        X *= rng.random((n, d)) < (0.4 if d == 6 else 0.01) * np.linspace(1.5, 0.01, d)
        X[:, 2] = rng.standard_normal(n) + 2.0  # one that is seldom zero, and will be centred
    score = X[:, 0] - X[:, 1] + 0.3 * rng.standard_normal(n)
    y = np.floor((score.argsort().argsort() * classes) / n).astype(int) if is_classifier(model) else 7 + score
    return (X if form == "dense" else sp.csr_array(X)), y


def learn(model, X, y, part):
    """Learn a part of a stream in a batch."""
    extra = {"classes": np.unique(y)} if is_classifier(model) else {}
    return model.partial_fit(X[part], y[part], **extra)


def dicts(n, seed=0, most=40):
    """Rows as dicts of few features, of names of all kinds, ever new ones."""
    rng = np.random.default_rng(seed)
    names = ["a", "b", 3, 2.5, True, "ü", "colour"]
    for i in range(n):
        row = {name: float(rng.standard_normal()) for name in rng.permutation(np.array(names[:6], object))[:3]}
        row["colour"] = str(rng.choice(["red", "green", "blue"]))
        row[f"later{rng.integers(1 + min(i, most))}"] = 1.0
        yield row


def again(model):
    return type(model).from_bytes(model.to_bytes())


def assert_same(one, two):
    """Nothing tells the two apart, not even a last bit."""
    assert type(one) is type(two) and one.get_params() == two.get_params()
    assert vars(one).keys() == vars(two).keys()
    for name in ("_kind", "_seen_parameters", "n_features_in_", "_vocabulary", "_classes_open", "_unit", "_bound"):
        assert getattr(one, name, None) == getattr(two, name, None), name
    if is_classifier(one):
        assert one.classes_.dtype == two.classes_.dtype
        assert one.classes_.tolist() == two.classes_.tolist()
    states = [getattr(model, "_states", None) or [model._model] for model in (one, two)]
    for ours, theirs in zip(*states, strict=True):
        assert vars(ours).keys() == vars(theirs).keys()
        for name in ("basis", "rows", "memory"):
            if hasattr(ours, name):
                assert getattr(ours, name).flags.c_contiguous == getattr(theirs, name).flags.c_contiguous
    assert one.coef_.tobytes() == two.coef_.tobytes()
    assert np.asarray(one.intercept_).tobytes() == np.asarray(two.intercept_).tobytes()
    assert one._progress.tobytes() == two._progress.tobytes()
    assert one.to_bytes() == two.to_bytes()


def judged(model, X):
    return (model.predict_proba(X) if is_classifier(model) else model.predict(X)).tobytes()


# -- what goes in comes out


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MODELS)
def test_a_restored_model_goes_on_bit_for_bit(name, form):
    model = clone(MODELS[name])
    X, y = stream(model, form)
    followers = []
    for start, stop in itertools.pairwise((0, *MOMENTS)):
        for each in (model, *followers):
            learn(each, X, y, slice(start, stop))
        followers.append(again(model))
        assert_same(model, followers[-1])
        assert judged(model, X) == judged(followers[-1], X)
    for follower in followers:  # each was restored at another moment, and has gone on since
        assert_same(model, follower)


@pytest.mark.parametrize("name", MODELS)
def test_dicts_with_new_features_and_classes(name):
    model = clone(MODELS[name])
    rng, followers = np.random.default_rng(1), []
    for i, row in enumerate(dicts(90)):
        count = min(1 + i // 7, 5)  # a class appears now and then
        y = ["spam", "ham", "eggs", "bacon", "ü"][rng.integers(count)] if is_classifier(model) else 2.0**i * 1e-9
        for each in (model, *followers):
            each.learn_one(row, y)
        if i in (0, 1, 2, 6, 7, 8, 11, 12, 13, 14, 15, 20, 21, 22, 33, 34, 35, 36, 60):
            followers.append(again(model))
            assert_same(model, followers[-1])
        if i % 10 == 5:  # reading makes no difference
            for each in followers[::2]:
                assert each.predict_one(row) == model.predict_one(row)
    for follower in followers:
        assert_same(model, follower)
    assert len(model.vocabulary_) > 30 and next(iter(followers[-1].vocabulary_)) == next(iter(model.vocabulary_))
    assert {type(key) for key in again(model)._vocabulary} == {str, int, float, bool}
    if is_classifier(model):
        assert len(model.classes_) == 5


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["pairs", "rows"])
def test_pairs_and_single_rows(name, kind):
    model = clone(MODELS[name])
    rng, followers = np.random.default_rng(2), []
    for i in range(60):
        where = np.sort(rng.choice(5 + i, 3, replace=False))
        row = (where, rng.standard_normal(3)) if kind == "pairs" else rng.standard_normal(5)
        y = int(rng.integers(min(1 + i // 5, 4))) if is_classifier(model) else float(rng.standard_normal())
        for each in (model, *followers):
            each.learn_one(row, y, sample_weight=float(i % 4))
        if i in (0, 1, 2, 7, 16, 17, 30):
            if i == 0:
                with pytest.raises(NotFittedError):  # a first row of weight 0 begins nothing
                    again(model)
                continue
            followers.append(again(model))
            assert_same(model, followers[-1])
    for follower in followers:
        assert_same(model, follower)


def test_a_class_that_appears_after_reading():
    # What is remembered of past runs is made again when there are more outputs.
    quiet, asked = rf.SketchedNewtonClassifier(M), rf.SketchedNewtonClassifier(M)
    rows = list(dicts(300, most=200))
    for i, row in enumerate(rows):
        label = i % 2 if i < 200 else i % 5
        for model in (quiet, asked):
            model.learn_one(row, label)
        for past in rows[: i : 1 + i // 30]:
            asked.predict_one(past)
    assert_same(quiet, asked)
    assert quiet._model.columns.counts[_columns.RUN] > 5


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MODELS)
def test_saving_changes_nothing(name, form):
    for n in (5, 31):
        model = clone(MODELS[name])
        X, y = stream(model, form, n)
        learn(model, X, y, slice(0, n))
        untouched = copy.deepcopy(model)
        assert model.to_bytes() == model.to_bytes()
        assert_same(model, untouched)


def test_a_caller_who_uses_his_array_again():
    # The first rows are kept for a while, and must be those that came.
    X, y = stream(MODELS["untuned"], "dense", 12)
    model, place = rf.SketchedNewtonClassifier(M), np.empty((1, 6))
    for i in range(11):
        place[:] = X[i]
        model.partial_fit(place, y[i : i + 1], classes=[0, 1, 2])
    restored = again(model)
    place[:] = 1e9
    for each in (model, restored):
        each.partial_fit(X[11:], y[11:])
    assert_same(model, restored)


SCRIPT = """
import hashlib, json, sys
import numpy as np, scipy.sparse as sp
import robustfd
folder = sys.argv[1]
for name in sys.argv[2:]:
    model = robustfd.load(f"{folder}/{name}.rfd")
    with np.load(f"{folder}/{name}.npz") as data:
        X, y = data["X"], data["y"]
    X = X if name.endswith("dense") else sp.csr_array(X)
    for a, b in ((0, 1), (1, 30), (30, 100)):
        model.partial_fit(X[a:b], y[a:b])
    print(name, hashlib.sha256(model.to_bytes()).hexdigest())
"""


def test_going_on_in_a_fresh_process(tmp_path):
    expected = []
    for (name, model), form, n in itertools.product(MODELS.items(), FORMS, (7, 31)):
        model = clone(model)
        X, y = stream(model, form, n)
        learn(model, X, y, slice(0, n))
        model.save(tmp_path / f"{name}-{n}-{form}.rfd")
        X, y = stream(model, form, 100, seed=5)
        np.savez(tmp_path / f"{name}-{n}-{form}.npz", X=X if form == "dense" else X.toarray(), y=y)
        for a, b in ((0, 1), (1, 30), (30, 100)):
            model.partial_fit(X[a:b], y[a:b])
        expected.append(f"{name}-{n}-{form} {hashlib.sha256(model.to_bytes()).hexdigest()}")
    names = [line.split()[0] for line in expected]
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), *names]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert found == expected


def test_what_was_learnt_is_there_after_a_reload(tmp_path):
    for (name, model), form in itertools.product(MODELS.items(), FORMS):
        model = clone(model)
        X, y = stream(model, form, classes=2)
        learn(model, X, y, slice(0, 100))
        model.save(tmp_path / "model.rfd")
        restored = rf.load(tmp_path / "model.rfd")
        assert type(restored) is type(model)
        assert restored.n_samples_seen_ == 100
        assert np.any(restored.coef_ != 0), name
        assert restored.score(X[100:], y[100:]) == model.score(X[100:], y[100:])
        assert judged(restored, X) == judged(model, X)
        assert restored.progressive_loss_ == model.progressive_loss_


# -- labels and names


@pytest.mark.parametrize("name", ["untuned", "rfdson"])
@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "yes"]),
        np.array(["no", "yes", "ü" * 9]).astype("<U40"),
        np.array(["no", "yes", ""], dtype=object),
        np.array([-1, 1]),
        np.array([3, 1, 2], dtype=np.int8),
        np.array([2**63, 1], dtype=np.uint64),
        np.array([2**62, 2**62 + 1]),
        np.array([0.0, 1.0, 7.0]),
        np.array([0.0, 1.0], dtype=np.float32),
        np.array([False, True]),
    ],
    ids=lambda labels: str(labels.dtype),
)
def test_labels_come_back_as_they_were(name, labels):
    X, y = stream(MODELS[name], "dense", 30, classes=len(labels))
    model = clone(MODELS[name]).fit(X, labels[y])
    restored = again(model)
    assert_same(model, restored)
    assert restored.predict(X).dtype == model.predict(X).dtype
    assert restored.predict(X).tolist() == model.predict(X).tolist()
    assert type(restored.predict_one(X[0])) is type(model.predict_one(X[0]))
    for each in (model, restored):
        each.partial_fit(X, labels[y])
    assert_same(model, restored)


@pytest.mark.parametrize("labels", [["a", "bcd"], [1, 0], [True, False], [1.0, 2.0]])
def test_labels_of_single_rows_come_back_as_they_were(labels):
    model = rf.SketchedNewtonClassifier(M)
    for i, row in enumerate(dicts(9)):
        model.learn_one(row, labels[i % 2])
    restored = again(model)
    assert_same(model, restored)
    ours, theirs = (each.predict_proba_one(row) for each in (restored, model))
    assert ours == theirs and [type(key) for key in ours] == [type(key) for key in theirs]


def test_labels_and_names_that_cannot_be_saved():
    X, y = stream(MODELS["untuned"], "dense", 20, classes=2)
    model = rf.SketchedNewtonClassifier(M).fit(X, y)
    model.classes_ = np.array([b"no", b"yes"])
    with pytest.raises(TypeError, match=r"Labels of .S3 cannot be saved"):
        model.to_bytes()
    for name in (("a", 1), None, b"a", float("nan"), frozenset("a")):
        model = rf.RFDSONClassifier(M).learn_one({"a": 1.0, name: 2.0}, 1)
        with pytest.raises(TypeError, match="The feature .* cannot be saved: a snapshot holds str, int"):
            model.to_bytes()
    model = rf.RFDSONClassifier(M).learn_one({np.str_("a"): 1.0, np.int64(3): 2.0}, "x")
    assert again(model).vocabulary_ == model.vocabulary_
    assert {type(name) for name in again(model).vocabulary_} == {str, int}


def test_what_else_cannot_be_saved():
    for model in MODELS.values():
        with pytest.raises(NotFittedError):
            clone(model).to_bytes()
        X, y = stream(model, "dense", 20)
        fitted = clone(model)
        learn(fitted, X, y, slice(0, 20))
        fitted.set_params(sketch_size=7)
        with pytest.raises(ValueError, match="parameters were changed"):
            fitted.to_bytes()


def test_names_of_columns():
    pd = pytest.importorskip("pandas")
    for model in MODELS.values():
        model = clone(model)
        X, y = stream(model, "dense", 40)
        frame = pd.DataFrame(X, columns=list("abcdeü"))
        learn_frame = frame.iloc[:20]
        model.partial_fit(learn_frame, y[:20], **({"classes": [0, 1, 2]} if is_classifier(model) else {}))
        restored = again(model)
        assert list(restored.feature_names_in_) == list("abcdeü")
        for each in (model, restored):
            each.partial_fit(frame.iloc[20:], y[20:])
        assert_same(model, restored)
        with pytest.raises(ValueError, match="feature names"):
            restored.predict(frame[list("bacdeü")])


def test_load_gives_sketches_and_learners_alike(tmp_path):
    X = stream(MODELS["untuned"], "dense")[0]
    rf.RobustFrequentDirections(3).fit(X).save(tmp_path / "sketch.rfd")
    rf.RFDSONRegressor(3).fit(X, X[:, 0]).save(tmp_path / "model.rfd")
    assert isinstance(rf.load(tmp_path / "sketch.rfd"), rf.RobustFrequentDirections)
    assert isinstance(rf.load(tmp_path / "model.rfd"), rf.RFDSONRegressor)
    data = (tmp_path / "model.rfd").read_bytes()
    with pytest.raises(rf.SnapshotError, match="holds a RFDSONRegressor, not a SketchedNewtonRegressor"):
        rf.SketchedNewtonRegressor.from_bytes(data)
    with pytest.raises(rf.SnapshotError, match="holds a RFDSONRegressor, not a OjaSketch"):
        rf.OjaSketch.from_bytes(data)


# -- right checksum, wrong content


def healthy(which):
    name, _, form = which.partition("@")
    model = clone(MODELS[name])
    if form == "dicts":
        for i, row in enumerate(dicts(26)):
            model.learn_one(row, ["a", "b", "c"][i % 3] if is_classifier(model) else float(i))
        return model
    n = 7 if form == "first" else 30
    X, y = stream(model, "wide" if form == "wide-first" else form.replace("first", "dense"), n)
    return learn(model, X, y, slice(0, n if form != "wide-first" else 7))


S = "states.0."
NONSENSE = [
    # what is known of features
    ("untuned@dense", {"tensors": {S + "features": put((0, 3), 0.0)}}),
    ("untuned@dense", {"tensors": {S + "features": put((2, 3), 2.0)}}),
    ("untuned@dense", {"tensors": {S + "features": put((2, 3), 0.5)}}),
    ("untuned@dense", {"tensors": {S + "features": put((2, 0), -1.0)}}),
    ("untuned@dense", {"tensors": {S + "features": put((2, 5), np.nan)}}),
    ("untuned@dense", {"tensors": {S + "features": lambda a: a[:-1]}}),
    ("untuned@dense", {"tensors": {S + "features": lambda a: a[:, :-1]}}),
    ("untuned@dense", {"tensors": {S + "totals": lambda a: a[:-1]}}),
    # the block
    ("untuned@dense", {"tensors": {S + "products": lambda a: np.vstack([a] * 3)}}),
    ("untuned@dense", {"tensors": {S + "products": lambda a: a[:-1]}}),
    ("untuned@dense", {"tensors": {S + "steps": lambda a: a[:, :-1]}}),
    ("untuned@dense", {"tensors": {S + "curvature": put(0, -1.0)}}),
    ("untuned@dense", {"tensors": {S + "root": lambda a: a[:-1]}}),
    ("untuned@dense", {"tensors": {S + "m": lambda a: a[:-1]}}),
    ("untuned@dense", {"tensors": {S + "m": lambda a: a[:-1, :-1]}}),
    ("untuned@dense", {"tensors": {S + "lam": lambda a: np.ones(30)}}),
    ("untuned@dense", {"tensors": {S + "lam": put(0, -1.0)}}),
    ("untuned@dense", {"tensors": {S + "rates": lambda a: a[:-1]}}),
    ("untuned@dense", {"tensors": {S + "losses": lambda a: a[:-1]}}),
    ("untuned@dense", {"tensors": {S + "losses": lambda a: a.reshape(5, 3)}}),
    ("untuned@dense", {"tensors": {S + "factors": lambda a: a[:-1]}}),
    ("untuned@dense", {"tensors": {S + "rows": lambda a: a[:, :-1]}}),
    ("untuned@dense", {"tensors": {S + "basis": lambda a: a[:-1]}}),
    ("untuned@dense", {"tensors": {S + "basis": lambda a: a[:, :-1]}}),
    ("untuned@dense", {"tensors": {S + "basis": lambda a: np.zeros((10**12, 0))}}),
    ("untuned@dense", {"tensors": {S + "kept.y": np.ones(3)}}),
    ("untuned@dense", {"document": {"states/0/shrinks": 0}}),
    ("untuned@dense", {"document": {"states/0/seen": 3}}),
    ("untuned@dense", {"document": {"states/0/offset": "1"}}),
    ("untuned@dense", {"document": {"states/0/offset": float("inf")}}),
    ("untuned@dense", {"document": {"states/0/sparse": True}}),
    ("untuned@dense", {"document": {"params/sketch_size": 4}}),
    ("untuned@dense", {"document": {"params/sketch_size": "big"}}),
    ("untuned-huber@dense", {"document": {"params/loss": "eval"}}),
    ("untuned-huber@dense", {"tensors": {S + "spread": put(0, -1.0)}}),
    ("untuned-huber@dense", {"tensors": {"classes": np.array([1, 2])}}),
    ("untuned-huber@dense", {"meta": {"kind": "SketchedNewtonClassifier"}}),
    ("untuned@dense", {"meta": {"kind": "SketchedNewtonRegressor"}}),
    ("untuned@dense", {"meta": {"kind": "RFDSONClassifier"}}),
    ("untuned@dense", {"meta": {"kind": "_Untuned"}}),
    ("untuned@dense", {"meta": {"kind": "OnlineEstimator"}}),
    ("untuned@dense", {"meta": {"kind": "SavedEstimator"}}),
    # the first rows
    ("untuned@first", {"tensors": {S + "kept.x": lambda a: a[:-1]}}),
    ("untuned@first", {"tensors": {S + "kept.x": lambda a: a[:, :-1]}}),
    ("untuned@first", {"tensors": {S + "kept.x": put((0, 0), 1e200)}}),
    ("untuned@first", {"tensors": {S + "kept.y": lambda a: a[:-1]}}),
    ("untuned@first", {"tensors": {S + "kept.weight": put(0, -1.0)}}),
    ("untuned@first", {"tensors": {S + "kept.weight": REMOVED}}),
    ("untuned@first", {"document": {"states/0/seen": 8}}),
    ("untuned@first", {"document": {"states/0/shrinks": 1}}),
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
    # the run
    ("untuned@wide", {"tensors": {S + "run.feature": put(0, 701)}}),
    ("untuned@wide", {"tensors": {S + "run.feature": lambda a: np.zeros_like(a)}}),
    ("untuned@wide", {"tensors": {S + "run.row": put(-1, 12)}}),
    ("untuned@wide", {"tensors": {S + "run.where": put(-1, 701)}}),
    ("untuned@wide", {"tensors": {S + "run.coefficients": lambda a: np.vstack([a, a])}}),
    ("untuned@wide", {"tensors": {S + "run.coefficients": lambda a: a[:-1]}}),
    ("untuned@wide", {"tensors": {S + "age": put(0, 99)}}),
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
    ("untuned@dense", {"document": {"classes": ["a", "b", "c"]}}),  # beside the tensor
    ("untuned@dense", {"tensors": {"classes": REMOVED}, "document": {"classes": ["a", "b", "b"]}}),
    ("untuned@dense", {"tensors": {"classes": REMOVED}, "document": {"classes": ["a", "b", ["c"]]}}),
    ("untuned@dense", {"tensors": {"classes": REMOVED}, "document": {"classes": ["a", "b", None]}}),
    ("untuned@dense", {"tensors": {"classes": REMOVED}, "document": {"classes": "abc"}}),
    ("untuned@dense", {"document": {"open": 1}}),
    ("untuned@dense", {"document": {"open": REMOVED}}),
    ("untuned@dense", {"document": {"rows": "dicts"}}),
    ("untuned@dense", {"document": {"rows": "pairs"}}),
    ("untuned@dense", {"document": {"rows": "pairs", "open": True}}),  # rows of any width are sparse
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
    ("rfdson@dense", {"document": {"params/fit_intercept": True}}),
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
    with pytest.raises(rf.SnapshotError, match=r"does not make sense|does not know|not a OnlineEstimator"):
        OnlineEstimator.from_bytes(data)


def test_rewriting_nothing_is_accepted():
    for which in dict(NONSENSE):
        model = healthy(which)
        assert_same(OnlineEstimator.from_bytes(rewritten(model.to_bytes())), model)


def use(model, which):
    """Do with a model what users do; numbers may be absurd, but compiled loops must stay where they belong."""
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
    assert 5 <= accepted <= 75  # a number that is another number cannot be told
