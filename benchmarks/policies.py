"""Policies on logs: coverage of the betting interval and accuracy of the estimates, on logs whose answer is known.

`make bench ARGS=policies` prints the table and writes results/policies.md. Rows of a classification problem are
contexts, classes are actions, and the reward is 1 for the right class. The policy to evaluate is a logistic
regression that never explores. Another one, learned from fewer rows, made the logs, in three ways. Each repetition
draws a log with replacement, so that the value of the policy is its accuracy on all rows.
"""

import importlib.util
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.common import save_markdown
from benchmarks.data import folder
from robustfd import evaluate_policy

REPETITIONS = 200
ROWS = 1500
LEVEL = 0.95


def _generated(k: int, d: int, seed: int) -> tuple[Any, Any]:
    return make_classification(
        3000, d, n_informative=8, n_classes=k, n_clusters_per_class=1, class_sep=0.8, random_state=seed
    )


def sets() -> dict[str, tuple[Any, Any]]:
    """Return rows and classes by name; segment only with River, and covtype only if it is in ROBUSTFD_DATA."""
    found = {
        "digits, 10 actions": load_digits(return_X_y=True),
        "generated, 5 actions": _generated(5, 12, 1),
        "generated, 7 actions": _generated(7, 19, 2),
    }
    if importlib.util.find_spec("river"):
        from river.datasets import ImageSegments

        rows, labels = zip(*ImageSegments(), strict=True)
        found["segment, 7 actions"] = np.array([list(row.values()) for row in rows], float), np.array(labels)
    path = folder()
    if path is not None and (path / "covtype.npz").exists():
        with np.load(path / "covtype.npz") as file:
            x, y = (file[name] for name in sorted(file.files, key=lambda name: -file[name].ndim)[:2])
        some = np.random.default_rng(0).choice(len(y), 3000, replace=False)
        found["covtype"] = x[some].astype(float), y[some]
    return found


def logs(scores: Any) -> dict[str, Any]:
    """Return the probabilities of all actions under which each kind of log was made."""
    k = scores.shape[1]
    greedy = np.eye(k)[scores.argmax(axis=1)]
    return {
        "epsilon-greedy .1": 0.9 * greedy + 0.1 / k,
        "softened, floor .02": (1 - 0.02 * k) * np.sqrt(scores) / np.sqrt(scores).sum(axis=1, keepdims=True) + 0.02,
        "greedy, floor .02": 0.98 * greedy + 0.02 / k,
    }


def one_case(wanted: Any, y: Any, probabilities: Any, model: Any, rng: Any, repetitions: int, rows: int) -> Any:
    """Return coverage and mean width of the betting and of the normal interval, and the errors of the estimates.

    `wanted` are the actions of the policy, `y` the right ones, `model` the predicted rewards of all actions.
    """
    value = (wanted == y).mean()
    found = []
    for _ in range(repetitions):
        at = rng.integers(len(y), size=rows)
        action = (probabilities[at].cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
        agrees, reward = action == wanted[at], (action == y[at]).astype(float)
        logged = probabilities[at, action]
        result = evaluate_policy(
            agrees, reward, logged, predicted=(model[at, action], model[at, wanted[at]]), level=LEVEL
        )
        low, high = result.interval
        half = 1.96 * (agrees / logged * reward).std() / np.sqrt(rows)
        errors = np.square(np.array([result.ips, result.snips, result.dr]) - value)
        found.append([low <= value <= high, high - low, abs(result.ips - value) <= half, 2 * half, *errors])
    means = np.mean(found, axis=0)
    return np.concatenate([means[:4], np.sqrt(means[4:])])


def table(repetitions: int = REPETITIONS, rows: int = ROWS) -> tuple[list[str], float]:
    """Return the lines of the table, and the lowest coverage."""
    lines = [
        "| rows | log | betting: covers % | width | normal: covers % | width | error of IPS | SNIPS | DR |",
        "|---" * 9 + "|",
    ]
    lowest = 1.0
    for name, (x, labels) in sets().items():
        y = np.unique(labels, return_inverse=True)[1]
        order = np.random.default_rng(1).permutation(len(y))
        few, more, rest = order[:200], order[200:700], order[700:]
        old, new = (
            make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(x[part], y[part])
            for part in (few, more)
        )
        scores = np.zeros((len(rest), y.max() + 1))
        scores[:, old.classes_] = old.predict_proba(x[rest])
        for number, (kind, probabilities) in enumerate(logs(scores).items()):
            rng = np.random.default_rng(number)
            case = one_case(new.predict(x[rest]), y[rest], probabilities, scores, rng, repetitions, rows)
            lowest = min(lowest, case[0])
            parts = (f"{100 * v:.1f}" if i in (0, 2) else f"{v:.3f}" for i, v in enumerate(case))
            lines.append(f"| {name} | {kind} | {' | '.join(parts)} |")
            print(lines[-1], flush=True)
    return lines, lowest


def policies() -> None:
    """Run all cases and write the table."""
    print("\npolicies")
    lines, lowest = table()
    about = (
        f"Logs of {ROWS:,} rows, {REPETITIONS} repetitions, level {100 * LEVEL:g} %. The normal interval is that\n"
        "of IPS. Errors are root mean squared. The model behind DR learned other rows than those of the log.\n"
        f"The goal is that the betting interval covers at least {100 * LEVEL:g} % in every case. The lowest coverage\n"
        f"is {100 * lowest:.1f} %.\n"
    )
    save_markdown("policies", "# Policies on logs\n\n" + about + "\n" + "\n".join(lines))


if __name__ == "__main__":
    policies()
