"""`robustfd warm-up`: compile all inner loops in advance."""

import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from robustfd.cli._command import command
from robustfd.cli._options import ConsoleOptions

ROWS, MANY_ROWS = 150, 2100  # long streams use loops of their own
FEW, MANY = 6, 300  # columns; with few the Hessian is exact


@command
def warm_up(*, console: ConsoleOptions) -> None:
    """Compile all inner loops now, so that later calls do not wait: for container images and clusters.

    The compiled loops are cached on disk, in the directory NUMBA_CACHE_DIR or next to the package. The cache is valid
    for the same type of processor and the same versions of numba and robustfd.
    """
    from robustfd import _compile
    from robustfd.cli._console import log, print_result

    if not _compile.JIT:
        raise ValueError("NUMBA_DISABLE_JIT is set, so nothing is compiled. Unset it.")
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for name in workloads(Path(folder)):
            if console.verbose:
                log(console, f"{name}: {_compile.compile_seconds():.1f} s")
    reason = _compile.why_not_cached()
    print_result(console, {
        "folder": _compile.cache_folder(), "functions_compiled": _compile.compiled_functions(),
        "seconds_of_compiling": round(_compile.compile_seconds(), 2), "seconds": round(time.monotonic() - started, 2),
    })  # fmt: skip
    if reason:
        raise OSError(
            f"The compiled loops could not be cached ({reason}), so every process compiles them again. "
            "Set NUMBA_CACHE_DIR to a writable directory."
        )


def workloads(folder: Path) -> Iterator[str]:
    """Run everything that has compiled loops on tiny data; yield the name of each workload when it is done."""
    for workload in (_learners, _paper_learners, _sketches, _estimators):
        for form, x in _rows().items():
            workload(x)
            yield f"{workload.__name__[1:]}, {form}"
    _long_streams()
    yield "long streams"
    _single_rows()
    yield "single rows"
    for name in _write(folder):
        _read(folder / name)
        yield name


def _rows() -> dict[str, Any]:
    """Return rows in the usual forms: dense or sparse, few or many columns, float32 or float64."""
    import numpy as np
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    few, many = rng.standard_normal((ROWS, FEW)), rng.standard_normal((ROWS, MANY))
    wide = sp.csr_array(many * (rng.random(many.shape) < 0.1))
    wide64 = wide.astype(np.float32)
    wide64.indices, wide64.indptr = wide64.indices.astype(np.int64), wide64.indptr.astype(np.int64)
    return {
        "dense": few, "dense float32": few.astype(np.float32), "many columns": many, "sparse": wide,
        "sparse float32, int64": wide64, "sparse of few columns": sp.csr_array(few * (few > 0)),
    }  # fmt: skip


def _targets(x: Any, classes: int) -> Any:
    import numpy as np

    y = x @ np.ones(x.shape[1])
    return np.digitize(y, np.quantile(y, np.arange(1, classes) / classes)) if classes else y


def _learners(x: Any) -> None:
    from robustfd import SketchedNewtonClassifier, SketchedNewtonRegressor

    for size in ("auto", 0, 5):
        for classes in (2, 3):
            model = SketchedNewtonClassifier(sketch_size=size).fit(x, _targets(x, classes))
            model.partial_fit(x[:3], _targets(x, classes)[:3])
            model.predict_proba(x)
            model.contributions(x)
        SketchedNewtonRegressor(sketch_size=size).fit(x, _targets(x, 0)).predict(x)
    SketchedNewtonRegressor(loss="huber").fit(x, _targets(x, 0)).predict(x)


def _paper_learners(x: Any) -> None:
    from robustfd import AdaGrad, OnlineGradientDescent, OnlineNewton, RFDSONClassifier, RFDSONRegressor

    y, number = 2.0 * _targets(x, 2) - 1.0, _targets(x, 0)
    newton = [OnlineNewton(sketch, 10, alpha0=100.0, random_state=0) for sketch in ("rfd", "rp", "oja")]
    newton += [OnlineNewton(domain="ball"), OnlineNewton("full", alpha0=1.0)]
    for model in (*newton, AdaGrad(), OnlineGradientDescent(), OnlineGradientDescent(domain="ball")):
        if getattr(model, "sketch", None) != "full" or x.shape[1] == FEW:
            model.learn(x, y)
            model.decision_function(x)
    for loss in ("squared", "logistic"):
        RFDSONClassifier(10, loss=loss).fit(x, y).predict_proba(x)
    RFDSONClassifier(10).fit(x, _targets(x, 3)).predict(x)
    RFDSONRegressor(10).fit(x, number).predict(x)


def _sketches(x: Any) -> None:
    import robustfd

    for size in (5, 40):
        robustfd.DiagonalFrequentDirections(size).fit(x)
        robustfd.OjaSketch(size).fit(x)
        robustfd.RandomProjectionSketch(size).fit(x)
        robustfd.RobustFrequentDirections(size).fit(x)
    robustfd.ExactSecondMoment().fit(x)
    for center in (False, True):
        robustfd.RobustFrequentDirections(40, center=center).fit(x)


