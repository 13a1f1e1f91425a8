"""Linear bandits: regret with the exact matrix, and with sketches of fixed size and of growing size.

In each round, the features of K arms are normal, with standard deviations i^-power. Rewards are x'w plus noise of size
0.1, and w is a random unit vector. The regret of a choice is the expected reward of the best arm minus that of the
chosen one.
"""

import pickle
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from robustfd import SketchedLinUCB
from robustfd.experiments.cells import Cell, Result, Row, Table, Verdict, cell, listed, per_data_set, select
from robustfd.experiments.figures import Figure, Style, panels

TITLE = "Linear bandits"
CLAIM = (
    "A sketch of fixed size loses directions, and in the long run its regret goes on growing. RFD that doubles its "
    "size when the certificate exceeds the prior keeps up with the exact matrix."
)
NOISE = 0.1
GOAL = 1.5  # times the regret of the exact matrix
MEMORY = 8  # times m (d + K), the largest state; both m <= d + 1 and 2 m rows with their kernel matrix make it 6
START = 20  # m
POINTS = 100  # of a curve


class Case(NamedTuple):
    """A problem: features, arms, decay of the features, rounds, seeds; and rounds of a quick run."""

    d: int
    arms: int
    power: float
    rounds: int
    seeds: int = 1
    quick: int | None = None


CASES = {
    "d = 100, 10 arms, flat": Case(100, 10, 0.0, 2000, 5),
    "d = 100, 10 arms, 1/i": Case(100, 10, 1.0, 2000, 5),
    "d = 300, 20 arms, 1/√i": Case(300, 20, 0.5, 1500, 5),
    "d = 1000, 100 arms, 1/i": Case(1000, 100, 1.0, 2000, quick=600),
    "d = 1000, 100 arms, 1/√i": Case(1000, 100, 0.5, 2000, quick=600),
}
METHODS: dict[str, dict[str, Any]] = {
    "exact": {"method": "exact"},
    "FD": {"method": "fd"},
    "SCFD": {"method": "scfd"},
    "RFD": {"growth": None},
    "RFD, grows": {},
}
STYLES = {
    "exact": Style("exact matrix", "ink", dash="--"),
    "FD": Style("FD (SOFUL)", "fd"),
    "SCFD": Style("SCFD", "cfd"),
    "RFD": Style("RFD, fixed size", "oja"),
    "RFD, grows": Style("RFD, doubled", "rfd", width=2.2),
}


def cells(*, quick: bool) -> list[Cell]:
    """Return a cell for each problem, method and seed."""
    out = []
    for name, case in CASES.items():
        rounds = case.quick or case.rounds if quick else case.rounds
        for method in METHODS:
            n = min(rounds / 2, 1.25 * case.d) if method in ("exact", "RFD, grows") else 1.5 * START  # rows of a sketch
            effort = rounds * (3e-4 + 2e-8 * case.arms * case.d + 1.3e-10 * case.arms * n * (2 * case.d + n))
            for seed in range(1 if quick else case.seeds):
                out.append(cell("bandits", name, effort=effort, method=method, seed=seed, rounds=rounds))
    return out


def play(case: Case, seed: int, **settings: Any) -> tuple[Any, SketchedLinUCB]:
    """Return the regret up to each round, and the bandit after all of them."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(case.d)
    w /= np.linalg.norm(w)
    scales = np.arange(1.0, case.d + 1) ** -case.power
    bandit, lost = SketchedLinUCB(**{"sketch_size": START} | settings, random_state=seed), np.zeros(case.rounds)
    for t in range(case.rounds):
        arms = rng.standard_normal((case.arms, case.d)) * scales
        chosen, _ = bandit.choose(arms)
        rewards = arms @ w
        lost[t] = rewards.max() - rewards[chosen]
        bandit.learn(arms[chosen], rewards[chosen] + NOISE * rng.standard_normal())
    return np.cumsum(lost), bandit


def run(cell: Cell) -> Result:
    """Return points of the curve of regret, the last m, and the size of the state in numbers."""
    case = CASES[cell.data]._replace(rounds=cell["rounds"])
    curve, bandit = play(case, cell["seed"], **METHODS[cell["method"]])
    shown = np.unique(np.linspace(1, case.rounds, min(POINTS, case.rounds)).astype(int))
    return {"rounds": shown.tolist(), "regret": curve[shown - 1].tolist(), "m": bandit.sketch_size_,
            "numbers": len(pickle.dumps(bandit)) // 8}  # fmt: skip


def table(results: Mapping[Cell, Result]) -> list[Row]:
    """Return a row for each point of each curve."""
    return [
        {"data": c.data, "method": c["method"], "seed": c["seed"], "round": t, "regret": regret, "m": r["m"],
         "numbers": r["numbers"]}
        for c, r in sorted(results.items(), key=lambda pair: list(CASES).index(pair[0].data))
        for t, regret in zip(r["rounds"], r["regret"], strict=True)
    ]  # fmt: skip


def figures(found: Sequence[Row]) -> list[Figure]:
    """Return a panel for each problem: the mean regret of the seeds against the rounds."""
    caption = (
        f"Regret against rounds, means of the seeds; sketches start with m = {START}. A flat curve has learned the "
        "weights. FD is that of SOFUL (Kuzborskij et al. 2019), and SCFD that of CBSCFD (Chen et al. 2020), both with "
        "the exploration of RFD."
    )
    legend = list(STYLES.values())
    return [Figure("bandits", "Linear bandits: regret", caption, panels(_draw, found), legend, left=0.64)]


def _draw(rows: Sequence[Row], ax: Any) -> None:
    for method, style in reversed(STYLES.items()):  # the exact matrix on top of what is equal to it
        line = _mean_curve(rows, method)
        ax.plot(list(line), list(line.values()), **style.line())
    ax.set_xlim(0, None)
    ax.set_ylim(0, None)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.set_xlabel("rounds")
    ax.set_ylabel("regret")


def _mean_curve(rows: Sequence[Row], method: str) -> dict[int, float]:
    found: dict[int, list[float]] = {}
    for row in select(rows, method=method):
        found.setdefault(row["round"], []).append(row["regret"])
    return {t: float(np.mean(values)) for t, values in found.items()}


def _ends(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the last point of each seed, by method."""
    last = max(row["round"] for row in rows)
    return {method: found for method in METHODS if (found := select(rows, method=method, round=last))}


