"""Rows on their way into a sketch: with weights, forgetting and centring (maths in docs/mathematics.md)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LARGEST_NORM = 1e306
Matrix: TypeAlias = Any  # a 2-d ndarray, or a CSR matrix or array


@dataclass(frozen=True)
class Rows:
    """k rows; before row t enters, everything older is multiplied by decay[t]; it enters with weight[t]."""

    x: Matrix
    weight: Floats
    decay: Floats
    clock: Floats | None = None  # when each row came, for sketches of a window

    def __len__(self) -> int:
        return len(self.weight)

    def __getitem__(self, rows: Any) -> "Rows":  # a slice or a mask
        clock = None if self.clock is None else self.clock[rows]
        return Rows(self.x[rows], self.weight[rows], self.decay[rows], clock)

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are a CSR matrix."""
        return bool(sp.issparse(self.x))

    @property
    def nnz(self) -> int:
        """How many numbers are stored."""
        return int(self.x.nnz if self.is_sparse else self.x.size)

    def owned(self) -> "Rows":
        """Return the same rows, floating point and in memory that no caller can change."""
        dtype = self.x.dtype if self.x.dtype in (np.float32, np.float64) else np.float64
        x = self.x.copy() if self.is_sparse else np.array(self.x, dtype=dtype, order="C")
        return Rows(x, self.weight.copy(), self.decay.copy(), None if self.clock is None else self.clock.copy())

    def dense(self) -> Floats:
        """Return the raw rows as a C-ordered array."""
        x = self.x.toarray() if self.is_sparse else self.x
        return np.ascontiguousarray(x, dtype=np.float64)

    def fades(self) -> float:
        """Return minus the logarithm of all decays together."""
        return -float(np.log(self.decay).sum())

    def fading(self, start: int = 0, stop: int | None = None) -> tuple[float, Floats]:
        """Return (s, t) for rows start to stop: what is older is scaled by s, row start + i by t[i]."""
        decay = self.decay[start:stop]
        if decay.min() == 1.0:
            return 1.0, np.ones(len(decay))
        # From the newest row on: those that count most have the fewest rounding errors. Sums of logarithms have more.
        product = np.cumprod(np.sqrt(decay[::-1]))[::-1]
        return float(product[0]), np.append(product[1:], 1.0)


def concatenate(pieces: Sequence[Rows]) -> Rows:
    """Return one Rows; sparse if all are, without a copy if there is only one."""
    if len(pieces) == 1:
        return pieces[0]
    if all(piece.is_sparse for piece in pieces):
        x = sp.vstack([piece.x for piece in pieces], format="csr")
    else:
        x = np.concatenate([piece.x.toarray() if piece.is_sparse else piece.x for piece in pieces])
    weight, decay = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("weight", "decay"))
    clocks = [piece.clock for piece in pieces if piece.clock is not None]
    return Rows(x, weight, decay, np.concatenate(clocks) if clocks else None)


@dataclass(frozen=True)
class Queue:
    """Rows that wait for a shrink, in the pieces they came in; the first `skip` rows have been taken."""

    pieces: tuple[Rows, ...] = ()
    rows: int = 0
    nnz: int = 0
    is_sparse: bool = True
    energy: float = 0.0  # weighted sum of squares of the rows, or more
    skip: int = 0

    def __len__(self) -> int:
        return self.rows

    def plus(self, rows: Rows) -> "Queue":
        """Return the queue with these rows at its end."""
        if len(rows) == 0:
            return self
        sparse = self.is_sparse and rows.is_sparse
        return Queue((*self.pieces, rows), self.rows + len(rows), self.nnz + rows.nnz, sparse, self.energy, self.skip)

    def take(self, k: int) -> tuple[Rows, "Queue"]:
        """Return the first k rows and the queue without them."""
        if self.skip + k < len(self.pieces[0]):  # all of one piece, and not the end of it
            rows = self.pieces[0][self.skip : self.skip + k]
            energy, nnz = self.energy if len(self.pieces) > 1 else 0.0, self.nnz - rows.nnz
            return rows, Queue(self.pieces, self.rows - k, nnz, self.is_sparse, energy, self.skip + k)
        head, pieces, skip, left = [], list(self.pieces[::-1]), self.skip, k
        while left > 0:
            piece = pieces[-1][skip : skip + left]  # what remains of a piece is never sliced, as CSR would copy it
            head.append(piece)
            left -= len(piece)
            skip += len(piece)
            if skip == len(pieces[-1]):
                pieces.pop()
                skip = 0
        rows, nnz = concatenate(head), self.nnz - sum(piece.nnz for piece in head)
        sparse = all(piece.is_sparse for piece in pieces)
        energy = self.energy if len(pieces) > 1 else 0.0  # of the pieces before the newest
        return rows, Queue(tuple(pieces[::-1]), self.rows - k, nnz, sparse, energy, skip)

    def clocks(self, most: int) -> Floats:
        """Return the clocks of the first rows, `most` or as many as there are."""
        found, left, skip = [np.zeros(0)], most, self.skip
        for piece in self.pieces:
            if left <= 0:
                break
            assert piece.clock is not None
            found.append(piece.clock[skip : skip + left])
            left, skip = left - len(found[-1]), 0
        return np.concatenate(found)

    def all(self) -> Rows:
        """Return every row in one piece."""
        return self.take(len(self))[0]

    def owned(self, norm: float) -> "Queue":
        """Return the queue with its newest rows checked, and in memory that no caller can change.

        They must not be too large together with those before them, whose squared norm is `norm`.
        """
        if not self.pieces:
            return self
        *older, newest = self.pieces
        skip = self.skip
        if not older:
            newest, skip = newest[skip:], 0
        total = self.energy + energy(newest)
        check_total(norm + total)
        return Queue((*older, newest.owned()), self.rows, self.nnz, self.is_sparse, total, skip)


class Unread(NamedTuple):
    """Everything a sketch holds: a state, the rows that wait, and what both are to be multiplied by."""

    state: Any
    queue: Queue
    factor: float


def energy(rows: Rows) -> float:
    """Return the weighted sum of squares of raw rows; raise a ValueError unless it is finite."""
    x, weight = rows.x, rows.weight
    if rows.is_sparse:
        squares = np.square(x.data, dtype=np.float64)
        total = float(squares @ np.repeat(weight, np.diff(x.indptr)))
    else:
        total = float(np.einsum("ij,ij->i", x, x, dtype=np.float64, casting="unsafe") @ weight)
    if not np.isfinite(total):
        raise_not_finite(x)
    return total


def check_total(norm: float, slack: float = 1.0) -> float:
    """Return the squared norm of all rows; raise if it is so large that arithmetic with it overflows."""
    if not norm < slack * LARGEST_NORM:
        raise ValueError(
            "Input X is too large together with the rows before: the squared norm of all rows "
            f"would be above {LARGEST_NORM:g}, and float64 overflows. Scale the rows."
        )
    return norm


def raise_not_finite(x: Matrix) -> NoReturn:
    """Raise the ValueError that says what is wrong with these numbers."""
    values = x.data if sp.issparse(x) else x
    if np.isnan(values).any():
        raise ValueError("Input X contains NaN. Impute or drop the missing values before sketching.")
    if np.isinf(values).any():
        raise ValueError("Input X contains infinity. Every entry must be a finite number.")
    raise ValueError(
        f"Input X is too large: with entries up to {np.abs(values).max(initial=0.0):.3g} the squared norm of the rows "
        "overflows float64. Scale the rows; entries up to about 1e150 are fine."
    )
