"""Single rows: dicts, pairs and arrays, with new features and classes at any time."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp

import robustfd
from tests.estimators.online_faces import (
    as_dict,
    as_while_learning,
    assert_same,
    every_classifier,
    every_face,
    stream,
    targets,
)

TOLERANCE = 1e-7


def text_like(classification, n=150, words=40, seed=0):
    """Return rows of a few words out of many, most of which appear late in the stream."""
    rng = np.random.default_rng(seed)
    X = np.zeros((n, words))
    for i in range(n):
        some = rng.integers(0, min(words, 4 + i // 3), 5)
        X[i, some] = rng.uniform(0.5, 2.0, 5)
    X[:, 0] = rng.standard_normal(n) + 3.0  # a feature that is always present
    score = X @ rng.standard_normal(words)
    y = np.searchsorted(np.quantile(score, [0.3, 0.6]), score) if classification else score
    if classification:
        y[:3] = np.arange(3)
    return X, y


def by_appearance(X):
    """Return the columns in the order in which `learn_one` sees them: row by row, and by name within a row."""
    seen = []
    for row in X:
        seen += sorted((j for j in np.flatnonzero(row) if j not in seen), key=lambda j: f"f{j}")
    return seen


@every_face
def test_a_stream_of_dicts_is_its_rows_in_order_of_appearance(make, classification, monkeypatch):
    """The model equals that of a matrix with all columns from the start. Classes may appear over time, too."""
    if "trees" in str(make()):
        pytest.skip("trees use a new column from the row after its first one")
    monkeypatch.setattr("robustfd.estimators.rfdson.NARROW", 0)
    X, y = text_like(classification)
    if classification and "RFD" in str(make()):
        y = np.minimum(y, 1)  # a class that appears later starts from scratch
    order = by_appearance(X)
    whole = make().fit(sp.csr_array(X[:, order]), y)
    dicts, pairs = make(), make()
    for row, target in zip(X, y, strict=True):
        dicts.learn_one(as_dict(row), target)
        row = row[order]
        pairs.learn_one((np.flatnonzero(row), row[row != 0]), target)
    assert dicts.vocabulary_ == {f"f{j}": place for place, j in enumerate(order)}
    assert dicts.n_features_in_ == pairs.n_features_in_ == len(order)
    # Predictions before a class appeared differ, and they have a small effect on probabilities.
    skip = ("progressive loss", "progressive error", "proba", "within", "coverage") if classification else ()
    for one in (dicts, pairs):
        if classification:
            np.testing.assert_array_equal(one.classes_, whole.classes_)
        assert_same(one, whole, X[:, order], tolerance=TOLERANCE, skip=skip)
    for row in X[:20]:
        once = dicts.predict_one(as_dict(row))
        assert once == pytest.approx(whole.predict(row[order][None])[0], abs=1e-6)
        assert once == pytest.approx(pairs.predict_one((np.arange(len(order)), row[order])), abs=1e-6)
        if classification:
            chances = dicts.predict_proba_one(as_dict(row))
            assert list(chances) == [0, 1, 2][: len(chances)] and sum(chances.values()) == pytest.approx(1.0)
            np.testing.assert_allclose(list(chances.values()), whole.predict_proba(row[order][None])[0], atol=0.03)


@every_face
def test_order_of_a_dict_does_not_matter_at_all(make, classification):
    X, y = targets(classification)
    plain, shuffled, rng = make(), make(), np.random.default_rng(0)
    for row, target in zip(X, y, strict=True):
        x = as_dict(row)
        plain.learn_one(x, target)
        shuffled.learn_one({name: x[name] for name in rng.permutation(list(x)).tolist()}, target)
    assert_same(plain, shuffled, X)


@every_face
def test_zeros_and_what_is_not_there_are_the_same(make, classification):
    if "trees" in str(make()):
        pytest.skip("trees depend on the order of columns, where cuts are equally good")
    X, y = targets(classification, density=0.5)
    sparse, full = make(), make()
    for row, target in zip(X, y, strict=True):
        sparse.learn_one({"f0": 0.0, **as_dict(row)}, target)
        full.learn_one({f"f{j}": value for j, value in enumerate(row)}, target)
    for row in X[:20]:
        one, two = sparse.predict_one(as_dict(row)), full.predict_one(as_dict(row))
        assert one == pytest.approx(two, abs=1e-5)  # weights are float32


@every_face
def test_strings_are_categories_and_booleans_are_numbers(make, classification):
    rng = np.random.default_rng(0)
    model, plain = make(), make()
    for _ in range(150):
        color, big, size = rng.choice(["red", "green", "blue"]), bool(rng.integers(2)), rng.standard_normal()
        y = int((color == "red") ^ big) if classification else float(color == "red") + 2.0 * big
        model.learn_one({"color": color, "big": big, "size": np.float32(size)}, y)
        plain.learn_one({f"color={color}": 1, "big": float(big), "size": float(np.float32(size))}, y)
    assert_same(model, plain, np.eye(model.n_features_in_))
    assert set(model.vocabulary_) == {"color=red", "color=green", "color=blue", "big", "size"}
    if not classification and "RFD" not in str(model):
        assert model.predict_one({"color": "red", "big": True, "size": 0.0}) == pytest.approx(3.0, abs=0.2)
        assert model.predict_one({"color": "blue", "big": False, "size": 0.0}) == pytest.approx(0.0, abs=0.2)


@every_face
def test_names_of_features_can_be_anything(make, classification):
    model = make()
    for i in range(30):
        model.learn_one({("a", 1): 1.0 + i % 2, 7: 2.0, "with.dot": -1.0, "ü": i, None: 1.0, "": 0.5}, i % 2)
    assert model.n_features_in_ == 6
    assert model.predict_one({("a", 1): 1.0, "never seen": 3.0}) is not None


@every_face
def test_features_never_seen_do_not_count_in_predictions(make, classification):
    X, y = targets(classification)
    dicts, pairs = make(), make()
    for row, target in zip(X, y, strict=True):
        dicts.learn_one(as_dict(row), target)
        pairs.learn_one((np.arange(8), row), target)
    before = copy.deepcopy(dicts)
    for row in X[:10]:
        assert dicts.predict_one({**as_dict(row), "new": 7.0, "kind": "new"}) == dicts.predict_one(as_dict(row))
        assert pairs.predict_one((np.append(np.arange(8), 99), np.append(row, 1.0))) == pairs.predict_one(
            (np.arange(8), row)
        )
    assert_same(dicts, before, X)
    dicts.predict_one({})
    pairs.predict_one(((), ()))


@every_face
def test_empty_rows(make, classification):
    model = make().learn_one({}, 1).learn_one({}, 0).learn_one({"a": 1.0}, 1)
    assert model.n_samples_seen_ == 3
    pair = make().learn_one(([], []), 1).learn_one((np.array([3]), np.array([1.0])), 0)
    assert pair.n_features_in_ == 4 and pair.coef_.shape[-1] == 4


def test_before_the_first_row():
    for name in ("SketchedNewton", "RFDSON"):
        classifier, regressor = getattr(robustfd, f"{name}Classifier")(), getattr(robustfd, f"{name}Regressor")()
        assert classifier.predict_one({"a": 1.0}) is None
        assert classifier.predict_proba_one({"a": 1.0}) == {}
        assert regressor.predict_one({"a": 1.0}) == 0.0


# -- classes that appear


@every_classifier
@pytest.mark.parametrize("wrap", [as_dict, lambda row: row], ids=["dicts", "arrays"])
@pytest.mark.parametrize("late", [False, True])
def test_classes_that_appear_later(make, wrap, late):
    """One to four classes appear while the first 4 m = 16 rows are stored, and afterwards."""
    X, y = stream(400, classes=4, seed=3)
    start = {0: 0, 1: 1, 2: 60, 3: 150} if late else {0: 0, 1: 2, 2: 5, 3: 11}
    model, appeared, wrong = make(), [], []
    for i, (row, label) in enumerate(zip(X, y, strict=True)):
        if i < start[label]:
            continue
        chances = model.predict_proba_one(wrap(row))
        assert list(chances) == appeared
        assert not chances or sum(chances.values()) == pytest.approx(1.0)
        wrong.append(model.predict_one(wrap(row)) != label)
        model.learn_one(wrap(row), int(label))
        if label not in appeared:
            appeared.append(int(label))
        assert model.classes_.tolist() == appeared
        assert model.coef_.shape == (1 if len(appeared) < 3 else len(appeared), model.n_features_in_)
    assert len(appeared) == 4
    if "RFD" not in str(model):
        assert np.mean(wrong[200:]) < 0.25
        by_class = [np.mean(model.predict(X[y == c]) == c) if wrap is not as_dict else 1.0 for c in range(4)]
        assert min(by_class) > 0.4
    assert model.n_samples_seen_ == len(wrong)


@every_classifier
def test_a_new_class_leaves_what_is_known_of_the_others(make):
    """A third class with a tiny weight hardly changes the predictions of the other two.

    Outputs of the untuned learner are those of a softmax, of which each has half the margin.
    """
    X, y = stream(100, classes=2)
    model = make()
    for row, label in zip(X, y, strict=True):
        model.learn_one(row, int(label))
    with as_while_learning(model):
        before = model.decision_function(X) * (1 if model.classes_[1] == 1 else -1)
    model.learn_one(np.zeros(8) if "intercept" not in str(model) else np.full(8, 1e-9), 2, 1e-9)
    with as_while_learning(model):
        after = model.decision_function(X)
    ones, zeros = (after[:, list(model.classes_).index(c)] for c in (1, 0))
    scale = np.abs(before).max()
    part = 0.5 if isinstance(model, robustfd.SketchedNewtonClassifier) else 1.0
    np.testing.assert_allclose(ones, part * before, atol=0.03 * scale)
    np.testing.assert_allclose(zeros, -part * before, atol=0.03 * scale)


def test_classes_that_come_in_time_are_as_if_known():
    """The time when a class appears does not matter within the first rows, which are learned again."""
    X, y = stream(120, classes=4)
    y[:13] = [0, 0, 1, 0, 1, 2, 0, 1, 2, 1, 3, 0, 2]
    whole, one = (
        robustfd.SketchedNewtonClassifier(4, shuffle=False).fit(X, y),
        robustfd.SketchedNewtonClassifier(4, shuffle=False),
    )
    for row, label in zip(X, y, strict=True):
        one.learn_one(row, int(label))
    np.testing.assert_allclose(one.decision_function(X), whole.decision_function(X), atol=1e-7)


def test_pairs_go_on_after_a_sparse_matrix():
    X, y = stream(100, d=600, density=0.02)
    whole = robustfd.SketchedNewtonClassifier(4, shuffle=False).fit(sp.csr_array(X), y)
    model = robustfd.SketchedNewtonClassifier(4, shuffle=False).partial_fit(
        sp.csr_array(X[:50]), y[:50], classes=[0, 1, 2]
    )
    for row, label in zip(X[50:], y[50:], strict=True):
        model.learn_one((np.flatnonzero(row)[::-1], row[row != 0][::-1]), int(label))
    assert_same(model, whole, X, tolerance=TOLERANCE)
    assert model.predict_one((np.flatnonzero(X[0]), X[0][X[0] != 0])) == whole.predict(X[:1])[0]


def test_after_dicts_with_the_same_names_others_are_refused_as_before():
    model = robustfd.SketchedNewtonClassifier()
    for k in range(10):
        model.learn_one({"a": 1.0 + k, "b": 2.0}, k % 2)
    before = model.coef_.copy()
    for bad in ({"a": [1.0], "b": [2.0]}, {"a": 1e200, "b": 1.0}, {"a": float("inf"), "b": 1.0}, {"a": b"1", "b": 1.0}):
        with pytest.raises(ValueError, match="must be a number|cannot be squared|infinity"):
            model.learn_one(bad, 1)
        with pytest.raises(ValueError, match="must be a number|cannot be squared|infinity"):
            model.predict_one(bad)
    np.testing.assert_array_equal(model.coef_, before)


@pytest.mark.parametrize("kind", ["classes", "numbers", "words"])
def test_the_short_path_of_dicts_is_the_long_one(kind, monkeypatch):
    """Most dicts go straight to the core. The others, and all of them here, take the path through Python."""
    rng = np.random.default_rng(0)
    make = robustfd.SketchedNewtonRegressor if kind == "numbers" else robustfd.SketchedNewtonClassifier
    rows = []
    for i in range(700):
        row = {f"f{j}": float(value) for j, value in enumerate(rng.standard_normal(4))}
        if kind == "words":
            row |= {"colour": str(rng.choice(["red", "green", "blue"])), "size": int(rng.integers(3))}
        if i % 50 == 7:
            row["f1"] = None  # missing
        if i % 90 == 11:
            row["new" + str(i)] = 1.0
        if i % 40 == 3:
            row = dict(reversed(row.items()))
        target = sum(value for value in row.values() if isinstance(value, float))
        rows.append((row, target if kind == "numbers" else int(target > 0)))
    short, long, taken = make(), make(), 0
    for row, target in rows:
        taken += "_quick" in vars(short)
        short.learn_one(row, target)
        assert short.predict_one(row) == pytest.approx(short.predict_one(dict(row)), abs=0)
    monkeypatch.setattr(make, "_quick_rows", lambda self: None)
    for row, target in rows:
        long.learn_one(row, target)
    assert taken > 500
    assert short.to_bytes() == long.to_bytes()
    assert [short.predict_one(row) for row, _ in rows] == [long.predict_one(row) for row, _ in rows]
