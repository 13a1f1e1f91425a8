"""The frequent-directions family: shrink rules over one engine. See two_sided.py for two rules over the same rows."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from robustfd._validation import check_real
from robustfd.linalg.decompose import EPS, Solver, shrunk_count, svd_noise
from robustfd.linalg.operator import LowRankPlusDiagonal
from robustfd.sketch.base import BaseSketch
from robustfd.sketch.engine import Engine, State
from robustfd.sketch.prepared import PreparedRows
from robustfd.sketch.rows import Contents, Floats, Queue
from robustfd.sketch.view import View, unit_rows

NOISE = svd_noise(1, 1.0)  # rounding error in a column of B, relative to the largest singular value
MANY_ROWS = 2**17  # from this many rows, processes pay off: threads would wait for the GIL within shrink steps


class _FrequentDirections(BaseSketch):
    """The estimator over the engine. Subclasses set how many values a shrink step reduces and how to read the state."""

    _state_type: ClassVar[type[State]] = State
    _share: ClassVar[float] = 0.0  # this share of Delta is added to all directions,
    _lifted: ClassVar[float] = 0.0  # and this one to the directions of B

    def __init__(
        self,
        sketch_size: int = 50,
        *,
        buffer_size: int | None = None,
        alpha0: float = 0.0,
        decay: float = 1.0,
        center: bool = False,
        solver: Solver = "auto",
    ):
        self.sketch_size = sketch_size
        self.buffer_size = buffer_size
        self.alpha0 = alpha0
        self.decay = decay
        self.center = center
        self.solver = solver

    def _shrunk_count(self) -> int:
        """Return j, the number of values, of the m largest, that a shrink step reduces by delta."""
        return self.sketch_size

    def _engine(self) -> Engine:
        m = self.sketch_size
        buffer_size = 2 * m if self.buffer_size is None else self.buffer_size
        return Engine(m, buffer_size, self._shrunk_count(), self.solver)

    def _start(self, d: int) -> State:
        return self._state_type.empty(d, self.center)

    def _restored_state(self, stored: State, structure: dict[str, Any], d: int) -> State:
        if len(stored.b) and not stored.shrunk:
            raise ValueError(f"{len(stored.b)} rows, but no shrink step")
        return stored

    def _gains_by_processes(self, n: int) -> bool:
        return n >= MANY_ROWS

    def _absorb(self, state: State, queue: Queue) -> tuple[State, Queue]:
        return self._engine().absorb(state, queue)

    def _read(self, contents: Contents) -> View:
        return self._view_of(self._engine().finish(contents.state, contents.queue, formed=False).faded(contents.factor))

    def _union(self, one: Contents, two: Contents) -> tuple[State, Queue]:
        return self._engine().merge(one, two), Queue()

    def _view_of(self, state: State) -> View:
        """Return the view of a state with at most m - 1 rows."""
        alpha = float(self.alpha0) + self._share * state.delta
        rounded = EPS * alpha if alpha > self.alpha0 else 0.0
        return View(
            form=lambda: unit_rows(state.rows, state.lam, fresh=callable(state.b)),
            lam=state.lam + self._lifted * state.delta,
            alpha=alpha,
            error_bound=max(self._share, 1.0 - self._share) * state.delta + state.rounding + rounded,
            rounding=state.rounding,
            squared_norm=state.squared_norm,
            weight=state.weight,
            mean=None if state.mean is None else state.mean[0],
            floor_lam=state.lam,
            floor_alpha=float(self.alpha0),
            ceiling_alpha=float(self.alpha0) + state.delta,
        )


_PARAMETERS = """
    Parameters
    ----------
    sketch_size : int, default=50
        The parameter m of the paper: the sketch has at most m - 1 rows. Memory is O(buffer_size * n_features).
    {extra}buffer_size : int, optional
        Number of rows in the buffer before a shrink step, including those of the sketch. The default 2 * sketch_size
        gives the fast algorithms of the paper, `sketch_size` its one-row-at-a-time algorithms. Larger buffers are
        usually more accurate.
    alpha0 : float, default=0.0
        The sketch approximates A'A + alpha0 I.
    decay : float in (0, 1], default=1.0
        Before each new row, A'A of the older rows is multiplied by this factor.
    center : bool, default=False
        Subtract the mean of the rows, exactly: `covariance()` is then the covariance matrix.
    solver : {{"auto", "svd"}}, default="auto"
        How a shrink step decomposes the buffer. "auto" uses the Gram matrix, which is fast, and a more accurate method
        where it does not resolve the small values. "svd" always uses an SVD, which is several times slower.

    Attributes
    ----------
    sketch_ : ndarray of shape (at most sketch_size - 1, n_features)
        B, with orthogonal rows, longest first.
    components_, singular_values_ : ndarray
        Directions and lengths of the rows of `sketch_`.
    alpha_ : float
        The multiple of the identity that is added to B'B.
    error_bound_, relative_error_bound_ : float
        A certified bound on the spectral error, absolute and relative to ||A'A||_2.
    {attributes}squared_norm_ : float
        ||A||_F^2, exact up to rounding.
    n_samples_seen_, n_features_in_ : int
    weight_sum_ : float
        Total weight of the rows.
    mean_ : ndarray of shape (n_features,)
        The mean of the rows, with `center=True` only.

    Notes
    -----
    Attributes can be read at any time, and reading does not change the sketch. Several threads may use one sketch.
    Their calls run one at a time. If n_features is below buffer_size, `ExactSecondMoment` costs no more and has no
    error."""


_EXAMPLE = """
    Examples
    --------
    >>> import numpy as np
    >>> from robustfd import {name}
    >>> A = np.random.default_rng(0).standard_normal((1000, 30)) / np.arange(1, 31)
    >>> sketch = {name}(sketch_size=10).fit(A)
    >>> bool(np.linalg.norm(A.T @ A - sketch.sketch_.T @ sketch.sketch_, 2) <= sketch.error_bound_)
    True"""


def documented(extra: str = "", attributes: str = "") -> Any:
    """Return a class decorator that inserts the common sections into the docstring."""

    def decorate(cls: type) -> type:
        if cls.__doc__ is not None:  # it is None with `python -OO`
            shared = _PARAMETERS.strip().format(extra=extra, attributes=attributes)
            cls.__doc__ = cls.__doc__.replace("{parameters}", shared)
            cls.__doc__ = cls.__doc__.replace("{example}", _EXAMPLE.strip().format(name=cls.__name__))
        return cls

    return decorate


@documented()
class FrequentDirections(_FrequentDirections):
    """Frequent directions (Luo et al. 2019, Alg. 1 and 4): a low-rank lower bound B'B of A'A with a known error.

    The sketch satisfies 0 <= A'A - B'B <= Delta I with Delta <= ||A - A_k||_F^2 / (m - k) for every k < m, where A_k is
    the best rank-k approximation of A (Ghashami et al. 2016). `error_bound_` is Delta, the sum of all deltas.

    {parameters}

    See Also
    --------
    RobustFrequentDirections : The same B with half the error bound.
    DiagonalFrequentDirections : The same B with a diagonal correction.
    ExactSecondMoment : The exact matrix, for small n_features.
    SlidingFrequentDirections : A sketch of the most recent rows only.

    {example}
    """


@documented()
class RobustFrequentDirections(_FrequentDirections):
    """Robust frequent directions (Luo et al. 2019, Alg. 2 and 5): B'B + alpha I with half the error bound of FD.

    B is the sketch of `FrequentDirections`, and alpha = alpha0 + Delta / 2 restores half of the mass that the shrink
    steps removed. Then ||A'A + alpha0 I - (B'B + alpha I)||_2 <= Delta / 2 <= ||A - A_k||_F^2 / (2 (m - k)) for every
    k < m (Luo et al. 2019, Thm. 3). `error_bound_` is Delta / 2. The approximation is invertible as soon as Delta > 0.

    {parameters}

    See Also
    --------
    FrequentDirections : The same B without the multiple of the identity.
    DiagonalFrequentDirections : The same B with a diagonal correction.
    ExactSecondMoment : The exact matrix, for small n_features.
    SlidingFrequentDirections : A sketch of the most recent rows only.

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd import RobustFrequentDirections
    >>> A = np.random.default_rng(0).standard_normal((1000, 30)) / np.arange(1, 31)
    >>> rfd = RobustFrequentDirections(sketch_size=10)
    >>> for batch in np.array_split(A, 7):
    ...     rfd = rfd.partial_fit(batch)
    >>> M = rfd.second_moment()
    >>> bool(np.linalg.norm(A.T @ A - M.to_dense(), 2) <= rfd.error_bound_)
    True
    >>> x = M.solve(np.ones(30))
    >>> bool(np.allclose(M @ x, 1.0))
    True
    """

    _share: ClassVar[float] = 0.5


@documented("""beta : float in (0, 1], default=0.2
        Share of the m largest values that a shrink step reduces. 1 is FD.
    """)
class ParameterizedFrequentDirections(_FrequentDirections):
    """Parameterised frequent directions (Desai et al. 2016): a shrink step reduces only the smallest values.

    Of the m largest squared singular values, a shrink step reduces the last j = max(1, floor(beta m)) by delta. As for
    FD, 0 <= A'A - B'B <= Delta I. The bound Delta <= ||A - A_k||_F^2 / (j - k) for k < j is weaker than that of FD, but
    the error is often smaller.

    {parameters}

    See Also
    --------
    FrequentDirections : The case beta = 1.
    GreedySketch : The case j = 1.
    TwoSidedFrequentDirections : Combines this sketch with FD for certified eigenvalues.

    {example}
    """

    _structure: ClassVar[tuple[str, ...]] = (*_FrequentDirections._structure, "beta")

    def __init__(
        self,
        sketch_size: int = 50,
        *,
        beta: float = 0.2,
        buffer_size: int | None = None,
        alpha0: float = 0.0,
        decay: float = 1.0,
        center: bool = False,
        solver: Solver = "auto",
    ):
        super().__init__(sketch_size, buffer_size=buffer_size, alpha0=alpha0, decay=decay, center=center, solver=solver)
        self.beta = beta

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_real("beta", self.beta, 0.0, 1.0, open_low=True)

    def _shrunk_count(self) -> int:
        return shrunk_count(self.sketch_size, float(self.beta))


@documented()
class CompensativeFrequentDirections(_FrequentDirections):
    """Compensative frequent directions (Desai et al. 2016): FD with Delta added back to the kept directions.

    The sketch is C with C'C = B'B + Delta P, where B is the sketch of FD and P the projection onto its rows. It can
    overestimate: -Delta P <= A'A - C'C <= Delta (I - P). `error_bound_` is Delta, a two-sided bound.

    {parameters}

    See Also
    --------
    FrequentDirections : The sketch B without compensation.
    RobustFrequentDirections : Adds Delta / 2 to all directions and halves the bound.

    {example}
    """

    _lifted: ClassVar[float] = 1.0


@documented()
class SpectralCompensationFrequentDirections(_FrequentDirections):
    """Spectral compensation frequent directions (Chen et al. 2020): B'B + alpha I, an upper bound of A'A.

    B is the sketch of `FrequentDirections`, and alpha = alpha0 + Delta restores all that the shrink steps removed. Then
    0 <= B'B + alpha I - (A'A + alpha0 I) <= Delta I: no direction is underestimated, at twice the error bound of
    `RobustFrequentDirections`. `error_bound_` is Delta.

    {parameters}

    See Also
    --------
    RobustFrequentDirections : Adds Delta / 2 and halves the bound.
    FrequentDirections : The same B, a lower bound.

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd import SpectralCompensationFrequentDirections
    >>> A = np.random.default_rng(0).standard_normal((1000, 30)) / np.arange(1, 31)
    >>> M = SpectralCompensationFrequentDirections(sketch_size=10).fit(A).second_moment().to_dense()
    >>> bool(np.linalg.eigvalsh(M - A.T @ A).min() >= -1e-9)
    True
    """

    _share: ClassVar[float] = 1.0


@documented()
class GreedySketch(_FrequentDirections):
    """Greedy low-rank approximation (Luo et al. 2019, Alg. 8), also known as incremental SVD.

    A shrink step keeps the m - 1 largest values unchanged and drops the others. 0 <= A'A - B'B <= Delta I still holds,
    and `error_bound_` is Delta, but there is no a priori bound on Delta: Appendix F of the paper gives a stream on
    which the error grows without limit while that of FD stays bounded.

    {parameters}

    See Also
    --------
    FrequentDirections : Has an a priori error bound.
    ParameterizedFrequentDirections : Lies between this sketch and FD.

    {example}
    """

    def _shrunk_count(self) -> int:
        return 1


@dataclass(frozen=True)
class DiagonalState(State):
    """The state of frequent directions, plus the diagonal of A'A."""

    ARRAYS: ClassVar[dict[str, str]] = State.ARRAYS | {"squares": "d"}
    LEAST: ClassVar[dict[str, float]] = State.LEAST | {"squares": 0.0}

    squares: Floats  # sums of squares of the columns of A, after weighting and centring

    @classmethod
    def empty(cls, d: int, center: bool) -> Self:
        """Return the state before any row."""
        return cls(**vars(State.empty(d, center)), squares=np.zeros(d))

    def updated(self, e: PreparedRows, s: float, t: Floats) -> Self:
        """Return the state with the squares of diag(t) E added to the older ones, which are scaled by s."""
        return replace(self, squares=s * s * self.squares + e.outer_diagonal(t))

    def plus(self, other: State) -> Self:
        """Return the state with the sums of both added."""
        assert isinstance(other, DiagonalState)
        return replace(super().plus(other), squares=self.squares + other.squares)

    def faded(self, factor: float) -> Self:
        """Return the state with all sums multiplied by `factor`."""
        return replace(super().faded(factor), squares=factor * self.squares)

    def removed(self) -> Floats:
        """Return R, the diagonal of A'A - B'B, clipped to [0, Delta]. Entries within rounding error are set to 0."""
        b = self.rows
        r = self.squares - np.einsum("ij,ij->j", b, b)
        # Rounding moves rows of B by about 20 eps sigma_1, which must not make a singular matrix invertible.
        noise = NOISE * np.sqrt(self.lam.max(initial=0.0)) * np.sqrt(self.squares)
        return np.where(r > noise, np.minimum(r, self.delta), 0.0)


