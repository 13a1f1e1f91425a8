"""Damaged files for everything that reads files, and the verdict on what comes of them.

A case is a number: `make_case(number, seed)` always makes the same one. `judge` reads it as users would, and returns
what happened; an exception that is not documented passes through.
"""

import bz2
import gzip
import io
import json
import lzma
import sys
import tempfile
import warnings
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import robustfd as rf
from robustfd import _container
from robustfd._container import load_with_notes
from robustfd.streams import Position, StreamError, open_stream
from tests import damage
from tests.estimators import saved_estimators
from tests.learners import saved_learners
from tests.sketch.family import SKETCHES

PACKERS = {".gz": lambda data: gzip.compress(data, mtime=0), ".bz2": bz2.compress, ".xz": lzma.compress}


@dataclass(frozen=True)
class Case:
    """Bytes under a name, what they are handed to, and how."""

    reader: str  # "load", or the format of a stream
    name: str
    data: bytes
    options: dict[str, Any] = field(default_factory=dict)


# -- what is damaged: small files that can be read


@cache
def snapshots() -> dict[str, bytes]:
    """Snapshots of sketches, learners and estimators of all kinds."""
    X = np.random.default_rng(0).standard_normal((13, 6)) * (np.random.default_rng(1).random((13, 6)) < 0.6)
    found = {name: make().fit(sp.csr_array(X)).to_bytes() for name, make in SKETCHES.items()}
    found["RFD centred"] = SKETCHES["RFD"](center=True, decay=0.9).fit(X).to_bytes()
    for name in ("rfd", "fd", "rp", "oja", "full", "adagrad", "descent"):
        found[name] = saved_learners.healthy(name).to_bytes()
    long = damage.rewritten(found["rfd"], document={"states/0/seen": 10**6})  # long streams have a loop of their own
    found["rfd long"] = long
    found["rfd wide"] = saved_learners.healthy("rfd", "wide", n=8).to_bytes()
    for name in ("untuned@dense", "untuned@first", "untuned@dicts", "untuned-huber@sparse", "rfdson@dicts"):
        found[name] = saved_estimators.healthy(name).to_bytes()
    return found


@cache
def texts() -> dict[str, list[tuple[str, bytes, dict[str, Any]]]]:
    """Small files by format: name, content, and options that go with it."""
    rng = np.random.default_rng(0)
    rows = [
        f"{k % 3} " + " ".join(f"{j}:{rng.normal():.3g}" for j in sorted(rng.choice(9, 4, replace=False) + 1))
        for k in range(12)
    ]
    libsvm = ("\n".join(rows) + "\n").encode()
    named = b"1 age:3 colour=red:1 7:2 size\n-1 # nothing\n1 qid:3 age:2.5e-3 colour=blue\n" * 3
    numbers = b"a,b,target\n" + b"".join(b"%d,%.3f,%d\n" % (k, rng.normal(), k % 2) for k in range(12))
    mixed = 'name;"a ""quoted"" one";colour\nx;1.5;red\n"y;z\n";2;blue\n;;\nü;-3e5;"red"\n'.encode() * 2
    return {
        "libsvm": [
            ("rows.svm", libsvm, {}),
            ("rows.svm", libsvm, {"n_features": 9, "unseen": "drop"}),
            ("rows.svm", libsvm.replace(b"1:", b"0:"), {"zero_based": True}),
            ("rows.svm", named, {"hash_bits": 5}),
            ("rows.svm", b"1:2 3:4\n2:1e-3\n" * 4, {}),
            ("rows", libsvm, {}),
        ],
        "vw": [
            ("rows.vw", b"".join(line.replace(b" ", b" | ", 1) for line in libsvm.splitlines(keepends=True)), {}),
            ("rows.vw", b"1 2 'one|a:0.5 x:3 y |b 7:2\n| z\n-1 | :1 :2.5e-3\n" * 3, {}),
            ("rows.vw", b"1 |a x y |b z:2\n0 |a x |b w\n" * 4, {"hash_bits": 5, "interactions": ["ab"]}),
            ("rows.vw", b"1 | 1:2 3\n| 2\n" * 4, {"n_features": 3, "unseen": "drop", "unlabelled": "skip"}),
            ("rows", b"1 | 1:2 3\n0 | 2\n" * 4, {}),
        ],
        "jsonl": [
            ("rows.jsonl", b'{"a": 1.5, "b": "x", "c": [1, null, "y"], "d": {"e": true}, "y": 1}\n' * 4, {}),
            ("rows.jsonl", b'{"a": 1, "y": "p"}\n{"b": -2e3, "y": "q"}\n' * 3, {"target": "y", "hash_bits": 5}),
        ],
        "csv": [
            ("rows.csv", numbers, {}),
            ("rows.csv", numbers, {"target": "target"}),
            ("rows.csv", numbers.split(b"\n", 1)[1], {"header": False}),
            ("rows.csv", mixed, {}),
            ("rows.csv", mixed, {"categories": "onehot", "missing": "zero"}),
            ("rows.tsv", mixed.replace(b";", b"\t"), {"hash_bits": 4, "missing": "zero"}),
            ("rows", numbers, {}),
        ],
        **_tables(),
        **_arrays(rng),
    }


