"""Oja's algorithm: m directions that track the stream by stochastic gradient steps."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from robustfd._validation import random_generator
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch._base import RandomSketch, View, trivial_view
from robustfd.sketch._prepared import PreparedRows, prepare, updated_norm
from robustfd.sketch._rows import Contents, Floats, Queue

CHUNK = 64  # rows that are processed in small coordinates before V is formed again


@dataclass(frozen=True)
class OjaState:
    """V, its energies, and the norm, weight and mean of the rows."""

    vt: Floats  # d x m, orthonormal columns
    energy: Floats  # t Lambda of the paper: the sum of (V g)^2
    t: int
    squared_norm: float
    weight: float
    mean: Floats | None  # in double-double form (_centring.py)


class OjaSketch(RandomSketch):
    """Oja's algorithm as in sketched online Newton (Luo et al. 2016): V <- orth(V + (1/t)(V g) g').

    Lambda is the running mean of (V g)^2, and B = sqrt(t Lambda) V. There is no useful certificate: `error_bound_` is
    the trivial bound max(||A||_F^2, ||B||_2^2). The steps depend on the scale of the rows, and sketches cannot be
    merged.

    Parameters
    ----------
    sketch_size : int, default=50
        The number m of directions, at most n_features.
    buffer_size : int, optional
        Number of rows that are processed together, 64 by default. It does not change the result.
    alpha0, decay, center
        As for `FrequentDirections`. Decay multiplies the energies; the step size stays 1/t.
    solver
        Not used.
    random_state : int, RandomState instance or None, default=None
        Seed of the random initial directions.

    See Also
    --------
    RobustFrequentDirections : Has a certificate and can be merged.
    RandomProjectionSketch : Another randomised sketch, which can be merged.

    Notes
    -----
    Several threads may use one sketch. Their calls run one at a time.

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
        start = random_generator(self.random_state).standard_normal((d, m))
        mean = np.zeros((2, d)) if self.center else None
        return OjaState(_orthonormal(start), np.zeros(m), 0, 0.0, 0.0, mean)

    @one_blas_thread()
    def _absorb(self, state: OjaState, queue: Queue) -> tuple[OjaState, Queue]:
        while len(queue):
            rows, queue = queue.take(min(len(queue), self.buffer_size or CHUNK))
            e, mean, weight = prepare(rows, state.mean, state.weight, sparse=True)
            norm = updated_norm(state.squared_norm, e, rows)
            vt, energy = _step(state, e, rows.decay)
            state = OjaState(vt, energy, state.t + len(rows), norm, weight, mean)
        return state, queue

    def _read(self, contents: Contents) -> View:
        state, factor = contents.state, contents.factor
        order = np.argsort(-state.energy, kind="stable")
        order = order[state.energy[order] > 0]
        b = np.sqrt(state.energy[order])[:, None] * state.vt.T[order]
        return trivial_view(float(self.alpha0), b, factor * state.energy[order], state, factor)

    def _union(self, one: Contents, two: Contents) -> OjaState:
        raise NotImplementedError(
            "OjaSketch cannot be merged: its directions depend on the order of the rows. "
            "Use RobustFrequentDirections, which can."
        )


def _step(state: OjaState, e: PreparedRows, decay: Floats) -> tuple[Floats, Floats]:
    """Return V' and the energies after the rows. Until the end, V = C [V_0; E] is represented by the small matrix C."""
    m, k = len(state.energy), len(decay)
    cross, gram = e.times(state.vt.T), e.gram()
    c, energy = np.eye(m, m + k), state.energy
    for i in range(k):
        t = state.t + i + 1
        h = c[:, :m] @ cross[i] + c[:, m : m + i] @ gram[i, :i]  # columns of later rows are zero
        energy = decay[i] * energy + h * h
        c[:, m + i] += h / t
        c = solve_triangular(_unit_cholesky(h, (2.0 + gram[i, i] / t) / t), c, lower=True, check_finite=False)
    vt = state.vt @ c[:, :m].T
    e.add_to(vt, c[:, m:].T)
    if not np.isfinite(vt).all() or not np.isfinite(energy).all():
        raise ValueError("Input X is too large for OjaSketch: its step (V x) x' overflows. Scale the rows.")
    # The recurrence assumes V V' = I. Orthonormalising again keeps rounding errors from accumulating.
    return _orthonormal(vt), energy


def _unit_cholesky(h: Floats, gamma: float) -> Floats:
    """Return the Cholesky factor of I + gamma h h'. The closed form is accurate also for a large gamma ||h||^2."""
    d = 1.0 + gamma * np.cumsum(h * h)
    before = np.concatenate([[1.0], d[:-1]])
    factor = np.tril(np.outer(h, gamma * h / np.sqrt(d * before)), -1)
    factor[np.arange(len(h)), np.arange(len(h))] = np.sqrt(d / before)
    return np.asarray(factor)


def _orthonormal(vt: Floats) -> Floats:
    """Return orthonormal columns, as from Gram-Schmidt in the given order, by Householder QR."""
    q, r = np.linalg.qr(vt)
    return np.ascontiguousarray(q * np.where(np.diag(r) < 0, -1.0, 1.0))
