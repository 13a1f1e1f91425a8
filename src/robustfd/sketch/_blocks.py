"""Sums over the last rows of a stream, stored in blocks."""

from typing import Any

PER_WINDOW = 32  # blocks per window


class WindowedSums:
    """Sums over the last rows, in blocks of equal row count.

    The oldest block counts in proportion to the share of its rows that are still in the window. The sums in a block
    have methods `plus` and `faded`. Instances are immutable: `after` returns a new one.
    """

    def __init__(self, window: float, blocks: tuple[tuple[int, Any], ...] = (), seen: int = 0):
        self.length = max(1, int(window / PER_WINDOW))
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
