"""Snapshots: a sketch as bytes and back. The layout is documented in docs/snapshot-format.md.

A snapshot is a safetensors file. Its metadata holds the version of this format, the name of the class, a JSON
document of parameters and scalars, and a SHA-256 over all of it and the tensors. Nothing is pickled and
nothing in a file is ever run.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import scipy.sparse as sp

from robustfd.sketch._rows import Queue, Rows

VERSION = 1
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
        "structure": sketch._seen_structure,
        "n_features": int(sketch.n_features_in_),
        "n_seen": sketch._n_seen,
        "single": sketch._single,
        "tail": sketch._tail,
        "state": scalars,
        "queue": _pack_queue(sketch._queue, tensors),
        "feature_names": list(getattr(sketch, "feature_names_in_", [])),
    }
    tensors = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    meta = {"robustfd": str(VERSION), "kind": type(sketch).__name__, "document": json.dumps(document)}
    meta["sha256"] = _digest(meta, tensors)
    return safetensors.numpy.save(tensors, meta)


def unpack(data: bytes, kinds: Mapping[str, type[Any]]) -> Any:
    """Return the sketch of a snapshot, made of one of the given classes, or raise SnapshotError."""
    meta, tensors = _open(data)
    if meta["kind"] not in kinds:
        raise SnapshotError(f"The snapshot holds a {meta['kind']!r}, which this version of robustfd does not know.")
    try:
        document = json.loads(meta["document"])
        sketch = kinds[meta["kind"]](**document["params"])
        sketch._check_parameters()
        kind = sketch._state_type
        values = {f.name: tensors.get(f"state.{f.name}", document["state"].get(f.name)) for f in fields(kind)}
        sketch._state = kind(**values)
        sketch._queue = _unpack_queue(document["queue"], tensors)
        sketch._tail, sketch._n_seen = float(document["tail"]), int(document["n_seen"])
        sketch._single = bool(document["single"])
        sketch._seen_structure, sketch._cached = document["structure"], None
        sketch.n_features_in_ = document["n_features"]
        if document["feature_names"]:
            sketch.feature_names_in_ = np.array(document["feature_names"], dtype=object)
    except Exception as error:  # a file with a right checksum but senseless content: made by hand
        raise SnapshotError(f"The snapshot does not make sense: {error}") from error
    return sketch


def write(path: Any, data: bytes) -> None:
    """Write data to a file so that at any moment the file is either the old one or the new one, whole."""
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, (path.stat().st_mode if path.exists() else 0o666 & ~_umask()) & 0o777)
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
    return Path(path).read_bytes()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


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


def _unpack_queue(shape: list[int] | None, tensors: dict[str, Any]) -> Queue:
    if "queue.weight" not in tensors:
        return Queue()
    if shape is None:
        x = tensors["queue.x"]
    else:
        x = sp.csr_array(tuple(tensors[f"queue.{part}"] for part in ("data", "indices", "indptr")), shape=shape)
        x.check_format()
    return Queue().plus(Rows(x, tensors["queue.weight"], tensors["queue.decay"]))


def _open(data: bytes) -> tuple[dict[str, str], dict[str, Any]]:
    """Return metadata and tensors after everything that can be wrong with a file has been ruled out."""
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
    except Exception as error:
        raise SnapshotError(f"The snapshot is truncated or damaged: {error}") from None
    if _digest(meta, tensors) != meta["sha256"]:
        raise SnapshotError("The snapshot is damaged: its checksum does not match its content.")
    return meta, tensors


def _digest(meta: Mapping[str, str], tensors: Mapping[str, Any]) -> str:
    sha = hashlib.sha256()
    for key in _KEYS[:-1]:
        sha.update(f"{key}={meta[key]}\n".encode())
    for name in sorted(tensors):
        value = tensors[name]
        sha.update(f"{name} {value.dtype.str} {value.shape}\n".encode())
        sha.update(value.tobytes())
    return sha.hexdigest()