def _estimators(x: Any) -> None:
    from robustfd import MahalanobisDetector, SketchedPCA, SketchedRidge

    for size in ("auto", 10):
        SketchedPCA(3, sketch_size=size).fit(x).transform(x)
    MahalanobisDetector(10).fit(x).score_samples(x)
    SketchedRidge().fit(x, _targets(x, 0)).predict(x)


def _long_streams() -> None:
    import numpy as np
    import scipy.sparse as sp

    from robustfd import OnlineNewton, RobustFrequentDirections

    rng = np.random.default_rng(0)
    for columns in (80, 400):
        x = rng.standard_normal((MANY_ROWS, columns))
        for rows in (x, x.astype(np.float32), sp.csr_array(x * (x > 1.5))):
            RobustFrequentDirections(20).fit(rows)
            if columns == 80:
                RobustFrequentDirections(20).fit(rows[:100]).partial_fit(rows)
                OnlineNewton("rfd", 20).learn(rows, np.sign(x[:, 0]))
    RobustFrequentDirections(120).fit(x)  # Gram matrices of 200 rows or more have a loop of their own


def _single_rows() -> None:
    from robustfd import RFDSONClassifier, RFDSONRegressor, SketchedNewtonClassifier, SketchedNewtonRegressor

    x = next(iter(_rows().values()))
    for model in (SketchedNewtonClassifier(), RFDSONClassifier(), SketchedNewtonRegressor(), RFDSONRegressor()):
        for kind in (lambda row: row, lambda row: {f"f{j}": float(v) for j, v in enumerate(row)}):
            fresh = type(model)()
            for row in x:
                fresh.learn_one(kind(row), int(row[0] > 0))
                fresh.predict_one(kind(row))


def _write(folder: Path) -> list[str]:
    """Write a file of each format that can be read, and return their names."""
    import numpy as np
    import scipy.sparse as sp

    x = _rows()["dense"]
    y = _targets(x, 2)
    lines = [" ".join([str(label), *(f"{j}:{v:.17g}" for j, v in enumerate(row, 1))]) for row, label in zip(x, y)]
    (folder / "numbers.svm").write_text("\n".join(lines) + "\n")
    (folder / "names.svm").write_text("\n".join(line.replace(" 1:", " red:") for line in lines) + "\n")
    vw = [" ".join([str(label), "|", *(f"{j}:{v:.17g}" for j, v in enumerate(row, 1))]) for row, label in zip(x, y)]
    (folder / "numbers.vw").write_text("\n".join(vw) + "\n")
    (folder / "names.vw").write_text("\n".join(line.replace("| 1:", "|a red:") for line in vw) + "\n")
    np.save(folder / "rows.npy", x)
    sp.save_npz(folder / "rows.npz", sp.csr_array(x))
    files = ["numbers.svm", "names.svm", "numbers.vw", "names.vw", "rows.npy", "rows.npz"]
    if find_spec("pyarrow") is None:
        return files
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [f"c{j}" for j in range(FEW)]
    records = [",".join([*(f"{v:.17g}" for v in row), "red" if row[0] > 0 else "blue", str(y)]) for row, y in zip(x, y)]
    (folder / "text.csv").write_text("\n".join([",".join([*names, "colour", "y"]), *records]) + "\n")
    (folder / "numbers.csv").write_text("\n".join(",".join(f"{v:.17g}" for v in row) for row in x) + "\n")
    columns = {name: pa.array(x[:, j]) for j, name in enumerate(names)}
    pq.write_table(
        pa.table(columns | {"colour": ["red" if v > 0 else "blue" for v in x[:, 0]], "y": y}), folder / "text.parquet"
    )
    return [*files, "text.csv", "numbers.csv", "text.parquet"]


def _read(file: Path) -> None:
    """Train and predict on a file with labels, or sketch one without, as the commands do."""
    from robustfd import RobustFrequentDirections
    from robustfd.cli._files import open_labelled
    from robustfd.cli._labels import labels_for, survey_labels
    from robustfd.cli._learners import LearnerOptions, make_learner
    from robustfd.cli._options import InputOptions
    from robustfd.streams import open_stream

    stream = open_labelled([str(file)], InputOptions(hash_bits=12 if file.stem == "names" else None))
    for block in stream:
        if block.y is None:
            RobustFrequentDirections(5).partial_fit(block.X)
            continue
        _, classes = survey_labels(stream, "classification", "0,1" if file.suffix == ".parquet" else None)
        for name in ("newton", "rfdson"):
            model = make_learner("classification", LearnerOptions(learner=name))
            model.partial_fit(block.X, labels_for(model, block.y), classes=classes)
            model.predict(block.X)
    if file.suffix == ".svm":
        for _ in open_stream(str(file), hash_bits=12, unseen="drop", on_error="skip"):
            pass
