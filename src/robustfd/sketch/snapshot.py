"""The contents of a sketch's snapshot (docs/snapshot-format.md). The file container is in _container.py."""

import json
from dataclasses import fields
from typing import Any

import numpy as np
import scipy.sparse as sp

from robustfd._container import Document, Tensors, check_names, plain
from robustfd._validation import check_choice, check_integer, check_real, random_generator
from robustfd.sketch.rows import TINY, Queue, Rows


def pack(sketch: Any) -> tuple[Document, Tensors]:
    """Return the contents of a sketch, without its parameters, as a document and arrays."""
    scalars: dict[str, Any] = {}
    tensors: Tensors = {}
    state = sketch._stored_state()
    for field in fields(state):
        value = getattr(state, field.name)
        if isinstance(value, np.ndarray):
            tensors[f"state.{field.name}"] = value
        else:
            scalars[field.name] = value
    document = {
        "structure": plain(sketch._seen_structure),
        "n_features": int(sketch.n_features_in_),
        "n_seen": sketch._n_seen,
        "single": sketch._single,
        "tail": sketch._tail,
        "state": scalars,
        "queue": _pack_queue(sketch._queue, tensors),
        "feature_names": list(getattr(sketch, "feature_names_in_", [])),
        # The memory layout of B affects the rounding of its products.
        "column_major": [name for name, value in tensors.items() if not value.flags.c_contiguous],
    }
    return document, tensors


def unpack(sketch: Any, document: Document, tensors: Tensors) -> None:
    """Restore the contents of a sketch that has the saved parameters."""
    structure = document["structure"]
    _check_parameters(sketch, structure)
    for name in document["column_major"]:
        tensors[name] = np.asfortranarray(tensors[name])
    d = check_integer("n_features", document["n_features"], 1)
    stored = _unpack_state(sketch._state_type, document["state"], tensors, structure, d)
    sketch._state = sketch._restored_state(stored, structure, d)
    sketch._queue = _unpack_queue(document["queue"], tensors, d)
    if sketch._queue.pieces:
        clock, now = sketch._queue.pieces[0].clock, getattr(sketch._state, "now", None)
        if (clock is None) != (now is None) or (clock is not None and clock[-1] > now):
            raise ValueError("queued rows must have clocks up to now if the sketch has a window, and only then")
    if tensors:
        raise ValueError(f"unknown tensors {sorted(tensors)}")
    sketch._tail = check_real("tail", document["tail"], 0.0, 1.0, open_low=True)
    sketch._n_seen = check_integer("n_seen", document["n_seen"], len(sketch._queue))
    check_choice("single", document["single"], (True, False))
    sketch._single = document["single"]
    sketch._seen_structure, sketch._cached = structure, None
    sketch.n_features_in_ = d
    check_names(document["feature_names"], d)
    if document["feature_names"]:
        sketch.feature_names_in_ = np.array(document["feature_names"], dtype=object)


def _pack_queue(queue: Queue, tensors: dict[str, Any]) -> list[int] | None:
    """Add the queued rows to the tensors; return their shape if they are sparse."""
    if not len(queue):
        return None
    rows = queue.all()
    tensors["queue.weight"], tensors["queue.decay"] = rows.weight, rows.decay
    if rows.clock is not None:
        tensors["queue.clock"] = rows.clock
    if not rows.is_sparse:
        tensors["queue.x"] = rows.x
        return None
    for part in ("data", "indices", "indptr"):
        tensors[f"queue.{part}"] = getattr(rows.x, part)
    return [int(n) for n in rows.x.shape]


def _check_parameters(sketch: Any, structure: dict[str, Any]) -> None:
    """Raise an error if the current parameters, or those at the time of fitting, are invalid."""
    sketch._check_parameters()
    if structure.keys() != sketch._structural_parameters().keys():
        raise ValueError(f"structure has {sorted(structure)}")
    then = type(sketch)(**{**sketch.get_params(deep=False), **structure})
    then._check_parameters()
    random_generator(getattr(sketch, "random_state", None))


