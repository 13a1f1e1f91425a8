"""Randomised sketches without a useful certificate, as baselines: Gaussian random projection and Oja's algorithm."""

import json
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
from scipy.linalg import solve_triangular

from robustfd._validation import random_generator
from robustfd.linalg.decompose import Solver, shrink_stack
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch.base import BaseSketch
from robustfd.sketch.centring import merge_means
from robustfd.sketch.prepared import PreparedRows, prepare, updated_norm
from robustfd.sketch.rows import Contents, Floats, Queue, check_total
from robustfd.sketch.view import View, unit_rows

PROJECTION_CHUNK = 256  # rows that are projected together
OJA_CHUNK = 64  # rows that are processed in small coordinates before V is formed again


class _RandomSketch(BaseSketch):
    """A randomised sketch. It processes rows immediately; `buffer_size` is only the number processed at a time."""

    _structure: ClassVar[tuple[str, ...]] = ("sketch_size", "center")

    def __init__(
        self,
        sketch_size: int = 50,
        *,
        buffer_size: int | None = None,
        alpha0: float = 0.0,
        decay: float = 1.0,
        center: bool = False,
        solver: Solver = "auto",
        random_state: Any = None,
    ):
        self.sketch_size = sketch_size
        self.buffer_size = buffer_size
        self.alpha0 = alpha0
        self.decay = decay
        self.center = center
        self.solver = solver
        self.random_state = random_state

    def _trivial_view(self, b: Floats, lam: Floats, contents: Contents) -> View:
        """Return the view of orthogonal rows whose only certificate is 0 <= A'A <= ||A||_F^2 I."""
        state, factor = contents.state, contents.factor
        alpha0, norm, lam = float(self.alpha0), factor * state.squared_norm, factor * lam
        return View(
            form=lambda: unit_rows(b, lam / factor),
            lam=lam,
            alpha=alpha0,
            error_bound=max(norm, lam.max(initial=0.0)),
            squared_norm=norm,
            weight=factor * state.weight,
            mean=None if state.mean is None else state.mean[0],
            floor_lam=np.zeros_like(lam),
            floor_alpha=alpha0,
            ceiling_alpha=alpha0 + norm,
        )


@dataclass(frozen=True)
class ProjectionState:
    """B', the random generator, and the norm, weight and mean of the rows."""

    ARRAYS: ClassVar[dict[str, str]] = {"bt": "d m", "mean": "2 d"}

    bt: Floats  # d x m
    generator: str  # the bit generator's state, as JSON
    squared_norm: float
    weight: float
    mean: Floats | None  # in double-double form (centring.py)


class RandomProjectionSketch(_RandomSketch):
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
    solver : {"auto", "svd"}, default="auto"
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
            rows, queue = queue.take(min(len(queue), self.buffer_size or PROJECTION_CHUNK))
            e, mean, weight = prepare(rows, mean, weight, sparse=True)
            s, t = rows.decay_scales()
            norm = updated_norm(norm, e, rows)
            bt *= s
            e.add_to(bt, t[:, None] * normal((len(rows), self.sketch_size)) / np.sqrt(self.sketch_size))
        return ProjectionState(bt, json.dumps(bits.state), norm, weight, mean), queue

    def _read(self, contents: Contents) -> View:
        b = np.ascontiguousarray(contents.state.bt.T)
        # With a sketch size above the number of rows, the shrink step only orthogonalises them.
        shrunk = shrink_stack(b[:0], np.zeros(0), b, len(b) + 1, len(b) + 1, solver=self.solver)
        return self._trivial_view(shrunk.rows, shrunk.lam, contents)

    def _union(self, one: Contents, two: Contents) -> tuple[ProjectionState, Queue]:
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
        return ProjectionState(bt, json.dumps(bits.state), norm, n + k, mean), Queue()

    def _check_mergeable(self, other: Any) -> None:
        super()._check_mergeable(other)
        if self.__sklearn_is_fitted__() and other.__sklearn_is_fitted__():
            streams = {json.loads(each._state.generator)["state"]["inc"] for each in (self, other)}
            if len(streams) < 2:
                raise ValueError(
                    f"Cannot merge random projections drawn with the same random_state ({self.random_state!r}): their "
                    "errors would add up instead of cancelling. Give each sketch its own seed, or None."
                )


@dataclass(frozen=True)
class OjaState:
    """V, its energies, and the norm, weight and mean of the rows."""

    ARRAYS: ClassVar[dict[str, str]] = {"vt": "d k", "energy": "k", "mean": "2 d"}
    LEAST: ClassVar[dict[str, float]] = {"energy": 0.0}

    vt: Floats  # d x m, orthonormal columns
    energy: Floats  # t Lambda of the paper: the sum of (V g)^2
    t: int
    squared_norm: float
    weight: float
    mean: Floats | None  # in double-double form (centring.py)


class OjaSketch(_RandomSketch):
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
            rows, queue = queue.take(min(len(queue), self.buffer_size or OJA_CHUNK))
            e, mean, weight = prepare(rows, state.mean, state.weight, sparse=True)
            norm = updated_norm(state.squared_norm, e, rows)
            vt, energy = _step(state, e, rows.decay)
            state = OjaState(vt, energy, state.t + len(rows), norm, weight, mean)
        return state, queue

    def _read(self, contents: Contents) -> View:
        state = contents.state
        order = np.argsort(-state.energy, kind="stable")
        order = order[state.energy[order] > 0]
        b = np.sqrt(state.energy[order])[:, None] * state.vt.T[order]
        return self._trivial_view(b, state.energy[order], contents)

    def _union(self, one: Contents, two: Contents) -> NoReturn:
        why = "its directions depend on the order of the rows. Use RobustFrequentDirections, which can."
        raise NotImplementedError(f"OjaSketch cannot be merged: {why}")


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
