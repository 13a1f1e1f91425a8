"""The d x d matrix of the last rows: the better choice for a window when d is small."""

import copy
import math
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np

from robustfd._container import Document, Tensors
from robustfd._validation import check_integer, check_real
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch import snapshot
from robustfd.sketch._blocks import WindowedSums
from robustfd.sketch._rows import Queue, Unread
from robustfd.sketch.exact import ExactSecondMoment, ExactState, with_rows


@dataclass(frozen=True)
class ExactWindowState:
    """The matrices of blocks of rows."""

    sums: WindowedSums
    nothing: ExactState  # that of no rows

    @property
    def squared_norm(self) -> float:
        """At least the squared norm of all that is kept."""
        return sum(state.squared_norm for _, state in self.sums.blocks)


@dataclass(frozen=True)
class PackedBlocks:
    """The same as arrays, an entry for each block."""

    seen: int
    block: Any
    matrix: Any
    squared_norm: Any
    weight: Any
    mean: Any  # in two parts, if centring
    rounding: Any


class ExactWindow(ExactSecondMoment):
    """A'A + alpha0 I of the last `window` rows, kept in 32 blocks of d x d.

    The oldest block counts by the share of its rows that are in the window. In that sense it is exact, and
    `error_bound_` is a bound on rounding errors alone. A mean that moves makes it no worse.

    Parameters
    ----------
    window : float
        How many rows.
    alpha0, center : as for `FrequentDirections`
    """

    _structure: ClassVar[tuple[str, ...]] = ("center", "window")
    _state_type: ClassVar[type] = ExactWindowState
    decay = 1.0  # nothing fades; rows leave

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
        # Rows go in by as many as complete a block, or by as many as are best worked on together.
        while len(queue) >= (size := min(state.sums.room(), self._chunk(queue))):
            rows, queue = queue.take(size)
            state = ExactWindowState(state.sums.after(size, with_rows(state.nothing, rows)), state.nothing)
        return state, queue.owned(state.squared_norm)

    def _finished(self, unread: Unread) -> ExactState:
        state, queue, _ = unread
        sums = state.sums
        while len(queue):
            rows, queue = queue.take(min(len(queue), sums.room(), self._chunk(queue)))
            sums = sums.after(len(rows), with_rows(state.nothing, rows))
        total: ExactState | None = sums.total()
        return state.nothing if total is None else total

    def forget(self, factor: float) -> NoReturn:
        """Refuse: rows leave the window by their number alone."""
        raise NotImplementedError("A window forgets by the number of rows alone: they leave when it has moved on.")

    def _check_mergeable(self, other: Any) -> NoReturn:
        raise NotImplementedError("Windows of the last rows cannot be merged: it is not known which rows came last.")

    # -- on disk

    def _pack(self) -> tuple[Document, Tensors]:
        self._require_rows()
        blocks = self._state.sums.blocks
        empty = self._state.nothing
        states = [each for _, each in blocks]
        means = None
        if self.center:
            means = np.stack([each.mean for each in [empty, *states]])[1:]
        packed = copy.copy(self)
        packed._state = PackedBlocks(
            self._state.sums.seen,
            np.array([block for block, _ in blocks], np.int64),
            np.stack([each.matrix for each in [empty, *states]])[1:],
            np.array([each.squared_norm for each in states]),
            np.array([each.weight for each in states]),
            means,
            np.array([each.rounding for each in states]),
        )
        return snapshot.pack(packed)

    def _unpack_state(
        self, kind: type, scalars: dict[str, Any], tensors: dict[str, Any], structure: dict[str, Any], d: int
    ) -> ExactWindowState:
        """Return the state that was saved, its arrays taken out of the tensors."""
        center, seen = structure["center"], check_integer("seen", scalars.pop("seen"), 0)
        names = ["block", "matrix", "squared_norm", "weight", "rounding", *(["mean"] if center else [])]
        block, matrix, norm, weight, off, *means = (tensors.pop(f"state.{name}") for name in names)
        if not center and scalars.pop("mean") is not None:
            raise ValueError("there is a mean, and no centring")
        if scalars:
            raise ValueError(f"unknown scalars {sorted(scalars)}")
        sums, k = WindowedSums(float(structure["window"])), len(block)
        for name, value, shape in (
            ("matrix", matrix, (k, d, d)), ("squared_norm", norm, (k,)), ("weight", weight, (k,)),
            ("rounding", off, (k,)), *(("mean", each, (k, 2, d)) for each in means),
        ):  # fmt: skip
            snapshot.check_values(f"state.{name}", value, -np.inf if name in ("matrix", "mean") else 0.0)
            if value.shape != shape:
                raise ValueError(f"state.{name} has shape {value.shape}")
        last = math.ceil(seen / sums.length) - 1
        if block.dtype != np.int64 or block.tolist() != list(range(last + 1 - k, last + 1)) or (k and last + 1 < k):
            raise ValueError(f"blocks {block[:3]} and so on after {seen} rows")
        states = [
            ExactState(matrix[i], float(norm[i]), float(weight[i]), means[0][i] if center else None, float(off[i]))
            for i in range(k)
        ]
        whole = WindowedSums(float(structure["window"]), tuple(zip(block.tolist(), states)), seen)
        return ExactWindowState(whole, ExactState.empty(d, center))
