"""Gaussian random projection: every row is added to all m rows of the sketch with random coefficients."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from robustfd._validation import random_generator
from robustfd.linalg.decompose import shrink_stack
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch._base import RandomSketch, View, trivial_view
from robustfd.sketch._centring import merge_means
from robustfd.sketch._prepared import prepare, updated_norm
from robustfd.sketch._rows import Contents, Floats, Queue, check_total

CHUNK = 256  # rows that are processed together


@dataclass(frozen=True)
class ProjectionState:
    """B', the random generator, and the norm, weight and mean of the rows."""

    bt: Floats  # d x m
    generator: str  # the bit generator's state, as JSON
    squared_norm: float
    weight: float
    mean: Floats | None  # in double-double form (_centring.py)


class RandomProjectionSketch(RandomSketch):
    """Gaussian random projection: B = R A / sqrt(m), where R has independent standard normal entries.

    B'B is an unbiased estimate of A'A. There is no useful certificate: `error_bound_` is the trivial bound
    max(||A||_F^2, ||B||_2^2). `sketch_` is B rotated to have orthogonal rows, at most m, with the same B'B.

    Parameters
    ----------
    sketch_size : int, default=50
        The number m of rows of B.
    buffer_size : int, optional
        Number of rows that are processed together, 256 by default. It does not change the result.
    alpha0, decay, center
        As for `FrequentDirections`.
    solver : {"auto", "gram", "svd"}, default="auto"
        How the rows of B are orthogonalised when the sketch is read.
    random_state : int, RandomState instance or None, default=None
        Seed of R. Sketches to be merged need different seeds, because they must not use the same random numbers for
        different rows.

    See Also
    --------
    RobustFrequentDirections : Deterministic, with a certificate.

    Notes
    -----
    Several threads may use one sketch. Their calls run one at a time.

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
        seed = random_generator(self.random_state).randint(2**31, size=4)
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
            e, mean, weight = prepare(rows, mean, weight, sparse=True)
            s, t = rows.decay_scales()
            norm = updated_norm(norm, e, rows)
            bt *= s
            e.add_to(bt, t[:, None] * normal((len(rows), self.sketch_size)) / np.sqrt(self.sketch_size))
        return ProjectionState(bt, json.dumps(bits.state), norm, weight, mean), queue

    def _read(self, contents: Contents) -> View:
        state, factor = contents.state, contents.factor
        b = np.ascontiguousarray(state.bt.T)
        # With a sketch size above the number of rows, the shrink step only orthogonalises them.
        shrunk = shrink_stack(b[:0], np.zeros(0), b, len(b) + 1, len(b) + 1, solver=self.solver)
        return trivial_view(float(self.alpha0), shrunk.rows, factor * shrunk.lam, state, factor)

    def _union(self, one: Contents, two: Contents) -> ProjectionState:
        a, b = one.state, two.state
        f, g = one.factor, two.factor
        mean, extra = a.mean, 0.0
        n, k = f * a.weight, g * b.weight
        bt = np.sqrt(f) * a.bt + np.sqrt(g) * b.bt
        bits = np.random.PCG64()
        bits.state = json.loads(a.generator)
        if mean is not None and n + k > 0:
            row, mean = merge_means(mean, b.mean, n, k)
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
                    "errors would add up instead of cancelling. Give each sketch its own seed, or None."
                )
