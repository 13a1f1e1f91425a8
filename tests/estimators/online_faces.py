"""Test helpers for the online estimators: streams, batches, and comparison of fitted models."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
import scipy.sparse as sp

import robustfd

CLASSIFIERS = {
    "untuned": lambda **kw: robustfd.SketchedNewtonClassifier(**{"sketch_size": 4, "shuffle": False, **kw}),
    "untuned sets": lambda **kw: robustfd.SketchedNewtonClassifier(
        **{"sketch_size": 4, "shuffle": False, "intervals": True, **kw}
    ),
    "untuned trees": lambda **kw: robustfd.SketchedNewtonClassifier(
        **{"sketch_size": 4, "shuffle": False, "expand": "trees", **kw}
    ),
    "RFD-SON": lambda **kw: robustfd.RFDSONClassifier(**{"sketch_size": 4, **kw}),
    "RFD-SON logistic": lambda **kw: robustfd.RFDSONClassifier(
        **{"sketch_size": 4, "loss": "logistic", "fit_intercept": True, **kw}
    ),
}
REGRESSORS = {
    "untuned": lambda **kw: robustfd.SketchedNewtonRegressor(**{"sketch_size": 4, "shuffle": False, **kw}),
    "untuned intervals": lambda **kw: robustfd.SketchedNewtonRegressor(
        **{"sketch_size": 4, "loss": "huber", "shuffle": False, "intervals": True, **kw}
    ),
    "untuned trees": lambda **kw: robustfd.SketchedNewtonRegressor(
        **{"sketch_size": 4, "shuffle": False, "intervals": True, "expand": "trees", **kw}
    ),
    "RFD-SON": lambda **kw: robustfd.RFDSONRegressor(**{"sketch_size": 4, **kw}),
}
FACES = {
    **{f"{name} classifier": (make, True) for name, make in CLASSIFIERS.items()},
    **{f"{name} regressor": (make, False) for name, make in REGRESSORS.items()},
}
# `make test` leaves out two faces: other ones have each of their traits.
LONG = {"RFD-SON logistic classifier": pytest.mark.slow, "untuned regressor": pytest.mark.slow}
every_face = pytest.mark.parametrize(
    ("make", "classification"), [pytest.param(*face, id=name, marks=LONG.get(name, ())) for name, face in FACES.items()]
)
every_classifier = pytest.mark.parametrize(
    "make",
    [pytest.param(make, id=name, marks=LONG.get(f"{name} classifier", ())) for name, make in CLASSIFIERS.items()],
)


def stream(n=200, d=8, *, classes=3, seed=0, density=1.0, numbers=False):
    """Return rows with labels 0, 1, ..., or with numeric targets. Columns have different scales and means."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < density)
    scores = X @ rng.standard_normal((d, classes)) + 0.3 * rng.standard_normal((n, classes))
    y = scores[:, 0] + 0.5 if numbers else scores.argmax(axis=1)
    X *= np.exp(rng.uniform(-1, 1, d))
    return X + rng.uniform(-1, 1, d) * (density == 1.0), y


def targets(classification, **kw):
    """Return a stream for a kind of estimator."""
    return stream(numbers=not classification, **kw)


def in_batches(model, X, y, cuts, *, weight=None, classes=None):
    """Learn X in batches cut at `cuts`."""
    if hasattr(model, "predict_proba"):
        extra = {"classes": np.unique(y) if classes is None else classes}
    else:
        extra = {}
    for rows in np.split(np.arange(X.shape[0]), cuts):
        model.partial_fit(X[rows], y[rows], sample_weight=None if weight is None else weight[rows], **extra)
    return model


def at_once(model, X, y, weight=None):
    """Learn X in one batch. `fit` is the same, except that it grows trees once more after the last row."""
    if getattr(model, "expand", None) is None:
        return model.fit(X, y, sample_weight=weight)
    return in_batches(model, X, y, [], weight=weight)


@contextmanager
def as_while_learning(model):
    """Let a model predict with the shares of the moment, as it does before it learns a row, not with recent means."""
    mixes = [state.experts.mix for state in model._all_states().values()] if "Sketched" in str(model) else []
    if getattr(model, "expand", None) is not None:
        mixes += [model._expansion, *(state.experts.mix for state in model._expansion.states)]
    kept = [mix.steady.copy() for mix in mixes]
    for mix in mixes:
        mix.steady[:] = mix.share
        if hasattr(mix, "labels") and hasattr(model, "classes_"):  # part of a blend for classes is its first learner
            mix.steady[:] *= 1 - mix.labels[1]
            mix.steady[0] += mix.labels[1]
    yield model
    for mix, steady in zip(mixes, kept, strict=True):
        mix.steady[:] = steady


def read(model, X):
    """Return all predictions and attributes of a model as arrays."""
    X = X[:, : model.n_features_in_]
    found = {
        "coef": model.coef_,
        "intercept": model.intercept_,
        "predict": model.predict(X),
        "seen": model.n_samples_seen_,
        **{f"progressive {name}": value for name, value in model.progressive_.items()},
    }
    if hasattr(model, "predict_proba"):
        found |= {"proba": model.predict_proba(X), "margins": model.decision_function(X), "classes": model.classes_}
    if getattr(model, "intervals", False):
        within = model.predict_set if hasattr(model, "predict_proba") else model.predict_interval
        ends = np.nan_to_num(within(X, [0.3, 0.9, 0.99]))  # infinite after the first row
        found |= {"within": ends, "coverage": np.nan_to_num(list(model.progressive_coverage_.values()))}
    return {name: np.asarray(value) for name, value in found.items()}


def assert_same(one, two, X, *, tolerance=0.0, skip=()):
    """Assert that two models are equal, bit for bit or up to a tolerance relative to the largest number."""
    first, second = read(one, X), read(two, X)
    for name in first.keys() - set(skip):
        a, b = first[name], second[name]
        assert a.shape == b.shape, name
        if tolerance == 0.0 or a.dtype.kind != "f":
            np.testing.assert_array_equal(a, b, err_msg=name)
        else:
            np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * (1e-300 + np.abs(b).max(initial=0)), err_msg=name)


def as_dict(row):
    """Return the non-zero entries of a row as a dict."""
    if sp.issparse(row):
        row = row.toarray().ravel()
    return {f"f{j}": float(row[j]) for j in np.flatnonzero(row)}
