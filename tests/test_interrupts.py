"""A signal handler, such as that of Ctrl-C, may raise after any call: the model is then that before or after the call.

Python runs signal handlers when a function is entered and when a call of C returns. `sys.setprofile` reports the same
moments, so these tests interrupt a call at each of them in turn.
"""

import sys
import threading
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import robustfd as rf

PACKAGE = str(Path(rf.__file__).parent)
RNG = np.random.default_rng(0)
X = RNG.standard_normal((70, 6)) * (RNG.random((70, 6)) < 0.7)
Y = (X[:, 0] > 0).astype(int)
HOLES = np.where(RNG.random(X.shape) < 0.2, np.nan, X)
TABLE = pd.DataFrame(
    {"a": X[:, 0], "b": np.where(X[:, 1] > 0, "x", "y"), "c": [f"w{i % 9} v{i % 4}" for i in range(70)]}
)
DICTS = [{"a": float(x[0]), "c": f"v{i}"} for i, x in enumerate(X)]


class Stop(BaseException):
    """An interrupt."""


def interrupted(call, moment):
    """Call a function and raise at this moment; return whether the call ended before."""
    left = moment

    def watch(frame, event, arg):
        nonlocal left
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(PACKAGE):
            left -= 1
            if left < 0:
                raise Stop

    sys.setprofile(watch)
    try:
        call()
    except Stop:
        return False
    finally:
        sys.setprofile(None)
    return True


def learn_dicts(model, rows):
    for row in rows:
        model.learn_one(DICTS[row], int(Y[row]))


def learn_rows(x, y, **more):
    return lambda model, rows: model.partial_fit(x[rows], y[rows], **more)


def learn_rewards(model, rows):
    for row in rows:
        model.learn_one(DICTS[row], "uvw"[row % 3], float(Y[row]))


def learn_signs(x):
    return lambda model, rows: model.learn(x[rows], 2 * Y[rows] - 1)


def only_rows(x):
    return lambda model, rows: model.partial_fit(x[rows])


TWO = {"classes": [0, 1]}
CASES = {
    "two classes": (rf.SketchedNewtonClassifier(), learn_rows(X, Y, **TWO)),
    "three classes": (rf.SketchedNewtonClassifier(), learn_rows(X, Y + (X[:, 1] > 0), classes=[0, 1, 2])),
    "missing values": (rf.SketchedNewtonClassifier(), learn_rows(HOLES, Y, **TWO)),
    "sparse": (rf.SketchedNewtonRegressor(), learn_rows(sp.csr_array(X), X[:, 0])),
    "dicts": (rf.SketchedNewtonClassifier(), learn_dicts),
    "quantiles": (rf.SketchedNewtonRegressor(loss="quantile", quantile=[0.1, 0.9]), learn_rows(X, X[:, 0])),
    "intervals": (rf.SketchedNewtonRegressor(intervals=True), learn_rows(HOLES, X[:, 0])),
    "sets": (rf.SketchedNewtonClassifier(intervals=True), learn_dicts),
    "bandit": (rf.ContextualBandit(["u", "v"], random_state=0), learn_rewards),
    "rfdson": (rf.RFDSONClassifier(3), learn_rows(X, Y, **TWO)),
    "rfdson dicts": (rf.RFDSONClassifier(3), learn_dicts),
    "online newton": (rf.OnlineNewton("rfd", 3), learn_signs(X)),
    "random projection": (rf.OnlineNewton("rp", 3, alpha0=100.0, random_state=0), learn_signs(X)),
    "adagrad": (rf.AdaGrad(), learn_signs(sp.csr_array(X))),
    "sketch": (rf.RobustFrequentDirections(3), only_rows(X)),
    "sparse sketch": (rf.FrequentDirections(3), only_rows(sp.csr_array(X))),
    "window": (rf.SlidingFrequentDirections(20, 3), only_rows(X)),
    "two sides": (rf.TwoSidedFrequentDirections(3), only_rows(X)),
    "random sketch": (rf.RandomProjectionSketch(3, random_state=0), only_rows(X)),
    "table": (rf.SketchedNewtonClassifier(), lambda model, rows: model.partial_fit(TABLE.iloc[rows], Y[rows], **TWO)),
    "pca": (rf.SketchedPCA(2), only_rows(X)),
    "ridge": (rf.SketchedRidge(), learn_rows(X, X[:, 0])),
    "detector": (rf.MahalanobisDetector(), only_rows(X)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in the end of a generator
@pytest.mark.parametrize("first", [66, pytest.param(3, marks=pytest.mark.slow)])  # a young model learns rows again
@pytest.mark.parametrize(  # the text of the table has 2^18 columns, which each moment copies
    "case", [pytest.param(case, marks=pytest.mark.slow) if case == "table" else case for case in CASES]
)
def test_an_interrupt_at_any_moment_leaves_the_model_before_or_after_the_call(case, first):
    model, learn = CASES[case]
    end = first + (1 if learn in (learn_dicts, learn_rewards) else 2)  # the rows of one call
    model, old, new = model.__class__(**model.get_params(deep=False)), np.arange(first), np.arange(first, end)
    learn(model, old)
    before = model.to_bytes()
    after = type(model).from_bytes(before)
    learn(after, new)
    whole = (before, after.to_bytes())
    for moment in count():
        again = type(model).from_bytes(before)
        if interrupted(lambda again=again: learn(again, new), moment):
            break
        found = []
        reader = threading.Thread(target=lambda again=again, found=found: found.append(again.to_bytes()), daemon=True)
        reader.start()
        reader.join(20)
        assert not reader.is_alive(), f"the lock is held after moment {moment}"
        assert found[0] in whole, f"a part of a call remains after moment {moment}"
    assert moment > 3
