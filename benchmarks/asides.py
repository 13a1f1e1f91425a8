"""Single figures that pages of the site mention in passing: `make bench ARGS=asides`."""

import random
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import scale

import robustfd as rfd
from benchmarks.common import report, turns
from benchmarks.data import load
from robustfd import OnlineNewton, RFDSONClassifier, SketchedNewtonClassifier
from robustfd.experiments.protocol import PAPER_DATA, split

Row = dict[str, Any]


def asides() -> None:
    """Print and save all."""
    report("asides", [*shrinks(), *accuracies(), *outliers(), *spikes(), *listings(), *logged()])


def row(what: str, value: float, unit: str = "") -> Row:
    """Return a row of the report."""
    return {"what": what, "value": value, "unit": unit}


def shrinks() -> list[Row]:
    """Return times of two solvers, and of the diagonal rule and RFD."""
    rng = np.random.default_rng(0)
    ratios, slower = [], []
    for m, d in ((20, 500), (50, 1000), (100, 4000)):
        x = rng.standard_normal((20 * m, d)) / np.arange(1, d + 1)
        kinds: dict[str, Callable[[], Any]] = {
            "gram": lambda m=m: rfd.RobustFrequentDirections(m),
            "svd": lambda m=m: rfd.RobustFrequentDirections(m, solver="svd"),
            "diagonal": lambda m=m: rfd.DiagonalFrequentDirections(m),
        }  # fmt: skip
        times = turns({name: lambda make=make, x=x: make().partial_fit(x) for name, make in kinds.items()}, 5)
        ratios.append(min(times["svd"]) / min(times["gram"]))
        slower.append(min(times["diagonal"]) / min(times["gram"]) - 1)
    return [
        row("a sketch with an SVD, least of three shapes", min(ratios), "times"),
        row("a sketch with an SVD, most of three shapes", max(ratios), "times"),
        row("more time of DiagonalFrequentDirections, most of three shapes", 100 * max(slower), "%"),
    ]


def accuracies() -> list[Row]:
    """Return means of ten splits, 70 % of the rows to learn from, of the learner of the paper and the untuned one."""
    cancer, iris, digits = (
        load(return_X_y=True) for load in (datasets.load_breast_cancer, datasets.load_iris, datasets.load_digits)
    )
    cancer = scale(cancer[0]), cancer[1]
    paper = {"alpha0": 0.0, "normalize_rows": False, "fit_intercept": False}
    asked: dict[str, tuple[Any, Any]] = {
        "breast cancer: settings of the paper": (cancer, lambda: RFDSONClassifier(**paper)),
        "breast cancer: RFDSONClassifier": (cancer, RFDSONClassifier),
        "iris: RFDSONClassifier": (iris, RFDSONClassifier),
        "digits: RFDSONClassifier": (digits, RFDSONClassifier),
        "iris: SketchedNewtonClassifier": (iris, lambda: SketchedNewtonClassifier(random_state=0)),
        "digits: SketchedNewtonClassifier": (digits, lambda: SketchedNewtonClassifier(random_state=0)),
    }
    return [row(name, 100 * accuracy(*rows, make), "%") for name, (rows, make) in asked.items()]


def accuracy(x: Any, y: Any, make: Callable[[], Any]) -> float:
    """Return the mean accuracy on the last 30 % of the rows in ten random orders."""
    found = []
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = np.split(order, [int(0.7 * len(y))])
        found.append(make().fit(x[train], y[train]).score(x[test], y[test]))
    return float(np.mean(found))


def outliers() -> list[Row]:
    """Return how well 8s are told from 3s by a detector that has seen 3,000 of the 3s."""
    x, y = load("mnist")
    threes, eights = x[y == 3], x[y == 8]
    test, labels = np.vstack([threes[3000:], eights]), np.repeat([1, 0], [len(threes) - 3000, len(eights)])
    out = []
    for name, size in (("a sketch", None), ("the exact covariance", x.shape[1] + 1)):
        detector = rfd.MahalanobisDetector() if size is None else rfd.MahalanobisDetector(size)
        found = roc_auc_score(labels, detector.fit(threes[:3000]).score_samples(test))
        out.append(row(f"AUC of 8s among 3s of mnist, {name}", found))
    return out


def spikes() -> list[Row]:
    """Return how certain `SketchedPCA.fit` is of the variances of ten directions above flat noise in 3000 columns."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6000, 3000))
    x[:, :10] *= 5.0
    low, high = rfd.SketchedPCA(50).fit(x).explained_variance_interval_.T
    width = high / low - 1
    return [
        row("ten spikes, certain to", 100 * width[:10].max(), "%"),
        row("the 40 others", 100 * width[10:].max(), "%"),
    ]


def listings() -> list[Row]:
    """Return accuracies in per cent of listings that do not give the numbers of the paper."""
    found: dict[str, list[float]] = {"farm-ads: projection first": [], "a9a: mu = 0": []}
    for shrink_first, buffered in ((False, True), (True, True), (True, False)):
        for m in PAPER_DATA["farm-ads"]["sizes"]:
            listing = {"shrink_first": shrink_first, "buffer_size": 2 * m if buffered else m, "projection": "next"}
            found["farm-ads: projection first"].append(tested("farm-ads", m, **listing))
    for m in PAPER_DATA["a9a"]["sizes"]:
        found["a9a: mu = 0"].append(tested("a9a", m, curvature=0.0))
    return [
        row(f"{name}, {word}", end(values), "%")
        for name, values in found.items() for word, end in (("least", min), ("most", max))
    ]  # fmt: skip


def tested(data: str, m: int, **options: Any) -> float:
    """Return the accuracy of RFD0-SON in per cent, with the protocol of the paper."""
    x, y, x_test, y_test = split(data, None)
    model = OnlineNewton("rfd", m, **options)
    model.learn(x, y)
    return 100 * float(np.mean((model.decision_function(x_test) > 0) == (y_test > 0)))


def logged() -> list[Row]:
    """Return mean rewards of two policies on three logs, as in docs/from-river.md."""
    if find_spec("river") is None:
        return []
    from river import bandit, stats

    rewards: dict[str, list[float]] = {"LinUCBDisjoint of River": [], "ContextualBandit": []}
    for seed in range(3):
        rng, log = random.Random(seed), []
        for _ in range(3000):
            context = {"age": rng.uniform(15, 75), "member": float(rng.random() < 0.5)}
            best = "music" if context["age"] < 30 else "sport" if context["member"] else "news"
            arm = rng.choice(["music", "news", "sport"])
            log.append((["music", "news", "sport"], context, arm, float(rng.random() < (0.8 if arm == best else 0.2))))
        theirs = bandit.LinUCBDisjoint(alpha=1.0, beta=1.0, seed=0)
        rewards["LinUCBDisjoint of River"].append(bandit.evaluate_offline(theirs, log, stats.Mean())[0].get())
        ours = rfd.ContextualBandit(["music", "news", "sport"], random_state=0)
        for _, context, logged_arm, reward in log:
            arm, probability = ours.choose_one(context)
            if arm == logged_arm:
                ours.learn_one(context, arm, reward, probability)
        rewards["ContextualBandit"].append(ours.progressive_reward_)
    return [row(f"reward of {name}, mean of three logs", float(np.mean(values))) for name, values in rewards.items()]
