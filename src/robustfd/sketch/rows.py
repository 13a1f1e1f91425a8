"""Rows with weights and decays, and the queue of rows that wait for a shrink step (docs/mathematics.md)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LARGEST_NORM = 1e306
TINY = float(np.finfo(np.float64).smallest_subnormal)  # the smallest positive number
Matrix: TypeAlias = Any  # a 2-d ndarray, or a CSR matrix or array


@dataclass(frozen=True)
class Rows:
    """k rows. Row t has weight[t], and everything before it is multiplied by decay[t] first."""

    x: Matrix
    weight: Floats
    decay: Floats
    clock: Floats | None = None  # time stamp of each row, for sliding windows

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
        """The number of stored values."""
        return int(self.x.nnz if self.is_sparse else self.x.size)

    def owned(self) -> "Rows":
        """Return a copy of the rows in floating point, so that the caller cannot change them."""
        dtype = self.x.dtype if self.x.dtype in (np.float32, np.float64) else np.float64
        x = self.x.copy() if self.is_sparse else np.array(self.x, dtype=dtype, order="C")
        return Rows(x, self.weight.copy(), self.decay.copy(), None if self.clock is None else self.clock.copy())

    def widened(self, d: int) -> "Rows":
        """Return the rows with d columns, of which the new ones are zero."""
        if self.is_sparse:
            return replace(self, x=sp.csr_array((self.x.data, self.x.indices, self.x.indptr), shape=(len(self), d)))
        return replace(self, x=np.pad(self.x, ((0, 0), (0, d - self.x.shape[1]))))

    def dense(self) -> Floats:
        """Return the raw rows as a C-ordered array."""
        x = self.x.toarray() if self.is_sparse else self.x
        return np.ascontiguousarray(x, dtype=np.float64)

    def neg_log_decay(self) -> float:
        """Return minus the logarithm of the product of all decays."""
        return -float(np.log(self.decay).sum())

    def decay_scales(self, start: int = 0, stop: int | None = None) -> tuple[float, Floats]:
        """Return (s, t) for rows start to stop: older rows are scaled by s, row start + i by t[i]."""
        decay = self.decay[start:stop]
        if decay.min() == 1.0:
            return 1.0, np.ones(len(decay))
        # Multiply from the newest row backwards: the rows that count most then have the smallest rounding errors.
        product = np.cumprod(np.sqrt(decay[::-1]))[::-1]
        return float(product[0]), np.append(product[1:], 1.0)


def concatenate(pieces: Sequence[Rows]) -> Rows:
    """Return the pieces as one `Rows`: sparse if all are sparse, and without a copy if there is only one."""
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
    """Rows that wait for a shrink step, as the batches they came in. The first `skip` rows are already processed."""

    pieces: tuple[Rows, ...] = ()
    rows: int = 0
    nnz: int = 0
    is_sparse: bool = True
    energy: float = 0.0  # upper bound on the weighted sum of squares of the rows
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
        if self.skip + k < len(self.pieces[0]):  # all from the first piece, which is not used up
            rows = self.pieces[0][self.skip : self.skip + k]
            energy, nnz = self.energy if len(self.pieces) > 1 else 0.0, self.nnz - rows.nnz
            return rows, Queue(self.pieces, self.rows - k, nnz, self.is_sparse, energy, self.skip + k)
        head, pieces, skip, left = [], list(self.pieces[::-1]), self.skip, k
        while left > 0:
            piece = pieces[-1][skip : skip + left]  # slicing off the rest would copy a CSR matrix
            head.append(piece)
            left -= len(piece)
            skip += len(piece)
            if skip == len(pieces[-1]):
                pieces.pop()
                skip = 0
        rows, nnz = concatenate(head), self.nnz - sum(piece.nnz for piece in head)
        sparse = all(piece.is_sparse for piece in pieces)
        energy = self.energy if len(pieces) > 1 else 0.0  # of all pieces except the newest
        return rows, Queue(tuple(pieces[::-1]), self.rows - k, nnz, sparse, energy, skip)

    def clocks(self, most: int) -> Floats:
        """Return the clocks of the first rows, at most `most` of them."""
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
        """Return the queue with its newest rows checked and copied, so that the caller cannot change them.

        Raise a ValueError if they are too large together with the rows before them, whose squared norm is `norm`.
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


class Contents(NamedTuple):
    """The contents of a sketch: a state, the queued rows, and a factor that multiplies both."""

    state: Any
    queue: Queue
    factor: float


def energy(rows: Rows) -> float:
    """Return the weighted sum of squares of raw rows. Raise a ValueError if it is not finite."""
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
    """Return the squared norm of all rows. Raise a ValueError if arithmetic with it would overflow."""
    if not norm < slack * LARGEST_NORM:
        raise ValueError(
            "Input X is too large together with the rows before: the squared norm of all rows "
            f"would be above {LARGEST_NORM:g}, and float64 overflows. Scale the rows."
        )
    return norm


def raise_not_finite(x: Matrix) -> NoReturn:
    """Raise a ValueError that states why these numbers are not usable."""
    values = x.data if sp.issparse(x) else x
    if np.isnan(values).any():
        raise ValueError("Input X contains NaN. Impute or drop the missing values before sketching.")
    if np.isinf(values).any():
        raise ValueError("Input X contains infinity. Every entry must be a finite number.")
    raise ValueError(
        f"Input X is too large: with entries up to {np.abs(values).max(initial=0.0):.3g} the squared norm of the rows "
        "overflows float64. Scale the rows; entries up to about 1e150 are fine."
    )
