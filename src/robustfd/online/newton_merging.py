"""Merging of sketched Newton states: w is the mean weighted by numbers of rows, and H covers the rows of both.

Unlike in the untuned learner, H sums squared gradients, so the worse of two learners has the larger Hessian. For
this reason H does not weight the mean of w. The rows of both sketches and of both blocks are shrunk once.
"""

import copy
from typing import Any

import numpy as np

from robustfd.linalg.decompose import shrink_stack
from robustfd.linalg.eigen import routines
from robustfd.linalg.threads import one_blas_thread
from robustfd.online.block import state_of
from robustfd.online.rows import Floats
from robustfd.online.shrink import Change
from robustfd.online.snapshot import Parts


@one_blas_thread()
def merged(one: Any, two: Any, vote: Floats) -> Any:
    """Return the merged state of two states with the same settings; `vote` weights the mean of their w."""
    states, d = (one, two), max(one.d, two.d)
    if d == one.d == two.d and (_is_fresh(one) or _is_fresh(two)):
        return copy.deepcopy(two if _is_fresh(one) else one)
    w = vote @ np.array([_wide(state.weights(), d) for state in states])
    rows = np.vstack([_wide(_rows(state), d) for state in states])
    return _newton(states, w, rows, 1.0, sum(int(state_of(state.memory).seen) for state in states))


@one_blas_thread()
def fraction(state: Any, k: int, i: int) -> Any:
    """Return part i of k of a state: the same weights and a k-th of H."""
    if _is_fresh(state) or k == 1:
        return copy.deepcopy(state)
    seen = (int(state_of(state.memory).seen) + k - 1 - i) // k
    return _newton((state,), state.weights(), _rows(state) / np.sqrt(k), 1.0 / k, seen)


def _is_fresh(state: Any) -> bool:
    """Return whether the state has no rows, neither learned nor from a split."""
    now = state_of(state.memory)
    return int(now.shrinks) == 0 and int(now.filled) == 0


def _wide(array: Floats, d: int) -> Floats:
    """Return an array (..., features) padded to d features."""
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, d - array.shape[-1])])


def _rows(state: Any) -> Floats:
    """Return the rows whose outer products add up to H: those of B and of the current block."""
    block = state.block
    n, r = int(block.state[0].filled), len(block.lam)
    times = np.sqrt(block.rows["c2"][:n])
    if not state.sparse:
        arrays = state.pack()[1]
        return np.vstack([arrays["basis"].T[1:], times[:, None] * arrays["buffer"]])
    # Each row is the difference between the weights after a unit step along it and the weights without the step.
    picked = np.vstack([np.zeros(r + n), np.diag(np.append(np.ones(r), times))])
    read = [_stored_weights(state, Change(each[None, :r].copy(), each[None, r:].copy(), each)) for each in picked]
    return np.array(read[1:]) - read[0]


def _stored_weights(state: Any, steps: Change) -> Floats:
    """Return the weights at the beginning of the block plus these steps."""
    block = state.block
    return np.asarray(state.basis.weights(routines(state.long_stream), block, steps) / block.state[0].factor)


def _newton(states: tuple[Any, ...], w: Floats, rows: Floats, part: float, seen: int) -> Any:
    """Return a state with an empty block, the weights w, and a sketch of these rows."""
    one, like = states[0], [state_of(state.memory) for state in states]
    settings, d = one.settings, len(w)
    m, buffer = int(like[0].width), int(like[0].buffer)
    shrunk = shrink_stack(rows[:0], np.zeros(0), rows[np.any(rows != 0, axis=1)], m, settings.shrunk, solver="svd")
    growth = sum(each.alpha - settings.alpha0 for each in like) * part + settings.added * shrunk.delta
    alpha, basis = settings.alpha0 + growth, np.zeros((d, m))
    basis[:, 0], basis[:, 1 : 1 + len(shrunk.lam)] = w, shrunk.rows.T
    numbers, arrays = type(one)(settings, d, m, buffer, sparse=one.sparse).pack()
    del numbers["sparse"]
    careful = alpha == 0.0 or any(bool(each.careful) for each in like)
    numbers |= {"seen": seen, "shrinks": 1 + sum(int(each.shrinks) for each in like), "careful": careful}
    arrays |= {"basis": basis, "lam": np.append(shrunk.lam, np.zeros(m - 1 - len(shrunk.lam)))}
    arrays["scalars"] = np.array([alpha, sum(each.delta_sum for each in like) * part + shrunk.delta, shrunk.delta])
    arrays["ball"] = np.concatenate([[1.0], np.zeros(m - 1), basis.T @ w])
    if careful:
        arrays["k"] = np.zeros((0, 0))
    new = type(one).unpack(Parts(numbers, arrays, ""), settings, d, m, buffer, sparse=one.sparse)
    new.expect(seen)
    return new
