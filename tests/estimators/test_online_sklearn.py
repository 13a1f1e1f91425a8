"""The online estimators behave as scikit-learn's do."""

import pickle

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import robustfd
from tests.estimators.online_faces import assert_same, every_face, stream, targets

# An online learner takes two steps for a repeated row, the second one from the result of the first; a row of weight 2
# is one longer step. Rows of weight 0 are ignored exactly (test_online_batching.py).
REPEATED = {
    f"check_sample_weight_equivalence_on_{kind}_data": "a row that comes twice is not a row of weight 2"
    for kind in ("dense", "sparse")
}


@parametrize_with_checks(
    [
        robustfd.SketchedNewtonClassifier(shuffle=False),
        robustfd.SketchedNewtonRegressor(shuffle=False),
        robustfd.SketchedNewtonRegressor(loss="huber", shuffle=False),
        robustfd.SketchedNewtonClassifier(shuffle=False, expand="trees"),
        robustfd.SketchedNewtonRegressor(shuffle=False, expand="auto"),
        robustfd.RFDSONClassifier(),
        robustfd.RFDSONClassifier(loss="logistic", fit_intercept=True),
        robustfd.RFDSONRegressor(),
    ],
    expected_failed_checks=lambda estimator: REPEATED,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@every_face
def test_clone_copies_parameters_and_no_rows(make, classification):
    X, y = targets(classification)
    model = make().fit(X, y)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert vars(copy) == vars(make())
    assert_same(copy.fit(X, y), model, X)


@every_face
def test_fit_forgets(make, classification):
    X, y = targets(classification)
    model = make().fit(X[:, :5], y).partial_fit(X[:50, :5], y[:50])
    assert_same(model.fit(X, y), make().fit(X, y), X)
    dicts = make()
    for i in range(20):
        dicts.learn_one({"a": X[i, 0], "b": "yes"}, y[i])
    assert_same(dicts.fit(X, y), make().fit(X, y), X)
    assert not hasattr(dicts, "vocabulary_")
    dicts.partial_fit(X, y)  # rows of fixed width again


@every_face
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("seen", [5, 60])
def test_going_on_after_unpickling_is_bitwise_the_same(make, classification, sparse, seen):
    X, y = targets(classification)
    if sparse:
        X = sp.hstack([sp.csr_array(X), sp.csr_array((200, 600))], format="csr")
    extra = {"classes": np.unique(y)} if classification else {}
    model = make().partial_fit(X[:seen], y[:seen], **extra)
    copy = pickle.loads(pickle.dumps(model))
    assert_same(copy, model, X)
    assert_same(copy.partial_fit(X[seen:], y[seen:]), model.partial_fit(X[seen:], y[seen:]), X)
    assert_same(pickle.loads(pickle.dumps(model)), copy, X)


@every_face
def test_a_model_from_memory_maps_goes_on(make, classification, tmp_path):
    X, y = targets(classification)
    model = make().fit(X[:60], np.append(y[:57], y[-3:]) if classification else y[:60])
    joblib.dump(model, tmp_path / "model")
    mapped = joblib.load(tmp_path / "model", mmap_mode="r")
    rest = np.isin(y, getattr(model, "classes_", y))
    assert_same(mapped.partial_fit(X[rest], y[rest]), model.partial_fit(X[rest], y[rest]), X)


def test_inside_other_estimators():
    X, y = stream(300, classes=3)
    model = make_pipeline(StandardScaler(), robustfd.SketchedNewtonClassifier(shuffle=False))
    assert cross_val_score(model, X, y, cv=3).mean() > 0.8
    search = GridSearchCV(robustfd.SketchedNewtonClassifier(shuffle=False), {"sketch_size": [2, 5, "auto"]}, cv=3).fit(
        X, y
    )
    assert search.best_score_ > 0.8
    calibrated = CalibratedClassifierCV(robustfd.RFDSONClassifier(5, fit_intercept=True), cv=3).fit(X, y)
    assert calibrated.predict_proba(X).shape == (300, 3)


@every_face
def test_repr_shows_what_differs_from_the_default(make, classification):
    assert "sketch_size=4" in repr(make()) and "alpha0" not in repr(make())


def test_parameters_past_the_first_have_names():
    for cls in (robustfd.SketchedNewtonRegressor, robustfd.RFDSONClassifier, robustfd.RFDSONRegressor):
        with pytest.raises(TypeError):
            cls(10, "squared")


def test_numpy_parameters_are_taken():
    X, y = stream()
    for name in ("Classifier", "Regressor"):
        model = getattr(robustfd, f"SketchedNewton{name}")
        assert_same(model(np.int64(5), shuffle=False).fit(X, y), model(5, shuffle=False).fit(X, y), X)
        model = getattr(robustfd, f"RFDSON{name}")
        one = model(np.int64(5), fit_intercept=np.bool_(True), alpha0=np.float32(0.5), bound=np.float64(2.0))
        assert_same(one.fit(X, y), model(5, fit_intercept=True, alpha0=0.5, bound=2.0).fit(X, y), X)
    assert_same(robustfd.SketchedNewtonClassifier(np.str_("auto"), shuffle=False).fit(X, y),
                robustfd.SketchedNewtonClassifier(shuffle=False).fit(X, y), X)  # fmt: skip
