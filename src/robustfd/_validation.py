"""Checks of user input. Every error names the argument, its value and the values that are allowed."""

import numbers
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def check_integer(name: str, value: Any, minimum: int, maximum: int | None = None) -> int:
    """Return value as an int, or raise."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer of at least {minimum}, got {value!r}.")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}.")
    if maximum is not None and int(value) > maximum:
        raise ValueError(f"{name} must be at most {maximum}, got {value}.")
    return int(value)


def check_real(name: str, value: Any, low: float, high: float = np.inf, *, open_low: bool = False) -> float:
    """Return value as a float in [low, high] (or (low, high]), or raise."""
    span = f"{'(' if open_low else '['}{low:g}, {'inf)' if high == np.inf else f'{high:g}]'}"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number in {span}, got {value!r}.")
    try:
        value = float(value)
    except OverflowError:  # integers and fractions can be larger than any float
        raise ValueError(f"{name} must be in {span}, got a number that is too large for a float.") from None
    if not np.isfinite(value) or value < low or value > high or (open_low and value == low):
        raise ValueError(f"{name} must be in {span}, got {value}.")
    return value


def check_range(name: str, value: Any, most: float) -> tuple[float, float]:
    """Return a pair of numbers (low, high) with low < high, of size at most `most`, or raise."""
    try:
        low, high = value
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a pair (low, high), got {value!r}.") from None
    low, high = (check_real(name, end, -most, most) for end in (low, high))
    if not low < high:
        raise ValueError(f"{name} must be (low, high) with low < high, got {value!r}.")
    return low, high


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise unless value is one of the choices."""
    plain = value.item() if isinstance(value, np.generic) else value  # numpy's True and "auto" count too
    if not any(type(plain) is type(choice) and plain == choice for choice in choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")


def check_rows(estimator: Any, x: Any, *, reset: bool) -> Any:
    """Return x as a numeric 2-d array or a canonical CSR matrix of floats. Its values are not checked.

    With `reset` the estimator's `n_features_in_` and `feature_names_in_` are set from x, even if x is then rejected:
    pass a copy of an estimator that must not change. Without `reset`, x is compared with them.
    """
    # For plain rows, scikit-learn's checks would take ten times as long and find nothing.
    if _is_plain(x) and x.shape[1] >= 1 and not hasattr(estimator, "feature_names_in_"):
        if reset and x.shape[0] >= 1:
            estimator.n_features_in_ = x.shape[1]
            return x
        if not reset and x.shape[1] == estimator.n_features_in_:
            return x
    if isinstance(x, list | tuple) and len(x) and isinstance(x[0], Mapping):
        raise ValueError(
            f"X must be an array, a sparse matrix or a DataFrame, got a {type(x).__name__} of dicts. Learn dicts one "
            "at a time with learn_one, if the estimator has it, or make a table of them, as with pandas.DataFrame(X)."
        )
    from sklearn.utils.validation import validate_data  # takes a second, which streams do not need

    x = validate_data(
        estimator,
        x,
        reset=reset,
        accept_sparse="csr",
        dtype="numeric",
        ensure_all_finite=False,  # checked block by block when rows enter the sketch
        ensure_min_samples=int(reset),
    )
    if isinstance(x, np.ndarray):
        return x if x.dtype in (np.float32, np.float64) or x.dtype.kind in "biu" else x.astype(np.float64)
    if x.dtype not in (np.float32, np.float64):
        x = x.astype(np.float64)
    if not x.has_canonical_format:
        x = x.copy()  # do not sort the caller's matrix
        x.sum_duplicates()
    return x


def _is_plain(x: Any) -> bool:
    """Return whether x is a matrix of floats that needs no conversion: dense, or canonical CSR."""
    if type(x) is np.ndarray:
        return x.ndim == 2 and x.dtype in (np.float32, np.float64)
    if isinstance(x, tuple) and hasattr(x, "indptr"):  # rows of text, CSR without scipy
        return True
    sparse = sys.modules.get("scipy.sparse")  # if it is not imported, x is not sparse
    if sparse is None or not isinstance(x, sparse.csr_array | sparse.csr_matrix):
        return False
    return x.dtype in (np.float32, np.float64) and bool(x.has_canonical_format)


def random_generator(random_state: Any) -> "np.random.RandomState":
    """Return the generator that a parameter `random_state` stands for."""
    if random_state is None:
        return np.random.mtrand._rand  # NumPy's own, as in scikit-learn
    from sklearn.utils import check_random_state

    return check_random_state(random_state)


def check_weights(sample_weight: Any, n: int) -> NDArray[np.float64]:
    """Return n non-negative weights, all 1 for None."""
    if sample_weight is None:
        return np.ones(n)
    weight = _check_vector("sample_weight", sample_weight, n, "numbers >= 0", "Every weight must be finite and >= 0")
    if (weight < 0).any():
        raise ValueError(f"sample_weight contains {weight.min():g}. Negative weights in sample_weight are not allowed.")
    return weight


def check_times(times: Any, n: int) -> NDArray[np.float64]:
    """Return n finite times in ascending order."""
    clock = _check_vector("times", times, n, "numbers, such as seconds", "Every time must be a finite number")
    back = np.flatnonzero(np.diff(clock) < 0)
    if len(back):
        i = int(back[0])
        raise ValueError(f"times goes backwards: {clock[i + 1]:g} comes after {clock[i]:g}. Sort the rows by time.")
    return clock


def _check_vector(name: str, values: Any, n: int, kind: str, rule: str) -> NDArray[np.float64]:
    """Return n finite numbers; a single number counts for every row."""
    found = np.asarray(values)
    if found.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be {n} {kind}, got an array of {found.dtype}: {values!r:.60}.")
    found = found.astype(np.float64)
    if found.ndim == 0:
        found = np.full(n, float(found))
    if found.shape != (n,):
        raise ValueError(f"{name} has shape {found.shape}, but X has {n} rows: expected shape ({n},).")
    if not np.isfinite(found).all():
        raise ValueError(f"{name} contains NaN or infinity. {rule}.")
    return found


def changed(name: str, then: Any, now: Any) -> ValueError:
    """Return the error about a parameter that must not change after the first rows."""
    return ValueError(
        f"{name} was changed from {then!r} to {now!r} after rows were seen. Set it back to {then!r}, or call fit to "
        "start over."
    )


def check_same_params(what: str, one: Mapping[str, Any], two: Mapping[str, Any]) -> None:
    """Raise unless two objects to be merged have the same parameters. `what` is their plural noun for the message."""
    for name in one:
        if one[name] != two[name]:
            raise ValueError(f"Cannot merge {what} of different {name}: {one[name]!r} here, {two[name]!r} there.")


def check_same_features(what: str, one: Any, two: Any, *, if_known: bool = False) -> None:
    """Raise unless two objects to be merged have the same features. With `if_known`, features of one alone fit."""
    for name in ("n_features_in_", "feature_names_in_"):
        here, there = vars(one).get(name), vars(two).get(name)
        if not np.array_equal(here, there) and not (if_known and (here is None or there is None)):
            raise ValueError(f"Cannot merge {what} of different {name}: {here} here, {there} there.")
