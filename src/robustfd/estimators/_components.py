"""Principal components of a sketch, and of rows that are all at hand, for `fit`.

`partial_fit` reads each row once, so it needs a sketch. `fit` can read the rows several times, which takes less time
and is more accurate. It works with the shorter side of the centred rows A: with G = A'A, or with G = AA' if there are
fewer rows than columns. `find_leading` returns vectors V near the largest eigenvectors of G and a bound h on G outside
them. This search runs in single precision, which is enough to find directions. One product GV in double precision then
gives the variances, their bounds, and a sketch B with B'B <= A'A <= B'B + h I, with which `partial_fit` can continue.
docs/mathematics.md has the proofs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import get_blas_funcs
from sklearn.utils.extmath import svd_flip

from robustfd._container import Document, Tensors
from robustfd.learners.snapshot import Parts
from robustfd.linalg.decompose import EPS, Floats
from robustfd.linalg.krylov import (
    block_size,
    bound_eigenvalues,
    descending_eigh,
    find_leading,
    form_leading,
    orthonormal,
)
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch.base import EPS32
from robustfd.sketch.centring import exact_mean, shift_mean
from robustfd.sketch.engine import State
from robustfd.sketch.rows import LARGEST_NORM
from robustfd.sketch.two_sided import TwoSidedView
from robustfd.sketch.view import BLOCK, View, padded, unit_rows

Precision: TypeAlias = type[np.float32] | type[np.float64]
DENSE_STEPS, SPARSE_STEPS = 6, 5  # products of the search; scikit-learn makes 8 in PCA and 6 in TruncatedSVD
LEAST_DIGITS = 1e-6  # relative to ||A||_F^2: with larger rounding errors a sketch is more accurate
LEAST_SCATTER = 1e-250  # below this, products underflow
SMALL = 2**27  # if forming G takes fewer multiplications, G is formed
LARGEST_COPY = 2**28  # entries of dense rows that are copied in single precision (1 GB); otherwise block by block
LARGEST_SINGLE = 1e15  # larger entries could overflow in single precision
CLEARLY_ABOVE = 20.0  # times the rounding errors of single precision: smaller eigenvalues need double precision


@dataclass(frozen=True)
class Ritz:
    """Orthonormal directions and the exact scatter along them, in descending order.

    Each of `values` is a lower bound on the corresponding eigenvalue of A'A (Cauchy's interlacing theorem), and each of
    `upper` is an upper bound.
    """

    values: Floats
    directions: Floats  # the first k
    rounding: float  # bound on the rounding errors of `values`
    upper: Floats  # includes rounding errors

    def pack(self) -> tuple[Document, Tensors]:
        """Return the numbers and the arrays, for a snapshot."""
        return {"rounding": self.rounding}, {"values": self.values, "directions": self.directions, "upper": self.upper}

    @classmethod
    def unpack(cls, parts: Parts, d: int, total: float, wanted: int | float | None) -> "Ritz":
        """Return the components in a snapshot of d features whose scatter is `total`."""
        (r,) = parts.shape("values", 1)
        values, upper = (parts.array(name, r, least=0.0) for name in ("values", "upper"))
        k = min(r, count_components(values, total, wanted))
        return cls(values, parts.array("directions", k, d), parts.number("rounding", 0.0), upper)


def count_components(values: Floats, total: float, wanted: int | float | None) -> int:
    """Return k: `wanted` if it is an integer, the smallest number of values that exceed this share, or all for None."""
    if isinstance(wanted, int):
        return wanted
    if wanted is None or not total > 0:
        return len(values)
    return min(len(values), int(np.searchsorted(np.cumsum(values), wanted * total, side="right")) + 1)


@one_blas_thread()
def analyse(x: Any, weight: Floats, decay: float, wanted: int | float | None, m: int) -> tuple[State, Ritz] | None:
    """Return a sketch of at most m - 1 rows, and the principal components.

    Return None if rounding errors are too large or if a number is not finite. In the first case a sketch is more
    accurate. In the second case it raises the error.
    """
    with np.errstate(all="ignore"):
        rows = _Rows.of(x, weight, decay)
    if not LEAST_SCATTER < rows.total < LARGEST_NORM or not rows.noise(np.float64) <= LEAST_DIGITS:
        return None
    most = min(m - 1, rows.short)
    k = min(wanted, most) if isinstance(wanted, int) else most
    steps, entries = (SPARSE_STEPS, rows.x.nnz) if sp.issparse(x) else (DENSE_STEPS, rows.x.size)
    if rows.short <= max(block_size(k) * steps, SMALL // entries):
        found = form_leading(partial(rows.times, precision=np.float64), rows.short, most)
    else:
        fits = rows.largest * rows.unit < LARGEST_SINGLE
        precisions: tuple[Precision, ...] = (np.float32, np.float64) if fits else (np.float64,)
        for precision in precisions:
            noise = rows.noise(precision)
            found = find_leading(partial(rows.times, precision=precision), rows.short, k, most, steps, noise)
            if len(found.values) >= k and found.values[k - 1] > CLEARLY_ABOVE * noise:
                break
    state, ritz = _result(rows, found.vectors, found.outside, wanted)
    # If rounding errors hide some of the components, a sketch may still find them.
    return (state, ritz) if len(ritz.values) >= k or not isinstance(wanted, int) else None


def _result(rows: "_Rows", vectors: Floats, outside: float, wanted: int | float | None) -> tuple[State, Ritz]:
    """Return the sketch and the components from vectors and a bound on G outside them."""
    off, total = rows.noise(np.float64), rows.total
    vectors, _ = orthonormal(vectors)  # removes the rounding errors of the search
    # All numbers here are divided by the total: G = A'A / total or AA' / total.
    image, across = rows.product(vectors, np.float64)
    theta, rotation = descending_eigh(vectors.T @ image)
    rotation, theta = rotation[:, theta > off], theta[theta > off]
    vectors = vectors @ rotation
    residual = image @ rotation - vectors * theta
    squares = residual.T @ residual
    left = 1.0 - float(theta.sum())  # the trace outside the vectors
    outside = min(outside, left) + 2.0 * off if left > off else 0.0
    upper = bound_eigenvalues(theta, squares, outside) + 4.0 * off
    root = np.sqrt(theta)
    between = np.diag(theta) + squares / root / root[:, None]
    if rows.tall:
        # B = V'A'A / sqrt(theta) is below A'A, and these are the inner products of its rows.
        lam, turn = descending_eigh(between)
        b = (turn.T / root) @ (vectors * theta + residual).T
        v = unit_rows(b, lam)
        values, turn = descending_eigh(rows.scatter_along(v))
    else:
        # B = V'A, with orthogonal rows, and this is A'A between their directions.
        lam, b = theta, rotation.T @ across.T
        del across
        v = unit_rows(b, lam)
        values, turn = descending_eigh(between)
    directions = turn[:, : count_components(values, 1.0, wanted)].T @ v
    b *= np.sqrt(total)
    state = State(
        b=b, lam=total * lam, shrunk=True, delta=total * outside, squared_norm=total, weight=rows.weight,
        mean=rows.mean, rounding=total * off,
    )  # fmt: skip
    return state, Ritz(total * values, directions, total * off, total * upper)


@dataclass(frozen=True)
class _Rows:
    """Rows of positive weight about their mean. All products are with A, scaled so that G has trace 1."""

    x: Any
    share: Floats  # the weights, divided by their sum
    weight: float  # the sum
    mean: Floats  # in double-double form
    total: float  # the scatter about the mean
    spread: float  # the sum of the squares of all terms that are subtracted from each other, at least the total
    largest: float  # no entry is larger in absolute value; for dense rows, after centring

    @classmethod
    def of(cls, x: Any, weight: Floats, decay: float) -> "_Rows":
        if not weight.all():
            x, weight = x[weight > 0], weight[weight > 0]
        if decay < 1.0:
            weight = weight * decay ** np.arange(len(weight) - 1.0, -1.0, -1.0)
        n = float(weight.sum())
        share = weight / n
        if sp.issparse(x):
            x = x.astype(np.float64, copy=False)
            mean = x.T @ share
            squares, shift = float(np.repeat(share, np.diff(x.indptr)) @ np.square(x.data)), float(mean @ mean)
            largest = float(np.abs(x.data).max(initial=0.0))
            return cls(x, share, n, exact_mean(mean), n * (squares - shift), n * (squares + shift), largest)
        mean, step, squares, largest = np.zeros(x.shape[1]), np.zeros(x.shape[1]), 0.0, 0.0
        for part in _parts(x):
            mean += share[part] @ x[part]
        for part in _parts(x):
            block = x[part] - mean
            lengths = np.einsum("ij,ij->i", block, block)
            step += share[part] @ block
            squares += float(share[part] @ lengths)
            largest = max(largest, float(np.sqrt(lengths.max())))
        total = n * (squares - float(step @ step))
        return cls(x, share, n, shift_mean(exact_mean(mean), step), total, n * squares, largest)

    @cached_property
    def unit(self) -> float:
        """The factor of the rows for which G has trace 1."""
        return float(np.sqrt(self.weight) / np.sqrt(self.total))

    @property
    def tall(self) -> bool:
        """Whether G is A'A."""
        return bool(self.x.shape[0] >= self.x.shape[1])

    @property
    def short(self) -> int:
        """The number of rows of G."""
        return int(min(self.x.shape))

    def noise(self, precision: Precision) -> float:
        """Return a bound on the rounding errors of G, relative to its trace."""
        size = np.sqrt(sum(self.x.shape))
        factor = size * EPS32 if precision is np.float32 else 8.0 * (size + 100.0) * EPS
        return float(factor * self.spread / self.total)

    def times(self, v: Floats, precision: Precision) -> Floats:
        """Return G v in double precision, computed in this precision. G has trace 1."""
        return self.product(v, precision)[0].astype(np.float64, copy=False)

    def product(self, v: Floats, precision: Precision) -> tuple[Any, Any]:
        """Return G v and, if G is AA', also A'v."""
        v = v.astype(precision, copy=False)
        share = self.share.astype(precision)[:, None]
        if self.tall:
            return self._back(share * self._forth(v)), None
        root = np.sqrt(share)
        y = self._back(root * v)
        return root * self._forth(y), y

    def scatter_along(self, v: Floats) -> Floats:
        """Return v A'A v' for directions v in rows."""
        z = self._forth(np.ascontiguousarray(v.T))
        return np.asarray(z.T @ (self.share[:, None] * z))

    def _forth(self, v: Any) -> Any:
        """Return (x - mean) v, times the unit."""
        if sp.issparse(self.x):
            x, mean, unit = self._scaled(v.dtype.type)
            z = x @ v
            z -= mean @ v
            z *= unit
            return z
        z = np.empty((self.x.shape[0], v.shape[1]), v.dtype)
        for part, block in self._centred(v.dtype.type):
            np.matmul(block, v, out=z[part])
        return z

    def _back(self, z: Any) -> Any:
        """Return (x - mean)' z, times the unit."""
        if sp.issparse(self.x):
            x, mean, unit = self._scaled(z.dtype.type)
            y = x.T @ np.ascontiguousarray(z)
            ger = get_blas_funcs("ger", (y,))
            ger(-1.0, z.sum(axis=0), mean, a=y.T, overwrite_a=1)  # y -= outer(mean, sums), in place
            y *= unit
            return y
        y = np.zeros((self.x.shape[1], z.shape[1]), z.dtype)
        for part, block in self._centred(z.dtype.type):
            y += block.T @ z[part]
        return y

    def _scaled(self, precision: Precision) -> tuple[Any, Any, Any]:
        """Return sparse rows and the mean in this precision, and the factor that is left for the unit."""
        if precision is np.float64:
            return self.x, self.mean[0], self.unit
        return self._single_rows, (self.mean[0] * self.unit).astype(np.float32), np.float32(1.0)

    @cached_property
    def _single_rows(self) -> Any:
        """The rows times the unit in single precision: sparse rows as they are, dense rows centred."""
        if sp.issparse(self.x):
            x = self.x
            return type(x)(((x.data * self.unit).astype(np.float32), x.indices, x.indptr), shape=x.shape)
        single = np.empty(self.x.shape, np.float32)
        for part in _parts(self.x):
            single[part] = self._centred_part(part)
        return single

    def _centred(self, precision: Precision) -> Iterator[tuple[slice, Any]]:
        """Yield dense rows about the mean, times the unit, in parts."""
        copied = precision is np.float32 and self.x.size <= LARGEST_COPY
        for part in _parts(self.x):
            yield part, self._single_rows[part] if copied else self._centred_part(part).astype(precision, copy=False)

    def _centred_part(self, part: slice) -> Floats:
        block = self.x[part] - self.mean[0]
        if self._is_far:
            block -= self.mean[1]
        block *= self.unit
        return np.asarray(block)

    @cached_property
    def _is_far(self) -> bool:
        """Whether the mean is so far from the origin that the second part of its double-double form matters."""
        return bool(np.square(self.mean[1] * self.unit).sum() > EPS)


