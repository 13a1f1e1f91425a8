"""Snapshots of online estimators: batches, dicts, pairs, classes and features that appear, labels of all kinds."""

import copy
import hashlib
import itertools
import pickle
import subprocess
import sys

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_validate

import robustfd as rf
from tests.estimators.saved_estimators import FORMS, MODELS, M, again, assert_same, dicts, judged, learn, stream

MOMENTS = (1, 2, 3, 4, 5, 8, 9, 11, 12, 13, 17, 21, 22, 23, 40, 41, 90, 140)


# -- saving and loading


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MODELS)
def test_a_restored_model_goes_on_bit_for_bit(name, form):
    model = clone(MODELS[name])
    X, y = stream(model, form)
    followers = []
    for start, stop in itertools.pairwise((0, *MOMENTS)):
        for each in (model, *followers):
            learn(each, X, y, slice(start, stop))
        followers.append(again(model) if stop % 2 else pickle.loads(pickle.dumps(model)))
        assert_same(model, followers[-1])
        assert judged(model, X) == judged(followers[-1], X)
    for follower in followers:  # each was restored at a different time and has continued since
        assert_same(model, follower)


@pytest.mark.parametrize("few", [5, 140])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MODELS)
def test_a_pickle_is_no_larger_than_a_snapshot(name, form, few):
    model = clone(MODELS[name])
    learn(model, *stream(model, form), slice(few))
    for each in (model, *model.split(2)):
        assert len(pickle.dumps(each)) < len(each.to_bytes()) + 2000


class Own(rf.SketchedNewtonClassifier):
    """A class of a user, with a parameter and attributes of its own."""

    def __init__(self, sketch_size="auto", *, note=None, shuffle=True, epochs=1, random_state=None, class_weight=None):
        super().__init__(
            sketch_size, shuffle=shuffle, epochs=epochs, random_state=random_state, class_weight=class_weight
        )
        self.note = note


def test_a_pickle_of_two_to_the_eighteen_columns(tmp_path):
    """The core has space for all columns, of which few occur. A class of a user keeps what it adds."""
    model = Own(note=[1, 2], random_state=np.random.RandomState(0))
    X = sp.random_array((100, 2**18), density=1e-5, format="csr", random_state=np.random.default_rng(0))
    model.fit(X, np.arange(100) % 3)
    model.mine_, model._hidden = {"x": 1}, "y"
    joblib.dump(model, tmp_path / "model")
    assert (tmp_path / "model").stat().st_size < 1e6
    for other in (joblib.load(tmp_path / "model"), copy.deepcopy(model), copy.copy(model)):
        assert type(other) is Own and (other.note, other.mine_, other._hidden) == ([1, 2], {"x": 1}, "y")
        assert judged(other, X) == judged(model, X) and other.__sklearn_is_fitted__()
    kept = cross_validate(clone(model), X, np.arange(100) % 2, cv=2, n_jobs=2, return_estimator=True)["estimator"]
    assert [each.note for each in kept] == [[1, 2]] * 2 and not clone(model).__sklearn_is_fitted__()


@pytest.mark.parametrize("name", MODELS)
def test_dicts_with_new_features_and_classes(name):
    model = clone(MODELS[name])
    rng, followers = np.random.default_rng(1), []
    for i, row in enumerate(dicts(90)):
        count = min(1 + i // 7, 5)  # a new class appears occasionally
        y = ["spam", "ham", "eggs", "bacon", "ü"][rng.integers(count)] if is_classifier(model) else 2.0**i * 1e-9
        for each in (model, *followers):
            each.learn_one(row, y)
        if i in (0, 1, 6, 7, 11, 12, 13, 20, 21, 33, 60):  # before and after classes and the end of the first rows
            followers.append(again(model))
            assert_same(model, followers[-1])
        if i % 10 == 5:  # predictions do not change the model
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
                with pytest.raises(NotFittedError):  # a first row of weight 0 is ignored
                    again(model)
                continue
            followers.append(again(model))
            assert_same(model, followers[-1])
    for follower in followers:
        assert_same(model, follower)


def test_a_class_that_appears_after_reading():
    quiet, asked = rf.SketchedNewtonClassifier(M, shuffle=False), rf.SketchedNewtonClassifier(M, shuffle=False)
    rows = list(dicts(300, most=200))
    for i, row in enumerate(rows):
        label = i % 2 if i < 200 else i % 5
        for model in (quiet, asked):
            model.learn_one(row, label)
        for past in rows[: i : 1 + i // 30]:
            asked.predict_one(past)
    assert_same(quiet, asked)


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
    # The first rows are stored for a while and must be restored unchanged.
    X, y = stream(MODELS["untuned"], "dense", 12)
    model, place = rf.SketchedNewtonClassifier(M, shuffle=False), np.empty((1, 6))
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


@pytest.mark.slow
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
    model = rf.SketchedNewtonClassifier(M, shuffle=False)
    for i, row in enumerate(dicts(9)):
        model.learn_one(row, labels[i % 2])
    restored = again(model)
    assert_same(model, restored)
    ours, theirs = (each.predict_proba_one(row) for each in (restored, model))
    assert ours == theirs and [type(key) for key in ours] == [type(key) for key in theirs]


def test_labels_and_names_that_cannot_be_saved():
    X, y = stream(MODELS["untuned"], "dense", 20, classes=2)
    model = rf.SketchedNewtonClassifier(M, shuffle=False).fit(X, y)
    model.classes_ = np.array([b"no", b"yes"])
    with pytest.raises(TypeError, match=r"Labels of .S3 cannot be saved"):
        model.to_bytes()
    for name in (("a", 1), None, b"a", float("nan"), frozenset("a")):
        model = rf.RFDSONClassifier(M).learn_one({"a": 1.0, name: 2.0}, 1)
        with pytest.raises(TypeError, match="The feature .* cannot be saved: a snapshot can hold only str, int"):
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
