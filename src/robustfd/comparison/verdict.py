"""Whether tuning is worth its while, as a comparison tells."""

from collections.abc import Sequence
from math import inf, sqrt
from typing import Any

NEAR, FAR = 1.05, 1.25  # times the error of the best tuned setting: up to here no need to tune, up to there a little
CHANCE = 2.0  # standard errors of a share of errors, within which a difference says nothing

PROGRESSIVE, TEST = "progressive_error", "test_error"


def need(untuned: float, tuned: float, rows: int, *, shares: bool) -> str:
    """Return "no", "a little" or "yes", from the errors of the untuned learner and of the best tuned setting."""
    if untuned == inf:
        return "yes"
    if untuned <= NEAR * tuned or (shares and untuned - tuned <= CHANCE * sqrt(tuned * (1 - tuned) / rows)):
        return "no"
    return "a little" if untuned <= FAR * tuned else "yes"


def verdict(learners: Sequence[dict[str, Any]], untuned: str, rows: int, test_rows: int, *, shares: bool) -> Any:
    """Return the answer to "do I need tuning on my data?" by the progressive error, in figures and in words."""
    own = next(each for each in learners if each["learner"] == untuned)
    constant = next(each for each in learners if each["learner"] in ("most frequent label", "mean of labels"))
    tuned = [(each, trial) for each in learners if each["setting"] for trial in each["settings"]]
    best, trial = min(tuned, key=lambda pair: pair[1][PROGRESSIVE])
    answer = need(own[PROGRESSIVE], trial[PROGRESSIVE], rows, shares=shares)
    beaten = sum(own[PROGRESSIVE] <= other[PROGRESSIVE] for _, other in tuned)
    setting = f"{best['learner']} with {best['setting']} {trial['value']:g}"
    words = [
        f"{answer.capitalize()}: {untuned}, with nothing to tune, has progressive error {_figure(own[PROGRESSIVE])}, "
        f"and the best of {len(tuned)} tuned settings, {setting}, {_figure(trial[PROGRESSIVE])}. "
        f"It is at least as good as {beaten if beaten < len(tuned) else 'all'} of the {len(tuned)}."
    ]
    if answer == "no" and own[PROGRESSIVE] > NEAR * trial[PROGRESSIVE]:
        words.append("The difference may be chance.")
    if trial["value"] in (best["settings"][0]["value"], best["settings"][-1]["value"]):
        words.append("That setting is the end of what was tried; beyond, there may be a better one.")
    least = min(other[TEST] for _, other in tuned)
    on_test = need(own[TEST], least, test_rows, shares=shares)
    held_out = f"on the {test_rows:,} rows held out it has {_figure(own[TEST])}, the best setting for them "
    if on_test == answer:
        words.append(held_out[0].upper() + held_out[1:] + f"{_figure(least)}.")
    else:
        words.append(f"But {held_out}{_figure(least)}, where the answer would be: {on_test}.")
    if own[TEST] > FAR * own[PROGRESSIVE] and on_test != answer:
        words.append(
            "Rows that follow each other seem to be alike, and the last model is one of the last rows; if their order "
            "means nothing, shuffle them."
        )
    if own[PROGRESSIVE] >= constant[PROGRESSIVE]:
        words.append(f"It is no better than the {constant['learner']}: there may be little to learn here.")
    return {
        "need": answer, "need_on_test": on_test, "learner": untuned, "untuned": own[PROGRESSIVE],
        "best_tuned": trial[PROGRESSIVE], "best_learner": best["learner"], "best_setting": best["setting"],
        "best_value": trial["value"], "settings": len(tuned), "at_least_as_good_as": beaten, "words": " ".join(words),
    }  # fmt: skip


def _figure(error: float) -> str:
    return "none, having diverged" if error == inf else f"{error:.4g}"
