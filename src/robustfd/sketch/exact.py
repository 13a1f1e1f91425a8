"""The exact d x d matrix, of all rows or of a window: the ground truth, and the better choice for small d."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NoReturn

import numpy as np
import scipy.linalg

from robustfd._validation import check_real
from robustfd.linalg.decompose import EPS, rounding
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch.base import BaseSketch
from robustfd.sketch.centring import MAX_LOG_DECAY, has_cancelled, merge_means, noise
from robustfd.sketch.prepared import prepare
from robustfd.sketch.rows import Contents, Floats, Queue, Rows, check_total, raise_not_finite
from robustfd.sketch.view import View

CHUNK = 1024  # rows that are prepared and multiplied together
SPARSE_CHUNK = 8 * CHUNK  # the same for sparse rows; larger, because each chunk costs passes over the d x d matrix
MAX_DENSITY = 0.1  # sparse rows with a higher density are faster as dense rows
BLOCKS_PER_WINDOW = 32


@dataclass(frozen=True)
class ExactState:
    """The matrix, its norm, and the weight and mean of the rows."""

    ARRAYS: ClassVar[dict[str, str]] = {"matrix": "d d", "mean": "2 d"}

    matrix: Floats
    squared_norm: float
    weight: float
    mean: Floats | None  # in double-double form (centring.py)
    rounding: float  # bound on the rounding error of the matrix

    @classmethod
    def empty(cls, d: int, center: bool) -> "ExactState":
        """Return the state before any row."""
        return cls(np.zeros((d, d)), 0.0, 0.0, np.zeros((2, d)) if center else None, 0.0)

    def faded(self, factor: float) -> "ExactState":
        """Return the state with all sums multiplied by `factor`. The mean does not change."""
        if factor == 1.0:
            return self
        norm, bound = factor * self.squared_norm, factor * (self.rounding + EPS * self.squared_norm)
        return ExactState(factor * self.matrix, norm, factor * self.weight, self.mean, bound)

    def plus(self, other: "ExactState") -> "ExactState":
        """Return the state of the rows of both."""
        matrix, norm = self.matrix + other.matrix, self.squared_norm + other.squared_norm
        n, k, mean = self.weight, other.weight, self.mean
        if mean is not None and other.mean is not None and n + k > 0:
            row, mean = merge_means(mean, other.mean, n, k)
            matrix += np.outer(row, row)
            norm += float(row @ row)
        bound = self.rounding + other.rounding + rounding(2, 1, 1.0, np.zeros(0), EPS * norm)
        return ExactState(matrix, check_total(norm), n + k, mean, bound)


class ExactSecondMoment(BaseSketch):
    """The exact matrix A'A + alpha0 I, with the interface of a sketch.

    It stores d x d numbers. Use it for small d, or as the ground truth for sketches. `sketch_` is a square root of A'A
    with as many rows as its rank. `error_bound_` covers only rounding errors.

    Parameters
    ----------
    alpha0 : float, default=0.0
        The matrix is A'A + alpha0 I.
    decay : float in (0, 1], default=1.0
        Before each new row, A'A of the older rows is multiplied by this factor.
    center : bool, default=False
        Subtract the mean of the rows: `covariance()` is then the covariance matrix.

    See Also
    --------
    RobustFrequentDirections : A certified approximation in O(m d) memory, for large d.

    Notes
    -----
    Rows are collected in chunks of 1024 (8192 if sparse), so the batches do not change any digit of the result. Sparse
    rows stay sparse, also with centring. A row costs O(d^2) flops, a sparse row with z stored values O(z^2).

    Several threads may use one sketch. Their calls run one at a time.

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd import ExactSecondMoment
    >>> A = np.arange(12.0).reshape(4, 3)
    >>> bool(np.allclose(ExactSecondMoment(center=True).fit(A).covariance().to_dense(), np.cov(A.T)))
    True
    """

    _structure: ClassVar[tuple[str, ...]] = ("center",)
    _state_type: ClassVar[type] = ExactState

    def __init__(self, *, alpha0: float = 0.0, decay: float = 1.0, center: bool = False):
        self.alpha0 = alpha0
        self.decay = decay
        self.center = center

    def _start(self, d: int) -> ExactState:
        return ExactState.empty(d, bool(self.center))

    @one_blas_thread()
    def _absorb(self, state: ExactState, queue: Queue) -> tuple[ExactState, Queue]:
        while len(queue) >= (chunk := self._chunk(queue)):
            rows, queue = queue.take(chunk)
            state = with_rows(state, rows)
        return state, queue.owned(state.squared_norm)

    def _chunk(self, queue: Queue) -> int:
        """Return the chunk size. It does not depend on the batches, so they do not change the rounding of the sums."""
        return SPARSE_CHUNK if queue.is_sparse and self.decay == 1.0 else CHUNK

    def _finished(self, contents: Contents) -> ExactState:
        """Return the state after all queued rows, multiplied by the factor."""
        state, queue, factor = contents
        while len(queue):
            rows, queue = queue.take(min(len(queue), self._chunk(queue)))
            state = with_rows(state, rows)
        return state.faded(factor)

    def _read(self, contents: Contents, k: int | None = None) -> View:
        """Return the view with all directions, or with the k largest."""
        state = self._finished(contents)
        d, alpha0 = len(state.matrix), float(self.alpha0)
        if k is None:
            values, v = np.linalg.eigh(state.matrix)
        else:
            values, v = scipy.linalg.eigh(state.matrix, subset_by_index=(d - k, d - 1))
        bound = state.rounding + rounding(d, d, 1.0, values[:0], EPS * state.squared_norm)
        values, v = values[::-1], v[:, ::-1]
        live = values > d * EPS * values[0]
        return View(
            form=lambda: np.ascontiguousarray(v[:, live].T),
            lam=values[live],
            alpha=alpha0,
            error_bound=bound,
            rounding=bound,
            squared_norm=state.squared_norm,
            weight=state.weight,
            mean=None if state.mean is None else state.mean[0],
            floor_lam=values[live],
            floor_alpha=alpha0,
            ceiling_alpha=alpha0,
        )

    def _leading(self, k: int) -> View:
        return self._view if 2 * k >= self.n_features_in_ else self._viewed(k, partial(self._read, k=k))

    @one_blas_thread()
    def _solve(self, b: Floats) -> Floats | None:
        """Return (A'A + alpha0 I)^-1 b by a Cholesky factorisation; None if the matrix may be singular."""
        state = self._finished(Contents(self._state, self._queue, self._tail))
        if float(self.alpha0) <= len(b) * EPS * state.squared_norm:
            return None
        matrix = state.matrix + float(self.alpha0) * np.eye(len(b))
        return np.asarray(scipy.linalg.solve(matrix, b, assume_a="pos", overwrite_a=True, check_finite=False))

    def _union(self, one: Contents, two: Contents) -> tuple[ExactState, Queue]:
        return self._finished(one).plus(self._finished(two)), Queue()


def with_rows(state: ExactState, rows: Rows) -> ExactState:
    """Return the state after these rows. Sparse rows stay sparse unless cancellation would be severe."""
    keep_sparse = rows.is_sparse and rows.nnz <= MAX_DENSITY * len(rows) * len(state.matrix)
    if not keep_sparse and len(rows) > CHUNK:
        for start in range(0, len(rows), CHUNK):
            state = with_rows(state, rows[start : start + CHUNK])
        return state
    s, t = rows.decay_scales()
    formed = state.mean is not None and rows.neg_log_decay() > MAX_LOG_DECAY
    e, mean, weight = prepare(rows, state.mean, state.weight, sparse=keep_sparse, formed=formed)
    product, noise_level = e.outer(t), noise(e.term_lengths(), t)
    new = float(np.trace(product))
    if not np.isfinite(new):
        raise_not_finite(rows.x)
    if state.mean is not None and not formed and has_cancelled(noise_level, new):
        if len(rows) > CHUNK:
            rest = with_rows(state, rows[:CHUNK])
            return with_rows(rest, rows[CHUNK:])
        e, mean, weight = prepare(rows, state.mean, state.weight)
        product, noise_level = e.outer(t), noise(e.term_lengths(), t)
        new = float(np.trace(product))
    norm = check_total(s * s * state.squared_norm + new, slack=10)
    bound = s * s * state.rounding + rounding(1, len(rows), s, state.squared_norm * np.ones(1), noise_level)
    product += state.matrix if s == 1.0 else s * s * state.matrix
    return ExactState(product, norm, weight, mean, bound)


class WindowedSums:
    """Sums over the last rows, in blocks of equal row count.

    The oldest block counts in proportion to the share of its rows that are still in the window. The sums in a block
    have methods `plus` and `faded`. Instances are immutable: `after` returns a new one.
    """

    def __init__(self, window: float, blocks: tuple[tuple[int, Any], ...] = (), seen: int = 0):
        self.length = max(1, int(window / BLOCKS_PER_WINDOW))
        self.window, self.blocks, self.seen = float(window), blocks, seen

    def free_rows(self) -> int:
        """Return the number of rows that still fit into the newest block."""
        return self.length - self.seen % self.length

    def after(self, rows: int, sums: Any) -> "WindowedSums":
        """Return the sums with those of the next `rows` rows added. `rows` must not exceed `free_rows()`."""
        block, blocks = self.seen // self.length, self.blocks
        if blocks and blocks[-1][0] == block:
            blocks, sums = blocks[:-1], blocks[-1][1].plus(sums)
        seen = self.seen + rows
        live = tuple(each for each in blocks if (each[0] + 1) * self.length > seen - self.window)
        return WindowedSums(self.window, (*live, (block, sums)), seen)

    def total(self) -> Any:
        """Return the sums over the window."""
        total = None
        for block, sums in self.blocks:
            end = (block + 1) * self.length
            left = min(1.0, (end - (self.seen - self.window)) / self.length)
            sums = sums if left == 1.0 else sums.faded(left)
            total = sums if total is None else total.plus(sums)
        return total


@dataclass(frozen=True)
class ExactWindowState:
    """One matrix for each block of rows."""

    sums: WindowedSums
    nothing: ExactState  # the state of zero rows

    @property
    def squared_norm(self) -> float:
        """An upper bound on the squared norm of the stored rows."""
        return sum(state.squared_norm for _, state in self.sums.blocks)


@dataclass(frozen=True)
class StoredBlocks:
    """The same as arrays with one entry for each block, for snapshots."""

    ARRAYS: ClassVar[dict[str, str]] = {
        "block": "n", "matrix": "n d d", "squared_norm": "n", "weight": "n", "mean": "n 2 d", "rounding": "n"
    }  # fmt: skip
    LEAST: ClassVar[dict[str, float]] = {"squared_norm": 0.0, "weight": 0.0, "rounding": 0.0}

    seen: int
    block: Any
    matrix: Any
    squared_norm: Any
    weight: Any
    mean: Any  # with centring only, in double-double form
    rounding: Any


class ExactWindow(ExactSecondMoment):
    """The exact matrix A'A + alpha0 I of the last `window` rows, stored as 32 blocks of d x d numbers.

    The oldest block counts in proportion to the share of its rows that are still in the window. The matrix is exact in
    this sense, and `error_bound_` covers only rounding errors, also when the mean of the rows drifts.
    """

    _structure: ClassVar[tuple[str, ...]] = ("center", "window")
    _state_type: ClassVar[type] = StoredBlocks
    decay = 1.0  # rows leave the window instead of fading

    def __init__(self, window: float, *, alpha0: float = 0.0, center: bool = False):
        self.window = window
        self.alpha0 = alpha0
        self.center = center

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_real("window", self.window, 0.0, open_low=True)

    def _start(self, d: int) -> Any:
        return ExactWindowState(WindowedSums(self.window), ExactState.empty(d, bool(self.center)))

    @one_blas_thread()
    def _absorb(self, state: Any, queue: Queue) -> tuple[Any, Queue]:
        # Process as many rows as complete a block, but at most one chunk.
        while len(queue) >= (size := min(state.sums.free_rows(), self._chunk(queue))):
            rows, queue = queue.take(size)
            state = ExactWindowState(state.sums.after(size, with_rows(state.nothing, rows)), state.nothing)
        return state, queue.owned(state.squared_norm)

    def _finished(self, contents: Contents) -> ExactState:
        state, queue, _ = contents
        sums = state.sums
        while len(queue):
            rows, queue = queue.take(min(len(queue), sums.free_rows(), self._chunk(queue)))
            sums = sums.after(len(rows), with_rows(state.nothing, rows))
        total: ExactState | None = sums.total()
        return state.nothing if total is None else total

    def forget(self, factor: float) -> NoReturn:
        """Raise an error: rows leave the window by count only."""
        raise NotImplementedError(
            "A window forgets by the number of rows only: each row leaves after `window` later rows."
        )

    def _check_mergeable(self, other: Any) -> NoReturn:
        raise NotImplementedError(
            "Windows of the last rows cannot be merged: the order of their rows relative to each other is unknown."
        )

    # -- saving

    def _stored_state(self) -> StoredBlocks:
        sums, nothing = self._state.sums, self._state.nothing
        states = [state for _, state in sums.blocks]
        numbers = {name: np.array([getattr(each, name) for each in states]) for name in StoredBlocks.LEAST}
        matrix = np.stack([each.matrix for each in [nothing, *states]])[1:]
        mean = np.stack([each.mean for each in [nothing, *states]])[1:] if self.center else None
        block = np.array([block for block, _ in sums.blocks], np.int64)
        return StoredBlocks(sums.seen, block, matrix, mean=mean, **numbers)

    def _restored_state(self, stored: StoredBlocks, structure: dict[str, Any], d: int) -> ExactWindowState:
        window, center, block = float(structure["window"]), structure["center"], stored.block.tolist()
        last = math.ceil(stored.seen / WindowedSums(window).length) - 1
        if block != list(range(last + 1 - len(block), last + 1)) or last + 1 < len(block):
            raise ValueError(f"the block numbers {block[:3]} ... do not match {stored.seen} rows")
        numbers = np.stack([stored.squared_norm, stored.weight, stored.rounding], axis=1).tolist()
        means = stored.mean if center else [None] * len(block)
        each = zip(stored.matrix, means, numbers, strict=True)
        states = [ExactState(matrix, norm, weight, mean, rounded) for matrix, mean, (norm, weight, rounded) in each]
        sums = WindowedSums(window, tuple(zip(block, states, strict=True)), stored.seen)
        return ExactWindowState(sums, ExactState.empty(d, center))
