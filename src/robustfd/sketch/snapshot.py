"""Snapshots: a sketch as bytes and back. The layout is documented in docs/snapshot-format.md.

A snapshot is a safetensors file. Its metadata holds the version of this format, the name of the class, a JSON
document of parameters and scalars, and a SHA-256 over all of it and the tensors. Nothing is pickled and
nothing in a file is ever run.
"""

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import scipy.sparse as sp
from sklearn.utils import check_random_state

from robustfd._validation import check_choice, check_integer, check_real
from robustfd.sketch._rows import Queue, Rows

VERSION = 1
TINY = float(np.finfo(np.float64).smallest_subnormal)  # the least number above zero
_KEYS = ("robustfd", "kind", "document", "sha256")


class SnapshotError(ValueError):
    """A snapshot that cannot be read: damaged, truncated, not a snapshot, or of a newer version."""


def pack(sketch: Any) -> bytes:
    """Return the snapshot of a sketch."""
    scalars: dict[str, Any] = {}
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    for field in fields(sketch._state):
        value = getattr(sketch._state, field.name)
        if isinstance(value, np.ndarray):
            tensors[f"state.{field.name}"] = value
        else:
            scalars[field.name] = value
    document = {
        "params": _plain(sketch.get_params(deep=False)),
        "structure": _plain(sketch._seen_structure),
        "n_features": int(sketch.n_features_in_),
        "n_seen": sketch._n_seen,
        "single": sketch._single,
        "tail": sketch._tail,
        "state": scalars,
        "queue": _pack_queue(sketch._queue, tensors),
        "feature_names": list(getattr(sketch, "feature_names_in_", [])),
        # The layout of B in memory decides how its products are rounded.
        "column_major": [name for name, value in tensors.items() if not value.flags.c_contiguous],
    }
    tensors = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    meta = {"robustfd": str(VERSION), "kind": type(sketch).__name__, "document": json.dumps(document)}
    meta["sha256"] = _digest(meta, tensors)
    return _with_metadata(safetensors.numpy.save(tensors), meta)


def unpack(data: bytes, kinds: Mapping[str, type[Any]]) -> Any:
    """Return the sketch of a snapshot, made of one of the given classes, or raise SnapshotError."""
    meta, tensors = _open(data)
    if meta["kind"] not in kinds:
        raise SnapshotError(f"The snapshot holds a {meta['kind']!r}, which this version of robustfd does not know.")
    try:
        document = json.loads(meta["document"])
        sketch = kinds[meta["kind"]](**document["params"])
        structure = document["structure"]
        _check_parameters(sketch, structure)
        for name in document["column_major"]:
            tensors[name] = np.asfortranarray(tensors[name])
        d = check_integer("n_features", document["n_features"], 1)
        sketch._state = _unpack_state(sketch._state_type, document["state"], tensors, structure, d)
        sketch._queue = _unpack_queue(document["queue"], tensors, d)
        if tensors:
            raise ValueError(f"unknown tensors {sorted(tensors)}")
        sketch._tail = check_real("tail", document["tail"], 0.0, 1.0, open_low=True)
        sketch._n_seen = check_integer("n_seen", document["n_seen"], len(sketch._queue))
        check_choice("single", document["single"], (True, False))
        sketch._single = document["single"]
        sketch._seen_structure, sketch._cached = structure, None
        sketch.n_features_in_ = d
        names = document["feature_names"]
        if not isinstance(names, list) or len(names) not in (0, d) or not all(isinstance(n, str) for n in names):
            raise ValueError(f"feature_names must be {d} strings or none")
        if names:
            sketch.feature_names_in_ = np.array(names, dtype=object)
    except Exception as error:  # a file with a right checksum but senseless content: made by hand
        raise SnapshotError(f"The snapshot does not make sense: {error}") from error
    return sketch


def write(path: Any, data: bytes) -> None:
    """Write data to a file so that at any moment the file is either the old one or the new one, whole."""
    named, path = path, Path(os.path.realpath(os.fsdecode(path)))  # a link stays a link
    if path.is_dir():
        raise IsADirectoryError(f"Cannot save to {str(named)!r}: it is a directory.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"Cannot save to {str(named)!r}: there is no directory {str(path.parent)!r}.")
    temporary = path.parent / f".robustfd-{secrets.token_hex(8)}.part"
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            os.chmod(temporary, path.stat().st_mode & 0o777)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    with contextlib.suppress(OSError):  # not every system lets a directory be synced
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def read(path: Any) -> bytes:
    """Return the bytes of a file."""
    return Path(os.fsdecode(path)).read_bytes()


def _plain(params: dict[str, Any]) -> dict[str, Any]:
    """Return parameters as JSON can hold them, exactly."""
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in params.items()}
    for name, value in plain.items():
        if not isinstance(value, bool | int | float | str | None):
            raise TypeError(f"{name}={value!r} cannot be saved: a snapshot holds plain numbers and strings only.")
    return plain


def _pack_queue(queue: Queue, tensors: dict[str, Any]) -> list[int] | None:
    """Put the waiting rows among the tensors; return their shape if they are sparse."""
    if not len(queue):
        return None
    rows = queue.all()
    tensors["queue.weight"], tensors["queue.decay"] = rows.weight, rows.decay
    if not rows.is_sparse:
        tensors["queue.x"] = rows.x
        return None
    for part in ("data", "indices", "indptr"):
        tensors[f"queue.{part}"] = getattr(rows.x, part)
    return [int(n) for n in rows.x.shape]


