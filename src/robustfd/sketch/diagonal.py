"""Frequent directions with a diagonal correction that restores the mass removed by shrink steps."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from robustfd.linalg.diagonal import LowRankPlusDiagonal
from robustfd.linalg.rules import svd_noise
from robustfd.sketch._base import View
from robustfd.sketch._engine import State
from robustfd.sketch._prepared import PreparedRows
from robustfd.sketch._rows import Floats
from robustfd.sketch.frequent_directions import _FrequentDirections, documented

NOISE = svd_noise(1, 1.0)  # rounding error in a column of B, relative to the largest singular value


@dataclass(frozen=True)
class DiagonalState(State):
    """The state of frequent directions, plus the diagonal of A'A."""

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
        return replace(self._plain_view(state), error_bound=float(bound) + 2.0 * state.rounding, diagonal=r)

    @property
    def diagonal_(self) -> Floats:
        """R, the diagonal of A'A - B'B, without alpha0."""
        return self._removed().copy()

    def second_moment(self) -> LowRankPlusDiagonal:
        """Return the approximation of A'A + alpha0 I. If it is singular, it uses the pseudo-inverse."""
        view = self._view
        return LowRankPlusDiagonal(self._cast(view.components), view.lam, self._removed() + view.alpha)

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
