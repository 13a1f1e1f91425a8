"""One pass of many learners side by side: which rows are held out, and what came out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from robustfd.comparison.contenders import Contender, contenders
from robustfd.comparison.problem import Columns, Problem, Rows, Scale
from robustfd.comparison.runners import Runner
from robustfd.streams import StreamError

MOST_ROWS, MOST_BYTES = 20_000, 50_000_000  # that are held out
WARM_UP = 64  # rows that one model of each learner learns beforehand, so that compiled loops are loaded


class Holdout:
    """A uniform sample of a stream, bounded in rows and bytes: row k is in it if the k-th random number is small.

    When it grows too large the share is halved, and rows whose number is no longer small enough are let go. Those that
    come later are then free to be learnt.
    """

    def __init__(self, share: float, seed: int, *, most_rows: int = MOST_ROWS, most_bytes: int = MOST_BYTES):
        self.share, self.most_rows, self.most_bytes = share, most_rows, most_bytes
        self._random = np.random.default_rng(seed)
        self._parts: list[tuple[Any, Any, Any]] = []  # rows, labels, random numbers

    def take(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Keep what is held out of some rows; return the others."""
        learnt = self.keep(X, y)
        return X[learnt], y[learnt]

    def keep(self, X: Any, y: Any) -> Any:
        """Keep what is held out of some rows; return a mask of the others."""
        drawn = self._random.random(len(y))  # the same numbers however rows are cut into blocks
        held = drawn < self.share
        self._parts.append((X[held], y[held], drawn[held]))
        while self.rows > max(1, self.most_rows) or (self.rows > 1 and self.bytes > self.most_bytes):
            self.share /= 2
            self._parts = [(x[u < self.share], y[u < self.share], u[u < self.share]) for x, y, u in self._parts]
        return ~held

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(len(y) for _, y, _ in self._parts)

    @property
    def bytes(self) -> int:
        """What they take in memory."""
        return sum(
            12 * x.nnz + 8 * x.shape[0] if sp.issparse(x) else 8 * x.shape[0] * x.shape[1] for x, _, _ in self._parts
        )

    def all(self) -> tuple[Any, Any]:
        """Return the rows and their labels."""
        parts = [part for part in self._parts if len(part[1])]
        stack = sp.vstack if any(sp.issparse(x) for x, _, _ in parts) else np.vstack
        return stack([x for x, _, _ in parts]), np.concatenate([y for _, y, _ in parts])


class Comparison:
    """All learners with all settings, learning the same rows block by block."""

    def __init__(self, classes: Any, features: int, *, share: float, seed: int, quick: bool):
        self.classes, self.features, self.seed, self.quick = classes, features, seed, quick
        self.holdout, self.rows = Holdout(share, seed), 0
        self.runs: list[tuple[Contender, list[Runner]]] = []
        self.left_out: dict[str, str] = {}
        self._centre, self._unit = 0.0, 1.0  # of targets that are numbers
        self._columns, self._scale = Columns(), Scale()

    def add(self, X: Any, y: Any) -> None:
        """Hold some rows out; all learners learn the others."""
        y = y.astype(np.float64) if self.classes is None else self._codes(y)
        X, y = self.holdout.take(X, y)
        if not len(y):
            return
        self._columns.see(X)
        if not self.runs:
            self._begin(X, y)
        rows, self.rows = self._rows(X, y), self.rows + len(y)
        for _, runners in self.runs:
            for runner in runners:
                runner.learn(rows)

    def _codes(self, y: Any) -> Any:
        """Return labels as places among the classes."""
        place = {label: k for k, label in enumerate(self.classes.tolist())}
        found, code = np.unique(y, return_inverse=True)
        if unknown := [label for label in found.tolist() if label not in place]:
            raise StreamError(
                f"There is a label {unknown[0]!r}, which was not among the first rows; --classes says which there are."
            )
        return np.array([place[label] for label in found.tolist()], dtype=np.int64)[code]

    def _rows(self, X: Any, y: Any) -> Rows:
        return Rows.of(
            X, y if self.classes is not None else (y - self._centre) / self._unit, self._columns, self._scale
        )

    def _begin(self, X: Any, y: Any) -> None:
        """Make all models, as the first rows tell."""
        self._scale, reach = Scale.of(self._columns.scaled(X)), 1.0
        if self.classes is None:
            self._centre, self._unit = float(y.mean()), float(y.std()) or 1.0
            reach = float(np.abs(y - self._centre).max() / self._unit) or 1.0
        self.problem = Problem(0 if self.classes is None else len(self.classes), self.features, reach, self.seed)
        chosen, self.left_out = contenders(self.problem, quick=self.quick)
        first = self._rows(X[:WARM_UP], y[:WARM_UP])
        for each in chosen:
            each.begin(self.problem, each.default).learn(first)
        self.runs = [(each, [each.begin(self.problem, value) for value in each.values]) for each in chosen]

    def shown(self) -> dict[str, str]:
        """Return what is shown beside the bar."""
        if not self.runs:
            return {}
        contender, runners = self.runs[0]
        return {contender.name: f"{self._unit * runners[0].progressive_error():.4g}"}

    def learners(self) -> list[dict[str, Any]]:
        """Return what came out for each learner, the best progressive error first."""
        if not self.runs or not self.holdout.rows:
            raise StreamError(
                f"There are {self.rows} rows to learn and {self.holdout.rows} to test with: too few to compare."
            )
        test = self._rows(*self.holdout.all())
        found = [summary(each, [self._trial(runner, test) for runner in runners]) for each, runners in self.runs]
        return sorted(found, key=lambda learner: learner["progressive_error"])

    def _trial(self, runner: Runner, test: Rows) -> dict[str, Any]:
        """Return what came out for one setting; errors of numbers are in their own units."""
        progressive, judged = runner.progressive_error(), runner.test_error(test)
        rows, error = runner.curve()
        return {
            "progressive_error": self._unit * progressive, "test_error": self._unit * judged,
            "diverged": not np.isfinite(progressive + judged), "seconds": runner.seconds,
            "microseconds_a_row": 1e6 * runner.seconds / self.rows,
            "curve": {"rows": rows, "error": self._unit * error},
        }  # fmt: skip


def summary(contender: Contender, trials: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a learner at its best setting by progressive error, and what the others would have given."""
    best = min(range(len(trials)), key=lambda k: (trials[k]["progressive_error"], trials[k]["test_error"]))
    result: dict[str, Any] = {"learner": contender.name, "setting": contender.setting or None}
    if not contender.setting:
        return result | trials[0]
    trials = [{"value": value, **trial} for value, trial in zip(contender.values, trials)]
    spread = {}
    for what in ("progressive_error", "test_error"):
        errors = sorted(trial[what] for trial in trials)
        at_default = trials[contender.values.index(contender.default)][what]
        spread[what] = {
            "best": errors[0], "default": at_default, "median": errors[len(errors) // 2], "worst": errors[-1],
        }  # fmt: skip
    return result | trials[best] | {"default": contender.default, "spread": spread, "settings": trials}
