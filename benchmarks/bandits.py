"""ContextualBandit with default options compared with Vowpal Wabbit, River and MABWiser, on classification as a bandit.

A row is a context, its class the arm that earns 1. All see the same rows in the same order and only the rewards of
their own choices. The number is the mean reward in percent. The sets are those of untuned.py and many.py. Run it with
`make bench ARGS=bandits`, or `python -m benchmarks.bandits --help`. Every finished run is kept in the file `--cache`,
so that a long table can be continued; delete it to start over. The peers are the packages vowpalwabbit, river and
mabwiser, and those that are not installed are left out.
"""

import argparse
import json
import random
import sys
import time
import zlib
from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate, pairwise, product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import many, untuned, vowpal
from benchmarks.common import report, save_markdown
from robustfd import ContextualBandit

MODES = {
    "greedy": "--epsilon 0",
    "epsilon .05": "",
    "bag 5": "--bag 5",
    "cover 5": "--cover 5 --nounif",
    "squarecb": "--squarecb",
    "regcbopt": "--regcbopt",
}
COSTS = {"0/1": (1, 0), "-1/0": (0, -1)}  # of a wrong and of the right arm
VOWPAL = {f"{mode}, {cost}": (MODES[mode], COSTS[cost]) for mode, cost in product(MODES, COSTS)}
WIDEST = 256  # features of the sets on which LinUCB of others runs: it takes d^2 for each arm
Turn = Callable[[int, int], float]  # row and right arm to reward
Task = tuple[str, str, int, int, int]  # set, system, seed, rows, rows for LinUCB


def all_sets() -> dict[str, Callable[[], Any]]:
    """Return the sets of both benchmarks, by name."""
    return dict(untuned.SETS) | {f"many: {name}": make for name, make in many.sets()}


def chooses(name: str) -> bool:
    """Return whether constants of the bandit may be chosen by this set; results are reported on the others."""
    return zlib.crc32(name.encode()) % 3 == 0


@lru_cache(1)
def rows_of(name: str, rows: int, seed: int) -> tuple[Any, Any]:
    """Return a set in random order, with classes from 0."""
    x, y = all_sets()[name]()
    x, y = sp.csr_array(x) if sp.issparse(x) else np.asarray(x, np.float64), np.unique(y, return_inverse=True)[1]
    order = np.random.default_rng(1000 + seed).permutation(len(y))[:rows]
    return x[order], y[order]


def single_rows(x: Any) -> list[Any]:
    """Return rows as `choose_one` takes them: arrays, or pairs of indices and values."""
    if not sp.issparse(x):
        return list(x)
    ends = zip(x.indptr[:-1], x.indptr[1:], strict=True)
    return [(x.indices[a:b].copy(), x.data[a:b].copy()) for a, b in ends]


def turns_of(bandit: ContextualBandit, rows: list[Any]) -> Turn:
    """Return one turn of a bandit."""

    def turn(i: int, right: int) -> float:
        arm, probability = bandit.choose_one(rows[i])
        bandit.learn_one(rows[i], arm, reward := float(arm == right), probability)
        return reward

    return turn


def with_robustfd(x: Any, y: Any, seed: int) -> Turn:
    """Return one turn of the bandit."""
    return turns_of(ContextualBandit(range(int(y.max()) + 1), random_state=seed), single_rows(x))


last_lines: list[Any] = [None, None]  # rows and their lines: all modes see the same ones


def lines_of(x: Any) -> list[str]:
    """Return rows as lines, unless they are those of the last call."""
    if last_lines[0] is not x:
        last_lines[:] = x, vowpal.lines(x)
    return last_lines[1]


class Vowpal:
    """A bandit of Vowpal Wabbit, which gets a line for the context and one for each arm."""

    def __init__(self, d: int, arms: int, seed: int, mode: str):
        from vowpalwabbit import Workspace

        options, self.costs = VOWPAL[mode]
        bits = max(18, int(np.ceil(np.log2((d + 1) * (arms + 1)))) + 1)
        self.model: Any = Workspace(f"--cb_explore_adf -q sa --quiet -b {bits} {options}")
        self.draws = random.Random(seed)
        self.arms = [f"|a a{k}" for k in range(arms)]

    def parse(self, line: str) -> Any:
        """Return the examples of a row."""
        return self.model.parse([f"shared |s {line[2:]}", *self.arms])

    def turn(self, examples: Any, right: int) -> float:
        """Choose and learn."""
        chances = self.model.predict(examples)
        arm = min(bisect_right(list(accumulate(chances)), self.draws.random()), len(chances) - 1)
        examples[arm + 1].set_label_string(f"0:{self.costs[int(arm == right)]}:{chances[arm]:.6g}")
        self.model.learn(examples)
        return float(arm == right)


