"""The exact d x d matrix: the ground truth, and the better choice for small d."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.linalg

from robustfd.linalg.eigen import EPS
from robustfd.linalg.rules import rounding
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch._base import BaseSketch, View
from robustfd.sketch._centring import MAX_LOG_DECAY, has_cancelled, merge_means, noise
from robustfd.sketch._prepared import prepare
from robustfd.sketch._rows import Contents, Floats, Queue, Rows, check_total, raise_not_finite

CHUNK = 1024  # rows that are prepared and multiplied together
SPARSE_CHUNK = 8 * CHUNK  # the same for sparse rows; larger, because each chunk costs passes over the d x d matrix
MAX_DENSITY = 0.1  # sparse rows with a higher density are faster as dense rows


@dataclass(frozen=True)
class ExactState:
    """The matrix, its norm, and the weight and mean of the rows."""

    matrix: Floats
    squared_norm: float
    weight: float
    mean: Floats | None  # in double-double form (_centring.py)
    rounding: float  # bound on the rounding error of the matrix

    @classmethod
    def empty(cls, d: int, center: bool) -> "ExactState":
        """Return the state before any row."""
        return cls(np.zeros((d, d)), 0.0, 0.0, np.zeros((2, d)) if center else None, 0.0)

    def faded(self, factor: float) -> "ExactState":
        """Return the state with all sums multiplied by `factor`. The mean does not change."""
        if factor == 1.0:
            return self
        norm, bound = factor * self.squared_norm, factor * (self.rounding + EPS * self.squared_norm)
        return ExactState(factor * self.matrix, norm, factor * self.weight, self.mean, bound)

    def plus(self, other: "ExactState") -> "ExactState":
        """Return the state of the rows of both."""
        matrix, norm = self.matrix + other.matrix, self.squared_norm + other.squared_norm
        n, k, mean = self.weight, other.weight, self.mean
        if mean is not None and other.mean is not None and n + k > 0:
            row, mean = merge_means(mean, other.mean, n, k)
            matrix += np.outer(row, row)
            norm += float(row @ row)
        bound = self.rounding + other.rounding + rounding(2, 1, 1.0, np.zeros(0), EPS * norm)
        return ExactState(matrix, check_total(norm), n + k, mean, bound)


class ExactSecondMoment(BaseSketch):
    """The exact matrix A'A + alpha0 I, with the interface of a sketch.

    It stores d x d numbers. Use it for small d, or as the ground truth for sketches. `sketch_` is a square root of A'A
    with as many rows as its rank. `error_bound_` covers only rounding errors.

    Parameters
    ----------
    alpha0 : float, default=0.0
        The matrix is A'A + alpha0 I.
    decay : float in (0, 1], default=1.0
        Before each new row, A'A of the older rows is multiplied by this factor.
    center : bool, default=False
        Subtract the mean of the rows: `covariance()` is then the covariance matrix.

    See Also
    --------
    RobustFrequentDirections : A certified approximation in O(m d) memory, for large d.

    Notes
    -----
    Rows are collected in chunks of 1024 (8192 if sparse), so the batches do not change any digit of the result. Sparse
    rows stay sparse, also with centring. A row costs O(d^2) flops, a sparse row with z stored values O(z^2).

    Several threads may use one sketch. Their calls run one at a time.

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd import ExactSecondMoment
    >>> A = np.arange(12.0).reshape(4, 3)
    >>> bool(np.allclose(ExactSecondMoment(center=True).fit(A).covariance().to_dense(), np.cov(A.T)))
    True
    """

    _structure: ClassVar[tuple[str, ...]] = ("center",)
    _state_type: ClassVar[type] = ExactState

    def __init__(self, *, alpha0: float = 0.0, decay: float = 1.0, center: bool = False):
        self.alpha0 = alpha0
        self.decay = decay
        self.center = center

    def _start(self, d: int) -> ExactState:
        return ExactState.empty(d, bool(self.center))

    @one_blas_thread()
    def _absorb(self, state: ExactState, queue: Queue) -> tuple[ExactState, Queue]:
        while len(queue) >= (chunk := self._chunk(queue)):
            rows, queue = queue.take(chunk)
            state = with_rows(state, rows)
        return state, queue.owned(state.squared_norm)

    def _chunk(self, queue: Queue) -> int:
        """Return the chunk size. It does not depend on the batches, so they do not change the rounding of the sums."""
        return SPARSE_CHUNK if queue.is_sparse and self.decay == 1.0 else CHUNK

    def _finished(self, contents: Contents) -> ExactState:
        """Return the state after all queued rows, multiplied by the factor."""
        state, queue, factor = contents
        while len(queue):
            rows, queue = queue.take(min(len(queue), self._chunk(queue)))
            state = with_rows(state, rows)
        return state.faded(factor)

    def _read(self, contents: Contents) -> View:
        state = self._finished(contents)
        return self._view_of(state, *np.linalg.eigh(state.matrix))

    def _leading(self, k: int) -> View:
        if 2 * k >= self.n_features_in_:
            return self._view
        return self._viewed(k, lambda contents: self._read_leading(contents, k))

    def _read_leading(self, contents: Contents, k: int) -> View:
        state = self._finished(contents)
        d = len(state.matrix)
        return self._view_of(state, *scipy.linalg.eigh(state.matrix, subset_by_index=(d - k, d - 1)))

    @one_blas_thread()
    def _solve(self, b: Floats) -> Floats | None:
        """Return (A'A + alpha0 I)^-1 b by a Cholesky factorisation; None if the matrix may be singular."""
        state = self._finished(Contents(self._state, self._queue, self._tail))
        if float(self.alpha0) <= len(b) * EPS * state.squared_norm:
            return None
        matrix = state.matrix + float(self.alpha0) * np.eye(len(b))
        return np.asarray(scipy.linalg.solve(matrix, b, assume_a="pos", overwrite_a=True, check_finite=False))

    def _view_of(self, state: ExactState, values: Floats, v: Floats) -> View:
        """Return the view, given the largest eigenvalues in ascending order and their eigenvectors."""
        d = len(state.matrix)
        bound = state.rounding + rounding(d, d, 1.0, values[:0], EPS * state.squared_norm)
        values, v = values[::-1], v[:, ::-1]
        live = values > d * EPS * values[0]
        return View(
            form=lambda: np.ascontiguousarray(v[:, live].T),
            lam=values[live],
            alpha=float(self.alpha0),
            error_bound=bound,
            rounding=bound,
            squared_norm=state.squared_norm,
            weight=state.weight,
            mean=None if state.mean is None else state.mean[0],
            floor_lam=values[live],
            floor_alpha=float(self.alpha0),
            ceiling_alpha=float(self.alpha0),
        )

    def _union(self, one: Contents, two: Contents) -> ExactState:
        return self._finished(one).plus(self._finished(two))


def with_rows(state: ExactState, rows: Rows) -> ExactState:
    """Return the state after these rows. Sparse rows stay sparse unless cancellation would be severe."""
    keep_sparse = rows.is_sparse and rows.nnz <= MAX_DENSITY * len(rows) * len(state.matrix)
    if not keep_sparse and len(rows) > CHUNK:
        for start in range(0, len(rows), CHUNK):
            state = with_rows(state, rows[start : start + CHUNK])
        return state
    s, t = rows.decay_scales()
    formed = state.mean is not None and rows.neg_log_decay() > MAX_LOG_DECAY
    e, mean, weight = prepare(rows, state.mean, state.weight, sparse=keep_sparse, formed=formed)
    product, noise_level = e.outer(t), noise(e.term_lengths(), t)
    new = float(np.trace(product))
    if not np.isfinite(new):
        raise_not_finite(rows.x)
    if state.mean is not None and not formed and has_cancelled(noise_level, new):
        if len(rows) > CHUNK:
            rest = with_rows(state, rows[:CHUNK])
            return with_rows(rest, rows[CHUNK:])
        e, mean, weight = prepare(rows, state.mean, state.weight)
        product, noise_level = e.outer(t), noise(e.term_lengths(), t)
        new = float(np.trace(product))
    norm = check_total(s * s * state.squared_norm + new, slack=10)
    bound = s * s * state.rounding + rounding(1, len(rows), s, state.squared_norm * np.ones(1), noise_level)
    product += state.matrix if s == 1.0 else s * s * state.matrix
    return ExactState(product, norm, weight, mean, bound)
