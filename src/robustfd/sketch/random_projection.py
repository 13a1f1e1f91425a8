"""Random projection: every row is added to all m rows of the sketch with random signs and sizes."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from robustfd.linalg.decompose import shrink_stack
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch._base import RandomSketch, View, trivial_view
from robustfd.sketch._centring import joined
from robustfd.sketch._entering import enter, grown
from robustfd.sketch._rows import Floats, Queue, Unread, check_total

CHUNK = 256  # rows entered at once


@dataclass(frozen=True)
class ProjectionState:
    """B' and what goes with it."""

    bt: Floats  # d x m
    generator: str  # the bit generator's state, as JSON
    squared_norm: float
    weight: float
    mean: Floats | None  # in two parts (_centring.py)


class RandomProjectionSketch(RandomSketch):
    """Gaussian random projection: B = R A / sqrt(m) with R of independent standard normals, drawn row by row.

    B'B is an unbiased estimate of A'A. Nothing about its error is certain: `error_bound_` is the trivial bound
    max(||A||_F^2, ||B||_2^2). `sketch_` has orthogonal rows (B up to a rotation, B'B the same), at most m.

    Parameters
    ----------
    sketch_size : int, default=50
        m, the number of rows of B.
    buffer_size : int, optional
        How many rows are worked on at once, default 256; the result is the same.
    alpha0, decay, center : as for `FrequentDirections`
    solver : {"auto", "gram", "svd"}, default="auto"
        How B is made orthogonal when it is read.
    random_state : int, RandomState instance or None
        Sketches to be merged must not share a seed: they would have used the same random numbers for different
        rows.

    Notes
    -----
    Any number of threads may use one sketch: their calls take turns.

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd import RandomProjectionSketch
    >>> A = np.random.default_rng(0).standard_normal((500, 20))
    >>> RandomProjectionSketch(10, random_state=0).fit(A).sketch_.shape
    (10, 20)
    """

    _state_type = ProjectionState

    def _start(self, d: int) -> ProjectionState:
        seed = check_random_state(self.random_state).randint(2**31, size=4)
        generator = json.dumps(np.random.PCG64(seed).state)
        mean = np.zeros((2, d)) if self.center else None
        return ProjectionState(np.zeros((d, self.sketch_size)), generator, 0.0, 0.0, mean)

    @one_blas_thread()
    def _absorb(self, state: ProjectionState, queue: Queue) -> tuple[ProjectionState, Queue]:
        bits = np.random.PCG64()
        bits.state = json.loads(state.generator)
        normal = np.random.Generator(bits).standard_normal
        bt, norm, weight, mean = state.bt.copy(), state.squared_norm, state.weight, state.mean
        while len(queue):
            rows, queue = queue.take(min(len(queue), self.buffer_size or CHUNK))
            e, mean, weight = enter(rows, mean, weight, sparse=True)
            s, t = rows.fading()
            norm = grown(norm, e, rows)
            bt *= s
            e.add_to(bt, t[:, None] * normal((len(rows), self.sketch_size)) / np.sqrt(self.sketch_size))
        return ProjectionState(bt, json.dumps(bits.state), norm, weight, mean), queue

    def _read(self, unread: Unread) -> View:
        state, factor = unread.state, unread.factor
        b = np.ascontiguousarray(state.bt.T)
        # With room for one row more than there are, a shrink takes nothing: it only makes the rows orthogonal.
        shrunk = shrink_stack(b[:0], np.zeros(0), b, len(b) + 1, len(b) + 1, solver=self.solver)
        return trivial_view(float(self.alpha0), shrunk.rows, factor * shrunk.lam, state, factor)

    def _union(self, one: Unread, two: Unread) -> ProjectionState:
        a, b = one.state, two.state
        f, g = one.factor, two.factor
        mean, extra = a.mean, 0.0
        n, k = f * a.weight, g * b.weight
        bt = np.sqrt(f) * a.bt + np.sqrt(g) * b.bt
        bits = np.random.PCG64()
        bits.state = json.loads(a.generator)
        if mean is not None and n + k > 0:
            row, mean = joined(mean, b.mean, n, k)
            extra = float(row @ row)
            r = np.random.Generator(bits).standard_normal(self.sketch_size)
            bt += np.outer(row, r / np.sqrt(self.sketch_size))
        norm = check_total(f * a.squared_norm + g * b.squared_norm + extra)
        return ProjectionState(bt, json.dumps(bits.state), norm, n + k, mean)

    def _check_mergeable(self, other: Any) -> None:
        super()._check_mergeable(other)
        if self.__sklearn_is_fitted__() and other.__sklearn_is_fitted__():
            streams = {json.loads(each._state.generator)["state"]["inc"] for each in (self, other)}
            if len(streams) < 2:
                raise ValueError(
                    f"Cannot merge random projections drawn with the same random_state ({self.random_state!r}): their "
                    "errors would add up instead of cancelling. Give every sketch a seed of its own, or None."
                )
