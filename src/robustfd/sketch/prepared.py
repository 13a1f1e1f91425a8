"""Prepare rows for a sketch: scale them by the square root of their weight, or centre them at the mean before them.

`prepare` returns the prepared rows E as `DenseRows` or `SparseRows`. Both compute the products that a sketch needs;
`SparseRows` does so without forming E.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from scipy.linalg.blas import dger

import robustfd._core as _core
from robustfd.linalg.decompose import combine
from robustfd.sketch.centring import (
    MAX_LOG_DECAY,
    Centring,
    centre_rows,
    exact_mean,
    has_cancelled,
    noise,
    row_lengths,
    shift_mean,
    shift_rows,
)
from robustfd.sketch.rows import Floats, Rows, check_total, energy, raise_not_finite

PANEL = 2**17  # entries of a tall matrix that are multiplied at a time: they fit in the cache


@dataclass(frozen=True)
class DenseRows:
    """Prepared rows E as an array. If `centring` is set, E is that map applied to the array."""

    e: Floats
    centring: Centring | None = None
    terms: Floats | None = None  # for rows already centred: the lengths of the terms that were summed

    def times(self, b: Floats) -> Floats:
        """Return E B'."""
        products = np.asarray((b @ self.e.T).T)  # BLAS is slightly faster in this order
        return products if self.centring is None else self.centring.apply(products)

    def gram(self) -> Floats:
        """Return E E'. Callers read the lower triangle only, because `SparseRows.gram` fills no more."""
        gram = np.asarray(self.e @ self.e.T)
        return gram if self.centring is None else self.centring.apply(self.centring.apply(gram).T)

    def outer(self, t: Floats) -> Floats:
        """Return E' diag(t)^2 E."""
        e = self._faded(t)
        product = np.asarray(e.T @ e)
        if self.centring is not None:  # the array is relative to the old mean; correct to the scatter about the new one
            shift = self.centring.mean_step @ self.e
            product -= self.centring.weight * np.outer(shift, shift)
        return product

    def outer_diagonal(self, t: Floats) -> Floats:
        """Return the diagonal of E' diag(t)^2 E."""
        e = self._faded(t)
        squares = np.einsum("ij,ij->j", e, e)
        if self.centring is not None:
            squares -= self.centring.weight * np.square(self.centring.mean_step @ self.e)
        return np.maximum(squares, 0.0)

    def _faded(self, t: Floats) -> Floats:
        scale = t if self.centring is None else t * self.centring.root
        return self.e if np.all(scale == 1.0) else np.asarray(scale[:, None] * self.e)

    def squared_norms(self) -> Floats:
        """Return the squared lengths of the rows."""
        return np.einsum("ij,ij->i", self.e, self.e)

    def term_lengths(self) -> Floats:
        """Return, for each row, the sum of the lengths of its terms. Its rounding error is relative to this."""
        if self.centring is not None:
            return self.centring.terms(row_lengths(self.e))
        return row_lengths(self.e) if self.terms is None else self.terms

    def add_to(self, out: Floats, c: Floats) -> None:
        """Add E' c to out, which is (d, r) in C order."""
        out += self.e.T @ c

    def combine(self, we: Floats, wb: Floats, b: Floats, *, overwrite: bool = False) -> Floats:
        """Return we E + wb B. `overwrite` has no effect here."""
        we = we if self.centring is None else self.centring.adjoint(we.T).T
        return combine(we, self.e, wb, np.ascontiguousarray(b))


