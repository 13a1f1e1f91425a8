"""Write the snapshots of format version 1 that must load for ever, and the numbers they must give.

The files in v1/ (sketches) were written by this script once, when their class was new, and are never
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
    if not many:
        raise SystemExit("All files are there already; they are never written again.")