def _tables() -> dict[str, list[tuple[str, bytes, dict[str, Any]]]]:
    try:
        import pyarrow as pa
        import pyarrow.ipc as ipc
        import pyarrow.parquet as pq
    except ImportError:
        return {}
    columns = {"a": np.arange(9.0), "b": np.arange(9) % 4, "c": np.arange(9) > 3}
    numbers = pa.table(columns)
    mixed = pa.table({**columns, "d": ["x", "y", None] * 3, "e": pa.array(["u", "v", "u"] * 3).dictionary_encode()})

    def parquet(table: Any, **how: Any) -> bytes:
        file = io.BytesIO()
        pq.write_table(table, file, row_group_size=5, **how)
        return file.getvalue()

    def arrow(table: Any, new: Any, **how: Any) -> bytes:
        file = io.BytesIO()
        with new(file, table.schema, options=ipc.IpcWriteOptions(**how)) as writer:
            writer.write_table(table, max_chunksize=5)
        return file.getvalue()

    return {
        "parquet": [
            ("rows.parquet", parquet(numbers, compression="none", use_dictionary=False), {}),
            ("rows.parquet", parquet(mixed, compression="snappy"), {}),
            ("rows.parquet", parquet(mixed, compression="zstd"), {"categories": "onehot"}),
            ("rows", parquet(numbers, compression="gzip"), {"target": "b"}),
        ],
        "arrow": [
            ("rows.arrow", arrow(numbers, ipc.new_file), {}),
            ("rows.arrow", arrow(mixed, ipc.new_file), {"categories": "onehot"}),
            ("rows.arrow", arrow(mixed, ipc.new_stream), {"target": "b"}),
            ("rows", arrow(numbers, ipc.new_stream, compression="zstd"), {}),
        ],
    }


def _arrays(rng: np.random.Generator) -> dict[str, list[tuple[str, bytes, dict[str, Any]]]]:
    def stored(save: Any, value: Any, **how: Any) -> bytes:
        file = io.BytesIO()
        save(file, value, **how)
        return file.getvalue()

    X = rng.standard_normal((7, 4))
    matrix = sp.random(9, 7, 0.3, "csr", random_state=0)
    return {
        "npy": [
            ("rows.npy", stored(np.save, X), {}),
            ("rows.npy", stored(np.save, np.asfortranarray(X)), {"target": 1}),
            ("rows.npy", stored(np.save, np.arange(12, dtype=">i2").reshape(4, 3)), {"target": -1}),
            ("rows", stored(np.save, X.astype(np.float32)), {}),
        ],
        "npz": [
            ("rows.npz", stored(sp.save_npz, matrix, compressed=True), {}),
            ("rows.npz", stored(sp.save_npz, matrix, compressed=False), {}),
            ("rows", stored(sp.save_npz, matrix, compressed=False), {"n_features": 5}),
        ],
    }


# -- how it is damaged

_TOKENS = (
    *(b"1e999 -1e999 nan inf -inf 1e308 -0 .5 5. 1e-400 0x10 1_000 2147483647 2147483648 4294967296".split()),
    *(b"9223372036854775807 -9223372036854775808 18446744073709551616 99999999999999999999".split()),
    b"9" * 400, b"0." + b"0" * 400 + b"1", b":", b"::", b"#", b"qid:", b"\n", b"\r", b"\r\n", b"\0", b" ", b"\t", b'"',
    b'""', b",", b";", b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3", b"1:1e308 1:1e308", b"-1:1", b"0:1", b"x" * 300,
    b"1 " * 200, b",,,", b"\n\n\n", b"[" * 500, b"{}", b"true", b"NA", b"\x0b", b"\x0c", b"\x1a",
)  # fmt: skip
_NUMBERS = (0, 1, -1, 2, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, -(2**31), 2**32 - 1, 2**40, 2**63 - 1, -(2**63))


