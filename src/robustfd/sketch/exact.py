"""The d x d matrix itself: ground truth, and the better choice when d is small."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.linalg

from robustfd.linalg.eigen import EPS
from robustfd.linalg.rules import rounding
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch._base import BaseSketch, View
from robustfd.sketch._centring import LARGEST_DECAY, is_lost, joined, noise
from robustfd.sketch._entering import enter
from robustfd.sketch._rows import Floats, Queue, Rows, Unread, check_total, raise_not_finite

CHUNK = 1024  # rows centred, weighted and multiplied at once
SPARSE_CHUNK = 8 * CHUNK  # the same of sparse rows, since each time costs a few passes over the d x d matrix
LIGHT = 0.1  # sparse rows with a larger share of entries are multiplied faster as dense ones


@dataclass(frozen=True)
class ExactState:
    """The matrix and what goes with it."""

    matrix: Floats
    squared_norm: float
    weight: float
    mean: Floats | None  # in two parts (_centring.py)
    rounding: float  # a bound on what rounding has changed of the matrix

    @classmethod
    def empty(cls, d: int, center: bool) -> "ExactState":
        """Return the state before any row."""
        return cls(np.zeros((d, d)), 0.0, 0.0, np.zeros((2, d)) if center else None, 0.0)

    def faded(self, factor: float) -> "ExactState":
        """Return the state after everything in it is multiplied by a factor; the mean stays."""
        if factor == 1.0:
            return self
        norm, off = factor * self.squared_norm, factor * (self.rounding + EPS * self.squared_norm)
        return ExactState(factor * self.matrix, norm, factor * self.weight, self.mean, off)

    def plus(self, other: "ExactState") -> "ExactState":
        """Return the state after the rows of both."""
        matrix, norm = self.matrix + other.matrix, self.squared_norm + other.squared_norm
        n, k, mean = self.weight, other.weight, self.mean
        if mean is not None and other.mean is not None and n + k > 0:
            row, mean = joined(mean, other.mean, n, k)
            matrix += np.outer(row, row)
            norm += float(row @ row)
        off = self.rounding + other.rounding + rounding(2, 1, 1.0, np.zeros(0), EPS * norm)
        return ExactState(matrix, check_total(norm), n + k, mean, off)


class ExactSecondMoment(BaseSketch):
    """A'A + alpha0 I, exactly: d x d, so for small d and as the truth that sketches are compared with.

    It has the interface of the sketches. `sketch_` is a square root of A'A (as many rows as its rank),
    `error_bound_` is a bound on the rounding errors alone.

    Parameters
    ----------
    alpha0, decay, center : as for `FrequentDirections`

    Notes
    -----
    Rows wait until there are 1024 of them (8192 if sparse), so how they are cut into batches changes no digit. Sparse
    rows are added through their sparse products and sums, also when centring, and are not made dense.

    Any number of threads may use one sketch: their calls take turns.

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
        """Return how many rows are added at once: always as many, so that batches do not show in the sums."""
        return SPARSE_CHUNK if queue.is_sparse and self.decay == 1.0 else CHUNK

    def _finished(self, unread: Unread) -> ExactState:
        """Return the state after all rows, multiplied by the factor."""
        state, queue, factor = unread
        while len(queue):
            rows, queue = queue.take(min(len(queue), self._chunk(queue)))
            state = with_rows(state, rows)
        return state.faded(factor)

    def _read(self, unread: Unread) -> View:
        state = self._finished(unread)
        return self._view_of(state, *np.linalg.eigh(state.matrix))

    def _leading(self, k: int) -> View:
        if 2 * k >= self.n_features_in_:
            return self._view
        return self._viewed(k, lambda unread: self._read_leading(unread, k))

    def _read_leading(self, unread: Unread, k: int) -> View:
        state = self._finished(unread)
        d = len(state.matrix)
        return self._view_of(state, *scipy.linalg.eigh(state.matrix, subset_by_index=(d - k, d - 1)))

    @one_blas_thread()
    def _solve(self, b: Floats) -> Floats | None:
        """Return (A'A + alpha0 I)^-1 b without eigenvalues; None if the matrix may be singular."""
        state = self._finished(Unread(self._state, self._queue, self._tail))
        if float(self.alpha0) <= len(b) * EPS * state.squared_norm:
            return None
        matrix = state.matrix + float(self.alpha0) * np.eye(len(b))
        return np.asarray(scipy.linalg.solve(matrix, b, assume_a="pos", overwrite_a=True, check_finite=False))

    def _view_of(self, state: ExactState, values: Floats, v: Floats) -> View:
        """Return the view of the largest eigenvalues, ascending, and their eigenvectors."""
        d = len(state.matrix)
        off = state.rounding + rounding(d, d, 1.0, values[:0], EPS * state.squared_norm)
        values, v = values[::-1], v[:, ::-1]
        live = values > d * EPS * values[0]
        return View(
            form=lambda: np.ascontiguousarray(v[:, live].T),
            lam=values[live],
            alpha=float(self.alpha0),
            error_bound=off,
            rounding=off,
            squared_norm=state.squared_norm,
            weight=state.weight,
            mean=None if state.mean is None else state.mean[0],
            floor_lam=values[live],
            floor_alpha=float(self.alpha0),
            ceiling_alpha=float(self.alpha0),
        )

    def _union(self, one: Unread, two: Unread) -> ExactState:
        return self._finished(one).plus(self._finished(two))


def with_rows(state: ExactState, rows: Rows) -> ExactState:
    """Return the state after these rows; sparse ones are never made dense unless most digits would cancel."""
    light = rows.is_sparse and rows.nnz <= LIGHT * len(rows) * len(state.matrix)
    if not light and len(rows) > CHUNK:
        for start in range(0, len(rows), CHUNK):
            state = with_rows(state, rows[start : start + CHUNK])
        return state
    s, t = rows.fading()
    formed = state.mean is not None and rows.fades() > LARGEST_DECAY
    e, mean, weight = enter(rows, state.mean, state.weight, sparse=light, formed=formed)
    product, blur = e.outer(t), noise(e.term_lengths(), t)
    new = float(np.trace(product))
    if not np.isfinite(new):
        raise_not_finite(rows.x)
    if state.mean is not None and not formed and is_lost(blur, new):
        if len(rows) > CHUNK:
            rest = with_rows(state, rows[:CHUNK])
            return with_rows(rest, rows[CHUNK:])
        e, mean, weight = enter(rows, state.mean, state.weight)
        product, blur = e.outer(t), noise(e.term_lengths(), t)
        new = float(np.trace(product))
    norm = check_total(s * s * state.squared_norm + new, slack=10)
    off = s * s * state.rounding + rounding(1, len(rows), s, state.squared_norm * np.ones(1), blur)
    product += state.matrix if s == 1.0 else s * s * state.matrix
    return ExactState(product, norm, weight, mean, off)
