"""ContextualBandit with default options compared with Vowpal Wabbit's exploration modes, on classification as a bandit.

A row is a context, its class the arm that earns 1. Both see the same rows in the same order and only the rewards of
their own choices. The number is the mean reward in percent. Run it with `make bench ARGS=bandits`, or
`python -m benchmarks.bandits ROWS SEEDS [names]`.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import many, untuned, vowpal
from benchmarks.common import RESULTS
from robustfd import ContextualBandit

ROWS, SEEDS = 1000, 1
MODES = {
    "greedy": "--epsilon 0",
    "epsilon .05": "",
    "bag 5": "--bag 5",
    "cover 5": "--cover 5 --nounif",
    "squarecb": "--squarecb",
    "regcbopt": "--regcbopt",
    "rnd 3": "--rnd 3 --epsilon 0",
}
COSTS = {"0/1": (1, 0), "-1/0": (0, -1)}  # of a wrong and of the right arm


def with_robustfd(x: Any, y: Any, seed: int) -> tuple[float, float]:
    """Return the mean reward and the CPU microseconds of a choice and its learning."""
    bandit, arms = ContextualBandit(range(int(y.max()) + 1), random_state=seed), y.tolist()
    rows: Any = list(x)
    if sp.issparse(x):
        ends = zip(x.indptr[:-1], x.indptr[1:], strict=True)
        rows = [(x.indices[a:b].copy(), x.data[a:b].copy()) for a, b in ends]
    begin = time.process_time()
    for row, arm in zip(rows, arms, strict=True):
        choice, probability = bandit.choose_one(row)
        bandit.learn_one(row, choice, float(choice == arm), probability)
    return 100 * bandit.progressive_reward_, 1e6 * (time.process_time() - begin) / len(arms)


def with_vowpal(
    lines: list[str], y: Any, d: int, seed: int, options: str, costs: tuple[int, int]
) -> tuple[float, float]:
    """Do the same with Vowpal Wabbit, which gets one line for the context and one for each arm."""
    from vowpalwabbit import Workspace

    count = int(y.max()) + 1
    bits = max(18, int(np.ceil(np.log2((d + 1) * (count + 1)))) + 1)
    model = Workspace(f"--cb_explore_adf -q sa --quiet -b {bits} {options}")
    draws, earned, begin = np.random.default_rng(seed).random(len(y)).tolist(), 0, time.process_time()
    for line, label, draw in zip(lines, y.tolist(), draws, strict=True):
        shared = f"shared |s {line[2:]}"
        chances = model.predict([shared, *(f"|a a{k}" for k in range(count))])
        arm = min(int(np.searchsorted(np.cumsum(chances), draw, side="right")), count - 1)
        cost = costs[int(arm == label)]
        earned += arm == label
        given = [f"0:{cost}:{chances[arm]:.6g} " if k == arm else "" for k in range(count)]
        model.learn([shared, *(f"{before}|a a{k}" for k, before in enumerate(given))])
    took = 1e6 * (time.process_time() - begin) / len(y)
    model.finish()
    return 100 * earned / len(y), took


def compare(make: Callable[[], Any], rows: int, seeds: int) -> tuple[Any, dict[str, Any]]:
    """Return rewards and times (seeds, 2) of robustfd, and of each mode of Vowpal Wabbit if it is installed."""
    x, y = make()
    x, y = sp.csr_array(x) if sp.issparse(x) else np.asarray(x, np.float64), np.unique(y, return_inverse=True)[1]
    ours, theirs = [], {}
    for seed in range(seeds):
        order = np.random.default_rng(1000 + seed).permutation(len(y))[:rows]
        some, labels = x[order], y[order]
        ours.append(with_robustfd(some, labels, seed))
        if vowpal.available():
            lines = vowpal.lines(some)
            for mode, options in MODES.items():
                for cost, ends in COSTS.items():
                    score = with_vowpal(lines, labels, x.shape[1], seed, options, ends)
                    theirs.setdefault(f"{mode}, {cost}", []).append(score)
    return np.array(ours), {mode: np.array(scores) for mode, scores in theirs.items()}


def bandits(rows: int = ROWS, seeds: int = SEEDS, names: list[str] | None = None) -> None:
    """Print and save the table."""
    sets = dict(untuned.SETS) | {f"many: {name}": make for name, make in many.sets()}
    table = [
        f"At most {rows} rows, {seeds} seeds.",
        "",
        "| data | here | best VW mode in hindsight | us here | us VW |",
        "|---|---|---|---|---|",
    ]
    print("\n".join(table), flush=True)
    all_ours, all_theirs = [], []
    for name in names or untuned.SETS:
        try:
            ours, theirs = compare(sets[name], rows, seeds)
        except (FileNotFoundError, RuntimeError) as error:
            print(f"{name} skipped: {error}")
            continue
        means = {mode: scores.mean(axis=0) for mode, scores in theirs.items()}
        best = max(means, key=lambda mode: means[mode][0]) if means else ""
        top, took = means.get(best, (np.nan, np.nan))
        all_ours.append(ours.mean(axis=0)[0])
        all_theirs.append([scores[0] for scores in means.values()])
        table.append(f"| {name} | {all_ours[-1]:.1f} | {top:.1f} ({best}) | {ours[:, 1].mean():.0f} | {took:.0f} |")
        print(table[-1], flush=True)
    if all_theirs and all_theirs[0]:
        mean = np.mean(all_theirs, axis=0)
        best = int(mean.argmax())
        hindsight = np.max(all_theirs, axis=1)
        gap = np.array(all_ours) - hindsight
        summary = (
            f"Means of {len(gap)} sets: {np.mean(all_ours):.1f} here, {mean[best]:.1f} by Vowpal Wabbit's best single "
            f"mode ({list(theirs)[best]}), {hindsight.mean():.1f} by its best mode for each set in hindsight. At least "
            f"the latter on {np.sum(gap >= 0)} sets; the largest deficit is {max(-gap.min(), 0):.1f} points."
        )
        table += ["", summary]
        print(table[-1])
    if not names:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "bandits.md").write_text("\n".join(table) + "\n")


if __name__ == "__main__":
    given = sys.argv[1:]
    bandits(*(int(each) for each in given[:2]), names=given[2:] or None)
