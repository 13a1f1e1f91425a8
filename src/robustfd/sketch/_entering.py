"""How rows enter a sketch: scaled by the root of their weight, or centred at the mean of the rows before them.

`enter` returns the entering rows E as a `DenseRows` or a `SparseRows`; both give the products a sketch needs,
the second without ever forming E.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy.linalg.blas import dger

from robustfd.linalg.decompose import combine
from robustfd.sketch._centring import LARGEST_DECAY, Centring, centred, is_lost, lengths, mean_at, moved, noise, shifted
from robustfd.sketch._rows import Floats, Rows, check_total, energy, raise_not_finite


@dataclass(frozen=True)
class DenseRows:
    """Entering rows as an array; with a centring they are what that makes of the array."""

    e: Floats
    centring: Centring | None = None
    terms: Floats | None = None  # the lengths of the terms that rows already centred were added up from

    def times(self, b: Floats) -> Floats:
        """Return E B'."""
        products = np.asarray((b @ self.e.T).T)  # in this order BLAS is a little faster
        return products if self.centring is None else self.centring.apply(products)

    def gram(self) -> Floats:
        """Return E E'; users read the lower triangle, the only one that sparse rows give."""
        gram = np.asarray(self.e @ self.e.T)
        return gram if self.centring is None else self.centring.apply(self.centring.apply(gram).T)

    def outer(self, t: Floats) -> Floats:
        """Return E' diag(t)^2 E."""
        e = self._faded(t)
        product = np.asarray(e.T @ e)
        if self.centring is not None:  # the scatter about the new mean, the array being relative to the old one
            shift = self.centring.to_mean @ self.e
            product -= self.centring.weight * np.outer(shift, shift)
        return product

    def outer_diagonal(self, t: Floats) -> Floats:
        """Return the diagonal of E' diag(t)^2 E."""
        e = self._faded(t)
        squares = np.einsum("ij,ij->j", e, e)
        if self.centring is not None:
            squares -= self.centring.weight * np.square(self.centring.to_mean @ self.e)
        return np.maximum(squares, 0.0)

    def _faded(self, t: Floats) -> Floats:
        scale = t if self.centring is None else t * self.centring.root
        return self.e if np.all(scale == 1.0) else np.asarray(scale[:, None] * self.e)

    def squared_norms(self) -> Floats:
        """Return the squared lengths of the rows."""
        return np.einsum("ij,ij->i", self.e, self.e)

    def term_lengths(self) -> Floats:
        """Return for each row the lengths of the terms that make it, added up: what its rounding is relative to."""
        if self.centring is not None:
            return self.centring.terms(lengths(self.e))
        return lengths(self.e) if self.terms is None else self.terms

    def add_to(self, out: Floats, c: Floats) -> None:
        """Add E' c to out, which is (d, r) in C order."""
        out += self.e.T @ c

    def combine(self, we: Floats, wb: Floats, b: Floats) -> Floats:
        """Return we E + wb B."""
        we = we if self.centring is None else self.centring.adjoint(we.T).T
        return combine(we, self.e, wb, np.ascontiguousarray(b))


@dataclass(frozen=True)
class SparseRows:
    """Entering rows E = diag(root) P, or those that a centring makes of P, with P sparse."""

    p: Any
    root: Floats
    centring: Centring | None
    mean: Floats | None

    def times(self, b: Floats) -> Floats:
        """Return E B'."""
        bt = np.ascontiguousarray(b.T)
        return self._entered(self.p @ bt, None if self.mean is None else self.mean @ bt)

    def gram(self) -> Floats:
        """Return E E', of which only the lower triangle is right."""
        from robustfd.linalg import sparse  # compiles loops: only who has sparse rows pays for it

        gram = sparse.gram(self.p)
        if self.mean is None:
            return gram if np.all(self.root == 1.0) else self.root[:, None] * gram * self.root
        assert self.centring is not None
        on_mean = self.p @ self.mean
        mean_on_mean = self._entered(on_mean[:, None], np.array([self.mean @ self.mean]))[:, 0]
        return sparse.centre_gram(gram, self.centring, on_mean, mean_on_mean)

    def outer(self, t: Floats) -> Floats:
        """Return E' diag(t)^2 E."""
        scale = t * self.root
        faded = self.p if np.all(scale == 1.0) else self.p.multiply(scale[:, None]).tocsr()
        product = np.asarray((faded.T @ faded).toarray())
        if self.centring is not None and self.mean is not None:  # as for dense rows: about the old mean, then the new
            mean, weight = self.mean, float(scale @ scale)
            off = self.p.T @ np.square(scale) - weight * mean
            # All at once, as a product of d x 4 matrices: the terms one by one are passes over a d x d matrix each.
            left = np.column_stack([mean, off, mean, off])
            right = np.column_stack([off, mean, weight * mean, off / self.centring.weight])
            product -= left @ right.T
        return product

    def outer_diagonal(self, t: Floats) -> Floats:
        """Return the diagonal of E' diag(t)^2 E."""
        p, weight = self.p, np.square(t * self.root)
        each = np.repeat(weight, np.diff(p.indptr))
        squares = np.bincount(p.indices, each * p.data**2, p.shape[1]).astype(np.float64)
        if self.centring is not None and self.mean is not None:  # as for dense rows: about the old mean, then the new
            off = np.bincount(p.indices, each * p.data, p.shape[1]) - weight.sum() * self.mean
            squares -= self.mean * (2.0 * off + weight.sum() * self.mean) + off * (off / self.centring.weight)
        return np.maximum(squares, 0.0)

    def squared_norms(self) -> Floats:
        """Return the squared lengths of the rows."""
        if self.centring is not None:
            return np.diag(self.gram())
        return np.asarray(self.p.multiply(self.p).sum(axis=1)).ravel() * self.root**2

    def term_lengths(self) -> Floats:
        """Return the same as for dense rows."""
        sizes = np.sqrt(np.asarray(self.p.multiply(self.p).sum(axis=1)).ravel())
        if self.centring is None or self.mean is None:
            return np.asarray(self.root * sizes)
        return self.centring.terms(sizes, float(np.linalg.norm(self.mean)))

    def add_to(self, out: Floats, c: Floats) -> None:
        """Add E' c to out, which is (d, r) in C order."""
        from robustfd.linalg import sparse

        if self.centring is None or self.mean is None:
            c = self.root[:, None] * c
        elif c.size:
            # In place: the outer product alone would be as large as the sketch.
            dger(1.0, self.centring.on_mean @ c, self.mean, a=out.T, overwrite_a=1)
            c = self.centring.adjoint(c)
        sparse.add_product(out, self.p, c)

    def combine(self, we: Floats, wb: Floats, b: Floats) -> Floats:
        """Return we E + wb B, as the transpose of a C-ordered array: a column of B is what sparse rows look up."""
        out = np.ascontiguousarray(b.T) @ wb.T
        self.add_to(out, we.T)
        return np.asarray(out.T)

    def _entered(self, products: Floats, of_mean: Floats | None) -> Floats:
        """Return E Y from P Y and mean' Y."""
        from robustfd.linalg import sparse

        if self.centring is None or of_mean is None:
            return np.asarray(self.root[:, None] * products)
        return sparse.centre(np.array(products, order="C"), self.centring, of_mean)


