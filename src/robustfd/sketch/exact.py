"""The d x d matrix itself: ground truth, and the better choice when d is small."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from robustfd.linalg.eigen import EPS
from robustfd.linalg.rules import rounding
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch._base import BaseSketch, View
from robustfd.sketch._centring import joined, noise
from robustfd.sketch._entering import enter, grown
from robustfd.sketch._rows import Floats, Queue, Unread, check_total

CHUNK = 1024  # rows centred, weighted and multiplied at once


@dataclass(frozen=True)
class ExactState:
    """The matrix and what goes with it."""

    matrix: Floats
    squared_norm: float
    weight: float
    mean: Floats | None  # in two parts (_centring.py)
    rounding: float  # a bound on what rounding has changed of the matrix


class ExactSecondMoment(BaseSketch):
    """A'A + alpha0 I, exactly: d x d, so for small d and as the truth that sketches are compared with.

    It has the interface of the sketches. `sketch_` is a square root of A'A (as many rows as its rank),
    `error_bound_` is a bound on the rounding errors alone.

    Parameters
    ----------
    alpha0, decay, center : as for `FrequentDirections`

    Notes
    -----
    One sketch must not be used by two threads at once; different sketches may.

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd import ExactSecondMoment
    >>> A = np.arange(12.0).reshape(4, 3)
    >>> bool(np.allclose(ExactSecondMoment(center=True).fit(A).covariance().to_dense(), np.cov(A.T)))
    True
    """

    _structure: ClassVar[tuple[str, ...]] = ("center",)
    _state_type = ExactState

    def __init__(self, *, alpha0: float = 0.0, decay: float = 1.0, center: bool = False):
        self.alpha0 = alpha0
        self.decay = decay
        self.center = center

    def _start(self, d: int) -> ExactState:
        return ExactState(np.zeros((d, d)), 0.0, 0.0, np.zeros((2, d)) if self.center else None, 0.0)

    @one_blas_thread()
    def _absorb(self, state: ExactState, queue: Queue) -> tuple[ExactState, Queue]:
        while len(queue):
            rows, queue = queue.take(min(len(queue), CHUNK))
            s, t = rows.fading()
            e, mean, weight = enter(rows, state.mean, state.weight, sparse=state.mean is None)
            norm = grown(state.squared_norm, e, rows)
            older, blur = state.squared_norm * np.ones(1), noise(e.term_lengths(), t)
            off = s * s * state.rounding + rounding(1, len(rows), s, older, blur)
            state = ExactState(s * s * state.matrix + e.outer(t), norm, weight, mean, off)
        return state, queue

    def _read(self, unread: Unread) -> View:
        state, factor = unread.state, unread.factor
        values, v = np.linalg.eigh(factor * state.matrix)
        off = factor * state.rounding + rounding(len(v), len(v), 1.0, values[:0], EPS * factor * state.squared_norm)
        values, v = values[::-1], v[:, ::-1]
        live = values > len(values) * EPS * values[0]
        return View(
            components=np.ascontiguousarray(v[:, live].T),
            lam=values[live],
            alpha=float(self.alpha0),
            error_bound=off,
            rounding=off,
            squared_norm=factor * state.squared_norm,
            weight=factor * state.weight,
            mean=None if state.mean is None else state.mean[0],
            floor_lam=values[live],
            floor_alpha=float(self.alpha0),
            ceiling_alpha=float(self.alpha0),
        )

    def _union(self, one: Unread, two: Unread) -> ExactState:
        a, b, f, g = one.state, two.state, one.factor, two.factor
        matrix, norm = f * a.matrix + g * b.matrix, f * a.squared_norm + g * b.squared_norm
        n, k, mean = f * a.weight, g * b.weight, a.mean
        if mean is not None and n + k > 0:
            row, mean = joined(mean, b.mean, n, k)
            matrix = matrix + np.outer(row, row)
            norm += float(row @ row)
        off = f * a.rounding + g * b.rounding + rounding(2, 1, 1.0, np.zeros(0), EPS * norm)
        return ExactState(matrix, check_total(norm), n + k, mean, off)
