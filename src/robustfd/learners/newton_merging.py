"""Merging of sketched Newton states: w is the mean weighted by numbers of rows, and H covers the rows of both.

Unlike in the untuned learner, H sums squared gradients, so the worse of two learners has the larger Hessian. For
this reason H does not weight the mean of w. The rows of both sketches and of both blocks are shrunk once.
"""

import copy
from typing import Any

import numpy as np

from robustfd.learners.ball import C2
from robustfd.learners.rows import Floats
from robustfd.learners.snapshot import Parts
from robustfd.linalg.decompose import shrink_stack
from robustfd.linalg.threads import one_blas_thread


@one_blas_thread()
def merged(one: Any, two: Any, vote: Floats) -> Any:
    """Return the merged state of two states with the same settings; `vote` weights the mean of their w."""
    states, d = (one, two), max(one.d, two.d)
    if d == one.d == two.d and (_is_fresh(one) or _is_fresh(two)):
        return copy.deepcopy(two if _is_fresh(one) else one)
    w = vote @ np.array([_wide(state.weights(), d) for state in states])
    rows = np.vstack([_wide(_rows(state), d) for state in states])
    return _newton(states, w, rows, 1.0, sum(state.core.state.seen for state in states))


@one_blas_thread()
def fraction(state: Any, k: int, i: int) -> Any:
    """Return part i of k of a state: the same weights and a k-th of H."""
    if _is_fresh(state) or k == 1:
        return copy.deepcopy(state)
    seen = (state.core.state.seen + k - 1 - i) // k
    return _newton((state,), state.weights(), _rows(state) / np.sqrt(k), 1.0 / k, seen)


def _is_fresh(state: Any) -> bool:
    """Return whether the state has no rows, neither learned nor from a split."""
    return state.core.state.shrinks == 0 and state.core.state.filled == 0


def _wide(array: Floats, d: int) -> Floats:
    """Return an array (..., features) padded to d features."""
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, d - array.shape[-1])])


def _rows(state: Any) -> Floats:
    """Return the rows whose outer products add up to H: those of B and of the current block."""
    core, views = state.core, state.arrays
    n, r = core.state.filled, len(views["lam"])
    times = np.append(np.ones(r), np.sqrt(views["rows"][:n, C2]))
    picked = np.diag(times)
    return np.array([core.combine(0.0, each[:r].copy(), each[r:].copy()) for each in picked])


def _newton(states: tuple[Any, ...], w: Floats, rows: Floats, part: float, seen: int) -> Any:
    """Return a state with an empty block, the weights w, and a sketch of these rows."""
    one, like = states[0], [state.core.state for state in states]
    settings, d, (m, buffer) = one.settings, len(w), one.sizes
    shrunk = shrink_stack(rows[:0], np.zeros(0), rows[np.any(rows != 0, axis=1)], m, settings.shrunk, solver="svd")
    growth = sum(each.alpha - settings.alpha0 for each in like) * part + settings.added * shrunk.delta
    alpha, basis = settings.alpha0 + growth, np.zeros((d, m))
    basis[:, 0], basis[:, 1 : 1 + len(shrunk.lam)] = w, shrunk.rows.T
    numbers, arrays = type(one)(settings, d, m, buffer, sparse=one.sparse).pack()
    del numbers["sparse"]
    careful = alpha == 0.0 or any(each.careful for each in like)
    numbers |= {"seen": seen, "shrinks": 1 + sum(each.shrinks for each in like), "careful": careful}
    arrays |= {"basis": basis, "lam": np.append(shrunk.lam, np.zeros(m - 1 - len(shrunk.lam)))}
    arrays["scalars"] = np.array([alpha, sum(each.delta_sum for each in like) * part + shrunk.delta, shrunk.delta])
    arrays["ball"] = np.concatenate([[1.0], np.zeros(m - 1), basis.T @ w])
    if careful:
        arrays["k"] = np.zeros((0, 0))
    return type(one).unpack(Parts(numbers, arrays, ""), settings, d, m, buffer, sparse=one.sparse)