@dataclass(frozen=True)
class SparseRows:
    """Prepared rows E = diag(root) P, or a centring applied to P, with P sparse."""

    p: Any
    root: Floats
    centring: Centring | None
    mean: Floats | None

    @cached_property
    def _columns(self) -> tuple[Any, Any, Any, Any]:
        """P by columns: each row of a dense matrix with one row per column of P is then read from memory once."""
        matrix = self.p.tocsc().astype(np.float64, copy=False)
        return matrix, matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data

    def times(self, b: Floats) -> Floats:
        """Return E B'."""
        bt, (matrix, starts, rows, data) = np.ascontiguousarray(b.T), self._columns
        products = np.zeros((matrix.shape[0], len(b)))
        _core.sparse_add_product(starts[:-1], starts[1:], rows, data, bt, products)
        return self._apply_centring(products, None if self.mean is None else self.mean @ bt)

    def gram(self) -> Floats:
        """Return E E'. Only the lower triangle is valid."""
        gram, c = self._raw_gram(), self.centring
        if self.mean is None or c is None:
            return gram if np.all(self.root == 1.0) else self.root[:, None] * gram * self.root
        row_products = self.p @ self.mean
        mean_products = self._apply_centring(row_products[:, None].copy(), np.array([self.mean @ self.mean]))[:, 0]
        _core.centre_gram(c.scale, c.share, c.rows_coef, c.mean_coef, row_products, mean_products, gram)
        return gram

    def _raw_gram(self) -> Floats:
        """Return the lower triangle of P P'. The cost is proportional to the sum of the squared column counts."""
        matrix, starts, rows, data = self._columns
        n, stops = matrix.shape[0], starts[1:].copy()
        gram, common = np.zeros((n, n)), np.flatnonzero(np.diff(starts) > max(n // 8, 8))
        if len(common):  # columns with entries in many rows (common words in text data) are faster as a dense product
            _core.fill_gram(matrix[:, common].toarray(order="F"), gram)
            stops[common] = starts[common]
        _core.sparse_add_gram(starts[:-1], stops, rows, data, gram)
        return gram

    def outer(self, t: Floats) -> Floats:
        """Return E' diag(t)^2 E."""
        scale = t * self.root
        faded = self.p if np.all(scale == 1.0) else self.p.multiply(scale[:, None]).tocsr()
        product = np.asarray((faded.T @ faded).toarray())
        if self.centring is not None and self.mean is not None:  # as for dense rows: about the old mean, then the new
            mean, weight = self.mean, float(scale @ scale)
            offset = self.p.T @ np.square(scale) - weight * mean
            # One product of d x 4 matrices: adding the terms one at a time would take a pass over the d x d matrix for
            # each.
            left = np.column_stack([mean, offset, mean, offset])
            right = np.column_stack([offset, mean, weight * mean, offset / self.centring.weight])
            product -= left @ right.T
        return product

    def outer_diagonal(self, t: Floats) -> Floats:
        """Return the diagonal of E' diag(t)^2 E."""
        p, weight = self.p, np.square(t * self.root)
        each = np.repeat(weight, np.diff(p.indptr))
        squares = np.bincount(p.indices, each * p.data**2, p.shape[1]).astype(np.float64)
        if self.centring is not None and self.mean is not None:  # as for dense rows: about the old mean, then the new
            offset = np.bincount(p.indices, each * p.data, p.shape[1]) - weight.sum() * self.mean
            squares -= self.mean * (2.0 * offset + weight.sum() * self.mean) + offset * (offset / self.centring.weight)
        return np.maximum(squares, 0.0)

    def squared_norms(self) -> Floats:
        """Return the squared lengths of the rows."""
        if self.centring is not None:
            return np.diag(self.gram())
        return np.asarray(self.p.multiply(self.p).sum(axis=1)).ravel() * self.root**2

    def term_lengths(self) -> Floats:
        """Return the same as `DenseRows.term_lengths`."""
        sizes = np.sqrt(np.asarray(self.p.multiply(self.p).sum(axis=1)).ravel())
        if self.centring is None or self.mean is None:
            return np.asarray(self.root * sizes)
        return self.centring.terms(sizes, float(np.linalg.norm(self.mean)))

    def add_to(self, out: Floats, c: Floats) -> None:
        """Add E' c to out, which is (d, r) in C order."""
        raw, mean_coef = self._raw(c)
        self._add_panel(out, 0, raw, mean_coef)

    def combine(self, we: Floats, wb: Floats, b: Floats, *, overwrite: bool = False) -> Floats:
        """Return we E + wb B as the transpose of a C-ordered array, because sparse rows access whole columns of B.

        With `overwrite`, the result may use the memory of B.
        """
        bt, (raw, mean_coef) = np.ascontiguousarray(b.T), self._raw(we.T)
        out = bt if overwrite and wb.shape[0] == wb.shape[1] else np.empty((len(bt), len(wb)))
        step = PANEL // max(len(wb), 1) + 1
        scratch = np.empty((step, len(wb)))
        for start in range(0, len(bt), step):
            part = slice(start, start + step)
            panel = np.matmul(bt[part], wb.T, out=scratch[: len(bt[part])])
            self._add_panel(panel, start, raw, mean_coef)
            out[part] = panel
        return np.asarray(out.T)

    def _raw(self, c: Floats) -> tuple[Floats, Floats | None]:
        """Return coefficients of the rows of P and of the mean that give the same sum as coefficients c of E."""
        if self.centring is None or self.mean is None:
            return np.ascontiguousarray(self.root[:, None] * c), None
        return np.ascontiguousarray(self.centring.adjoint(c)), self.centring.mean_coef @ c

    def _add_panel(self, out: Floats, start: int, raw: Floats, mean_coef: Floats | None) -> None:
        """Add rows start, start + 1, ... of P' raw + mean mean_coef' to out."""
        if mean_coef is not None and self.mean is not None and out.size:
            # In place, because the outer product may be as large as the sketch.
            dger(1.0, mean_coef, self.mean[start : start + len(out)], a=out.T, overwrite_a=1)
        _, starts, rows, data = self._columns
        _core.sparse_add_transposed(starts[start:][: len(out)], starts[start + 1 :][: len(out)], rows, data, raw, out)

    def _apply_centring(self, products: Floats, mean_products: Floats | None) -> Floats:
        """Return E Y from P Y, which is overwritten, and mean' Y."""
        c = self.centring
        if c is None or mean_products is None:
            return np.asarray(self.root[:, None] * products)
        # As `Centring.apply`, in one pass over the products where numpy needs several.
        _core.centre(c.scale, c.share, c.rows_coef, c.mean_coef, np.ascontiguousarray(mean_products), products)
        return products


PreparedRows: TypeAlias = DenseRows | SparseRows


class PreparedBatch:
    """Rows to be added after others of this mean and weight. Their products are computed once and cached."""

    def __init__(self, rows: Rows, mean: Floats | None, weight: float):
        self.rows = rows
        self._before = mean, weight
        self._made: dict[Any, Any] = {}

    def prepared(self, *, sparse: bool = False, formed: bool = True) -> tuple[PreparedRows, Floats | None, float]:
        """Return the result of `prepare` for these rows."""
        return self._once(
            ("prepared", sparse, formed), lambda: prepare(self.rows, *self._before, sparse=sparse, formed=formed)
        )

    def gram(self, *, sparse: bool) -> Floats:
        """Return E E' without forming E."""
        return self._once(("gram", sparse), lambda: self.prepared(sparse=sparse, formed=False)[0].gram())

    def outer(self) -> Floats:
        """Return E' diag(t)^2 E without forming E."""
        return self._once("outer", lambda: self.prepared(formed=False)[0].outer(self.rows.decay_scales()[1]))

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


def prepare(
    rows: Rows, mean: Floats | None, weight: float, *, sparse: bool = False, formed: bool = True
) -> tuple[PreparedRows, Floats | None, float]:
    """Return (E, mean, weight): the prepared rows, the mean (with centring) and the total weight after them.

    With `sparse=True`, sparse rows stay sparse unless centring them would lose too many digits. With `formed=False`,
    dense rows are not centred explicitly but stored with their `Centring`; the caller must check for cancellation.
    """
    root = np.sqrt(rows.weight)
    if mean is not None:
        energy(rows)  # check now: centring hides a first row that is too large until the next one
    if sparse and rows.is_sparse and (mean is None or rows.neg_log_decay() <= MAX_LOG_DECAY):
        p, new_mean, total = _prepare_sparse(rows, root, mean, weight)
        t = rows.decay_scales()[1]
        if not formed or mean is None or not has_cancelled(noise(p.term_lengths(), t), p.outer_diagonal(t).sum()):
            return p, new_mean, total
    if mean is not None and formed:
        e, terms, mean, weight = centre_rows(rows, mean, weight)
        return DenseRows(e, terms=terms), mean, weight
    if mean is not None:
        y, centring, mean = shift_rows(rows.dense(), rows, mean, weight)
        return DenseRows(y, centring), mean, centring.weight
    x = rows.dense()
    return DenseRows(x if np.all(root == 1.0) else x * root[:, None]), None, _total_weight(rows, weight)


def _prepare_sparse(
    rows: Rows, root: Floats, mean: Floats | None, weight: float
) -> tuple[SparseRows, Floats | None, float]:
    p = rows.x.astype(np.float64)
    if mean is None:
        return SparseRows(p, root, None, None), None, _total_weight(rows, weight)
    centring, shift = Centring.of(rows, weight), _shift(p, mean[0], weight)
    mean = mean if weight > 0 else exact_mean(shift)
    offset = (mean[0] - shift) + mean[1]
    step = p.T @ centring.mean_step - centring.mean_step.sum() * offset
    return SparseRows(p, root, centring, offset), shift_mean(mean, step), centring.weight


def _shift(p: Any, mean: Floats, weight: float) -> Floats:
    """Shift the columns of p that have no zeros towards the origin, in place, and return the shift.

    Centring is invariant under a shift. Without it, a column like 1e7 + noise would lose the noise in products of raw
    rows. Columns with zeros stay, because a shift would fill them.
    """
    shift = np.zeros_like(mean)
    full = np.bincount(p.indices, minlength=p.shape[1]) == p.shape[0]
    if full.any():
        shift[full] = mean[full] if weight > 0 else p[[0]].toarray().ravel()[full]
        p.data -= shift[p.indices]
    return shift


def _total_weight(rows: Rows, weight: float) -> float:
    if rows.decay.min() == 1.0:
        return weight + float(rows.weight.sum())
    log = np.cumsum(np.log(rows.decay))
    return float(weight * np.exp(log[-1]) + rows.weight @ np.exp(log[-1] - log))


def updated_norm(norm: float, e: PreparedRows, rows: Rows) -> float:
    """Return the squared norm of all rows after adding E. Raise a ValueError with the cause if it is not finite."""
    s, t = rows.decay_scales()
    if isinstance(e, DenseRows) and np.all(t == 1.0):
        new = float(np.vdot(e.e, e.e))
    else:
        new = float(e.squared_norms() @ (t * t))
    if not np.isfinite(new):
        raise_not_finite(rows.x)
    return check_total(s * s * norm + new, slack=10)  # centring can make accepted rows twice as long