def with_vowpal(x: Any, y: Any, seed: int, mode: str) -> Turn:
    """Return one turn of a mode of Vowpal Wabbit."""
    model, lines = Vowpal(x.shape[1], int(y.max()) + 1, seed, mode), lines_of(x)

    def turn(i: int, right: int) -> float:
        reward = model.turn(examples := model.parse(lines[i]), right)
        model.model.finish_example(examples)
        return reward

    return turn


def with_river(x: Any, y: Any, seed: int) -> Turn:
    """Return one turn of River's LinUCB."""
    from river.bandit import LinUCBDisjoint

    policy, arms = LinUCBDisjoint(seed=seed), list(range(int(y.max()) + 1))
    dicts = (
        [dict(zip(row.indices.tolist(), row.data.tolist(), strict=True)) for row in map(sp.csr_array, x)]
        if (sp.issparse(x))
        else [dict(enumerate(row.tolist())) for row in x]
    )

    def turn(i: int, right: int) -> float:
        arm = policy.pull(arms, context=dicts[i])
        policy.update(arm, dicts[i], reward := float(arm == right))
        return reward

    return turn


def with_mabwiser(x: Any, y: Any, seed: int) -> Turn:
    """Return one turn of MABWiser's LinUCB, whose first row is a failure of each arm."""
    from mabwiser.mab import MAB, LearningPolicy

    arms, rows = list(range(int(y.max()) + 1)), x.toarray() if sp.issparse(x) else x
    model = MAB(arms, LearningPolicy.LinUCB(alpha=1.0), seed=seed)
    model.fit(arms, [0] * len(arms), np.zeros((len(arms), x.shape[1])))

    def turn(i: int, right: int) -> float:
        arm = model.predict(rows[i : i + 1])
        model.partial_fit([arm], [reward := int(arm == right)], rows[i : i + 1])
        return float(reward)

    return turn


PEERS = {"River LinUCB": with_river, "MABWiser LinUCB": with_mabwiser}


def measure(task: Task) -> tuple[str, Any]:
    """Return the key of a run, and its reward, its reward on the first `first` rows, microseconds, rows, features."""
    name, system, seed, rows, first = task
    x, y = rows_of(name, rows, seed)
    if system in PEERS:
        x, y = x[:first], y[:first]
    make = {"here": with_robustfd, **PEERS}.get(system) or (lambda *given: with_vowpal(*given, system))
    turn, begin = make(x, y, seed), time.process_time()
    rewards = [turn(i, right) for i, right in enumerate(y.tolist())]
    took = 1e6 * (time.process_time() - begin) / len(y)
    return key_of(task), [100 * np.mean(rewards), 100 * np.mean(rewards[:first]), took, len(y), x.shape[1]]


def key_of(task: Task) -> str:
    """Return the name of a run in the cache."""
    return " | ".join(map(str, task))


def measure_or_skip(task: Task) -> tuple[str, Any]:
    """Do the same as `measure`; the result is None if the data or the package is missing, or rows are too wide."""
    name, system, seed, rows, _ = task
    try:
        if system in PEERS and rows_of(name, rows, seed)[0].shape[1] > WIDEST:
            return key_of(task), None
        return measure(task)
    except (FileNotFoundError, ImportError):
        return key_of(task), None