@documented(
    attributes="""diagonal_ : ndarray of shape (n_features,)
        R, the diagonal of A'A - B'B, removed by the shrink steps.
    """
)
class DiagonalFrequentDirections(_FrequentDirections):
    """Frequent directions with a diagonal correction: B'B + R + alpha0 I, exact on the diagonal.

    B is the sketch of `FrequentDirections`. The diagonal matrix R restores the mass that the shrink steps removed,
    column by column: R_ii is the i-th diagonal entry of E = A'A - B'B. It is known exactly, because the sums of squares
    of the columns are stored next to B. Since 0 <= E <= Delta I, also 0 <= R <= Delta I, and

        ||A'A - (B'B + R)||_2 <= min(max(Delta - min R_ii, max R_ii), (1 - 1/d) Delta),

    which is `error_bound_`. It is smaller than the bound of `FrequentDirections` and, at best, equals the bound Delta /
    2 of `RobustFrequentDirections`. For this B, no other diagonal matrix is closer to A'A - B'B in the Frobenius norm,
    so that error is never above the error of FD, or of RFD with any alpha. The approximation is invertible once shrink
    steps have removed mass from every column.

    {parameters}

    `second_moment()` and `covariance()` return a `LowRankPlusDiagonal`, and `alpha_` equals alpha0. The upper bound of
    `bracket_logdet` also uses Hadamard's inequality: a determinant is at most the product of the diagonal.

    See Also
    --------
    RobustFrequentDirections : The same B with a multiple of the identity in place of R.
    LowRankPlusDiagonal : The operator that `second_moment()` returns.

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd import DiagonalFrequentDirections
    >>> A = np.random.default_rng(0).standard_normal((1000, 30)) / np.arange(1, 31)
    >>> sketch = DiagonalFrequentDirections(sketch_size=10).fit(A)
    >>> M = sketch.second_moment()
    >>> bool(np.allclose(M.diagonal(), np.square(A).sum(axis=0)))
    True
    >>> bool(np.linalg.norm(A.T @ A - M.to_dense(), 2) <= sketch.error_bound_)
    True
    """

    _state_type: ClassVar[type[State]] = DiagonalState

    def _view_of(self, state: State) -> View:
        assert isinstance(state, DiagonalState)
        r, delta = state.removed(), state.delta
        bound = min(max(delta - r.min(), r.max()), (1.0 - 1.0 / len(r)) * delta)
        # Twice, because both R and B'B are rounded.
        return replace(super()._view_of(state), error_bound=float(bound) + 2.0 * state.rounding, diagonal=r)

    @property
    def diagonal_(self) -> Floats:
        """R, the diagonal of A'A - B'B, without alpha0."""
        return self._removed().copy()

    def second_moment(self) -> LowRankPlusDiagonal:
        """Return the approximation of A'A + alpha0 I. If it is singular, it uses the pseudo-inverse."""
        view = self._view
        return LowRankPlusDiagonal(view.components.copy(), view.lam, self._removed() + view.alpha)

    def covariance(self, ddof: float = 1) -> LowRankPlusDiagonal:
        """Return the second moment divided by (total weight - ddof).

        With `center=True` this is the covariance matrix, with exact variances. Otherwise the rows are assumed to have
        mean zero.
        """
        return super().covariance(ddof)

    def bracket_logdet(self) -> tuple[float, float]:
        """Return certified bounds (lower, upper) on log det(A'A + alpha0 I). The lower bound may be -inf."""
        low, high = super().bracket_logdet()
        view = self._view
        diagonal = LowRankPlusDiagonal(view.components, view.lam, self._removed() + view.alpha).diagonal()
        with np.errstate(divide="ignore"):
            return low, min(high, float(np.log(diagonal).sum()))

    def _removed(self) -> Floats:
        r = self._view.diagonal
        assert r is not None
        return r
