"""The protocol of the paper's experiments: printed numbers, data sets, learners, and the cell of one pass."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustfd import AdaGrad, OnlineNewton, datasets
from robustfd.experiments.cells import STAND_INS, Cell, Result, cell

# ------------------------------------------------------------------ printed numbers: Luo et al. 2019, Tables 1 to 3

# Table 1. The accuracies on real-sim are fractions of 21,661 test rows; 30 % of 72,309 rows would be 21,693.
PAPER_DATA: dict[str, dict[str, Any]] = {
    "a9a": {"rows": 32561, "features": 123, "sizes": [5, 10, 20], "test_rows": 9769},
    "gisette": {"rows": 6000, "features": 5000, "sizes": [5, 10, 20], "test_rows": 1800},
    "sido0": {"rows": 12678, "features": 4932, "sizes": [5, 10, 20], "test_rows": 3804},
    "farm-ads": {"rows": 4143, "features": 54877, "sizes": [20, 30, 50], "test_rows": 1243},
    "rcv1": {"rows": 20242, "features": 47236, "sizes": [20, 30, 50], "test_rows": 6073},
    "real-sim": {"rows": 72309, "features": 20958, "sizes": [20, 30, 50], "test_rows": 21661},
}


def _parse(printed: str) -> dict[str, list[list[float | None]]]:
    """Return the lines of each method in a printed table, one for each m."""
    table: dict[str, list[list[float | None]]] = {}
    for method, *numbers in map(str.split, printed.strip().splitlines()):
        table.setdefault(method, []).append([None if number == "-" else float(number) for number in numbers])
    return table


# Table 2, percent. A column for each data set, a line for each m. FD has the same line for m2 and m3: m3 looks copied.
ACCURACY = _parse("""
    adagrad 83.4783 84.1111 94.0326 89.3805 95.8340 96.7315
    full    83.8264 96.9444 97.0557       -       -       -
    fd      83.6524 96.7222 97.0557 89.7023 95.6200 96.7315
    fd      83.6728 96.7222 97.0557 89.9437 95.6529 96.7361
    fd      83.6728 96.7222 97.0557 89.9437 95.6529 96.7361
    pfd     83.6728 97.0000 97.0294 90.0241 95.8340 96.7407
    pfd     83.7138 97.0556 97.0820 89.8632 95.8340 96.7407
    pfd     83.6626 97.0000 97.0557 90.0241 95.8340 96.7176
    rp      83.4374 96.9444 96.5037 88.8174 95.7188 96.7499
    rp      83.9492 96.2778 96.8980 89.7023 95.6694 96.7499
    rp      83.7650 96.7222 97.0557 89.4610 95.7846 96.7315
    oja     83.6831 96.3889 96.6351 89.0587 95.7846 96.7776
    oja     83.6319 96.9444 96.8980 89.1392 95.7846 96.7776
    oja     83.5091 97.1111 96.8980 89.1392 95.7846 96.7776
    rfd     83.6319 96.2222 96.6877 89.7828 95.8340 95.7666
    rfd     83.6831 96.4444 96.9243 89.8632 95.8834 96.1267
    rfd     83.9390 96.9444 97.0820 90.3459 96.1139 96.4037
    rfd0    83.2429 95.9444 96.6877 87.6911 96.3280 96.1636
    rfd0    83.2634 96.2778 96.9243 88.8174 96.3115 96.3806
    rfd0    83.2736 96.8889 97.1083 88.8978 96.4762 96.5560
""")

# Table 3, seconds per row.
SECONDS = _parse("""
    adagrad 9.8279e-05 1.9677e-04 1.9504e-04 3.1976e-04 7.0888e-04 3.2917e-04
    full    2.3141e-04 2.6296e-01 1.6299e-01          -          -          -
    fd      2.8552e-04 5.2073e-04 6.0705e-04 1.6387e-03 2.0727e-02 6.6130e-03
    fd      2.7276e-04 7.2830e-04 7.8723e-04 3.2000e-03 4.1148e-02 1.3530e-02
    fd      3.4899e-04 3.4821e-03 1.4404e-03 5.1365e-03 7.2211e-02 3.0713e-02
    pfd     2.6090e-04 5.8330e-04 5.7862e-04 2.4524e-02 2.0121e-02 6.6757e-03
    pfd     2.8206e-04 2.0234e-03 7.7824e-04 3.2372e-02 4.1385e-02 1.2965e-02
    pfd     3.2096e-04 3.3901e-03 1.4680e-03 5.4829e-02 7.1159e-02 3.0677e-02
    rp      1.3597e-04 3.2097e-04 3.6333e-04 7.3933e-04 1.8736e-03 1.5551e-03
    rp      2.7308e-04 7.2830e-04 7.8723e-04 3.2000e-03 2.8015e-03 1.8377e-03
    rp      3.3307e-04 3.4821e-03 1.4404e-03 5.1365e-03 4.1585e-03 2.1537e-03
    oja     1.5500e-04 6.0334e-04 2.9098e-04 1.3061e-03 6.7158e-03 5.2530e-03
    oja     1.6719e-04 7.3481e-04 2.4472e-04 2.8887e-03 4.1148e-02 1.3530e-02
    oja     1.6631e-04 3.3918e-03 1.3920e-03 4.4386e-03 7.2211e-02 3.0713e-02
    rfd     2.8549e-04 5.1545e-04 6.0296e-04 2.0484e-03 2.0557e-02 9.7858e-03
    rfd     3.1813e-04 7.5013e-04 7.5699e-04 3.8129e-03 4.0695e-02 1.6527e-02
    rfd     3.3405e-04 3.3495e-03 1.4472e-03 5.2458e-03 7.1764e-02 3.0175e-02
    rfd0    2.7466e-04 6.8607e-04 5.9339e-04 2.0843e-03 2.0033e-02 9.8373e-03
    rfd0    1.9542e-04 8.0961e-04 7.6749e-04 3.7857e-03 4.0779e-02 1.6892e-02
    rfd0    2.3561e-04 1.4328e-03 7.6749e-04 5.5628e-03 7.3725e-02 3.0490e-02
