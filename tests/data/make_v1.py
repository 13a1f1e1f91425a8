"""Write the snapshots of format version 1 that must load for ever, and the numbers they must give.

The files in v1/ (sketches) and v1-learners/ were written by this script once, when their class was new, and are never
written again: they stand for the files that users have. The script is kept to show what is in them, and as the
pattern for the files of a next version. It adds the files of a new class and refuses to overwrite.

    python tests/data/make_v1.py
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp

import robustfd as rf

FOLDER = Path(__file__).parent / "v1"
FOLDER_OF_LEARNERS = Path(__file__).parent / "v1-learners"


def rows(n, d=7, seed=0):
    """Rows with few digits, so that they are the same everywhere."""
    return np.round(np.random.RandomState(seed).standard_normal((n, d)) * np.arange(1, d + 1), 2) + 0.5


def sparse_rows(n, d=60, seed=0):
    keep = np.random.RandomState(seed + 1).random_sample((n, d)) < 0.08
    return sp.csr_array(np.where(keep, rows(n, d, seed), 0.0))


def sketches():
    """Return sketches by name, each with something that a snapshot has to keep."""
    frame = pd.DataFrame(rows(23), columns=list("abcdefg"))
    weight = np.round(np.random.RandomState(5).random_sample(23) + 0.1, 2)
    return {
        "fd-waiting-dense": rf.FrequentDirections(4).fit(rows(25)),
        "rfd-centred-decayed-names": rf.RobustFrequentDirections(
            4, center=True, decay=0.98, alpha0=0.25, buffer_size=6
        ).fit(frame, sample_weight=weight),
        "rfd-waiting-sparse-centred": rf.RobustFrequentDirections(5, center=True).fit(sparse_rows(40)),
        "rfd-waiting-mixed": rf.RobustFrequentDirections(5).fit(sparse_rows(8)).partial_fit(sparse_rows(1).toarray()),
        "rfd-float32-forgotten": rf.RobustFrequentDirections(4).fit(rows(23).astype(np.float32)).forget(0.5),
        "rfd-one-row": rf.RobustFrequentDirections(4).fit(rows(1)),
        "pfd": rf.ParameterizedFrequentDirections(6, beta=0.4).fit(rows(30)),
        "cfd-svd": rf.CompensativeFrequentDirections(4, solver="svd").fit(rows(23)),
        "greedy-decayed": rf.GreedySketch(4, decay=0.9).fit(rows(23)),
        "dfd-waiting-dense": rf.DiagonalFrequentDirections(4, alpha0=0.25).fit(rows(25)),
        "dfd-centred-decayed": rf.DiagonalFrequentDirections(4, center=True, decay=0.98, buffer_size=6).fit(
            rows(23), sample_weight=weight
        ),
        "dfd-waiting-sparse": rf.DiagonalFrequentDirections(5).fit(sparse_rows(40)).forget(0.5),
        "random-projection": rf.RandomProjectionSketch(4, center=True, random_state=3).fit(rows(23)),
        "oja": rf.OjaSketch(3, center=True, random_state=3).fit(0.1 * rows(23)),
        "exact": rf.ExactSecondMoment(center=True).fit(rows(23), sample_weight=weight),
        "sliding-waiting-dense": rf.SlidingFrequentDirections(60, 3, alpha0=0.25).fit(rows(206)),
        "sliding-centred": rf.SlidingFrequentDirections(50.0, 3, center=True).fit(rows(150)),
        "sliding-weight-sparse": rf.SlidingFrequentDirections(30, 3, clock="weight").fit(
            sparse_rows(92), sample_weight=np.round(np.random.RandomState(6).random_sample(92) + 0.1, 2)
        ),
        "sliding-few-rows": rf.SlidingFrequentDirections(8, 3).fit(rows(23)),
    }


def numbers(sketch):
    """Return what is compared, for the sketch itself and for the sketch after five rows more."""

    def of(sketch):
        moment = sketch.second_moment()
        probe = np.cos(np.arange(sketch.n_features_in_))
        return {
            "n_samples_seen": sketch.n_samples_seen_,
            "weight_sum": float(sketch.weight_sum_),
            "squared_norm": float(sketch.squared_norm_),
            "alpha": float(sketch.alpha_),
            "error_bound": float(sketch.error_bound_),
            "singular_values": sketch.singular_values_.tolist(),
            "moment_times_probe": (moment @ probe).tolist(),
            "mean": sketch.mean_.tolist() if sketch.center else None,
            **({"diagonal": sketch.diagonal_.tolist()} if hasattr(sketch, "diagonal_") else {}),
        }

    more = type(sketch).from_bytes(sketch.to_bytes())
    names = getattr(sketch, "feature_names_in_", None)
    extra = 0.1 * rows(5, sketch.n_features_in_, seed=9)
    more.partial_fit(extra if names is None else pd.DataFrame(extra, columns=names))
    return {
        "kind": type(sketch).__name__,
        "params": sketch.get_params(),
        "dtype": str(sketch.sketch_.dtype),
        "feature_names": None if names is None else list(names),
        "now": of(sketch),
        "later": of(more),
    }


def labels(n, classes=2, seed=0):
    return np.random.RandomState(seed + 2).randint(classes, size=n)


def wide_rows(n, seed=0):
    """Rows of 600 features, above the width up to which sparse rows are made dense."""
    keep = np.random.RandomState(seed + 1).random_sample((n, 600)) < 0.02
    return sp.csr_array(np.where(keep, np.round(np.random.RandomState(seed).standard_normal((n, 600)), 2), 0.0))


def dicts(n, seed=0):
    """Rows as dicts, whose features appear by and by: numbers, a category, one of a name that is a number."""
    for i, row in enumerate(rows(n, 4, seed)):
        yield {"a": row[0], "b": bool(row[1] > 0), "colour": "red" if row[2] > 0 else "ü", 7: row[3], f"x{i // 9}": 1.0}


def learners():
    """Return learners by name, each with something that a snapshot has to keep, in the middle of a block."""

    def newton(x, *args, **kwargs):
        learner = rf.OnlineNewton(*args, **kwargs)
        learner.learn(x, 2.0 * labels(x.shape[0]) - 1.0)
        return learner

    def first_order(learner, x):
        learner.learn(x, 2.0 * labels(x.shape[0]) - 1.0)
        return learner

    def in_dicts(model, n, names):
        for i, row in enumerate(dicts(n)):
            model.learn_one(row, names[(i + i // 5) % (len(names) if i > n // 2 else 2)])
        return model

    x, numbers = 0.2 * rows(27), 3.0 * rows(27, 1, seed=4)[:, 0]
    frame = pd.DataFrame(x, columns=list("abcdefg"))
    names = np.array(["one", "two", "three"])[labels(27, 3)]
    return {
        "newton-rfd": newton(x[:5], "rfd", 4),
        "newton-rfd-alpha": newton(frame, "rfd", 4, rate="1/sqrt(t)", loss="logistic", projection="next"),
        "newton-rfd-wide": newton(wide_rows(600), "rfd", 3),
        "newton-rfd-ball": newton(wide_rows(20), "rfd", 3, domain="ball", bound=0.2, alpha0=0.5),
        "newton-fd": newton(x, "fd", 4, alpha0=0.5, buffer_size=6),
        "newton-pfd": newton(x, "pfd", 4, alpha0=0.5, beta=0.5, shrink_first=True),
        "newton-rp": newton(0.2 * x, "rp", 3, alpha0=0.5, random_state=3),
        "newton-oja": newton(0.2 * wide_rows(20), "oja", 3, alpha0=0.5, random_state=3),
        "newton-full": newton(x, "full", loss="squared_hinge"),
        "adagrad": first_order(rf.AdaGrad(0.5), x),
        "descent": first_order(rf.OnlineGradientDescent(domain="ball", bound=0.5), wide_rows(20)),
        "untuned": rf.SketchedNewtonClassifier(3).fit(frame, names),
        "untuned-first-rows": rf.SketchedNewtonClassifier().partial_fit(x, labels(27) > 0, classes=[False, True]),
        "untuned-wide": rf.SketchedNewtonClassifier(3).fit(wide_rows(40), labels(40, 3)),
        "untuned-dicts": in_dicts(rf.SketchedNewtonClassifier(), 30, ["spam", "ham", "eggs"]),
        "untuned-numbers": rf.SketchedNewtonRegressor(3, loss="huber").fit(x, numbers),
        "rfdson": rf.RFDSONClassifier(4, fit_intercept=True).fit(x, names.astype(object)),
        "rfdson-dicts": in_dicts(rf.RFDSONClassifier(4, loss="logistic"), 30, [1, 0, 5]),
        "rfdson-numbers": rf.RFDSONRegressor(4).fit(x, numbers),
    }


def numbers_of_learner(name, learner):
    """Return what is compared, for the learner itself and after five rows more."""
    kind, d = type(learner).__name__, learner.n_features_in_
    extra, y = (wide_rows(5, seed=9) if d == 600 else 0.2 * rows(5, d, seed=9)), labels(5, seed=9)
    if hasattr(learner, "feature_names_in_"):
        extra = pd.DataFrame(extra, columns=learner.feature_names_in_)
    single = hasattr(learner, "vocabulary_")

    def of(learner):
        found = {
            "n_samples_seen": learner.n_samples_seen_,
            "progressive_loss": learner.progressive_loss_,
            "loss_by_rows": learner.progressive_["loss"].tolist(),
            "weights": np.ravel(getattr(learner, "weights_", getattr(learner, "coef_", ())))[:30].tolist(),
        }
        if single:
            return found | {"chances": list(learner.predict_proba_one(next(dicts(1, seed=8))).values())}
        if hasattr(learner, "decision_function"):
            return found | {"margins": np.ravel(learner.decision_function(extra)).tolist()}
        return found | {"predictions": learner.predict(extra).tolist()}

    more = type(learner).from_bytes(learner.to_bytes())
    if single:
        for row in dicts(5, seed=9):
            more.learn_one(row, learner.classes_[0].item())
    elif hasattr(learner, "learn"):
        more.learn(extra, 2.0 * y - 1.0)
    elif hasattr(learner, "classes_"):
        more.partial_fit(extra, learner.classes_[y])
    else:
        more.partial_fit(extra, 3.0 * y)
    return {
        "kind": kind,
        "params": learner.get_params(),
        "feature_names": list(getattr(learner, "feature_names_in_", [])),
        "classes": getattr(learner, "classes_", np.empty(0)).tolist(),
        "vocabulary": list(learner.vocabulary_) if single else [],
        "now": of(learner),
        "later": of(more),
    }


def add(folder, made, numbers):
    """Write the files that are not there yet; return how many."""
    folder.mkdir(exist_ok=True)
    record = folder / "numbers.json"
    recorded = json.loads(record.read_text()) if record.exists() else {}
    new = {name: each for name, each in made.items() if not (folder / f"{name}.rfd").exists()}
    for name, each in new.items():
        each.save(folder / f"{name}.rfd")
        recorded[name] = numbers(name, each)
    if new:
        record.write_text(json.dumps(recorded, indent=1) + "\n")
    return len(new)


if __name__ == "__main__":
    many = add(FOLDER, sketches(), lambda name, sketch: numbers(sketch))
    many += add(FOLDER_OF_LEARNERS, learners(), numbers_of_learner)
    if not many:
        raise SystemExit("All files are there already; they are never written again.")
