"""Estimators, streams and comparisons for the snapshot tests."""

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone, is_classifier

import robustfd as rf

M = 3  # the untuned learner then stores its 12 first rows
MODELS = {
    "untuned": rf.SketchedNewtonClassifier(M, shuffle=False),
    "untuned-numbers": rf.SketchedNewtonRegressor(M, shuffle=False),
    "untuned-huber": rf.SketchedNewtonRegressor(M, loss="huber", shuffle=False, intervals=True),
    "untuned-sets": rf.SketchedNewtonClassifier(M, shuffle=False, intervals=True),
    "untuned-trees": rf.SketchedNewtonClassifier(M, shuffle=False, expand="trees"),
    "rfdson": rf.RFDSONClassifier(M),
    "rfdson-logistic": rf.RFDSONClassifier(M, loss="logistic", fit_intercept=True, bound=5.0),
    "rfdson-numbers": rf.RFDSONRegressor(M),
    "rfdson-bound": rf.RFDSONRegressor(M, bound=3.0, fit_intercept=False, alpha0=0.1),
}
FORMS = ("dense", "sparse", "wide")


def stream(model, form, n=140, seed=0, classes=3):
    """Return rows and labels or targets."""
    rng = np.random.default_rng(seed)
    d = 700 if form == "wide" else 6
    X = rng.standard_normal((n, d)) / 2 + (form == "dense")
    if form != "dense":
        X *= rng.random((n, d)) < (0.4 if d == 6 else 0.01) * np.linspace(1.5, 0.01, d)
        X[:, 2] = rng.standard_normal(n) + 2.0  # a column that is rarely zero and will be centred
    score = X[:, 0] - X[:, 1] + 0.3 * rng.standard_normal(n)
    y = np.floor((score.argsort().argsort() * classes) / n).astype(int) if is_classifier(model) else 7 + score
    return (X if form == "dense" else sp.csr_array(X)), y


def learn(model, X, y, part):
    """Learn a part of a stream in a batch."""
    extra = {"classes": np.unique(y)} if is_classifier(model) else {}
    return model.partial_fit(X[part], y[part], **extra)


def dicts(n, seed=0, most=40):
    """Return rows as dicts of few features. Names are of all kinds, and new ones keep appearing."""
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
    """Assert that two models are equal to the last bit."""
    assert type(one) is type(two) and one.get_params() == two.get_params()
    remembered = {"_places"}  # a cache, rebuilt when needed
    assert vars(one).keys() - remembered == vars(two).keys() - remembered
    for name in ("_kind", "_seen_parameters", "n_features_in_", "_vocabulary", "_classes_open", "_unit", "_bound"):
        assert getattr(one, name, None) == getattr(two, name, None), name
    if is_classifier(one):
        assert one.classes_.dtype == two.classes_.dtype
        assert one.classes_.tolist() == two.classes_.tolist()
    states = [getattr(model, "_states", None) or [model._model] for model in (one, two)]
    for ours, theirs in zip(*states, strict=True):
        assert vars(ours).keys() == vars(theirs).keys()
    if hasattr(one, "_model"):  # numpy's order of summation over experts depends on memory alignment
        np.testing.assert_allclose(one.coef_, two.coef_, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(one.intercept_, two.intercept_, rtol=1e-12, atol=1e-12)
    else:
        assert one.coef_.tobytes() == two.coef_.tobytes()
        assert np.asarray(one.intercept_).tobytes() == np.asarray(two.intercept_).tobytes()
    assert one._progress.tobytes() == two._progress.tobytes()
    assert one.to_bytes() == two.to_bytes()


def judged(model, X):
    return (model.predict_proba(X) if is_classifier(model) else model.predict(X)).tobytes()


def healthy(which):
    name, _, form = which.partition("@")
    model = clone(MODELS[name])
    if form == "dicts":
        for i, row in enumerate(dicts(70)):
            model.learn_one(row, ["a", "b", "c"][i % 3] if is_classifier(model) else float(i))
        return model
    n = 7 if form == "first" else 100
    X, y = stream(model, "wide" if form == "wide-first" else form.replace("first", "dense"), n)
    return learn(model, X, y, slice(0, n if form != "wide-first" else 7))
