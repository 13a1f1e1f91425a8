"""One pass of many learners over the same rows, with a held-out test set: is tuning worthwhile?"""

from collections.abc import Sequence
from math import inf, sqrt
from typing import Any

import numpy as np
import scipy.sparse as sp

from robustfd.experiments.contenders import Contender, Problem, Rows, Runner, Scaling, contenders
from robustfd.streams import StreamError
from robustfd.streams.coded import stacked

MOST_ROWS, MOST_BYTES = 20_000, 50_000_000  # limits of the held-out sample
WARM_UP = 64  # rows for a warm-up model of each learner, so that timings do not include imports


class Holdout:
    """Uniform sample of a stream, limited in rows and bytes.

    Row k is held out if the k-th random number is below `share`. When the sample grows too large, `share` is halved and
    rows whose number is no longer below it are dropped. Later rows then have a smaller chance of being held out.

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd.experiments.compare import Holdout
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
        return sum(12 * x.nnz + 8 * x.shape[0] if sp.issparse(x) else 8 * x.size for x, _, _ in self._parts)

    def all(self) -> tuple[Any, Any]:
        """Return the held-out rows and their labels."""
        parts = [part for part in self._parts if len(part[1])]
        return stacked([x for x, _, _ in parts]), np.concatenate([y for _, y, _ in parts])


class Comparison:
    """All learners with all settings, trained on the same rows block by block.

    `classes` has the labels, or is None for regression. `share` is the fraction of rows to hold out. `seed` is
    for the held-out sample and the learners. `quick` tries only every second setting.
    """

    def __init__(self, classes: Any, features: int, *, share: float, seed: int, quick: bool):
        self.classes, self.features, self.seed, self.quick = classes, features, seed, quick
        self.holdout, self.rows = Holdout(share, seed), 0
        self.runs: list[tuple[Contender, list[Runner]]] = []
        self.left_out: dict[str, str] = {}
        self._centre, self._unit = 0.0, 1.0  # mean and scale of numeric targets
        self._scaling = Scaling()

    def add(self, X: Any, y: Any) -> None:
        """Hold out some rows and train all learners on the others."""
        y = y.astype(np.float64) if self.classes is None else self._codes(y)
        X, y = self.holdout.take(X, y)
        if not len(y):
            return
        self._scaling.update(X)
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
            raise StreamError(f"The label {unknown[0]!r} was not in the first rows. Give all labels with --classes.")
        return np.array([place[label] for label in found.tolist()], dtype=np.int64)[code]

    def _rows(self, X: Any, y: Any) -> Rows:
        return self._scaling.rows(X, y if self.classes is not None else (y - self._centre) / self._unit)

    def _create_models(self, X: Any, y: Any) -> None:
        """Create all models, scaled by the statistics of the first rows."""
        reach = 1.0
        if self.classes is None:
            self._centre, self._unit = float(y.mean()), float(y.std()) or 1.0
            reach = float(np.abs(y - self._centre).max() / self._unit) or 1.0
        problem = Problem(0 if self.classes is None else len(self.classes), self.features, reach, self.seed)
        chosen, self.left_out = contenders(problem, quick=self.quick)
        first = self._rows(X[:WARM_UP], y[:WARM_UP])
        for each in chosen:
            each.begin(each.default).learn(first)
        self.runs = [(each, [each.begin(value) for value in each.values]) for each in chosen]

    def progress_fields(self) -> dict[str, str]:
        """Return the fields to show next to the progress bar."""
        if not self.runs:
            return {}
        contender, runners = self.runs[0]
        return {contender.name: f"{self._unit * runners[0].progressive_error():.4g}"}

    def learners(self) -> list[dict[str, Any]]:
        """Return the results of each learner, ordered by progressive error."""
        if not self.runs or not self.holdout.rows:
            raise StreamError(f"There are too few rows: {self.rows} for training and {self.holdout.rows} for testing.")
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


# ------------------------------------------------------------------ the verdict

NEAR, FAR = 1.05, 1.25  # multiples of the best tuned error: "no" up to NEAR, "a little" up to FAR
CHANCE = 2.0  # differences of error rates within this many standard errors are not significant

ANSWERS = ("no", "a little", "yes")
PROGRESSIVE, TEST = "progressive_error", "test_error"


def need(untuned: float, tuned: float, rows: int, *, shares: bool) -> str:
    """Return "no", "a little" or "yes", given the errors of the untuned learner and of the best tuned setting."""
    if untuned == inf:
        return "yes"
    if untuned <= NEAR * tuned or (shares and untuned - tuned <= CHANCE * sqrt(tuned * (1 - tuned) / rows)):
        return "no"
    return "a little" if untuned <= FAR * tuned else "yes"


def verdict(learners: Sequence[dict[str, Any]], untuned: str, rows: int, test_rows: int, *, shares: bool) -> Any:
    """Return the answer to "do I need tuning on my data?" as numbers, as a sentence, and with remarks.

    The untuned learner is compared with the setting that has the smallest progressive error, which a user who tunes
    would choose. The answer is the worse of the answers by progressive error and by test error. `learners` is the
    result of `Comparison.learners`; `shares` says whether errors are error rates (classification).
    """
    own = next(each for each in learners if each["learner"] == untuned)
    constant = next(each for each in learners if each["learner"] in ("most frequent label", "mean of labels"))
    tuned = [(each, trial) for each in learners if each["setting"] for trial in each["settings"]]
    best, trial = min(tuned, key=lambda pair: (pair[1][PROGRESSIVE], pair[1][TEST]))
    counts = {PROGRESSIVE: rows, TEST: test_rows}
    answers = [need(own[what], trial[what], counts[what], shares=shares) for what in counts]
    answer = max(answers, key=ANSWERS.index)
    setting = f"{best['learner']} with {best['setting']} {trial['value']:g}"
    words = (
        f"{answer.capitalize()}: {untuned}, with nothing to tune, has progressive error {_figure(own[PROGRESSIVE])} "
        f"and test error {_figure(own[TEST])}, compared with {_figure(trial[PROGRESSIVE])} and {_figure(trial[TEST])} "
        f"for the best of {len(tuned)} tuned settings, {setting}."
    )
    return {
        "need": answer, "need_by_progressive_error": answers[0], "need_on_test": answers[1], "learner": untuned,
        "untuned": own[PROGRESSIVE], "best_tuned": trial[PROGRESSIVE], "untuned_on_test": own[TEST],
        "best_tuned_on_test": trial[TEST], "best_learner": best["learner"], "best_setting": best["setting"],
        "best_value": trial["value"], "settings": len(tuned),
        "at_least_as_good_as": sum(own[PROGRESSIVE] <= other[PROGRESSIVE] for _, other in tuned), "words": words,
        "remarks": _remarks(own, constant, best, trial, tests_agree=answers[0] == answers[1]),
    }  # fmt: skip


def _remarks(own: Any, constant: Any, best: Any, trial: Any, *, tests_agree: bool) -> list[str]:
    """Return caveats about the comparison."""
    remarks = []
    if trial["value"] in (best["settings"][0]["value"], best["settings"][-1]["value"]):
        remarks.append("The best setting is at the edge of the grid. There may be a better one outside it.")
    if own[TEST] > FAR * own[PROGRESSIVE] and not tests_agree:
        remarks.append(
            "Consecutive rows seem to be similar, so the final model fits the last rows best. "
            "Shuffle the rows if their order has no meaning."
        )
    if own[PROGRESSIVE] >= constant[PROGRESSIVE]:
        remarks.append(f"The error is no better than that of the {constant['learner']}: there may be little to learn.")
    return remarks


def _figure(error: float) -> str:
    return "none (it diverged)" if error == inf else f"{error:.4g}"
