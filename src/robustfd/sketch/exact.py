"""The d x d matrix itself: ground truth, and the better choice when d is small."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from robustfd.linalg.decompose import EPS
from robustfd.sketch._base import BaseSketch, View
from robustfd.sketch._entering import DenseRows, SparseRows, enter, squared_norm
from robustfd.sketch._rows import Floats, Queue, Rows, Unread, raise_not_finite

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
            if rows.is_sparse:
                product, mean, weight = _sparse_product(state, rows, s, t)
                norm = float(np.trace(product))
                if not np.isfinite(norm):
                    raise_not_finite(rows.x)
            else:
                e, mean, weight = enter(rows, state.mean, state.weight)
                assert isinstance(e, DenseRows)
                norm = squared_norm(e, t, rows)
                faded = t[:, None] * e.e
                product = faded.T @ faded
            state = ExactState(s * s * state.matrix + product, s * s * state.squared_norm + norm, weight, mean)
        return state, queue

    def _read(self, unread: Unread) -> View:
        state, factor = unread.state, unread.factor
        values, v = np.linalg.eigh(factor * state.matrix)
        values, v = values[::-1], v[:, ::-1]
        live = values > len(values) * EPS * values[0]
        return View(
            components=np.ascontiguousarray(v[:, live].T),
            lam=values[live],
            alpha=self.alpha0,
            error_bound=0.0,
            squared_norm=factor * state.squared_norm,
            weight=factor * state.weight,
            mean=state.mean,
            floor_lam=values[live],
            floor_alpha=self.alpha0,
            ceiling_alpha=self.alpha0,
        )

    def _union(self, one: Unread, two: Unread) -> ExactState:
        f, g = one.factor, two.factor
        n, k = f * one.state.weight, g * two.state.weight
        matrix, norm = (
            f * one.state.matrix + g * two.state.matrix,
            f * one.state.squared_norm + g * two.state.squared_norm,
        )
        mean = one.state.mean
        if mean is not None and n + k > 0:
            apart = two.state.mean - mean
            mean = mean + (k / (n + k)) * apart
            matrix = matrix + (n * k / (n + k)) * np.outer(apart, apart)
            norm += n * k / (n + k) * float(apart @ apart)
        return replace(one.state, matrix=matrix, squared_norm=norm, weight=n + k, mean=mean)


def _sparse_product(state: ExactState, rows: Rows, s: float, t: Floats) -> tuple[Floats, Floats | None, float]:
    """Return (what to add to the matrix, mean, weight), from the second moment about zero, which stays sparse."""
    e, mean, weight = enter(rows, state.mean, state.weight, sparse=True)
    assert isinstance(e, SparseRows)
    faded = e.p.copy()
    faded.data *= np.repeat(t * e.root, np.diff(faded.indptr))
    product = np.asarray((faded.T @ faded).toarray())
    if state.mean is not None and mean is not None:
        product += s * s * state.weight * np.outer(state.mean, state.mean) - weight * np.outer(mean, mean)
    return product, mean, weight
