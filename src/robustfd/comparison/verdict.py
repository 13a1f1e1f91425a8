"""Whether tuning is worth its while, as a comparison tells."""

from collections.abc import Sequence
from math import inf, sqrt
from typing import Any

NEAR, FAR = 1.05, 1.25  # times the error of the best tuned setting: up to here no need to tune, up to there a little
CHANCE = 2.0  # standard errors of a share of errors, within which a difference says nothing

ANSWERS = ("no", "a little", "yes")
PROGRESSIVE, TEST = "progressive_error", "test_error"


def need(untuned: float, tuned: float, rows: int, *, shares: bool) -> str:
    """Return "no", "a little" or "yes", from the errors of the untuned learner and of the best tuned setting."""
    if untuned == inf:
        return "yes"
    if untuned <= NEAR * tuned or (shares and untuned - tuned <= CHANCE * sqrt(tuned * (1 - tuned) / rows)):
        return "no"
    return "a little" if untuned <= FAR * tuned else "yes"


def verdict(learners: Sequence[dict[str, Any]], untuned: str, rows: int, test_rows: int, *, shares: bool) -> Any:
    """Return the answer to "do I need tuning on my data?" in figures, in one sentence, and what else there is to say.

    The untuned learner is held against the setting that has the least progressive error, which is what somebody who
    tunes would take. The answer is the worse one of those by progressive error and by error on rows held out.
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
        f"and test error {_figure(own[TEST])}, and the best of {len(tuned)} tuned settings, {setting}, has "
        f"{_figure(trial[PROGRESSIVE])} and {_figure(trial[TEST])}."
    )
    return {
        "need": answer, "need_by_progressive_error": answers[0], "need_on_test": answers[1], "learner": untuned,
        "untuned": own[PROGRESSIVE], "best_tuned": trial[PROGRESSIVE], "untuned_on_test": own[TEST],
        "best_tuned_on_test": trial[TEST], "best_learner": best["learner"], "best_setting": best["setting"],
        "best_value": trial["value"], "settings": len(tuned),
        "at_least_as_good_as": sum(own[PROGRESSIVE] <= other[PROGRESSIVE] for _, other in tuned), "words": words,
        "remarks": _remarks(own, constant, best, trial, test_alike=answers[0] == answers[1]),
    }  # fmt: skip


def _remarks(own: Any, constant: Any, best: Any, trial: Any, *, test_alike: bool) -> list[str]:
    """Return what may be wrong with the comparison."""
    remarks = []
    if trial["value"] in (best["settings"][0]["value"], best["settings"][-1]["value"]):
        remarks.append("The best setting is the end of what was tried; beyond, there may be a better one.")
    if own[TEST] > FAR * own[PROGRESSIVE] and not test_alike:
        remarks.append(
            "Rows that follow each other seem to be alike, and the last model is one of the last rows; if their order "
            "means nothing, shuffle them."
        )
    if own[PROGRESSIVE] >= constant[PROGRESSIVE]:
        remarks.append(f"No better than the {constant['learner']}: there may be little to learn here.")
    return remarks


def _figure(error: float) -> str:
    return "none, having diverged" if error == inf else f"{error:.4g}"