def run_all(given: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return the runs of each set by system: (seeds, 5) as in `measure`."""
    seeds = {"here": given.seeds} | dict.fromkeys(VOWPAL, given.vowpal_seeds) | dict.fromkeys(PEERS, given.peer_seeds)
    names = sorted(given.names or all_sets(), key=chooses, reverse=True)
    tasks = [
        (name, system, seed, given.rows, given.first)
        for seed, name, system in product(range(max(seeds.values())), names, seeds)
        if seed < seeds[system]
    ]
    cache = json.loads(given.cache.read_text()) if given.cache.exists() else {}
    given.cache.parent.mkdir(parents=True, exist_ok=True)
    with get_context("spawn").Pool(given.jobs) as pool:
        for key, result in pool.imap(measure_or_skip, [task for task in tasks if key_of(task) not in cache]):
            cache[key] = result
            given.cache.write_text(json.dumps(cache, indent=0))
            print(f"{key}: {'skipped' if result is None else f'{result[0]:.1f}'}", flush=True)
    found: dict[str, dict[str, Any]] = {}
    for task in tasks:
        if (result := cache[key_of(task)]) is not None:
            found.setdefault(task[0], {}).setdefault(task[1], []).append(result)
    return {name: {system: np.array(runs) for system, runs in each.items()} for name, each in found.items()}


def best_mode(runs: dict[str, Any]) -> str:
    """Return the mode of Vowpal Wabbit with the largest mean reward, or "" without Vowpal Wabbit."""
    return max((mode for mode in VOWPAL if mode in runs), key=lambda mode: runs[mode][:, 0].mean(), default="")


def summary(title: str, sets: list[dict[str, Any]]) -> str:
    """Return a sentence about the means of some sets."""
    ours = np.array([runs["here"][:, 0].mean() for runs in sets])
    modes = {mode: np.mean([runs[mode][:, 0].mean() for runs in sets]) for mode in VOWPAL}
    best = max(modes, key=lambda mode: modes[mode])
    gap = ours - [runs[best_mode(runs)][:, 0].mean() for runs in sets]
    return (
        f"- {title} ({len(sets)}): {ours.mean():.1f} here, {modes[best]:.1f} by Vowpal Wabbit's best single mode "
        f"({best}), {(ours - gap).mean():.1f} by its best mode for each set in hindsight. At least the latter on "
        f"{np.sum(gap >= 0)}; the largest deficit is {max(-gap.min(), 0):.1f} points."
    )


def bandits(arguments: list[str] | None = None) -> None:
    """Run what is missing, print and save the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="sets, by default all")
    parser.add_argument("--rows", type=int, default=2000, help="at most so many of each set")
    parser.add_argument("--first", type=int, default=500, help="rows on which LinUCB of others runs, which is slow")
    parser.add_argument("--seeds", type=int, default=2, help="random orders of the rows")
    parser.add_argument("--vowpal-seeds", type=int, default=2)
    parser.add_argument("--peer-seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--cache", type=Path, default=Path("build/bandits.json"))
    given = parser.parse_args(arguments or [])
    found = run_all(given)
    command = f"python -m benchmarks.bandits {' '.join(arguments or [])}".strip()
    text = [
        f"Made by `{command}` on a machine that had other work.",
        f"At most {given.rows} rows, in {given.seeds} random orders here, {given.vowpal_seeds} for Vowpal Wabbit and "
        f"{given.peer_seeds} for LinUCB, each with its own seed.",
        f"Vowpal Wabbit has {len(VOWPAL)} modes: {', '.join(MODES)}, each with costs {' and '.join(COSTS)}. LinUCB of "
        f"River and MABWiser runs on the first {given.first} rows of sets with at most {WIDEST} features.",
        "Constants of the bandit were chosen on the sets with a *: how variances grow with learning rates, and whether "
        "arms have bettors and several priors (3 settings on 2,000 rows: 82.4, 82.5 and 82.4 points). Times are CPU "
        "microseconds of a choice and its learning, with Vowpal Wabbit's parsing.",
        "",
    ]
    full = {name: runs for name, runs in found.items() if best_mode(runs)}
    if full:
        text.append(summary("All sets", list(full.values())))
        if reported := [runs for name, runs in full.items() if not chooses(name)]:
            text.append(summary("Sets without a *", reported))
    for peer in PEERS:
        if some := [runs for runs in found.values() if peer in runs]:
            here = np.mean([runs["here"][: given.peer_seeds, 1].mean() for runs in some])
            theirs = np.mean([runs[peer][:, 0].mean() for runs in some])
            text.append(f"- {peer}, on its {len(some)} sets: {theirs:.1f}, {here:.1f} here on the same rows.")
    text += [
        "",
        f"| data | here | best VW mode in hindsight | {' | '.join(PEERS)} | us here | us VW |",
        "|" + "---|" * 7,
    ]
    for name, runs in sorted(found.items()):
        best, ours = best_mode(runs), runs["here"].mean(axis=0)
        top = runs[best].mean(axis=0) if best else np.full(5, np.nan)
        peers = " | ".join(f"{runs[peer][:, 0].mean():.1f}" if peer in runs else "" for peer in PEERS)
        data = name + "*" * chooses(name)
        text.append(f"| {data} | {ours[0]:.1f} | {top[0]:.1f} ({best}) | {peers} | {ours[2]:.0f} | {top[2]:.0f} |")
    print("\n".join(text))
    if not given.names:
        save_markdown("bandits", "\n".join(text), "vowpalwabbit", "river", "mabwiser")


