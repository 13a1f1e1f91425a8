"""The learners of the paper, and the cell for one pass of a learner, which several experiments share."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfd import AdaGrad, OnlineNewton
from robustfd.experiments._cells import Cell, Result, cell
from robustfd.experiments._data import Data, split

NAMES = {
    "adagrad": "ADAGRAD", "full": "FULL-ON", "fd": "FD-SON", "pfd": "PFD-SON", "rp": "RP-SON", "oja": "Oja-SON",
    "rfd": "RFD-SON", "rfd0": "RFD₀-SON",
}  # fmt: skip
ALPHAS = tuple(10.0**k for k in range(-3, 7))
QUICK_ALPHAS = (1e-3, 1e3, 1e6)  # for RP and Oja in a quick run, as Oja is slow where it diverges
RANDOM = ("rp", "oja")
UNSKETCHED = ("adagrad", "full")
FULL_FEATURES = 1000  # run FULL-ON, which needs a d x d matrix, for at most this many features
SEEDS = 5  # number of seeds of randomised methods, for rows in the order of the file
ORDERS = 5  # number of random row orders; order k uses seed k for randomised methods
CURVE = 60  # number of points of an online error curve


def learner(method: str, m: int | None, alpha0: float, seed: int | None = None) -> AdaGrad | OnlineNewton:
    """Return a learner with the settings of the paper's experiments, which are the defaults of this library."""
    if method == "adagrad":
        return AdaGrad(alpha0)
    if method == "full":
        return OnlineNewton("full", alpha0=alpha0)
    assert m is not None
    if method in ("rfd", "rfd0"):
        return OnlineNewton("rfd", m, alpha0=alpha0)
    return OnlineNewton(method, m, alpha0=alpha0, random_state=seed)  # type: ignore[arg-type]


def passes(
    data: Data, methods: tuple[str, ...] = tuple(NAMES), *, order: int | None, quick: bool = False
) -> list[Cell]:
    """Return the cells for passes over a data set in one row order, for every m and alpha0 and several seeds."""
    seeds = 1 if quick else SEEDS
    out = []
    for method in methods:
        if not data.two_classes or (method == "full" and data.n_features > FULL_FEATURES):
            continue
        for m in (None,) if method in UNSKETCHED else data.sizes:
            for alpha0 in (0.0,) if method == "rfd0" else QUICK_ALPHAS if quick and method in RANDOM else ALPHAS:
                for seed in range(seeds) if method in RANDOM and order is None else (order,):
                    drawn = seed if method in RANDOM else None
                    effort = _effort(data, method, m, alpha0)
                    out.append(
                        cell("pass", data.name, effort=effort, method=method, m=m, alpha0=alpha0, order=order,
                             seed=drawn)
                    )  # fmt: skip
    return out


def run(cell: Cell) -> Result:
    """Return the accuracy in percent after one pass and, for rows in the order of the file, the online error curve."""
    x, y, x_test, y_test = split(cell.data, cell["order"])
    model = learner(cell["method"], cell["m"], cell["alpha0"], cell["seed"])
    try:
        margins = model.learn(x, y)
    except OverflowError:
        return {"diverged": True}
    right = int(np.count_nonzero((model.decision_function(x_test) > 0) == (y_test > 0)))
    result: Result = {"diverged": False, "right": right, "of": len(y_test), "accuracy": 100 * right / len(y_test)}
    if cell["order"] is None:
        result["curve"] = online_error((margins > 0) != (y > 0))
    return result


def online_error(wrong: NDArray[Any]) -> dict[str, list[Any]]:
    """Return the error rate in percent over the first t rows, for t in a geometric sequence."""
    n = len(wrong)
    t = np.unique(np.geomspace(min(10, n), n, CURVE).astype(int))
    share = 100 * np.cumsum(wrong)[t - 1] / t
    return {"rows": t.tolist(), "error": share.round(3).tolist()}


def _effort(data: Data, method: str, m: int | None, alpha0: float) -> float:
    """Return the approximate run time of a pass in seconds."""
    entries = data.n_nonzeros * data.n_train / data.n_rows
    if m is None:
        per_row = 5e-7 if method == "adagrad" else 2e-9 * data.n_features**2
        return data.n_train * per_row + 2e-8 * entries
    if method == "oja" and data.n_features > FULL_FEATURES:
        return 3e-8 * m * entries * (10 if 1e-3 < alpha0 < 1e3 else 1)
    return data.n_train * (2e-6 + 2e-7 * m) + 6e-9 * m * entries