def mutated(data: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """Return bytes with some damage: up to four things of those that happen, or that somebody would do."""
    for _ in range(int(rng.integers(1, 5))):
        size = len(data)
        at, length = int(rng.integers(size + 1)), int(rng.geometric(0.1))
        kind = rng.integers(9)
        if kind == 0 and size:
            at = min(at, size - 1)
            data = data[:at] + bytes([data[at] ^ 1 << int(rng.integers(8))]) + data[at + 1 :]
        elif kind == 1:
            data = data[:at] + rng.bytes(length) + data[at + length :]
        elif kind == 2:
            data = data[:at] + data[at + length :]
        elif kind == 3:
            data = data[:at] + data[at : at + length] * int(rng.integers(2, 5)) + data[at + length :]
        elif kind == 4:
            token = _TOKENS[rng.integers(len(_TOKENS))]
            data = data[:at] + token + data[at + (length if rng.random() < 0.5 else 0) :]
        elif kind == 5:
            width, number = int(rng.choice([1, 2, 4, 8])), _NUMBERS[rng.integers(len(_NUMBERS))]
            word = (number % 256**width).to_bytes(width, "little" if rng.random() < 0.8 else "big")
            at -= at % width if rng.random() < 0.5 else 0
            data = data[:at] + word + data[at + width :]
        elif kind == 6:
            data = data[:at]
        elif kind == 7:
            data = data[:at] + other[int(rng.integers(len(other) + 1)) :]
        else:
            begin = int(rng.integers(size + 1))
            data = data[:at] + data[begin : begin + 4 * length] + data[at:]
    return data


def _bad_snapshot(rng: np.random.Generator) -> Case:
    """Return a snapshot that is damaged, or made up: its checksum is right, and its content makes no sense."""
    found = list(snapshots().values())
    data, other = found[rng.integers(len(found))], found[rng.integers(len(found))]
    how = rng.random()
    if how < 0.4:
        return Case("load", "file.rfd", mutated(data, other, rng))
    if how < 0.8:
        kinds = tuple(sorted(_container._kinds))
        return Case("load", "file.rfd", next(damage.damaged(data, int(rng.integers(2**31)), kinds))[1])
    meta, document, tensors = damage.opened(data)
    if how < 0.9:  # any document
        text = mutated(meta["document"].encode(), b"{}", rng).decode("utf-8", "replace")
        meta = meta | {"document": text}
        digest = _container.digest(meta, tensors)
        return Case("load", "file.rfd", damage.safetensors.numpy.save(tensors, meta | {"sha256": digest}))
    for name in sorted(tensors):  # any bytes as tensors
        if rng.random() < 0.3 and tensors[name].size:
            raw = mutated(tensors[name].tobytes(), tensors[name].tobytes()[::-1], rng)
            kind = tensors[name].dtype
            flat = np.frombuffer(raw[: len(raw) // kind.itemsize * kind.itemsize], kind)
            same = flat.size == tensors[name].size
            tensors[name] = flat.reshape(tensors[name].shape) if same else flat
    return Case("load", "file.rfd", b"".join(_container.seal(meta["kind"], document, tensors)))


def _bad_rows(format: str, rng: np.random.Generator) -> Case:
    """Return a damaged file of rows; it may be compressed before or afterwards."""
    files = texts()[format]
    name, data, options = files[rng.integers(len(files))]
    other = files[rng.integers(len(files))][1]
    options = dict(options)
    if rng.random() < 0.1:
        options["format"] = format
    options["on_error"] = str(rng.choice(["raise", "skip"]))
    options["block_bytes"] = int(rng.choice([64, 200, 1 << 20]))
    packing = rng.random()
    if packing < 0.2:
        suffix = str(rng.choice(list(PACKERS)))
        name += suffix
        if packing < 0.1:
            return Case(format, name, mutated(PACKERS[suffix](data), other, rng), options)
        return Case(format, name, PACKERS[suffix](mutated(data, other, rng)), options)
    return Case(format, name, mutated(data, other, rng), options)


def _bad_layout(format: str, rng: np.random.Generator) -> Case:
    """Return a good file, and a layout of columns or a position that is made up."""
    files = texts()[format]
    name, data, options = files[rng.integers(len(files))]
    if rng.random() < 0.3:
        position = {"file": 0, "offset": int(rng.integers(40)), "line": 1, "rows": 2}
        if rng.random() < 0.5:
            position[str(rng.choice([*position, "more"]))] = damage.VALUES[rng.integers(len(damage.VALUES) - 1)]
        return Case(format, name, data, {**options, "start": position})
    layout = json.loads(_layout(format, data, json.dumps(options)))
    for _ in range(int(rng.integers(1, 4))):
        if layout:
            damage._damage_document(layout, rng)
    kept = {key: value for key, value in options.items() if key in ("missing", "unseen", "header")}
    return Case(format, name, data, {**kept, "layout": layout})


@cache
def _layout(format: str, data: bytes, options: str) -> str:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return json.dumps(open_stream(file.name, format=format, **json.loads(options)).layout)


def warm_up(folder: Path) -> None:
    """Read all that is whole, so that everything is imported."""
    for data in snapshots().values():
        assert judge(Case("load", "file.rfd", data), folder) == "accepted"
    for format, files in texts().items():
        for name, data, options in files:
            case = Case(format, name, data, {**options, "on_error": "skip"})
            assert judge(case, folder) == "accepted", case


def make_case(number: int, seed: int = 0) -> Case:
    """Return the case of a number, always the same one."""
    rng = np.random.default_rng([seed, number])
    formats = list(texts())
    if number % 2:
        return _bad_snapshot(rng)
    format = formats[number // 2 % len(formats)]
    return _bad_layout(format, rng) if rng.random() < 0.1 else _bad_rows(format, rng)


# -- what comes of it


def judge(case: Case, folder: Path) -> str:
    """Read a case; return "accepted" or what it was refused with. What is not documented is raised."""
    path, swallowed, hook = folder / case.name, [], sys.unraisablehook
    path.write_bytes(case.data)
    sys.unraisablehook = swallowed.append  # what would be a traceback on the screen, and nothing else
    try:
        result = _load(path) if case.reader == "load" else _read(path, case)
        assert not swallowed, f"not raised but printed: {swallowed[0].exc_value!r}"
        return result
    finally:
        sys.unraisablehook = hook
        path.unlink()


def _load(path: Path) -> str:
    try:
        model, _ = load_with_notes(path)
    except rf.SnapshotError as error:
        _refuse_memory(error)
        return "SnapshotError"
    _use(model)
    return "accepted"


def _read(path: Path, case: Case) -> str:
    options = dict(case.options)
    try:
        if "start" in options:
            options["start"] = Position.from_json(options["start"])
        stream = open_stream(path, **options)
        rows = 0
        for X, y in stream:
            assert X.shape[1] == stream.n_features and X.shape[0] > 0
            values = X.data if sp.issparse(X) else X
            assert values.dtype.kind == "f" and np.isfinite(values).all(), "a number is not finite"
            if sp.issparse(X):
                X.check_format(full_check=True)
                assert X.has_canonical_format
            if y is not None:
                assert y.shape == (X.shape[0],)
                fine = np.isfinite(y) if y.dtype.kind == "f" else np.ones(len(y), bool)
                if case.reader in ("vw", "jsonl"):  # in which NaN is the label of rows that have none
                    fine = fine | (y != y)
                assert fine.all(), "a label is not finite"
            rows += X.shape[0]
        assert stream.rows_read - (options["start"].rows if "start" in options else 0) == rows
        json.dumps(stream.layout)
    except StreamError as error:
        if case.reader not in ("arrow", "parquet"):  # pyarrow asks for as much as a file claims, and stops at a no
            _refuse_memory(error)
        return "StreamError"
    except OSError as error:
        if error.errno is None:  # not the system's word
            raise
        return "OSError"
    except ValueError as error:
        if not str(error).startswith("target"):  # what was asked for may not be there any more
            raise
        return "ValueError"
    return "accepted"


def _refuse_memory(error: BaseException | None) -> None:
    """Raise if something was refused only because it took too much memory."""
    while error is not None:
        if isinstance(error, MemoryError):
            raise error
        error = error.__cause__ or error.__context__


def _use(model: Any) -> None:
    """Do with what was accepted what users do: it may say no, but compiled loops must stay where they belong."""
    d = min(int(model.n_features_in_), 1000)
    X = np.random.default_rng(1).standard_normal((12, d))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for step in (
            lambda: model.to_bytes(),
            lambda: model.singular_values_,
            lambda: model.predict(X),
            lambda: model.partial_fit(X, *_labels(model)),
            lambda: model.learn_one({"a": 1.0, "colour": "red"}, _labels(model)[0][0]),
            lambda: model.learn(X, np.resize([-1.0, 1.0], 12)),
            lambda: model.second_moment,
        ):
            try:
                step()
            except MemoryError:
                raise
            except Exception:
                continue


def _labels(model: Any) -> tuple[Any, ...]:
    if hasattr(model, "classes_"):
        return (np.resize(model.classes_, 12),)
    return (np.arange(12.0),) if hasattr(model, "predict") else ()