def _unpack_state(
    kind: type[Any], scalars: dict[str, Any], tensors: dict[str, Any], structure: dict[str, Any], d: int
) -> Any:
    """Return the state and remove its arrays from `tensors`.

    The class of the state lists its arrays. In a shape, a letter stands for a length, the same wherever it occurs: d is
    the number of features, w is one more with centring, m is sketch_size, k is min(m, d).
    """
    m, center = structure.get("sketch_size", d + 1), structure["center"]
    lengths, values = {"d": d, "w": d + center, "m": m, "k": min(m, d)}, {}
    for name, type_ in ((field.name, field.type) for field in fields(kind)):
        if name in kind.ARRAYS and (center or name not in ("mean", "shift")):
            value = tensors.pop(f"state.{name}")
            for letter, length in zip(kind.ARRAYS[name].split(), value.shape, strict=True):
                if length != (int(letter) if letter.isdigit() else lengths.setdefault(letter, length)):
                    raise ValueError(f"state.{name} has shape {value.shape}")
            least = getattr(kind, "LEAST", {}).get(name, -np.inf)
            check_values(f"state.{name}", value, least, np.int64 if name == "block" else np.float64)
        else:
            value = scalars.pop(name)
            if name == "generator":
                np.random.PCG64().state = json.loads(value)
            elif name in kind.ARRAYS:
                check_choice(name, value, (None,))
            elif type_ is bool:
                check_choice(name, value, (True, False))
            elif type_ is not str:
                least = -np.inf if name == "now" else 0.0
                value = check_integer(name, value, 0) if type_ is int else check_real(name, value, least)
        values[name] = value
    if scalars:
        raise ValueError(f"unknown scalars {sorted(scalars)}")
    if "b" in values and max(lengths["r"], lengths.get("q", 0)) > min(m - 1, values["b"].shape[1]):
        raise ValueError(f"more rows than sketch_size {m} allows")
    return kind(**values)


def _unpack_queue(shape: list[int] | None, tensors: dict[str, Any], d: int) -> Queue:
    """Return the queued rows and remove their arrays from `tensors`."""
    if "queue.weight" not in tensors:
        return Queue()
    weight, decay, clock = tensors.pop("queue.weight"), tensors.pop("queue.decay"), tensors.pop("queue.clock", None)
    if shape is None:
        x = values = tensors.pop("queue.x")
    else:
        parts = tuple(tensors.pop(f"queue.{part}") for part in ("data", "indices", "indptr"))
        if any(part.ndim != 1 or part.dtype.kind != "i" for part in parts[1:]):
            raise ValueError("the indices of the queued rows are not integers")
        x, values = sp.csr_array(parts, shape=shape), parts[0]
        x.check_format()
        if not x.has_canonical_format:
            raise ValueError("the indices of the queued rows are not ascending")
    k = len(weight)
    if weight.shape != (k,) or decay.shape != (k,) or x.shape != (k, d) or k == 0:
        raise ValueError(f"queued rows have shape {x.shape}, their weights {weight.shape}, their decays {decay.shape}")
    if x.dtype == np.float32:
        values = values.astype(np.float64)
    for name, value, least in (("x", values, -np.inf), ("weight", weight, TINY), ("decay", decay, TINY)):
        check_values(f"queue.{name}", value, least)
    check_values("queue.decay", 1.0 - decay, 0.0)
    if clock is not None:
        check_values("queue.clock", clock, -np.inf)
        if clock.shape != (k,) or np.any(np.diff(clock) < 0):
            raise ValueError("the clocks of the queued rows are not ascending")
    return Queue().plus(Rows(x, weight, decay, clock)).owned(0.0)


def check_values(name: str, value: Any, least: float, dtype: Any = np.float64) -> None:
    """Raise a ValueError unless all values are finite numbers of this type and at least `least`."""
    if value.dtype != dtype or not np.all(np.isfinite(value) & (value >= least)):
        raise ValueError(f"{name} has invalid values")