""")
SLIPS_OF_SECONDS = (
    "Table 3 repeats cells between methods: RP's m2 and m3 are FD's on gisette, sido0 and farm-ads, Oja's m2 and m3 "
    "are FD's on rcv1 and real-sim. It is not to be relied on."
)

# The 18 cells of Table 2 that are reproduced in every printed digit; for FD only with the two smaller sketches.
EXACT_DATA = ("a9a", "farm-ads")
EXACT_METHODS = {"adagrad": (0,), "fd": (0, 1), "pfd": (0, 1, 2), "rfd": (0, 1, 2)}


def printed(table: dict[str, list[list[float | None]]], data: str, method: str, place: int) -> float | None:
    """Return the number of a method in a table of the paper, if there is one. place is 0 to 2 for m1 to m3.

    For a stand-in, it is that of the data set that it stands for.
    """
    data = STAND_INS.get(data, data)
    return table[method][place][list(PAPER_DATA).index(data)] if data in PAPER_DATA else None


def must_be_equal(data: str, method: str, place: int) -> bool:
    """Return whether a cell of Table 2 is one of those that are reproduced in every printed digit."""
    return data in EXACT_DATA and place in EXACT_METHODS.get(method, ())


# ------------------------------------------------------------------ data sets

TRAIN_SHARE = 0.7


@dataclass(frozen=True)
class Data:
    """The properties of a data set that are needed to plan experiments."""

    name: str
    n_rows: int
    n_features: int
    n_nonzeros: int
    two_classes: bool
    digest: str

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sketch sizes m1, m2, m3: the paper's, or those of its data sets of similar width."""
        similar = (5, 10, 20) if self.n_features <= 5000 else (20, 30, 50)
        return tuple(PAPER_DATA.get(self.name, {}).get("sizes", similar))

    @property
    def is_papers(self) -> bool:
        """Whether this is the same data set as in the paper."""
        known = PAPER_DATA.get(self.name, {})
        return (known.get("rows"), known.get("features")) == (self.n_rows, self.n_features)

    @property
    def n_train(self) -> int:
        """The number of training rows. The others are the test set."""
        return int(TRAIN_SHARE * self.n_rows)


@lru_cache(maxsize=4)
def rows(name: str) -> tuple[Any, NDArray[Any]]:
    """Return X and y of a data set."""
    x, y = datasets.load(name)
    return (sp.csr_array(x) if sp.issparse(x) else x), y


def describe(name: str) -> Data:
    """Load a data set and return its description."""
    name = datasets.info(name).name
    x, y = rows(name)
    arrays = (x.data, x.indices, x.indptr, y) if sp.issparse(x) else (x, y)
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    nonzeros = x.nnz if sp.issparse(x) else x.size
    two = bool(np.isin(y, (-1.0, 1.0)).all())
    return Data(name, x.shape[0], x.shape[1], int(nonzeros), two, digest.hexdigest()[:16])


def split(name: str, order: int | None) -> tuple[Any, NDArray[Any], Any, NDArray[Any]]:
    """Return X, y of 70 % of the rows for training and X, y of 30 % for testing.

    The rows are in the order of the file if `order` is None, and shuffled with the seed `order` otherwise.
    """
    x, y = rows(name)
    n = int(TRAIN_SHARE * len(y))
    if order is None:
        return x[:n], y[:n], x[n:], y[n:]
    p = np.random.default_rng(order).permutation(len(y))
    return x[p[:n]], y[p[:n]], x[p[n:]], y[p[n:]]


# ------------------------------------------------------------------ learners

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


def passes(data: Data, methods: Iterable[str] = NAMES, *, order: int | None, quick: bool = False) -> list[Cell]:
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
                    settings = {"method": method, "m": m, "alpha0": alpha0, "order": order, "seed": drawn}
                    out.append(cell("pass", data.name, effort=_effort(data, method, m, alpha0), **settings))
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


def by_method(row: Mapping[str, Any]) -> tuple[int, int]:
    """Return the key that sorts rows by method, in the order of the paper, and m."""
    return list(NAMES).index(row["method"]), row["m"] or 0


def label(row: Mapping[str, Any]) -> str:
    """Return the name of a method and its m."""
    return NAMES[row["method"]] + (f", {row['m']}" if row["m"] else "")


def _effort(data: Data, method: str, m: int | None, alpha0: float) -> float:
    """Return the approximate run time of a pass in seconds."""
    entries = data.n_nonzeros * data.n_train / data.n_rows
    if m is None:
        per_row = 5e-7 if method == "adagrad" else 2e-9 * data.n_features**2
        return data.n_train * per_row + 2e-8 * entries
    if method == "oja" and data.n_features > FULL_FEATURES:
        return 3e-8 * m * entries * (10 if 1e-3 < alpha0 < 1e3 else 1)
    return data.n_train * (2e-6 + 2e-7 * m) + 6e-9 * m * entries
