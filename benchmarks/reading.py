"""Speed of reading files on one core, in MB per second, compared with the usual readers of the same file."""

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

from benchmarks import vowpal
from benchmarks.common import report, seconds, zipf_rows
from benchmarks.sketch_speed import _row
from robustfd.streams import open_stream

ROWS = 100_000
TEXT_GOAL = 150.0  # MB/s for LIBSVM and Vowpal Wabbit text


def tables() -> dict[str, Any]:
    """Return a numeric table, and one with numbers and text."""
    rng = np.random.default_rng(0)
    words = np.array([f"value {k}" for k in range(500)])
    labels = {"y": rng.integers(0, 2, ROWS)}
    numbers = {f"x{k}": rng.standard_normal(ROWS).round(6) for k in range(20)}
    text = {f"c{k}": words[rng.integers(0, 500, ROWS)] for k in range(8)}
    some = {name: numbers[name] for name in list(numbers)[:6]}
    return {"numbers": pa.table(numbers | labels), "numbers and text": pa.table(some | text | labels)}


def write(folder: Path) -> list[tuple[str, Path, dict[str, Any], str, Callable[[Path], Any] | None]]:
    """Write all files. Return the name, path, options for `open_stream`, and another reader of each file."""
    x = zipf_rows(20_000, 20_000, 40)
    dump_svmlight_file(sp.csr_matrix(x), np.sign(x.sum(axis=1)), str(folder / "rows.svm"), zero_based=False)
    np.save(folder / "rows.npy", np.random.default_rng(1).standard_normal((ROWS, 20)))
    sp.save_npz(folder / "rows.npz", sp.csr_matrix(x), compressed=False)
    single = pcsv.ReadOptions(use_threads=False)
    files: list[tuple[str, Path, dict[str, Any], str, Callable[[Path], Any] | None]] = [
        (
            "LIBSVM",
            folder / "rows.svm",
            {"n_features": 20_000},
            "scikit-learn",
            lambda path: load_svmlight_file(str(path)),
        ),
        *vowpal_wabbit(folder),
        ("JSON lines", json_lines(folder), {"target": "y"}, "", None),
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


def vowpal_wabbit(folder: Path) -> list[tuple[str, Path, dict[str, Any], str, Callable[[Path], Any] | None]]:
    """Write the LIBSVM file once more, as Vowpal Wabbit's text, with numbers and with names in a namespace."""
    lines = (folder / "rows.svm").read_text().splitlines()
    texts = {
        "numbers": "".join(line.replace(" ", " | ", 1) + "\n" for line in lines),
        "names": "".join(f"{head} |words w{rest.replace(' ', ' w')}\n" for head, rest in map(_split, lines)),
    }
    files: list[tuple[str, Path, dict[str, Any], str, Callable[[Path], Any] | None]] = []
    for name, text in texts.items():
        (path := folder / f"{name}.vw").write_text(text)
        options = {"n_features": 20_000} if name == "numbers" else {"hash_bits": 18}
        peer = (lambda path: vowpal.run("--noop", 20_000, path)) if vowpal.available() else None
        files.append((f"Vowpal Wabbit, {name}", path, options, "vw --noop", peer))
    return files + logs_of_bandits(folder)


def logs_of_bandits(folder: Path) -> list[tuple[str, Path, dict[str, Any], str, Callable[[Path], Any] | None]]:
    """Write the rows once more as logs of a bandit with three arms, as lines and as blocks of lines.

    The other reader is Vowpal Wabbit, which also predicts, because it cannot only read them.
    """
    rows = [_split(line)[1] for line in (folder / "rows.svm").read_text().splitlines()]
    arms = ["|arm a size:1.5", "|arm b size:2", "|arm c size:0.5 new"]
    labels = [(i % 3, f"{i % 2}:0.3333") for i in range(len(rows))]
    (lines := folder / "lines.vw").write_text(
        "".join(f"{arm + 1}:{label} | {row}\n" for (arm, label), row in zip(labels, rows, strict=True))
    )
    with open(blocks := folder / "blocks.vw", "w") as file:
        for (arm, label), row in zip(labels, rows, strict=True):
            file.write(f"shared | {row}\n")
            file.writelines(f"{f'0:{label} ' if k == arm else ''}{each}\n" for k, each in enumerate(arms))
            file.write("\n")
    files: list[tuple[str, Path, dict[str, Any], str, Callable[[Path], Any] | None]] = []
    for name, path, mode in (("lines", lines, "--cb 3 -t"), ("blocks", blocks, "--cb_adf -t")):
        peer = (lambda path, mode=mode: vowpal.run(mode, 20_000, path)) if vowpal.available() else None
        files.append((f"Bandit, {name}", path, {"n_features": 20_001}, f"vw {mode}", peer))
    return files


def _split(line: str) -> tuple[str, str]:
    """Return the label and the entries of a line."""
    head, _, rest = line.partition(" ")
    return head, rest


def json_lines(folder: Path) -> Path:
    """Write a table of numbers and text as JSON lines, and return the path."""
    path = folder / "rows.jsonl"
    tables()["numbers and text"].slice(0, ROWS // 10).to_pandas().to_json(path, orient="records", lines=True)
    return path


def read(path: Path, options: dict[str, Any]) -> int:
    """Read all rows of a stream and return their number."""
    return sum(x.shape[0] for x, _ in open_stream(path, **options))


def reading(repeats: int = 5) -> None:
    """Measure MB per second of each reader, and of another reader that loads the whole file without making rows."""
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for what, path, options, other, task in write(Path(folder)):
            read(path, options)  # imports before timing
            tasks = {"here": lambda path=path, options=options: read(path, options)}
            if task is not None:
                tasks[other] = lambda t=task, p=path: t(p)
            best, size = seconds(tasks, repeats), path.stat().st_size / 1e6
            least = TEXT_GOAL if what.startswith(("LIBSVM", "Vowpal Wabbit, numbers", "Bandit, lines")) else None
            results.append(_row(f"{what} ({size:.0f} MB)", size / best["here"], "MB/s", least=least))
            if task is not None:
                results.append(_row(f"    {other}, the same file", size / best[other], "MB/s"))
            if what.startswith("Bandit") and task is not None:
                results.append(_row("    robustfd / vw", best["here"] / best[other], "", most=1.0))
    pa.set_cpu_count(threads)
    report("reading", results)