def _check_parameters(sketch: Any, structure: dict[str, Any]) -> None:
    """Raise unless the parameters are possible, those now and those with which the rows were seen."""
    sketch._check_parameters()
    if structure.keys() != sketch._structural_parameters().keys():
        raise ValueError(f"structure has {sorted(structure)}")
    then = type(sketch)(**{**sketch.get_params(deep=False), **structure})
    then._check_parameters()
    check_random_state(getattr(sketch, "random_state", None))


# What the arrays of a state look like. A letter is a length: d the number of features, m sketch_size, and the
# others the same wherever they stand, r < m and k = m or d.
_SHAPES = {"b": "rd", "lam": "r", "mean": "d", "squares": "d", "matrix": "dd", "bt": "dm", "vt": "dk", "energy": "k"}
_LEAST = {"lam": TINY, "squares": 0.0, "energy": 0.0}


def _unpack_state(
    kind: type[Any], scalars: dict[str, Any], tensors: dict[str, Any], structure: dict[str, Any], d: int
) -> Any:
    """Return the state, its arrays taken out of the tensors."""
    m = structure.get("sketch_size", d + 1)
    lengths, values = {"d": d, "m": m, "k": min(m, d)}, {}
    for name, type_ in ((field.name, field.type) for field in fields(kind)):
        if name in _SHAPES and (name != "mean" or structure["center"]):
            value = tensors.pop(f"state.{name}")
            for letter, length in zip(_SHAPES[name], value.shape, strict=True):
                if lengths.setdefault(letter, length) != length:
                    raise ValueError(f"state.{name} has shape {value.shape}")
            _check_values(f"state.{name}", value, _LEAST.get(name, -np.inf))
        else:
            value = scalars.pop(name)
            if name == "generator":
                np.random.PCG64().state = json.loads(value)
            elif name == "mean":
                check_choice(name, value, (None,))
            elif type_ is bool:
                check_choice(name, value, (True, False))
            else:
                value = check_integer(name, value, 0) if type_ is int else check_real(name, value, 0.0)
        values[name] = value
    if scalars:
        raise ValueError(f"unknown scalars {sorted(scalars)}")
    r = lengths.get("r", 0)
    if r > min(m - 1, d) or (r and not values["shrunk"]):
        raise ValueError(f"{r} rows of {d} features, with sketch_size {m} and shrunk {values['shrunk']}")
    return kind(**values)


def _unpack_queue(shape: list[int] | None, tensors: dict[str, Any], d: int) -> Queue:
    """Return the waiting rows, taken out of the tensors."""
    if "queue.weight" not in tensors:
        return Queue()
    weight, decay = tensors.pop("queue.weight"), tensors.pop("queue.decay")
    if shape is None:
        x = values = tensors.pop("queue.x")
    else:
        parts = tuple(tensors.pop(f"queue.{part}") for part in ("data", "indices", "indptr"))
        if any(part.ndim != 1 or part.dtype.kind != "i" for part in parts[1:]):
            raise ValueError("the indices of the waiting rows are not integers")
        x, values = sp.csr_array(parts, shape=shape), parts[0]
        x.check_format()
        if not x.has_canonical_format:
            raise ValueError("the indices of the waiting rows are not ascending")
    k = len(weight)
    if weight.shape != (k,) or decay.shape != (k,) or x.shape != (k, d) or k == 0:
        raise ValueError(f"the waiting rows have shape {x.shape}, their weights {weight.shape} and {decay.shape}")
    if x.dtype == np.float32:
        values = values.astype(np.float64)
    for name, value, least in (("x", values, -np.inf), ("weight", weight, TINY), ("decay", decay, TINY)):
        _check_values(f"queue.{name}", value, least)
    _check_values("queue.decay", 1.0 - decay, 0.0)
    return Queue().plus(Rows(x, weight, decay)).owned(0.0)


def _check_values(name: str, value: Any, least: float) -> None:
    if value.dtype != np.float64 or not np.all(np.isfinite(value) & (value >= least)):
        raise ValueError(f"{name} holds what it never should")


def _open(data: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """Return metadata and tensors after everything that can be wrong with a file has been ruled out."""
    if isinstance(data, bytearray | memoryview):
        data = bytes(data)
    try:
        length = int.from_bytes(data[:8], "little")
        meta = json.loads(data[8 : 8 + length])["__metadata__"]
        if not all(isinstance(meta[key], str) for key in _KEYS):
            raise TypeError
        version = int(meta["robustfd"])
    except Exception:
        raise SnapshotError("Not a robustfd snapshot, or its header is damaged.") from None
    if version != VERSION:
        raise SnapshotError(
            f"The snapshot has format version {version}; this robustfd reads version {VERSION}. Upgrade robustfd."
        )
    try:
        tensors = safetensors.numpy.load(data)
        digest = _digest(meta, tensors)
    except Exception as error:
        raise SnapshotError(f"The snapshot is truncated or damaged: {error}") from None
    if digest != meta["sha256"]:
        raise SnapshotError("The snapshot is damaged: its checksum does not match its content.")
    return meta, tensors


def _with_metadata(data: bytes, meta: Mapping[str, str]) -> bytes:
    """Return a safetensors file with metadata in its header; the library would write it in an order of its own."""
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.dumps({"__metadata__": meta, **json.loads(data[8:start])}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data[start:]


def _digest(meta: Mapping[str, str], tensors: Mapping[str, Any]) -> str:
    sha = hashlib.sha256()
    for key in _KEYS[:-1]:
        sha.update(f"{key}={meta[key]}\n".encode())
    for name in sorted(tensors):
        value = tensors[name]
        sha.update(f"{name} {value.dtype.str} {value.shape}\n".encode())
        sha.update(value.tobytes())
    return sha.hexdigest()
