"""Sums over the last rows of a stream, in blocks."""

from typing import Any

PER_WINDOW = 32  # blocks that a window is cut into


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
