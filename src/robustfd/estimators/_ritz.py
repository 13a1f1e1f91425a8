"""Two more passes over the rows in `fit`: exact variances along good directions, and upper bounds from residuals.

A sketch gives at most m - 1 directions V. The first pass computes A'A V', a step of subspace iteration: its span is
closer to the leading eigenvectors than that of V. The second pass is a Rayleigh-Ritz step on that span. Let the rows of
Q be an orthonormal basis, Theta = Q A'A Q', and R = Q A'A - Theta Q the residual. If A'A is at most h I outside the
span, then A'A <= Q' Theta Q + R'Q + Q'R + h (I - Q'Q). The eigenvalues of the right side bound those of A'A from above
(Weyl), and those of Theta bound them from below (Cauchy). The sketch gives h. docs/mathematics.md has the proof.

Q is never formed. The code keeps the basis that the first pass gives, and orthonormalises only small matrices.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm, dger

from robustfd.linalg.eigen import EPS
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch.interface import BLOCK, State
from robustfd.sketch.two_sided import TwoSidedView

Floats = NDArray[np.float64]
Panels: TypeAlias = Iterator[tuple[slice, Floats]]  # the rows of a tall matrix, a few at a time, with their places
LEAST_DIGITS = 1e-6  # relative to ||A||_F^2: with larger rounding errors the pass is less accurate than the sketch
LEAST_ANGLE = 1e-3  # directions with a smaller squared sine count as dependent on the others
LEAST_SCATTER = 1e-200  # below this, products of residuals underflow
LEAST_VALUE = 1e-8  # relative: a product with A'A loses the directions of smaller eigenvalues to rounding errors
CLEARLY_BELOW = 0.7
SPARE = 10  # directions in addition to the components: fewer converge more slowly
PANEL = 1024  # rows of a tall matrix that are multiplied at a time


@dataclass(frozen=True)
class Ritz:
    """Orthonormal directions and the exact scatter along them, in descending order.

    Each of `values` is a lower bound on the corresponding eigenvalue of A'A (Cauchy's interlacing theorem), and each of
    `upper` is an upper bound.
    """

    values: Floats
    directions: Floats  # the first k
    rounding: float  # bound on the rounding errors of `values`
    upper: Floats | None = None  # includes rounding errors; None if unknown


def count_components(values: Floats, total: float, wanted: int | float | None) -> int:
    """Return k: `wanted` if it is an integer, the smallest number of values that exceed this share, or all for None."""
    if isinstance(wanted, int):
        return wanted
    if wanted is None or not total > 0:
        return len(values)
    return min(len(values), int(np.searchsorted(np.cumsum(values), wanted * total, side="right")) + 1)


def rotated_directions(view: TwoSidedView, rotation: Floats) -> Floats:
    """Return the directions of model files of older versions, which store them in terms of those of the sketches."""
    both = rotation.shape[1] > len(view.lam)
    return np.asarray(rotation @ (np.concatenate([view.components, view.upper_form()]) if both else view.components))


@one_blas_thread()
def ritz_passes(state: State, x: Any, weight: Floats, decay: float, wanted: int | float | None) -> Ritz | None:
    """Return the Ritz values of the rows, or None if the sketch has no directions or rounding errors are too large.

    Rows, weights and decay must be those that the sketch has seen.
    """
    if not len(state.lam) or state.mean is None:
        return None
    # Sparse rows are not centred before the multiplication, so their rounding errors are relative to their own norm.
    mean, total = state.mean[0], state.squared_norm
    spread = total + (2.0 * state.weight * float(mean @ mean) if sp.issparse(x) else 0.0)
    off = float(8.0 * (len(state.lam) + np.sqrt(sum(x.shape))) * EPS * spread)
    if not off <= LEAST_DIGITS * total:
        return None
    rows = _Rows.of(x, weight, decay, mean)
    basis, overlap, inside = _power_step(rows, state, wanted)
    gram, image = rows.products(basis)
    # S has the property S (overlap) S' = I. Directions that nearly depend on the others are dropped.
    lengths = np.sqrt(np.diag(overlap))
    angles, u = np.linalg.eigh(overlap / lengths / lengths[:, None])
    clear = angles > LEAST_ANGLE
    s = (u[:, clear] / np.sqrt(angles[clear])).T / lengths
    off /= float(angles[clear].min())
    if not off <= LEAST_DIGITS * total:
        return None
    theta = s @ gram @ s.T
    theta = (theta + theta.T) / 2
    values, rotation = np.linalg.eigh(theta)
    values, rotation = np.maximum(values[::-1], 0.0), rotation[:, ::-1]
    upper = None
    if total > LEAST_SCATTER:
        squares = s @ _squared_residuals(image(), basis, s.T @ theta @ s @ overlap, total) @ s.T
        inexact = (len(theta) + np.sqrt(len(basis))) * EPS / float(angles[clear].min())
        upper = _upper_ends(theta, squares, _most_outside(state, inside @ s.T), total, inexact) + 4.0 * off
    k = count_components(values, total, wanted)
    return Ritz(values, np.asarray((rotation[:, :k].T @ s) @ basis.T), off, upper)


@dataclass(frozen=True)
class _Rows:
    """Rows of positive weight about a mean."""

    x: Any
    weight: Floats
    mean: Floats

    @classmethod
    def of(cls, x: Any, weight: Floats, decay: float, mean: Floats) -> "_Rows":
        if not weight.all():
            x, weight = x[weight > 0], weight[weight > 0]
        if decay < 1.0:
            weight = weight * decay ** np.arange(len(weight) - 1.0, -1.0, -1.0)
        return cls(x, weight, mean)

    @cached_property
    def columns(self) -> Any:
        """All rows by columns."""
        from robustfd.linalg import sparse  # imported here because it compiles loops that only sparse rows need

        return sparse.Columns(self.x)

    def products(self, v: Floats, scale: Floats | float = 1.0) -> tuple[Floats, Callable[..., Panels]]:
        """Return V'A'AV, where V is v with scaled columns, and a function that computes A'AVC from C (default I).

        The function may be called once, and its panels may be overwritten. Sparse rows with n < d need n x r numbers
        of memory, others d x r.
        """
        if not sp.issparse(self.x):
            return self._dense_products(v, scale)
        from robustfd.linalg import sparse

        n, d = self.x.shape
        if n < d:
            z, gram = self._along(self.columns, self.weight, v, scale)
            return gram, partial(self._transposed, z)
        gram, image, total = np.zeros((v.shape[1], v.shape[1])), np.zeros(v.shape), np.zeros(v.shape[1])
        step = max(1, BLOCK // (4 * v.shape[1]))  # the products of a block then stay in the cache
        for start in range(0, n, step):
            rows = slice(start, start + step)
            block = sparse.Columns(self.x[rows])
            z, square = self._along(block, self.weight[rows], v, scale)
            gram, total = gram + square, total + z.sum(axis=0)
            sparse.add_transposed(image, block, z)
        dger(-1.0, total, self.mean, a=image.T, overwrite_a=1)
        return gram, partial(_split, image)

    def _along(self, x: Any, weight: Floats, v: Floats, scale: Floats | float) -> tuple[Floats, Floats]:
        """Return, for sparse rows and Z = A V, the rows of Z times their weights, and Z'Z."""
        from robustfd.linalg import sparse

        z = sparse.product(x, v)
        z -= self.mean @ v
        z *= scale
        weighted = z if np.all(weight == 1.0) else weight[:, None] * z
        return weighted, z.T @ weighted

    def _transposed(self, z: Floats, c: Floats | None = None) -> Panels:
        """Yield A'ZC for sparse rows."""
        from robustfd.linalg import sparse

        z = z if c is None else z @ c
        total = z.sum(axis=0)
        for start in range(0, len(self.mean), PANEL):
            part = slice(start, start + PANEL)
            panel = np.multiply.outer(-self.mean[part], total)
            sparse.add_transposed(panel, self.columns, z, start)
            yield part, panel

    def _dense_products(self, v: Floats, scale: Floats | float) -> tuple[Floats, Callable[..., Panels]]:
        gram, image = np.zeros((v.shape[1], v.shape[1])), np.zeros(v.shape)
        step = max(1, BLOCK // len(v))
        for start in range(0, len(self.weight), step):
            rows = slice(start, start + step)
            block = self.x[rows] - self.mean
            z = (block @ v) * scale
            weighted = self.weight[rows, None] * z
            gram += z.T @ weighted
            # image += block' weighted, in place
            dgemm(1.0, weighted.T, block.T, beta=1.0, c=image.T, trans_b=1, overwrite_c=1)
        return gram, partial(_split, image)


def _split(tall: Floats, c: Floats | None = None) -> Panels:
    """Yield a tall matrix times C."""
    for start in range(0, len(tall), PANEL):
        panel = tall[start : start + PANEL]
        yield slice(start, start + PANEL), panel if c is None else panel @ c


def _power_step(rows: _Rows, state: State, wanted: int | float | None) -> tuple[Floats, Floats, Floats]:
    """Return (W, W'W, BW), where the columns of W are A'A times the best directions, scaled so that W'W >= I."""
    bt, length = np.asarray(state.b.T), np.sqrt(state.lam)
    bt = np.ascontiguousarray(bt) if sp.issparse(rows.x) else bt
    gram, image = rows.products(bt, 1.0 / length)
    values, rotation = np.linalg.eigh(gram)
    r = _enough(values[::-1], state, wanted)
    values, rotation = values[::-1][:r], rotation[:, ::-1][:, :r]
    # With V the rotated directions, A'A v_i / value_i = v_i + r_i / value_i, where r_i is orthogonal to all v_j. So the
    # columns are independent. Directions with tiny values are kept as they are.
    large = values > LEAST_VALUE * values[0] if state.squared_norm > LEAST_SCATTER else np.zeros(len(values), bool)
    moved = rotation * np.divide(1.0, values, out=np.zeros_like(values), where=large)
    kept = rotation / length[:, None] * ~large
    w, overlap, inside = np.empty((len(bt), r)), np.zeros((r, r)), np.zeros((len(gram), r))
    for part, panel in image(moved):
        w[part] = panel if large.all() else panel + bt[part] @ kept
        overlap += w[part].T @ w[part]
        inside += bt[part].T @ w[part]
    return w, overlap, inside


def _enough(values: Floats, state: State, wanted: int | float | None) -> int:
    """Return the number of directions to continue with, given the scatter along all of them.

    Fewer directions take less time. But the upper bounds are tight only if h, which is about Delta plus the largest
    value of the sketch that is left out, is clearly below the scatter along the last component.
    """
    if not isinstance(wanted, int) or wanted >= len(values):
        return len(values)
    outside = np.append(state.lam[1:], 0.0) + state.delta
    small = np.flatnonzero(outside <= CLEARLY_BELOW * values[wanted - 1])
    return min(len(values), max(small[0] + 1, wanted + SPARE)) if len(small) else len(values)


def _squared_residuals(image: Panels, basis: Floats, theta: Floats, unit: float) -> Floats:
    """Return R'R / unit^2 for R = image - basis theta."""
    squares = np.zeros_like(theta)
    for part, panel in image:
        panel -= basis[part] @ theta
        panel /= unit  # squares of the scatter could overflow
        squares += panel.T @ panel
    return squares


def _most_outside(state: State, inside: Floats) -> float:
    """Return h such that A'A is at most h I outside the span of Q, given inside = B Q'."""
    left = float(np.linalg.eigvalsh(np.diag(state.lam) - inside @ inside.T)[-1])
    return max(0.0, left) + state.delta + state.rounding


def _upper_ends(theta: Floats, squares: Floats, outside: float, unit: float, inexact: float) -> Floats:
    """Return the r largest eigenvalues of [[Theta, T'], [T, h I]], where T'T = unit^2 squares and Theta is r x r.

    They increase with T'T, so adding a bound on the rounding errors of T'T keeps them upper bounds. `inexact` is that
    bound relative to the trace.
    """
    r = len(theta)
    lengths, w = np.linalg.eigh(squares)
    lengths = np.maximum(lengths, 0.0)
    lengths += inexact * float(lengths.sum())
    whole = np.zeros((2 * r, 2 * r))
    whole[:r, :r] = theta / unit
    whole[r:, :r] = np.sqrt(lengths)[:, None] * w.T
    whole[np.arange(r, 2 * r), np.arange(r, 2 * r)] = outside / unit
    return np.asarray(unit * np.linalg.eigvalsh(whole)[: r - 1 : -1])
