"""Bad input raises a clear error and leaves the model unchanged, bit for bit."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

import robustfd
from tests.estimators.online_faces import FACES, as_dict, assert_same, every_face

X = np.random.default_rng(0).standard_normal((30, 8))
Y = np.arange(30) % 3
HUGE = np.where(np.eye(3, 8) > 0, 1e200, 1.0)

MISSING = ("NaN", "sparse NaN", "nothing")  # not an error for models that accept missing values


def is_missing(model, name, kind="rows"):
    """Return whether this model treats the bad value as a missing value."""
    return (
        name in MISSING
        and kind != "pairs"
        and isinstance(model, robustfd.SketchedNewtonClassifier | robustfd.SketchedNewtonRegressor)
    )


BAD_ROWS = {
    "NaN": (np.full((3, 8), np.nan), Y[:3], {}, "X contains NaN"),
    "infinity": (np.full((3, 8), -np.inf), Y[:3], {}, "X contains infinity"),
    "sparse NaN": (sp.csr_array(np.diag([1.0, np.nan, 1.0]) @ np.ones((3, 8))), Y[:3], {}, "X contains NaN"),
    "squares overflow": (HUGE, Y[:3], {}, "numbers above 1e\\+150 in size"),
    "width": (np.ones((3, 7)), Y[:3], {}, "X has 7 features, but .* is expecting 8 features"),
    "strings": (np.full((3, 8), "a"), Y[:3], {}, "could not convert string|dtype='numeric' is not compatible"),
    "complex": (np.ones((3, 8), complex), Y[:3], {}, "Complex data not supported"),
    "one dimension": (np.ones(8), Y[:1], {}, "Expected 2D array, got 1D array"),
    "three dimensions": (np.ones((3, 8, 1)), Y[:3], {}, "dim 3"),
    "y is missing": (X[:3], None, {}, "requires y to be passed"),
    "y is too short": (X[:3], Y[:2], {}, "y has 2 rows, but X has 3"),
    "y has two columns": (X[:3], np.ones((3, 2)), {}, "y should be a 1d array"),
    "y has NaN": (X[:3], [0.0, np.nan, 1.0], {}, "NaN"),
    "y has infinity": (X[:3], [0.0, np.inf, 1.0], {}, "infinity"),
    "weights are negative": (X[:3], Y[:3], {"sample_weight": [1, -1, 1]}, "Negative weights"),
    "weights are NaN": (X[:3], Y[:3], {"sample_weight": [1, np.nan, 1]}, "sample_weight contains NaN"),
    "weights are too few": (X[:3], Y[:3], {"sample_weight": [1, 1]}, "sample_weight has shape"),
    "weights are strings": (X[:3], Y[:3], {"sample_weight": ["1", "1", "1"]}, "sample_weight must be"),
}
FOR_CLASSES = {
    "unseen class": (X[:3], [0, 7, 1], {}, "y contains 7, which is not among the classes"),
    "labels are strings": (X[:3], ["0", "1", "2"], {}, "y contains '0', which is not among the classes"),
    "labels are fractions": (X[:3], [0.5, 1.5, 2.0], {}, "Unknown label type"),
    "other classes": (X[:3], Y[:3], {"classes": [0, 1]}, "classes must be those of the first call"),
}
FOR_NUMBERS = {
    "targets are strings": (X[:3], ["a", "b", "c"], {}, "y must hold numbers"),
    "targets overflow": (X[:3], [1.0, 1e160, 1.0], {}, "y must be at most 1e\\+150 in absolute value"),
}


def bad_rows(classification):
    return BAD_ROWS | (FOR_CLASSES if classification else FOR_NUMBERS)


@every_face
@pytest.mark.parametrize("sparse", [False, True])
def test_bad_rows_change_nothing(make, classification, sparse, monkeypatch):
    if sparse:
        monkeypatch.setattr("robustfd.estimators.rfdson.NARROW", 0)
    for seen in (10, 30):  # while the first rows are stored, and later
        model = make().fit((sp.csr_array if sparse else np.asarray)(X[:seen]), Y[:seen])
        before, stored = copy.deepcopy(model), pickle.dumps(model)
        for name, (rows, y, options, message) in bad_rows(classification).items():
            if is_missing(model, name):
                continue
            with pytest.raises(ValueError, match=message):
                model.partial_fit(rows, y, **options)
            assert pickle.dumps(model) == stored, name
            if name not in ("width", "unseen class", "labels are strings", "other classes"):
                with pytest.raises(ValueError, match=message):  # an unsuccessful fit leaves the old model
                    model.fit(rows, y, **options)
                assert pickle.dumps(model) == stored, name
        assert_same(model, before, X)
        rest = (X[seen:], Y[seen:])
        assert_same(model.partial_fit(*rest), before.partial_fit(*rest), X)


@every_face
@pytest.mark.parametrize("name", BAD_ROWS)
def test_bad_first_rows_leave_an_unfitted_model(make, classification, name):
    rows, y, options, message = BAD_ROWS[name]
    model = make()
    if name == "width" or is_missing(model, name):
        return
    with pytest.raises(ValueError, match=message):
        model.partial_fit(rows, y, **options, **({"classes": [0, 1, 2]} if classification else {}))
    assert vars(model) == vars(make())
    with pytest.raises(ValueError, match=message):
        model.fit(rows, y, **options)
    assert vars(model) == vars(make())


@every_face
def test_bad_rows_to_predict(make, classification):
    model = make()
    for name in ("predict", "predict_proba", "decision_function"):
        if hasattr(model, name):
            with pytest.raises(NotFittedError, match="has seen no rows yet"):
                getattr(model, name)(X)
    model.fit(X, Y)
    stored = pickle.dumps(model)
    for name, (rows, _, _, message) in BAD_ROWS.items():
        if not name.startswith(("y", "weights")) and not is_missing(model, name):
            with pytest.raises(ValueError, match=message):
                model.predict(rows)
    assert pickle.dumps(model) == stored


@every_face
def test_unfitted_attributes_are_not_there(make, classification):
    names = ["coef_", "intercept_", "n_samples_seen_", "progressive_loss_", "progressive_", "vocabulary_"]
    names += ["classes_", "progressive_error_"] if classification else []
    for name in names:
        assert not hasattr(make(), name)


@every_face
def test_parameters_changed_under_way_are_refused(make, classification):
    model = make().fit(X, Y)
    before = copy.deepcopy(model)
    model.set_params(sketch_size=5)
    for learn in (lambda: model.partial_fit(X, Y), lambda: model.learn_one(X[0], 1)):
        with pytest.raises(ValueError, match="The parameters were changed after rows were learned: .*4.* to .*5"):
            learn()
    assert_same(model, before, X)  # predictions use the parameters of the fit
    model.set_params(sketch_size=-1)
    with pytest.raises(ValueError, match="sketch_size must be at least [02], got -1"):
        model.partial_fit(X, Y)
    with pytest.raises(ValueError, match="sketch_size must be at least [02], got -1"):
        model.fit(X, Y)
    model.set_params(sketch_size=4)
    assert_same(model.partial_fit(X, Y), before.partial_fit(X, Y), X)
    model.set_params(sketch_size=5)
    assert_same(model.fit(X, Y), make(sketch_size=5).fit(X, Y), X)


def test_reading_goes_by_the_parameters_of_then():
    model = robustfd.RFDSONClassifier(4, loss="logistic", fit_intercept=True).fit(X, Y)
    before = copy.deepcopy(model)
    model.set_params(loss="squared", fit_intercept=False)
    assert_same(model, before, X)
    regressor = robustfd.RFDSONRegressor(4).fit(X, Y)
    before = copy.deepcopy(regressor)
    assert_same(regressor.set_params(bound=7.0, fit_intercept=False), before, X)


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (
            robustfd.SketchedNewtonClassifier(1, shuffle=False),
            ValueError,
            "sketch_size must be 'auto', 0 .no sketch. or an integer of at least 2, got 1",
        ),
        (robustfd.SketchedNewtonClassifier("all", shuffle=False), TypeError, "sketch_size must be an integer"),
        (robustfd.SketchedNewtonClassifier(4.0, shuffle=False), TypeError, "sketch_size must be an integer"),
        (
            robustfd.SketchedNewtonRegressor(loss="hinge", shuffle=False),
            ValueError,
            "loss must be one of 'squared', 'huber', 'absolute', 'quantile', 'poisson', got 'hinge'",
        ),
        (robustfd.RFDSONClassifier(1), ValueError, "sketch_size must be at least 2, got 1"),
        (robustfd.RFDSONClassifier(alpha0=-1.0), ValueError, "alpha0 must be in"),
        (robustfd.RFDSONClassifier(loss="huber"), ValueError, "loss must be one of 'squared', 'logistic', .*'huber'"),
        (robustfd.RFDSONClassifier(bound=0.0), ValueError, "bound must be in"),
        (robustfd.RFDSONClassifier(fit_intercept="no"), ValueError, "fit_intercept must be one of True, False"),
        (robustfd.RFDSONRegressor(loss="hinge"), ValueError, "loss must be one of 'squared', 'absolute', 'huber'"),
        (robustfd.RFDSONRegressor(bound="big"), TypeError, "bound must be a number"),
        (robustfd.RFDSONRegressor(bound=-2.0), ValueError, "bound must be in"),
    ],
)
def test_wrong_parameters_are_named(model, error, message):
    before = dict(vars(model))
    for learn in (lambda: model.fit(X, Y), lambda: model.learn_one(X[0], 1), lambda: model.learn_one({"a": 1}, 1)):
        with pytest.raises(error, match=message):
            learn()
        assert vars(model) == before


def test_classes_must_be_known_beforehand_for_batches():
    for make, _ in list(FACES.values())[:3]:
        with pytest.raises(ValueError, match="classes must be given in the first call of partial_fit"):
            make().partial_fit(X, Y)
        with pytest.raises(ValueError, match="classes has only one class, .0.. A classifier needs at least two"):
            make().partial_fit(X, np.zeros(30), classes=[0])
        with pytest.raises(ValueError, match="y has only one class, .0.. A classifier needs at least two"):
            make().fit(X, np.zeros(30, int))
        with pytest.raises(ValueError, match="y contains 2, which is not among the classes"):
            make().partial_fit(X, Y, classes=[0, 1])


@pytest.mark.parametrize("missing", [np.nan, None, pd.NA, float("nan")])
@pytest.mark.parametrize("make", [robustfd.SketchedNewtonClassifier, robustfd.RFDSONClassifier])
def test_missing_labels_are_named(make, missing):
    labels = np.array([*"ab" * 14, missing, "a"], object)
    given = [labels, pd.Series(labels), pd.Series(labels, dtype="string"), pd.Series(labels, dtype="category")]
    model = make().fit(X[:28], labels[:28])
    before = model.to_bytes()
    for y in given:
        with pytest.raises(ValueError, match=r"y contains a missing label, .*, at 28 \(from 0\)"):
            make().fit(X, y)
        with pytest.raises(ValueError, match="y contains a missing label"):
            model.partial_fit(X, y)
    with pytest.raises(ValueError, match="classes contains a missing label"):
        make().partial_fit(X[:28], labels[:28], classes=["a", "b", missing])
    with pytest.raises(ValueError, match="y must have labels of one type, got int, str"):
        make().fit(X[:3], np.array(["a", 1, 2], object))
    assert model.to_bytes() == before


def test_many_classes_are_no_surprise_if_they_were_given():
    for labels in (np.arange(30.0), np.arange(30).astype(str).astype(object)):
        model = robustfd.SketchedNewtonClassifier()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.partial_fit(X, labels, classes=labels).partial_fit(X, labels)
        assert model.classes_.tolist() == np.unique(labels).tolist()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn warns since 1.7
            robustfd.SketchedNewtonClassifier().fit(X, labels)
    with pytest.raises(ValueError, match="Unknown label type"):
        robustfd.SketchedNewtonClassifier().partial_fit(X, Y / 2, classes=[0.0, 0.5, 1.0])


@every_face
def test_lists_of_dicts_are_for_learn_one(make, classification):
    rows = [as_dict(row) for row in X]
    with pytest.raises(ValueError, match="X must be an array, .* got a list of dicts. Learn dicts one at a time with"):
        make().fit(rows, Y)
    with pytest.raises(ValueError, match="got a tuple of dicts"):
        robustfd.RobustFrequentDirections(3).fit(tuple(rows))


def test_an_array_may_follow_a_table_of_numbers():
    table = pa.table({f"x{k}": X[:, k] for k in range(8)})
    model = robustfd.SketchedNewtonClassifier(shuffle=False).fit(table, Y)
    assert model.feature_names_in_.tolist() == table.column_names
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        np.testing.assert_array_equal(model.predict(X), model.predict(table))
    with (
        pytest.warns(UserWarning, match="feature names"),
        pytest.raises(ValueError, match="7 features, .* expecting 8"),
    ):
        model.predict(X[:, :7])
    with pytest.warns(UserWarning, match="feature names"):
        assert model.predict_one(X[0]) == model.predict_one(dict(zip(table.column_names, X[0].tolist(), strict=True)))


@every_face
def test_first_rows_without_weight_are_refused(make, classification):
    with pytest.raises(ValueError, match="sample_weight must be positive for at least one"):
        make().fit(X, Y, sample_weight=np.zeros(30))
    with pytest.raises(ValueError, match="sample_weight must be positive for at least one"):
        make().partial_fit(X, Y, sample_weight=np.zeros(30), **({"classes": [0, 1, 2]} if classification else {}))


@every_face
def test_names_of_columns(make, classification):
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    model = make().fit(frame, Y)
    assert list(model.feature_names_in_) == list("abcdefgh")
    np.testing.assert_allclose(model.predict(frame), make().fit(X, Y).predict(X), rtol=1e-9)
    stored = pickle.dumps(model)
    for call in (lambda f: model.partial_fit(f, Y), model.predict):
        with pytest.raises(ValueError, match="feature names"):
            call(frame.rename(columns={"a": "z"}))
        with pytest.raises(ValueError, match="feature names"):
            call(frame[list("bacdefgh")])
    assert pickle.dumps(model) == stored
    assert not hasattr(model.fit(X, Y), "feature_names_in_")


# -- single rows


BAD_DICTS = {
    "NaN": ({"new": np.nan}, "NaN"),
    "infinity": ({"new": 1.0, "f0": np.inf}, "infinity"),
    "squares overflow": ({"new": 1e200}, "cannot be squared"),
    "nothing": ({"new": None}, r"x\['new'\] must be a number, a boolean or a string, got None"),
    "a list": ({"new": [1.0]}, "must be a number, a boolean or a string"),
    "bytes": ({"new": b"1"}, "must be a number, a boolean or a string"),
    "a complex number": ({"new": 1j}, "must be a number, a boolean or a string"),
    "twice": ({"new": "a", "new=a": 1.0}, "the feature 'new=a' twice"),
    "a pair": ((np.array([1]), np.array([1.0])), "started with dicts and does not accept pairs"),
    "an array": (np.ones(8), "started with dicts and does not accept rows of fixed width"),
}
BAD_PAIRS = {
    "NaN": (([1, 90], [1.0, np.nan]), "NaN"),
    "negative": (([-1, 90], [1.0, 1.0]), r"indices of x must be in \[0, 2147483646\], got -1 to 90"),
    "too large": (([1, 2**31], [1.0, 1.0]), "indices of x must be in"),
    "twice": (([90, 90], [1.0, 1.0]), "must be distinct, got 90 twice"),
    "too few": (([1, 90], [1.0]), r"must be \(indices, values\)"),
    "three": (([1], [1.0], [1.0]), r"must be \(indices, values\)"),
    "one": (([1],), r"must be \(indices, values\)"),
    "floats": (([1.0], [1.0]), r"must be \(indices, values\)"),
    "strings": (([1], ["a"]), r"must be \(indices, values\)"),
    "numbers": ((1.0, 2.0), r"must be \(indices, values\)"),
    "a dict": ({"a": 1.0}, r"started with pairs \(indices, values\) and does not accept dicts"),
    "an array": (np.ones(8), "does not accept rows of fixed width"),
}
BAD_ARRAYS = {
    "NaN": (np.full(8, np.nan), "NaN"),
    "width": (np.ones(7), "X has 7 features, but .* is expecting 8 features"),
    "strings": (np.full(8, "a"), "could not convert string|dtype='numeric' is not compatible"),
    "a batch": (np.ones((1, 8)), "must be a dict, a pair .* got shape"),
    "a number": (3.0, "must be a dict, a pair .* got shape"),
    "a dict": ({"a": 1.0}, "started with rows of fixed width and does not accept dicts"),
    "a pair beyond": (([1, 90], [1.0, 2.0]), "x has the index 90, but .* is expecting 8 features"),
}
ROWS = {
    "dicts": (as_dict, BAD_DICTS),
    "pairs": (lambda row: (np.arange(8), row), BAD_PAIRS),
    "arrays": (lambda row: row, BAD_ARRAYS),
}


@every_face
@pytest.mark.parametrize(("wrap", "bad"), ROWS.values(), ids=ROWS)
def test_bad_single_rows_change_nothing(make, classification, wrap, bad):
    model = make()
    for row, target in zip(X, Y, strict=True):
        model.learn_one(wrap(row), int(target))
    before, stored = copy.deepcopy(model), pickle.dumps(model)
    kind = next(kind for kind, (each, _) in ROWS.items() if each is wrap)
    for name, (row, message) in bad.items():
        if is_missing(model, name, kind):
            continue
        for call in (lambda row: model.learn_one(row, 1), model.predict_one):
            with pytest.raises(ValueError, match=message):
                call(row)
            assert pickle.dumps(model) == stored, name
    labels = [None, np.nan, np.inf, [1], {}, 1j, *(["a", 0.5, b"a"] if classification else ["a", 1e160])]
    for label in labels:
        with pytest.raises(ValueError, match="y (must be|is|contains|holds)"):
            model.learn_one(wrap(X[0]), label)
        assert pickle.dumps(model) == stored, label
    for weight in (-1.0, np.nan, "1", [1.0, 2.0]):
        with pytest.raises(ValueError, match="sample_weight"):
            model.learn_one(wrap(X[0]), 1, weight)
        assert pickle.dumps(model) == stored, weight
    model.learn_one({"new": 1.0} if wrap is as_dict else wrap(X[0]), 9, 0.0)  # a row of weight 0 has no effect
    assert pickle.dumps(model) == stored
    if wrap is not ROWS["arrays"][0]:
        with pytest.raises(ValueError, match="started with .* Continue with learn_one"):
            model.partial_fit(X, Y)
    for row, target in zip(X, Y, strict=True):
        model.learn_one(wrap(row), int(target))
        before.learn_one(wrap(row), int(target))
    assert_same(model, before, X)


@every_face
def test_bad_first_single_rows_leave_an_unfitted_model(make, classification):
    for row in (BAD_DICTS["infinity"][0], BAD_PAIRS["NaN"][0], BAD_PAIRS["twice"][0], np.full(8, np.inf), 3.0):
        model = make()
        with pytest.raises(ValueError, match=r"NaN|infinity|twice|got shape"):
            model.learn_one(row, 1)
        assert vars(model) == vars(make())
    model = make()
    with pytest.raises(ValueError, match="y must be"):
        model.learn_one({"a": 1.0}, None)
    model.learn_one({"a": 1.0}, 1, 0.0)
    assert vars(model) == vars(make())


def test_classes_are_closed_after_batches_and_open_after_single_rows():
    for make, _ in list(FACES.values())[:3]:
        model = make().fit(X, Y)
        stored = pickle.dumps(model)
        with pytest.raises(ValueError, match="y contains 3, which is not among the classes"):
            model.learn_one(X[0], 3)
        assert pickle.dumps(model) == stored
        model = make().learn_one(X[0], 0).learn_one(X[1], 5)
        stored = pickle.dumps(model)
        with pytest.raises(ValueError, match="y contains 3, which is not among the classes"):
            model.partial_fit(X[:1], [3])
        with pytest.raises(ValueError, match="Strings and numbers cannot be mixed"):
            model.learn_one(X[0], "3")
        assert pickle.dumps(model) == stored
        assert list(model.learn_one(X[0], 3).classes_) == [0, 5, 3]


def test_memory_that_is_not_there_changes_nothing():
    """A pair with a very large index needs a very wide model."""
    model = robustfd.SketchedNewtonClassifier(4, shuffle=False)
    for row, label in zip(X, Y, strict=True):
        model.learn_one((np.arange(8), row), int(label))
    before = copy.deepcopy(model)
    for index in (2**31 - 2,):
        with pytest.raises(MemoryError):
            with_limit(lambda index=index: model.learn_one(([index], [1.0]), 1))
    assert_same(model, before, X)
    assert_same(model.learn_one((np.arange(8), X[0]), 1), before.learn_one((np.arange(8), X[0]), 1), X)


def with_limit(call):
    """Call a function with a memory limit of a few gigabytes."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (12 * 2**30, hard))
    try:
        call()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