# -- speed


def sparse_rows(n: int, d: int, arms: int) -> tuple[Any, Any]:
    """Return rows with 30 non-zeros of d, and their right arms."""
    rng = np.random.default_rng(0)
    x = np.zeros((n, d))
    columns = np.argsort(rng.random((n, d)), axis=1)[:, :30]
    np.put_along_axis(x, columns, rng.standard_normal((n, 30)), axis=1)
    return x, (x @ rng.standard_normal((d, arms))).argmax(axis=1)


def bandits_speed(n: int = 6000, arms: int = 10) -> None:
    """Time a choice and its learning for rows of 30 non-zeros, beside Vowpal Wabbit on examples parsed before.

    Vowpal Wabbit gets the first third of the rows, because parsed examples take much memory; its time is constant.
    """
    rows = []
    for title, d, form in (
        ("arrays", 30, "rows"), ("dicts", 30, "dicts"), ("pairs, d = 200", 200, "pairs"),
        ("dicts, d = 200", 200, "dicts"), ("arrays, d = 1000: blocks", 1000, "rows"),
        ("pairs, d = 1000: blocks", 1000, "pairs"), ("dicts, d = 1000: blocks", 1000, "dicts"),
    ):  # fmt: skip
        x, y = sparse_rows(n, d, arms)
        given = single_rows(x if form == "rows" else sp.csr_array(x))
        if form == "dicts":
            given = [{f"f{j}": v for j, v in zip(*map(np.ndarray.tolist, pair), strict=True)} for pair in given]
        ours = _fastest(_play, given, y, arms)
        theirs = _fastest(_play_vowpal, x[: n // 3], y[: n // 3], arms) if vowpal.available() else np.full(3, np.nan)
        for k, when in enumerate(("first 640 rows", f"last {n // 2} rows", f"all {n} rows")):
            goal = {"goal": "<= 30 us", "met": bool(ours[k] <= 30)} if k == 1 and d == 30 else {}
            rows.append({"what": f"{title}, {when}", "value": ours[k], "unit": "us", **goal})
            rows.append({"what": "    ratio to Vowpal Wabbit (greedy), parsed before", "value": ours[k] / theirs[k]})
    report("bandits_speed", rows)


def _fastest(play: Callable[[Any, Any, int], Any], x: Any, y: Any, arms: int) -> Any:
    return np.min([play(x, y, arms) for _ in range(3)], axis=0)


def _times(turn: Turn, right: list[int]) -> tuple[float, float, float]:
    """Return the CPU microseconds of each of the first 640 rows, of the second half, and of all rows."""
    ends, times = [0, 640, len(right) // 2, len(right)], [time.process_time()]
    for begin, end in pairwise(ends):
        for i in range(begin, end):
            turn(i, right[i])
        times.append(time.process_time())
    parts = [(0, 1), (2, 3), (0, 3)]
    early, late, whole = (1e6 * (times[b] - times[a]) / (ends[b] - ends[a]) for a, b in parts)
    return early, late, whole


def _play(rows: list[Any], y: Any, arms: int) -> tuple[float, float, float]:
    return _times(turns_of(ContextualBandit(range(arms), random_state=0), rows), y.tolist())


def _play_vowpal(x: Any, y: Any, arms: int) -> tuple[float, float, float]:
    model = Vowpal(x.shape[1], arms, 0, "greedy, -1/0")
    examples = [model.parse(line) for line in vowpal.lines(x)]
    return _times(lambda i, best: model.turn(examples[i], best), y.tolist())


if __name__ == "__main__":
    bandits(sys.argv[1:])