def _regret(ends: Sequence[Row]) -> float:
    return float(np.mean([row["regret"] for row in ends]))


def summary(found: Sequence[Row]) -> dict[str, float]:
    """Return the regrets of the table, and the least and the most of what the verdicts compare."""
    out: dict[str, float] = {}
    compared: dict[str, list[float]] = {}
    for name in dict.fromkeys(row["data"] for row in found):
        ends, case = _ends(select(found, data=name)), CASES[name]
        regrets = {method: _regret(rows) for method, rows in ends.items()}
        out |= {f"{name}: {STYLES[method].label}": regret for method, regret in regrets.items()}
        for method in ("RFD, grows", "FD"):
            if {"exact", method} <= set(ends):
                ratio = regrets[method] / regrets["exact"]
                compared.setdefault(f"{STYLES[method].label} to the exact matrix", []).append(ratio)
        if grown := ends.get("RFD, grows"):
            m, numbers = max(row["m"] for row in grown), max(row["numbers"] for row in grown)
            out[f"{name}: last m"] = m
            compared.setdefault("memory in m (d + K) numbers", []).append(numbers / (m * (case.d + case.arms)))
    for what, values in compared.items():
        out |= {f"{what}, least": min(values), f"{what}, most": max(values)}
    return out


def display(found: Sequence[Row]) -> list[Table]:
    """Return the table of the literature: regret by problem and method."""
    lines = []
    for name in dict.fromkeys(row["data"] for row in found):
        rows = select(found, data=name)
        ends, rounds = _ends(rows), max(row["round"] for row in rows)
        numbers = [f"{_regret(ends[method]):.1f}" if method in ends else "" for method in METHODS]
        both = {"exact", "RFD, grows"} <= set(ends)  # cells may have failed
        ratio = f"{_regret(ends['RFD, grows']) / _regret(ends['exact']):.2f}" if both else ""
        sizes = listed(sorted({row["m"] for row in ends.get("RFD, grows", [])}))
        lines.append([name, f"{rounds:,}", str(len({row["seed"] for row in rows})), *numbers, ratio, sizes])
    names = [STYLES[method].label for method in METHODS]
    note = (
        f"Means of the seeds. Sketches start with m = {START}. The ratio is that of RFD, doubled, to the exact matrix, "
        "and m its last size. m = d + 1 is exact: a flat spectrum has no smaller sketch."
    )
    header = ["problem", "rounds", "seeds", *names, "ratio", "m"]
    return [Table("Regret after all rounds", header, lines, note, opened=True)]


@per_data_set
def verdicts(name: str, rows: list[Row]) -> list[Verdict]:
    """Return whether RFD that grows keeps up with the exact matrix in O(m (d + K)) memory, and fixed sizes compared."""
    ends, case, out = _ends(rows), CASES[name], []
    if {"exact", "RFD, grows"} <= set(ends):
        grown = ends["RFD, grows"]
        ratio = _regret(grown) / _regret(ends["exact"])
        m, numbers = max(row["m"] for row in grown), max(row["numbers"] for row in grown)
        share = numbers / (m * (case.d + case.arms))
        out.append(Verdict(
            "holds" if ratio <= GOAL and share <= MEMORY else "fails",
            f"{name}: the regret of RFD, doubled, is within {GOAL} of the exact matrix, in O(m (d + K)) memory",
            f"{ratio:.2f} times; {share:.1f} m (d + K) numbers in memory, with m = {m}",
        ))  # fmt: skip
    if {"RFD", "FD", "SCFD"} <= set(ends):
        fixed = {method: _regret(ends[method]) for method in ("RFD", "FD", "SCFD")}
        best = fixed["RFD"] <= 1.02 * min(fixed.values())
        out.append(Verdict(
            "holds" if best else "differs", f"{name}: of the sketches of fixed size, RFD has the least regret",
            listed(f"{STYLES[method].label} {value:.1f}" for method, value in fixed.items()),
            "" if best else "Which sketch of fixed size loses the least depends on the problem.",
        ))  # fmt: skip
    return out
