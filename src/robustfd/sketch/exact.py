"""The d x d matrix itself: ground truth, and the better choice when d is small."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from robustfd.linalg.eigen import EPS
from robustfd.sketch._base import BaseSketch, View
from robustfd.sketch._entering import enter, grown
from robustfd.sketch._rows import Floats, Queue, Unread, check_total

CHUNK = 1024  # rows centred, weighted and multiplied at once


@dataclass(frozen=True)
class ExactState:
    """The matrix and what goes with it."""

    matrix: Floats
    squared_norm: float
    weight: float
    mean: Floats | None


class ExactSecondMoment(BaseSketch):
    """A'A + alpha0 I, exactly: d x d, so for small d and as the truth that sketches are compared with.

    It has the interface of the sketches. `sketch_` is a square root of A'A (as many rows as its rank),
    `error_bound_` is 0.

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
        return ExactState(np.zeros((d, d)), 0.0, 0.0, np.zeros(d) if self.center else None)

    def _absorb(self, state: ExactState, queue: Queue) -> tuple[ExactState, Queue]:
        while len(queue):
            rows, queue = queue.take(min(len(queue), CHUNK))
            s, t = rows.fading()
            e, mean, weight = enter(rows, state.mean, state.weight, sparse=state.mean is None)
            norm = grown(state.squared_norm, e, rows)
            state = ExactState(s * s * state.matrix + e.outer(t), norm, weight, mean)
        return state, queue

    def _read(self, unread: Unread) -> View:
        state, factor = unread.state, unread.factor
        values, v = np.linalg.eigh(factor * state.matrix)
        values, v = values[::-1], v[:, ::-1]
        live = values > len(values) * EPS * values[0]
        return View(
            components=np.ascontiguousarray(v[:, live].T),
            lam=values[live],
            alpha=float(self.alpha0),
            error_bound=0.0,
            squared_norm=factor * state.squared_norm,
            weight=factor * state.weight,
            mean=state.mean,
            floor_lam=values[live],
            floor_alpha=float(self.alpha0),
            ceiling_alpha=float(self.alpha0),
        )

    def _union(self, one: Unread, two: Unread) -> ExactState:
        a, b, f, g = one.state, two.state, one.factor, two.factor
        matrix, norm = f * a.matrix + g * b.matrix, f * a.squared_norm + g * b.squared_norm
        n, k, mean = f * a.weight, g * b.weight, a.mean
        if mean is not None and n + k > 0:
            apart, share = b.mean - mean, k / (n + k)
            mean = mean + share * apart
            matrix = matrix + n * share * np.outer(apart, apart)
            norm += n * share * float(apart @ apart)
        return replace(a, matrix=matrix, squared_norm=check_total(norm), weight=n + k, mean=mean)
