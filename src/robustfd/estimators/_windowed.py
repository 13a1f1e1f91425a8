"""What the estimators over a sketch share: the sketch they need, of all rows or of a sliding window."""

import copy
from typing import Any, TypeAlias

from robustfd._validation import check_real
from robustfd.sketch.frequent_directions import RobustFrequentDirections
from robustfd.sketch.sliding import SlidingFrequentDirections

Sketch: TypeAlias = RobustFrequentDirections | SlidingFrequentDirections
PER_WINDOW = 32  # blocks of products that a window is cut into


def prepared(before: Sketch | None, window: float | None, *, center: bool, **params: Any) -> Sketch:
    """Return a new sketch, or a copy of the one before, with the parameters as they are now."""
    then = getattr(before, "window", None)
    if before is not None and (window is None) != (then is None):
        raise ValueError(
            f"window was changed from {then!r} to {window!r} after rows were seen. Set it back to {then!r}, or "
            "call fit to start anew."
        )
    if window is None:
        plain = RobustFrequentDirections(center=center) if before is None else copy.copy(before)
        return plain.set_params(**params)
    check_real("window", window, 0.0, open_low=True)
    for name, default in (("buffer_size", None), ("decay", 1.0), ("solver", "auto")):
        if params.pop(name) != default:
            raise ValueError(f"{name} is for sketches of all rows: with window={window!r} leave it at {default!r}.")
    sliding = SlidingFrequentDirections(window, clock="rows", center=center) if before is None else copy.copy(before)
    return sliding.set_params(window=window, **params)


class WindowedSums:
    """Sums over the last rows, in blocks by row count: the oldest block counts by the share of it that is left.

    The blocks have `plus` and `faded`. Like all states it is not changed: `after` returns the next one.
    """

    def __init__(self, window: float, blocks: tuple[tuple[int, Any], ...] = (), seen: int = 0):
        self.length = max(1, int(window / PER_WINDOW))
        self.window, self.blocks, self.seen = float(window), blocks, seen

    def room(self) -> int:
        """Return how many rows fit into the newest block."""
        return self.length - self.seen % self.length

    def after(self, rows: int, sums: Any) -> "WindowedSums":
        """Return the sums after these of some rows, no more than there is room for."""
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
