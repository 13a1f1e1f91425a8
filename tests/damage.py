"""Snapshots with something wrong in them, their checksums right: what somebody could make by hand."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import safetensors.numpy

from robustfd import _container

REMOVED = object()
NUMBERS = (-1, 0, 1, 2, 3, 7, 10**4, 2**31 - 1, 2**31, 2**63, 10**30, 0.5, -0.5, 1e300, float("nan"), float("inf"))
VALUES = (*NUMBERS, "x", "", "rows", "dicts", "full", None, True, False, [], {}, [1], "[" * 2000, REMOVED)


def opened(data: bytes) -> tuple[dict[str, str], Any, dict[str, np.ndarray]]:
    """Metadata, document and tensors of a snapshot."""
    meta = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    return meta, json.loads(meta["document"]), safetensors.numpy.load(data)


def sealed(meta: dict[str, str], document: Any, tensors: dict[str, np.ndarray]) -> bytes:
    """The snapshot of them, with its checksum."""
    meta = meta | {"document": json.dumps(document)}
    tensors = {name: np.ascontiguousarray(value).reshape(np.shape(value)) for name, value in tensors.items()}
    return safetensors.numpy.save(tensors, meta | {"sha256": _container.digest(meta, tensors)})


def rewritten(data: bytes, *, meta: Any = None, document: Any = None, tensors: Any = None) -> bytes:
    """The snapshot with parts replaced; a function is handed what was there, REMOVED takes it away."""
    old, parts, content = opened(data)
    for path, value in (document or {}).items():
        *folders, name = path.split("/")
        place = parts
        for folder in folders:
            place = place[int(folder) if isinstance(place, list) else folder]
        _put(place, name, value)
    for name, value in (tensors or {}).items():
        _put(content, name, value)
    return sealed(old | (meta or {}), parts, content)


def _put(place: Any, name: Any, value: Any) -> None:
    if value is REMOVED:
        del place[name]
    else:
        place[name] = value(place[name]) if callable(value) else value


def put(index: Any, number: Any) -> Any:
    """A function that replaces one number of an array."""

    def change(array: np.ndarray) -> np.ndarray:
        array = array.copy()
        array[index] = number
        return array

    return change


def damaged(data: bytes, seed: int, kinds: tuple[str, ...] = ()) -> Iterator[tuple[str, bytes]]:
    """Without end, what was done to a snapshot and the result; the same for the same seed."""
    rng = np.random.default_rng(seed)
    while True:
        meta, document, tensors = opened(data)
        done = []
        for _ in range(rng.integers(1, 3)):
            what = rng.choice(["tensor", "tensor", "tensor", "document", "document", "kind"] if kinds else ["tensor"])
            if what == "document":
                done.append(_damage_document(document, rng))
            elif what == "kind":
                meta["kind"] = str(rng.choice(kinds))
                done.append(meta["kind"])
            elif tensors:
                done.append(_damage_tensors(tensors, rng))
        yield "; ".join(done), sealed(meta, document, tensors)


def _damage_document(document: Any, rng: np.random.Generator) -> str:
    leaves = list(_leaves(document))
    place, name, path = leaves[rng.integers(len(leaves))]
    value = VALUES[rng.integers(len(VALUES))]
    value = value.copy() if isinstance(value, list | dict) else value  # it may be damaged itself
    _put(place, name, value)
    return f"{path} = {value!r:.20}"


def _leaves(place: Any, path: str = "") -> Iterator[tuple[Any, Any, str]]:
    items = place.items() if isinstance(place, dict) else enumerate(place)
    for name, value in items:
        yield place, name, f"{path}/{name}"
        if isinstance(value, dict | list) and value:
            yield from _leaves(value, f"{path}/{name}")


def _damage_tensors(tensors: dict[str, np.ndarray], rng: np.random.Generator) -> str:
    names = sorted(tensors)
    name, other = str(rng.choice(names)), str(rng.choice(names))
    old = tensors[name]
    how = rng.integers(11)
    if how == 0:
        del tensors[name]
    elif how == 1:
        tensors[name], tensors[other] = tensors[other], old
    elif how == 2:
        tensors[name] = old[:-1] if old.ndim else old
    elif how == 3:
        tensors[name] = np.concatenate([old, old[-1:]]) if old.ndim else old
    elif how == 4:
        tensors[name] = old.T
    elif how == 5:
        tensors[name] = old.ravel() if old.ndim != 1 else old[:, None]
    elif how == 6:
        with np.errstate(all="ignore"):
            tensors[name] = old.astype(rng.choice(["f4", "f8", "i4", "i8", "u1", "?"]))
    elif how == 7:
        tensors[f"{name}{rng.integers(3)}"] = old
    elif how == 8:
        raw = bytearray(old.tobytes())
        if raw:
            raw[rng.integers(len(raw))] ^= 1 << int(rng.integers(8))
        tensors[name] = np.frombuffer(bytes(raw), old.dtype).reshape(old.shape)
    elif how == 9 and old.size:
        tensors[name] = rng.permutation(old.ravel()).reshape(old.shape)
    elif old.size:
        with np.errstate(all="ignore"):
            number = np.array(NUMBERS[rng.integers(len(NUMBERS))], dtype=float).astype(old.dtype)
        tensors[name] = put(np.unravel_index(rng.integers(old.size), old.shape), number)(old)
    return f"{name} ({how})"
