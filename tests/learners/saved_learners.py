"""Learners, streams and the equality check that the tests of snapshots share."""

import itertools

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

import robustfd as rf

M = 4
LEARNERS = {
    "rfd": rf.OnlineNewton("rfd", M),
    "rfd-alpha0": rf.OnlineNewton("rfd", M, alpha0=0.5, projection=None, loss="logistic"),
    "rfd-late": rf.OnlineNewton("rfd", M, shrink_first=True, projection="next", buffer_size=M),
    "fd": rf.OnlineNewton("fd", M, alpha0=0.5, buffer_size=11),
    "pfd": rf.OnlineNewton("pfd", M, alpha0=0.5, beta=0.5, rate="1/sqrt(t)"),
    "s-adagrad": rf.OnlineNewton("s-adagrad", M, rate=0.1, projection="next"),
    "ada-fd": rf.OnlineNewton("ada-fd", M, alpha0=0.5, rate=0.1),
    "rp": rf.OnlineNewton("rp", M, alpha0=10.0, random_state=3),
    "oja": rf.OnlineNewton("oja", M, alpha0=10.0, random_state=3),
    "full": rf.OnlineNewton("full", rate=0.1),
    "adagrad": rf.AdaGrad(0.5),
    "descent": rf.OnlineGradientDescent(0.1),
}
FORMS = ("dense", "sparse", "wide")  # wide: more features than the limit below which sparse rows become dense
MANY = 400


def stream(form, n=MANY, seed=0):
    """Return rows and labels: 9 features, or 700 of which a row has few and some never occur."""
    rng = np.random.default_rng(seed)
    d = 700 if form == "wide" else 9
    X = rng.standard_normal((n, d)) / 3
    if form != "dense":
        X *= rng.random((n, d)) < (0.3 if d == 9 else 0.01) * np.linspace(1.5, 0.01, d)
        X[5] = 0.0
    y = np.where(X[:, 0] + X[:, 1:9:2].sum(axis=1) + 0.1 * rng.standard_normal(n) > 0, 1.0, -1.0)
    return (X if form == "dense" else sp.csr_array(X)), y


def make(name):
    return clone(LEARNERS[name])


def pairs():
    """Return pairs of learner and form of rows, except for the full matrix of 700 features, which is too slow."""
    return [pair for pair in itertools.product(LEARNERS, FORMS) if pair != ("full", "wide")]


def again(learner):
    return type(learner).from_bytes(learner.to_bytes())


def assert_same(one, two):
    """Assert that two learners are equal to the last bit."""
    assert type(one) is type(two) and one.get_params() == two.get_params()
    assert vars(one).keys() - {"_quick"} == vars(two).keys() - {"_quick"}  # only enables the fast path
    assert vars(one._state).keys() == vars(two._state).keys()
    assert one._frozen == two._frozen
    assert one.weights_.tobytes() == two.weights_.tobytes()
    assert one._progress.tobytes() == two._progress.tobytes()
    assert getattr(one, "alpha_", None) == getattr(two, "alpha_", None)
    assert one.to_bytes() == two.to_bytes()


def healthy(name, form="dense", n=30):
    X, y = stream(form, n)
    learner = make(name)
    learner.learn(X, y)
    return learner
