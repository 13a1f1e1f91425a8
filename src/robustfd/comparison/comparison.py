"""One pass of many learners over the same rows, with a held-out test set."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from robustfd.comparison.contenders import Contender, contenders
from robustfd.comparison.problem import Columns, Problem, Rows, Scale
from robustfd.comparison.runners import Runner
from robustfd.streams import StreamError

MOST_ROWS, MOST_BYTES = 20_000, 50_000_000  # limits of the held-out sample
WARM_UP = 64  # rows for a warm-up model of each learner, so that timings do not include imports


class Holdout:
    """Uniform sample of a stream, limited in rows and bytes.

    Row k is held out if the k-th random number is below `share`. When the sample grows too large, `share` is halved and
    rows whose number is no longer below it are dropped. Later rows then have a smaller chance of being held out.

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd.comparison import Holdout
    >>> holdout = Holdout(0.2, seed=0)
    >>> X, y = holdout.take(np.arange(2000.0).reshape(1000, 2), np.zeros(1000))
    >>> len(y) + holdout.rows
    1000
    """

    def __init__(self, share: float, seed: int, *, most_rows: int = MOST_ROWS, most_bytes: int = MOST_BYTES):
        self.share, self.most_rows, self.most_bytes = share, most_rows, most_bytes
        self._random = np.random.default_rng(seed)
        self._parts: list[tuple[Any, Any, Any]] = []  # rows, labels, random numbers

    def take(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Hold out some of the rows and return the others."""
        learned = self.keep(X, y)
        return X[learned], y[learned]

    def keep(self, X: Any, y: Any) -> Any:
        """Hold out some of the rows and return a mask of the others."""
        drawn = self._random.random(len(y))  # one number per row, so the block size does not matter
        held = drawn < self.share
        self._parts.append((X[held], y[held], drawn[held]))
        while self.rows > max(1, self.most_rows) or (self.rows > 1 and self.bytes > self.most_bytes):
            self.share /= 2
            self._parts = [(x[u < self.share], y[u < self.share], u[u < self.share]) for x, y, u in self._parts]
        return ~held

    @property
    def rows(self) -> int:
        """The number of held-out rows."""
        return sum(len(y) for _, y, _ in self._parts)

    @property
    def bytes(self) -> int:
        """The memory that the held-out rows take."""
        return sum(
            12 * x.nnz + 8 * x.shape[0] if sp.issparse(x) else 8 * x.shape[0] * x.shape[1] for x, _, _ in self._parts
        )

    def all(self) -> tuple[Any, Any]:
        """Return the held-out rows and their labels."""
        parts = [part for part in self._parts if len(part[1])]
        stack = sp.vstack if any(sp.issparse(x) for x, _, _ in parts) else np.vstack
        return stack([x for x, _, _ in parts]), np.concatenate([y for _, y, _ in parts])


class Comparison:
    """All learners with all settings, trained on the same rows block by block.

    Parameters
    ----------
    classes : array or None
        The labels, or None for regression.
    features : int
        Number of features.
    share : float
        Fraction of rows to hold out.
    seed : int
        Seed of the held-out sample and of the learners.
    quick : bool
        Whether to try only every second setting.

    See Also
    --------
    Holdout : The held-out sample.
    verdict : Whether tuning is worthwhile, from the result of `learners`.
    """

    def __init__(self, classes: Any, features: int, *, share: float, seed: int, quick: bool):
        self.classes, self.features, self.seed, self.quick = classes, features, seed, quick
        self.holdout, self.rows = Holdout(share, seed), 0
        self.runs: list[tuple[Contender, list[Runner]]] = []
        self.left_out: dict[str, str] = {}
        self._centre, self._unit = 0.0, 1.0  # mean and scale of numeric targets
        self._columns, self._scale = Columns(), Scale()

    def add(self, X: Any, y: Any) -> None:
        """Hold out some rows and train all learners on the others."""
        y = y.astype(np.float64) if self.classes is None else self._codes(y)
        X, y = self.holdout.take(X, y)
        if not len(y):
            return
        self._columns.update(X)
        if not self.runs:
            self._create_models(X, y)
        rows, self.rows = self._rows(X, y), self.rows + len(y)
        for _, runners in self.runs:
            for runner in runners:
                runner.learn(rows)

    def _codes(self, y: Any) -> Any:
        """Return labels as indices into the classes."""
        place = {label: k for k, label in enumerate(self.classes.tolist())}
        found, code = np.unique(y, return_inverse=True)
        if unknown := [label for label in found.tolist() if label not in place]:
            raise StreamError(
                f"The label {unknown[0]!r} did not occur in the first rows. Give all labels with --classes."
            )
        return np.array([place[label] for label in found.tolist()], dtype=np.int64)[code]

    def _rows(self, X: Any, y: Any) -> Rows:
        return Rows.of(
            X, y if self.classes is not None else (y - self._centre) / self._unit, self._columns, self._scale
        )

    def _create_models(self, X: Any, y: Any) -> None:
        """Create all models, scaled by the statistics of the first rows."""
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

    def progress_fields(self) -> dict[str, str]:
        """Return the fields to show next to the progress bar."""
        if not self.runs:
            return {}
        contender, runners = self.runs[0]
        return {contender.name: f"{self._unit * runners[0].progressive_error():.4g}"}

    def learners(self) -> list[dict[str, Any]]:
        """Return the results of each learner, ordered by progressive error."""
        if not self.runs or not self.holdout.rows:
            raise StreamError(
                f"There are too few rows to compare: {self.rows} for training and {self.holdout.rows} for testing."
            )
        test = self._rows(*self.holdout.all())
        found = [summary(each, [self._trial(runner, test) for runner in runners]) for each, runners in self.runs]
        return sorted(found, key=lambda learner: learner["progressive_error"])

    def _trial(self, runner: Runner, test: Rows) -> dict[str, Any]:
        """Return the results of one setting. Regression errors are in the units of the targets."""
        progressive, judged = runner.progressive_error(), runner.test_error(test)
        rows, error = runner.curve()
        return {
            "progressive_error": self._unit * progressive, "test_error": self._unit * judged,
            "diverged": not np.isfinite(progressive + judged), "seconds": runner.seconds,
            "microseconds_a_row": 1e6 * runner.seconds / self.rows,
            "curve": {"rows": rows, "error": self._unit * error},
        }  # fmt: skip


def summary(contender: Contender, trials: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the results of a learner at its best setting by progressive error, and the spread over all settings."""
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
