"""One core of a cluster on rows of 100,000 columns with 80 values: rows per second, model size, time of a merge."""

import time
from typing import Any

import numpy as np

from benchmarks.common import report, zipf_rows
from robustfd import RobustFrequentDirections, SketchedNewtonClassifier
from robustfd.linalg.threads import one_blas_thread

ROWS, COLUMNS, VALUES = 20_000, 100_000, 80
ALL_ROWS, CORES = 1e12, 1000
MOVED = 4 * CORES * 8 / 7  # models that are moved: four partitions per core, and a tree of merges with a fan-in of 8


def _classes(given: tuple[Any, ...]) -> dict[str, Any]:
    return {"classes": [-1.0, 1.0]} if given else {}


@one_blas_thread()
def cluster() -> None:
    """Measure a learner and a sketch, in CPU seconds."""
    x = zipf_rows(ROWS, COLUMNS, VALUES)
    y = np.where(x[:, :200].sum(axis=1) > 0, 1.0, -1.0)
    rows: list[dict[str, Any]] = []
    for name, kind in (
        ("SketchedNewtonClassifier()", SketchedNewtonClassifier),
        ("RobustFrequentDirections(100)", lambda: RobustFrequentDirections(100)),
    ):
        model, other = kind(), kind()  # of different rows
        given = (y,) if hasattr(model, "predict") else ()
        start = time.process_time()
        model.partial_fit(x[: ROWS // 2], *(each[: ROWS // 2] for each in given), **_classes(given))
        other.partial_fit(x[ROWS // 2 :], *(each[ROWS // 2 :] for each in given), **_classes(given))
        rate = ROWS / (time.process_time() - start)
        data = model.to_bytes()
        start = time.process_time()
        model.merge(other)
        merge = time.process_time() - start
        rows += [
            {"what": f"{name}: rows per second", "value": rate},
            {"what": f"{name}: model", "value": len(data) / 1e6, "unit": "MB"},
            {"what": f"{name}: merge", "value": merge, "unit": "s"},
            {"what": f"{name}: moved", "value": MOVED * len(data) / 1e9, "unit": "GB"},
            {"what": f"{name}: hours", "value": ALL_ROWS / rate / CORES / 3600, "unit": "h"},
        ]
    report("cluster", rows)


if __name__ == "__main__":
    cluster()
