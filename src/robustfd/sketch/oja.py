"""Oja's algorithm: m directions that follow the stream by stochastic gradient steps."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.utils import check_random_state

from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch._base import RandomSketch, View, trivial_view
from robustfd.sketch._entering import EnteringRows, enter, grown
from robustfd.sketch._rows import Floats, Queue, Unread

CHUNK = 64  # rows stepped through in coordinates before V is formed again


@dataclass(frozen=True)
class OjaState:
    """V, the energies and what goes with them."""

    vt: Floats  # d x m, orthonormal columns
    energy: Floats  # t Lambda of the paper: the sum of (V g)^2
    t: int
    squared_norm: float
    weight: float
    mean: Floats | None  # in two parts (_centring.py)


class OjaSketch(RandomSketch):
    """Oja's algorithm as in sketched online Newton (Luo et al. 2016): V <- orth(V + (1/t)(V g) g').

    Lambda is the running mean of (V g)^2 and B = sqrt(t Lambda) V. Nothing about its error is certain:
    `error_bound_` is the trivial bound max(||A||_F^2, ||B||_2^2). The steps depend on the scale of the rows, and
    two sketches cannot be merged.

    Parameters
    ----------
    sketch_size : int, default=50
        m, the number of directions (at most n_features).
    buffer_size : int, optional
        How many rows are worked on at once, default 64; the result is the same.
    alpha0, decay, center : as for `FrequentDirections`
        Decay multiplies the energies; the steps stay 1/t.
    solver : has no effect here
    random_state : int, RandomState instance or None
        Draws the directions to start from.

    Notes
    -----
    Any number of threads may use one sketch: their calls take turns.

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd import OjaSketch
    >>> A = np.random.default_rng(0).standard_normal((500, 20))
    >>> OjaSketch(5, random_state=0).fit(A).sketch_.shape
    (5, 20)
    """

    _state_type = OjaState

    def _start(self, d: int) -> OjaState:
        m = min(self.sketch_size, d)
        start = check_random_state(self.random_state).standard_normal((d, m))
        mean = np.zeros((2, d)) if self.center else None
        return OjaState(_orthonormal(start), np.zeros(m), 0, 0.0, 0.0, mean)

    @one_blas_thread()
    def _absorb(self, state: OjaState, queue: Queue) -> tuple[OjaState, Queue]:
        while len(queue):
            rows, queue = queue.take(min(len(queue), self.buffer_size or CHUNK))
            e, mean, weight = enter(rows, state.mean, state.weight, sparse=True)
            norm = grown(state.squared_norm, e, rows)
            vt, energy = _step(state, e, rows.decay)
            state = OjaState(vt, energy, state.t + len(rows), norm, weight, mean)
        return state, queue

    def _read(self, unread: Unread) -> View:
        state, factor = unread.state, unread.factor
        order = np.argsort(-state.energy, kind="stable")
        order = order[state.energy[order] > 0]
        b = np.sqrt(state.energy[order])[:, None] * state.vt.T[order]
        return trivial_view(float(self.alpha0), b, factor * state.energy[order], state, factor)

    def _union(self, one: Unread, two: Unread) -> OjaState:
        raise NotImplementedError(
            "OjaSketch cannot be merged: its directions depend on the order of the rows. "
            "Use RobustFrequentDirections, which can."
        )


def _step(state: OjaState, e: EnteringRows, decay: Floats) -> tuple[Floats, Floats]:
    """Return V' and energies after the rows, V = C [V_0; E] being kept in coordinates on the way."""
    m, k = len(state.energy), len(decay)
    ev, ee = e.times(state.vt.T), e.gram()
    c, energy = np.eye(m, m + k), state.energy
    for i in range(k):
        t = state.t + i + 1
        h = c[:, :m] @ ev[i] + c[:, m : m + i] @ ee[i, :i]  # columns of rows to come are zero
        energy = decay[i] * energy + h * h
        c[:, m + i] += h / t
        c = solve_triangular(_unit_cholesky(h, (2.0 + ee[i, i] / t) / t), c, lower=True, check_finite=False)
    vt = state.vt @ c[:, :m].T
    e.add_to(vt, c[:, m:].T)
    if not np.isfinite(vt).all() or not np.isfinite(energy).all():
        raise ValueError("Input X is too large for OjaSketch: its step (V x) x' overflows. Scale the rows.")
    # V V' = I was taken for granted above; making it so again keeps rounding errors from piling up.
    return _orthonormal(vt), energy


def _unit_cholesky(h: Floats, gamma: float) -> Floats:
    """Return the Cholesky factor of I + gamma h h'; for a tall step it is more accurate than forming the sum."""
    d = 1.0 + gamma * np.cumsum(h * h)
    before = np.concatenate([[1.0], d[:-1]])
    factor = np.tril(np.outer(h, gamma * h / np.sqrt(d * before)), -1)
    factor[np.arange(len(h)), np.arange(len(h))] = np.sqrt(d / before)
    return np.asarray(factor)


def _orthonormal(vt: Floats) -> Floats:
    """Return Gram-Schmidt of the columns, in their order."""
    q, r = np.linalg.qr(vt)
    return np.ascontiguousarray(q * np.where(np.diag(r) < 0, -1.0, 1.0))
