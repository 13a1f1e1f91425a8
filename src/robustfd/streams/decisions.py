"""Which arms were chosen in the rows of a log, and which could have been."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from robustfd.learners.rows import CsrRows


class Decisions(NamedTuple):
    """The arms that were chosen for some rows.

    Attributes
    ----------
    arm : array of shape (n,)
        The name of the chosen arm. If arms are known by their features, its place among the arms of its row. None or -1
        if the log does not tell.
    probability : array of shape (n,)
        The probability with which it was chosen, NaN if the log does not tell.
    arms : array of names, CSR matrix (or CsrRows) of features, or None
        The arms that could have been chosen, for all rows one after the other.
    starts : array of shape (n + 1,) or None
        Those of row i are starts[i] to starts[i + 1] - 1. If there are none, all arms could have been chosen.
    """

    arm: Any
    probability: Any
    arms: Any = None
    starts: Any = None

    def take(self, keep: Any) -> "Decisions":
        """Return the rows that a mask or a slice selects."""
        arms, starts = self.arms, self.starts
        if starts is not None:
            lengths, chosen = np.diff(starts), np.zeros(len(starts) - 1, bool)
            chosen[keep] = True
            arms, starts = self._some(np.repeat(chosen, lengths)), np.append(0, np.cumsum(lengths[chosen]))
        return Decisions(self.arm[keep], self.probability[keep], arms, starts)

    @property
    def has_features(self) -> bool:
        """Whether arms are known by their features."""
        return isinstance(self.arms, CsrRows) or getattr(self.arms, "ndim", 1) == 2

    def chosen(self) -> Any:
        """Return the arms that were chosen: their names, or the rows of their features."""
        return self._some(self.starts[:-1] + self.arm) if self.has_features else self.arm

    def _some(self, which: Any) -> Any:
        return self.arms.take(which) if isinstance(self.arms, CsrRows) else self.arms[which]

    def of_row(self, i: int) -> Any:
        """Return the arms that could have been chosen in row i: names or rows of features."""
        return self._some(slice(self.starts[i], self.starts[i + 1]))


def one_reward(roles: Mapping[str, Any]) -> None:
    """Raise if there are columns of rewards and of costs."""
    if roles["target"] is not None and roles["cost"] is not None:
        target, cost = roles["target"], roles["cost"]
        raise ValueError(f"There is a column of rewards, {target!r}, and one of costs, {cost!r}. Drop one of them.")
