"""The exact d x d matrix of the last rows: the better choice for a sliding window when d is small."""

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
from robustfd.sketch._rows import Contents, Queue
from robustfd.sketch.exact import ExactSecondMoment, ExactState, with_rows


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
class PackedBlocks:
    """The same as arrays with one entry for each block, for snapshots."""

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

    Parameters
    ----------
    window : float
        Number of rows in the window.
    alpha0 : float, default=0.0
        The matrix is A'A + alpha0 I.
    center : bool, default=False
        Subtract the mean of the rows in the window.

    See Also
    --------
    SlidingFrequentDirections : A certified approximation in O(m d) memory, for large d.
    """

    _structure: ClassVar[tuple[str, ...]] = ("center", "window")
    _state_type: ClassVar[type] = ExactWindowState
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
        """Return the saved state and remove its arrays from `tensors`."""
        center, seen = structure["center"], check_integer("seen", scalars.pop("seen"), 0)
        names = ["block", "matrix", "squared_norm", "weight", "rounding", *(["mean"] if center else [])]
        block, matrix, norm, weight, off, *means = (tensors.pop(f"state.{name}") for name in names)
        if not center and scalars.pop("mean") is not None:
            raise ValueError("there is a mean, but center is False")
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
            raise ValueError(f"the block numbers {block[:3]} ... do not match {seen} rows")
        states = [
            ExactState(matrix[i], float(norm[i]), float(weight[i]), means[0][i] if center else None, float(off[i]))
            for i in range(k)
        ]
        whole = WindowedSums(float(structure["window"]), tuple(zip(block.tolist(), states)), seen)
        return ExactWindowState(whole, ExactState.empty(d, center))
