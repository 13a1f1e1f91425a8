"""How rows enter a sketch: scaled by the root of their weight, or centred at the mean of the rows before them.

`enter` returns the entering rows E as a `DenseRows` or a `SparseRows`; both give the products a sketch needs,
the second without ever forming E.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from robustfd.linalg.decompose import combine
from robustfd.sketch._rows import Floats, Rows, check_total, energy, raise_not_finite

LARGEST_DECAY = 600.0  # exp of more would overflow
CHUNK = 64  # dense rows centred at once


@dataclass(frozen=True)
class Centring:
    """What k rows a_0, a_1, ... enter as when each is centred at the mean of all rows before it.

    Row t enters as sqrt(w n / (n + w)) (a_t - mean), n the (decayed) weight before it. That is linear in the
    rows, e_t = own_t a_t - on_rows_t (sum of share_s a_s over s < t) + on_mean_t mean, mean the one before all
    of them, so running sums apply it, to the rows themselves or to any products of them.
    """

    root: Floats  # of the weights
    own: Floats
    share: Floats
    on_rows: Floats
    on_mean: Floats
    to_mean: Floats  # the new mean is to_mean a + mean_to_mean mean
    mean_to_mean: float
    weight: float

    @classmethod
    def of(cls, rows: Rows, weight: float) -> "Centring":
        """Return the centring of these rows after others of total weight `weight`."""
        log = np.cumsum(np.log(rows.decay))
        share, old = rows.weight * np.exp(-log), weight * np.exp(log)
        sums = np.cumsum(share)
        before = np.exp(log) * np.concatenate([[0.0], sums[:-1]]) + old
        after = before + rows.weight
        own = np.sqrt(rows.weight * (before / after))  # in this order, or tiny and huge weights are lost
        per_unit = np.divide(own, before, out=np.zeros_like(before), where=before > 0)
        to_mean = share * np.exp(log[-1]) / after[-1]
        return cls(
            np.sqrt(rows.weight),
            own,
            share,
            per_unit * np.exp(log),
            -per_unit * old,
            to_mean,
            old[-1] / after[-1],
            after[-1],
        )

    def apply(self, y: Floats, of_mean: Floats | None = None) -> Floats:
        """Return what the rows enter as, y being the rows (or products of them) and of_mean the mean (or its), or 0."""
        sums = np.cumsum(self.share[:-1, None] * y[:-1], axis=0)
        sums *= self.on_rows[1:, None]
        entered = self.own[:, None] * y
        entered[1:] -= sums
        if of_mean is not None:
            entered += np.outer(self.on_mean, of_mean)
        return entered

    def adjoint(self, c: Floats) -> Floats:
        """Return c as coefficients of the raw rows, given as coefficients of the entering ones."""
        sums = np.cumsum((self.on_rows[1:, None] * c[1:])[::-1], axis=0)[::-1]
        raw = self.own[:, None] * c
        raw[:-1] -= self.share[:-1, None] * sums
        return np.asarray(raw)


def _centred(rows: Rows, mean: Floats, weight: float) -> tuple[Floats, Floats, float]:
    """Return the dense entering rows, the new mean and the total weight, shifted so that a large mean cancels."""
    x, start = rows.dense(), 0
    entered = np.empty_like(x)
    while start < len(rows):
        part = rows[start : _safe_stop(rows, start)]
        stop = start + len(part)
        y, centring, mean = _shifted(x[start:stop], part, mean, weight)
        # As a matrix, since a product is faster than running sums.
        np.matmul(centring.apply(np.eye(len(part))), y, out=entered[start:stop])
        weight, start = centring.weight, stop
    return entered, mean, weight


def _shifted(x: Floats, rows: Rows, mean: Floats, weight: float) -> tuple[Floats, Centring, Floats]:
    """Return (y, centring, new mean): y is x minus the mean, or minus a row if there is no mean yet."""
    centring = Centring.of(rows, weight)
    shift = mean if weight > 0 else x[0]  # any vector does, a near one is exact
    y = x - shift
    return y, centring, shift + centring.to_mean @ y


def _safe_stop(rows: Rows, start: int) -> int:
    """Return where to stop so that the decay from start on stays within what exp can hold, a row at least."""
    if rows.decay.min() == 1.0:
        return start + CHUNK
    log = np.cumsum(np.log(rows.decay[start : start + CHUNK]))
    return start + max(1, int(np.searchsorted(-log, LARGEST_DECAY)))


@dataclass(frozen=True)
class DenseRows:
    """Entering rows as an array; with a centring they are what that makes of the array."""

    e: Floats
    centring: Centring | None = None

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
        gram += np.tril(gram, -1).T
        on_mean = self.p @ self.mean
        mean_on_mean = self._entered(on_mean[:, None], np.array([self.mean @ self.mean]))[:, 0]
        return self._entered(self._entered(gram, on_mean).T, mean_on_mean)

    def outer(self, t: Floats) -> Floats:
        """Return E' diag(t)^2 E, for rows that are not centred."""
        assert self.centring is None
        faded = self.p.multiply((t * self.root)[:, None]).tocsr()
        return np.asarray((faded.T @ faded).toarray())

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

    def add_to(self, out: Floats, c: Floats) -> None:
        """Add E' c to out, which is (d, r) in C order."""
        from robustfd.linalg import sparse

        if self.centring is None or self.mean is None:
            c = self.root[:, None] * c
        else:
            out += np.outer(self.mean, self.centring.on_mean @ c)
            c = self.centring.adjoint(c)
        sparse.add_product(out, self.p, c)

    def combine(self, we: Floats, wb: Floats, b: Floats) -> Floats:
        """Return we E + wb B, as the transpose of a C-ordered array: a column of B is what sparse rows look up."""
        out = np.ascontiguousarray(b.T) @ wb.T
        self.add_to(out, we.T)
        return np.asarray(out.T)

    def _entered(self, products: Floats, of_mean: Floats | None) -> Floats:
        """Return E Y from P Y and mean' Y."""
        if self.centring is None or of_mean is None:
            return np.asarray(self.root[:, None] * products)
        return self.centring.apply(products, of_mean)


EnteringRows: TypeAlias = DenseRows | SparseRows


def enter(
    rows: Rows, mean: Floats | None, weight: float, *, sparse: bool = False, formed: bool = True
) -> tuple[EnteringRows, Floats | None, float]:
    """Return (E, mean, weight): the rows that enter, and the mean (if centring) and the total weight after them.

    With `sparse` sparse rows stay so; unless they are to be `formed`, dense ones have their centring beside them.
    """
    root = np.sqrt(rows.weight)
    if mean is not None:
        energy(rows)  # a first row that is too large would show only in the next
    if sparse and rows.is_sparse and (mean is None or rows.fades() <= LARGEST_DECAY):
        p = rows.x.astype(np.float64)
        if mean is None:
            return SparseRows(p, root, None, None), None, _total_weight(rows, weight)
        centring, shift = Centring.of(rows, weight), _shift(p, mean, weight)
        mean = mean - shift if weight > 0 else np.zeros_like(mean)
        new_mean = shift + centring.mean_to_mean * mean + p.T @ centring.to_mean
        return SparseRows(p, root, centring, mean), new_mean, centring.weight
    if mean is not None and formed:
        e, mean, weight = _centred(rows, mean, weight)
        return DenseRows(e), mean, weight
    if mean is not None:
        y, centring, mean = _shifted(rows.dense(), rows, mean, weight)
        return DenseRows(y, centring), mean, centring.weight
    x = rows.dense()
    return DenseRows(x if np.all(root == 1.0) else x * root[:, None]), None, _total_weight(rows, weight)


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
