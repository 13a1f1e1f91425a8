"""The verdict of a comparison: whether tuning is worthwhile."""

from collections.abc import Sequence
from math import inf, sqrt
from typing import Any

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
    would choose. The answer is the worse of the answers by progressive error and by test error.

    Parameters
    ----------
    learners : sequence of dict
        The result of `Comparison.learners`.
    untuned : str
        The name of the untuned learner.
    rows, test_rows : int
        Numbers of training rows and of held-out rows.
    shares : bool
        Whether errors are error rates (classification).

    Returns
    -------
    dict
        The answer ("need"), the errors it rests on, a sentence ("words") and a list of "remarks".
    """
    own = next(each for each in learners if each["learner"] == untuned)
    constant = next(each for each in learners if each["learner"] in ("most frequent label", "mean of labels"))
    tuned = [(each, trial) for each in learners if each["setting"] for trial in each["settings"]]
    best, trial = min(tuned, key=lambda pair: (pair[1][PROGRESSIVE], pair[1][TEST]))
    answers = [
        need(own[what], trial[what], count, shares=shares) for what, count in ((PROGRESSIVE, rows), (TEST, test_rows))
    ]
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
