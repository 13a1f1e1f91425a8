"""Speed of reading files, one core: MB of a file a second, beside the readers people use for the same file."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from benchmarks.common import report, seconds, zipf_rows
from benchmarks.sketch_speed import _row
from robustfd.streams import open_stream

ROWS = 100_000
LIBSVM_GOAL = 150.0


def tables() -> dict[str, Any]:
    """Return a table of numbers, and one of numbers and text."""
    rng = np.random.default_rng(0)
    words = np.array([f"value {k}" for k in range(500)])
    labels = {"y": rng.integers(0, 2, ROWS)}
    numbers = {f"x{k}": rng.standard_normal(ROWS).round(6) for k in range(20)}
    text = {f"c{k}": words[rng.integers(0, 500, ROWS)] for k in range(8)}
    some = {name: numbers[name] for name in list(numbers)[:6]}
    return {"numbers": pa.table(numbers | labels), "numbers and text": pa.table(some | text | labels)}


def write(folder: Path) -> list[tuple[str, Path, dict[str, Any], str, Callable[[Path], Any]]]:
    """Write all files, and return what each is, its path, how it is opened here, and how somebody else reads it."""
    x = zipf_rows(20_000, 20_000, 40)
    dump_svmlight_file(sp.csr_matrix(x), np.sign(x.sum(axis=1)), str(folder / "rows.svm"), zero_based=False)
    np.save(folder / "rows.npy", np.random.default_rng(1).standard_normal((ROWS, 20)))
    sp.save_npz(folder / "rows.npz", sp.csr_matrix(x), compressed=False)
    single = pcsv.ReadOptions(use_threads=False)
    files: list[tuple[str, Path, dict[str, Any], str, Callable[[Path], Any]]] = [
        (
            "LIBSVM",
            folder / "rows.svm",
            {"n_features": 20_000},
            "scikit-learn",
            lambda path: load_svmlight_file(str(path)),
        ),
        (".npy", folder / "rows.npy", {}, "numpy.load", np.load),
        (".npz", folder / "rows.npz", {}, "scipy.sparse.load_npz", sp.load_npz),
    ]
    for name, table in tables().items():
        path = folder / name.replace(" ", "-")
        pcsv.write_csv(table, f"{path}.csv")
        pq.write_table(table, f"{path}.parquet")
        feather.write_feather(table, f"{path}.feather", compression="uncompressed")
        options = {"target": "y"}
        files += [
            (f"CSV, {name}", Path(f"{path}.csv"), options, "pyarrow", lambda each: pcsv.read_csv(each, single)),
            (f"Parquet, {name}", Path(f"{path}.parquet"), options, "pyarrow",
             lambda each: [*pq.ParquetFile(each).iter_batches(use_threads=False)]),
            (f"Arrow, {name}", Path(f"{path}.feather"), options, "pyarrow",
             lambda each: feather.read_table(each, use_threads=False, memory_map=False)),
        ]  # fmt: skip
    return files


def read(path: Path, options: dict[str, Any]) -> int:
    """Return how many rows a stream has, all of them read."""
    return sum(x.shape[0] for x, _ in open_stream(path, **options))


def reading(repeats: int = 5) -> None:
    """MB a second of each reader, and of another that reads the same file as a whole and makes no rows of it."""
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for what, path, options, other, task in write(Path(folder)):
            read(path, options)  # compiled before the clock runs
            tasks = {"here": lambda path=path, options=options: read(path, options), other: lambda t=task, p=path: t(p)}
            best, size = seconds(tasks, repeats), path.stat().st_size / 1e6
            least = LIBSVM_GOAL if what == "LIBSVM" else None
            results.append(_row(f"{what} ({size:.0f} MB)", size / best["here"], "MB/s", least=least))
            results.append(_row(f"    {other}, the same file", size / best[other], "MB/s"))
    pa.set_cpu_count(threads)
    report("reading", results)