EnteringRows: TypeAlias = DenseRows | SparseRows


class Entrance:
    """Rows that come after others of this mean and weight, with their products: each made once, for all rules."""

    def __init__(self, rows: Rows, mean: Floats | None, weight: float):
        self.rows = rows
        self._before = mean, weight
        self._made: dict[Any, Any] = {}

    def entered(self, *, sparse: bool = False, formed: bool = True) -> tuple[EnteringRows, Floats | None, float]:
        """Return what `enter` does."""
        return self._once(
            ("entered", sparse, formed), lambda: enter(self.rows, *self._before, sparse=sparse, formed=formed)
        )

    def gram(self, *, sparse: bool) -> Floats:
        """Return E E', the rows not formed."""
        return self._once(("gram", sparse), lambda: self.entered(sparse=sparse, formed=False)[0].gram())

    def outer(self) -> Floats:
        """Return E' diag(t)^2 E, the rows not formed."""
        return self._once("outer", lambda: self.entered(formed=False)[0].outer(self.rows.fading()[1]))

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


def enter(
    rows: Rows, mean: Floats | None, weight: float, *, sparse: bool = False, formed: bool = True
) -> tuple[EnteringRows, Floats | None, float]:
    """Return (E, mean, weight): the rows that enter, and the mean (if centring) and the total weight after them.

    With `sparse` sparse rows stay so, unless centring them as such would lose too many digits. Where rows need not be
    `formed`, dense ones have their centring beside them, and it is the caller who looks at what is lost.
    """
    root = np.sqrt(rows.weight)
    if mean is not None:
        energy(rows)  # a first row that is too large would show only in the next
    if sparse and rows.is_sparse and (mean is None or rows.fades() <= LARGEST_DECAY):
        p, new_mean, total = _entering_sparse(rows, root, mean, weight)
        t = rows.fading()[1]
        if not formed or mean is None or not is_lost(noise(p.term_lengths(), t), p.outer_diagonal(t).sum()):
            return p, new_mean, total
    if mean is not None and formed:
        e, terms, mean, weight = centred(rows, mean, weight)
        return DenseRows(e, terms=terms), mean, weight
    if mean is not None:
        y, centring, mean = shifted(rows.dense(), rows, mean, weight)
        return DenseRows(y, centring), mean, centring.weight
    x = rows.dense()
    return DenseRows(x if np.all(root == 1.0) else x * root[:, None]), None, _total_weight(rows, weight)


def _entering_sparse(
    rows: Rows, root: Floats, mean: Floats | None, weight: float
) -> tuple[SparseRows, Floats | None, float]:
    p = rows.x.astype(np.float64)
    if mean is None:
        return SparseRows(p, root, None, None), None, _total_weight(rows, weight)
    centring, shift = Centring.of(rows, weight), _shift(p, mean[0], weight)
    mean = mean if weight > 0 else mean_at(shift)
    off = (mean[0] - shift) + mean[1]
    step = p.T @ centring.to_mean - centring.to_mean.sum() * off
    return SparseRows(p, root, centring, off), moved(mean, step), centring.weight


def _shift(p: Any, mean: Floats, weight: float) -> Floats:
    """Subtract from p, in place, what its full columns can be shifted by without a zero becoming something else.

    Centring does not see a shift, but a column like 1e7 + noise would lose the noise in the products of raw rows.
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


def grown(norm: float, e: EnteringRows, rows: Rows) -> float:
    """Return the squared norm of all rows after E has entered; raise if it is not finite, saying what is wrong."""
    s, t = rows.fading()
    if isinstance(e, DenseRows) and np.all(t == 1.0):
        new = float(np.vdot(e.e, e.e))
    else:
        new = float(e.squared_norms() @ (t * t))
    if not np.isfinite(new):
        raise_not_finite(rows.x)
    return check_total(s * s * norm + new, slack=10)  # centred rows, let in before, can be twice as long
