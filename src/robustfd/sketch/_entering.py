"""How rows enter a sketch: scaled by the root of their weight, or centred at the mean of the rows before them.

`enter` returns the entering rows E as a `DenseRows` or a `SparseRows`; both give the products a sketch needs,
the second without ever forming E.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from robustfd.sketch._rows import Floats, Rows, raise_not_finite


@dataclass(frozen=True)
class Centring:
    """What k rows a_0, a_1, ... enter as when each is centred at the mean of all rows before it.

    Row t enters as sqrt(w n / (n + w)) (a_t - mean), n the (decayed) weight before it. That is linear in the
    rows, so with y_t = a_t - c for any shift c the entering rows are `matrix @ y + outer(on_mean, mean - c)`
    and the new mean is `c + to_mean @ y + mean_to_mean (mean - c)`.
    """

    matrix: Floats
    on_mean: Floats
    to_mean: Floats
    mean_to_mean: float
    weight: float

    @classmethod
    def of(cls, rows: Rows, weight: float) -> "Centring":
        """Return the centring of these rows after others of total weight `weight`."""
        log = np.cumsum(np.log(rows.decay))
        share = np.tril(np.exp(np.minimum(log[:, None] - log, 0.0)) * rows.weight)  # of row s when t has entered
        old = weight * np.exp(log)
        before = old + np.tril(share, -1).sum(axis=1)
        after = before + rows.weight
        entering = np.sqrt(rows.weight * before / after)
        per_unit = np.divide(entering, before, out=np.zeros_like(before), where=before > 0)
        matrix = np.diag(entering) - per_unit[:, None] * np.tril(share, -1)
        return cls(matrix, -per_unit * old, share[-1] / after[-1], old[-1] / after[-1], float(after[-1]))

    def dense(self, x: Floats, mean: Floats) -> tuple[Floats, Floats]:
        """Return the entering rows and the new mean, shifting first so that a large mean cancels exactly."""
        c = mean if self.mean_to_mean > 0 else x[0]
        y = x - c
        return self.matrix @ y, c + self.to_mean @ y


@dataclass(frozen=True)
class DenseRows:
    """Entering rows as an array."""

    e: Floats

    def times(self, bt: Floats) -> Floats:
        """Return E B' for B' of shape (d, r)."""
        return np.asarray(self.e @ bt)

    def gram(self) -> Floats:
        """Return E E'; users read the lower triangle, the only one that sparse rows give."""
        return np.asarray(self.e @ self.e.T)

    def squared_norms(self) -> Floats:
        """Return the squared lengths of the rows."""
        return np.einsum("ij,ij->i", self.e, self.e)

    def add_to(self, out: Floats, c: Floats) -> None:
        """Add E' c to out, which is (d, r) in C order."""
        out += self.e.T @ c


@dataclass(frozen=True)
class SparseRows:
    """Entering rows E = M P + on_mean mean' with P sparse; M is diagonal unless rows are centred."""

    p: Any
    root: Floats
    centring: Centring | None
    mean: Floats | None

    def times(self, bt: Floats) -> Floats:
        """Return E B' for B' of shape (d, r)."""
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
            c = self.centring.matrix.T @ c
        sparse.add_product(out, self.p, c)

    def _entered(self, products: Floats, of_mean: Floats | None) -> Floats:
        """Return E Y from P Y and mean' Y."""
        if self.centring is None or of_mean is None:
            return np.asarray(self.root[:, None] * products)
        return np.asarray(self.centring.matrix @ products + np.outer(self.centring.on_mean, of_mean))


EnteringRows: TypeAlias = DenseRows | SparseRows


def enter(
    rows: Rows, mean: Floats | None, weight: float, *, sparse: bool = False
) -> tuple[EnteringRows, Floats | None, float]:
    """Return (E, mean, weight): the rows that enter, and the mean (if centring) and the total weight after them."""
    centring = None if mean is None else Centring.of(rows, weight)
    after = _total_weight(rows, weight) if centring is None else centring.weight
    root = np.sqrt(rows.weight)
    if sparse and rows.is_sparse:
        p = rows.x.astype(np.float64)
        e = SparseRows(p, root, centring, mean)
        if centring is not None and mean is not None:
            mean = centring.mean_to_mean * mean + p.T @ centring.to_mean
        return e, mean, after
    x = rows.dense()
    if centring is not None and mean is not None:
        x, mean = centring.dense(x, mean)
    elif np.any(root != 1.0):
        x = x * root[:, None]
    return DenseRows(x), mean, after


def _total_weight(rows: Rows, weight: float) -> float:
    log = np.cumsum(np.log(rows.decay))
    return float(weight * np.exp(log[-1]) + rows.weight @ np.exp(log[-1] - log))


def squared_norm(e: EnteringRows, t: Floats, rows: Rows) -> float:
    """Return ||diag(t) E||_F^2 in float64; raise if it is not finite, saying what is wrong with the raw rows."""
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(e, DenseRows) and np.all(t == 1.0):
            total = float(np.vdot(e.e, e.e))
        else:
            total = float(e.squared_norms() @ (t * t))
    if not np.isfinite(total):
        raise_not_finite(rows.x)
    return total
