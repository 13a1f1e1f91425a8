"""Frequent directions with a diagonal: what the shrinks took is put back where they took it."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from robustfd.linalg.diagonal import LowRankPlusDiagonal
from robustfd.linalg.rules import svd_noise
from robustfd.sketch._base import View
from robustfd.sketch._engine import State
from robustfd.sketch._entering import EnteringRows
from robustfd.sketch._rows import Floats
from robustfd.sketch.frequent_directions import _FrequentDirections, documented

NOISE = svd_noise(1, 1.0)  # what rounding can leave of a column of B, relative to the largest singular value


@dataclass(frozen=True)
class DiagonalState(State):
    """The state of frequent directions and the diagonal of A'A."""

    squares: Floats  # sums of squares of the columns of A, as the rows entered

    @classmethod
    def empty(cls, d: int, center: bool) -> Self:
        """Return the state before any row."""
        return cls(**vars(State.empty(d, center)), squares=np.zeros(d))

    def entered(self, e: EnteringRows, s: float, t: Floats) -> Self:
        """Return the state with the squares of diag(t) E added to the older ones, scaled by s."""
        return replace(self, squares=s * s * self.squares + e.outer_diagonal(t))

    def plus(self, other: State) -> Self:
        """Return the state with the sums of both."""
        assert isinstance(other, DiagonalState)
        return replace(super().plus(other), squares=self.squares + other.squares)

    def faded(self, factor: float) -> Self:
        """Return the state after everything in it is multiplied by factor."""
        return replace(super().faded(factor), squares=factor * self.squares)

    def removed(self) -> Floats:
        """Return R, the diagonal of A'A - B'B, which is between 0 and Delta; what may be round-off is exactly 0."""
        b = self.rows
        r = self.squares - np.einsum("ij,ij->j", b, b)
        # Rounded rows of B stand off by some 20 eps sigma_1. A singular matrix must not become invertible by that.
        noise = NOISE * np.sqrt(self.lam.max(initial=0.0)) * np.sqrt(self.squares)
        return np.where(r > noise, np.minimum(r, self.delta), 0.0)


@documented(
    attributes="""diagonal_ : ndarray of shape (n_features,)
        R, what the shrinks took from the diagonal: diag(B'B) + R is the diagonal of A'A.
    """
)
class DiagonalFrequentDirections(_FrequentDirections):
    """Frequent directions with a diagonal: A'A as B'B + R + alpha0 I, exact on the diagonal.

    B is that of frequent directions. The diagonal matrix R puts back what the shrinks took, where they took it:
    R_ii is the i-th diagonal entry of E = A'A - B'B, known exactly because the sums of squares of the columns are kept
    beside B. As 0 <= E <= Delta I, so 0 <= R <= Delta, and

        ||A'A - (B'B + R)||_2 <= min(max(Delta - min R_ii, max R_ii), (1 - 1/d) Delta),

    which is `error_bound_`: below that of frequent directions, at best that of the robust form, Delta / 2. In the
    Frobenius norm no other diagonal beside this B is nearer to A'A, so the error is never above that of FD, or of
    RFD with any alpha. The approximation can be inverted as soon as every feature has been through a shrink that
    took anything.

    {parameters}

    `second_moment()` and `covariance()` return a `LowRankPlusDiagonal`, and `alpha_` is alpha0. `bracket_logdet` also
    uses that a determinant is at most the product of the diagonal.

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
        # R is rounded as well as B'B.
        return replace(self._plain_view(state), error_bound=float(bound) + 2.0 * state.rounding, diagonal=r)

    @property
    def diagonal_(self) -> Floats:
        """R, what the shrinks took from the diagonal of A'A; alpha0 is not in it."""
        return self._removed().copy()

    def second_moment(self) -> LowRankPlusDiagonal:
        """Return the approximation of A'A + alpha0 I; where it is singular it solves by pseudo-inverse."""
        view = self._view
        return LowRankPlusDiagonal(self._cast(view.components), view.lam, self._removed() + view.alpha)

    def covariance(self, ddof: float = 1) -> LowRankPlusDiagonal:
        """Return the second moment divided by (total weight - ddof).

        With `center=True` that is the covariance, with exact variances; without, the rows are taken to have mean zero.
        """
        return super().covariance(ddof)

    def bracket_logdet(self) -> tuple[float, float]:
        """Return (lower, upper) with log det(A'A + alpha0 I) certainly between them; lower may be -inf."""
        low, high = super().bracket_logdet()
        view = self._view
        diagonal = LowRankPlusDiagonal(view.components, view.lam, self._removed() + view.alpha).diagonal()
        with np.errstate(divide="ignore"):
            return low, min(high, float(np.log(diagonal).sum()))

    def _removed(self) -> Floats:
        r = self._view.diagonal
        assert r is not None
        return r