def _parts(x: Any) -> Iterator[slice]:
    """Yield slices of rows that are small enough for the cache."""
    step = max(1, BLOCK // x.shape[1])
    for start in range(0, x.shape[0], step):
        yield slice(start, min(start + step, x.shape[0]))


# -- the components of a sketch, with certified bounds


@dataclass(frozen=True)
class Analysis:
    """Principal components computed from a sketch. Scatter means variance times n - 1."""

    view: View
    ritz: Ritz | None
    second: bool  # whether the directions are those of the second sketch
    k: int
    scatter: Floats  # along each component
    lower: Floats  # bounds on the k + 1 largest eigenvalues of the exact scatter matrix
    upper: Floats
    certain: float  # lower bound on the scatter that all components together explain

    @classmethod
    def of(cls, sketch: Any, ritz: Ritz | None, wanted: Any) -> "Analysis":
        """Return the analysis of a sketch. `wanted` is k, a fraction of the variance, or None for all components."""
        view = sketch._leading(wanted + 1) if isinstance(wanted, int) else sketch._view
        values = view.eigenvalues if ritz is None else ritz.values
        k = count_components(values, view.squared_norm, wanted)
        lower, upper = view.bracket_eigenvalues(k + 1)
        certain, second = view.certain, isinstance(view, TwoSidedView) and ritz is None and view.upper_explains_more(k)
        if isinstance(view, TwoSidedView) and second:
            certain = np.maximum(view.upper_lam - view.upper_rounding, 0.0)
        if ritz is not None:  # Ritz values are never above eigenvalues (Cauchy)
            certain = np.maximum(ritz.values - ritz.rounding, 0.0)
            lower = np.maximum(lower, padded(certain, k + 1))
            known = min(k + 1, len(ritz.upper))
            upper[:known] = np.minimum(upper[:known], ritz.upper[:known])
            upper = np.maximum(upper, lower)
        missing = view.alpha if ritz is None else 0.0  # estimated scatter in directions that the sketch does not keep
        scatter = np.append(values[:k], np.full(max(0, k - len(values)), missing))
        return cls(view, ritz, second, k, scatter, lower, upper, float(certain[:k].sum()))

    @cached_property
    def directions(self) -> Floats:
        """The components, with the signs that scikit-learn's `svd_flip` gives them."""
        with one_blas_thread():
            if self.ritz is not None:
                v = self.ritz.directions[: self.k]
            elif isinstance(self.view, TwoSidedView) and self.second:
                v = self.view.upper_form()[: self.k]
            else:
                v = self.view.components[: self.k]
            return np.asarray(svd_flip(None, _completed(v, self.k).copy(), u_based_decision=False)[1])

    @property
    def error(self) -> float:
        """An upper bound on the distance of each scatter from the exact one."""
        off = np.maximum(self.upper[: self.k] - self.scatter, self.scatter - self.lower[: self.k])
        return float(off.max(initial=0.0))

    def angle(self, d: int) -> float:
        """Return an upper bound on ||sin Theta||_F for the spans of these and of the exact components."""
        k = self.k
        gap = float(self.lower[k - 1] - self.upper[k]) if 0 < k < d else 0.0
        trivial = float(np.sqrt(min(k, d - k)))
        return min(trivial, float(np.sqrt(self.excess / gap))) if gap > 0 else trivial

    @property
    def excess(self) -> float:
        """An upper bound on the squared projection error minus the smallest possible one."""
        return max(0.0, float(self.upper[: self.k].sum()) - self.certain)


def _completed(v: Floats, k: int) -> Floats:
    """Extend the orthonormal rows v to k orthonormal rows."""
    while len(v) < k:
        row = np.zeros(v.shape[1])
        row[np.argmin(np.einsum("ij,ij->j", v, v))] = 1.0  # squared distance from the span >= 1 - len(v) / d
        for _ in range(2):
            row -= (v @ row) @ v
        v = np.vstack([v, row / np.linalg.norm(row)])
    return v
