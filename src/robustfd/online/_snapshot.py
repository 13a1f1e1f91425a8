"""What a snapshot of an online learner holds; the layout is documented in docs/snapshot-format.md.

Only what cannot be made again is kept, and of a block only the rows that have come: counts follow from the lengths
of arrays, lists that point into each other are drawn up anew. Whatever compiled loops use as an index is looked at
here, since a file may come from anybody.
"""

import json
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustfd._container import Document, Saved, Tensors, check_names
from robustfd._validation import check_choice, check_integer, check_real
from robustfd.online import _block, _columns, _features, _mixture, progress
from robustfd.online._columns import FEATURES, REACH, ROWS, RUN, RUNS, Columns
from robustfd.online._newton import LARGEST, open_dense
from robustfd.online.losses import LOSSES

Floats = NDArray[np.float64]
MOST = 2**53  # rows that can be counted in a float
BIG = float(np.finfo(np.float64).max)

# The arrays of states that take single rows. A letter is a length: d features, m rows of the sketch, k of min(m, d).
ROW_STATES = {
    "AdaGradState": {"w": "d", "squares": "d"},
    "DescentState": {"v": "d", "scalars": "2"},
    "ProjectionState": {"v": "d", "bt": "dm", "c": "m", "gram": "mm"},
    "OjaState": {"v": "d", "yt": "dk", "c": "k", "energy": "k", "f": "kk"},
}
NOT_NEGATIVE = ("squares", "energy")
# What a row of a block leaves for later rows. The other places are scratch: what is there may be of blocks of the past.
ROW = [_block.C2, _block.STEP, _block.ALONG_K, _block.ALONG_N, _block.ONE_N, _block.KK, _block.KN, _block.NN,
       _block.EXTRA]  # fmt: skip
TABLE = [_features.COUNT, _features.SQUARE, _features.MEAN, _features.CENTRED, _features.SCALE, _features.METRIC,
         _features.DIAGONAL]  # fmt: skip


class Parts:
    """The numbers and arrays of one state in a file, taken out one by one; what is not what it must be is an error."""

    def __init__(self, numbers: Document, tensors: Tensors, prefix: str):
        if not isinstance(numbers, dict):
            raise TypeError("a state is not an object")
        self._numbers, self._tensors, self._prefix = numbers, tensors, prefix

    def has(self, name: str) -> bool:
        """Return whether there is such an array."""
        return self._prefix + name in self._tensors

    def shape(self, name: str, axes: int) -> tuple[int, ...]:
        """Return the shape of an array that stays, so that memory is taken only after it was looked at."""
        shape = self._tensors[self._prefix + name].shape
        if len(shape) != axes:
            raise ValueError(f"{self._prefix}{name} has shape {shape}")
        return tuple(shape)

    def array(
        self, name: str, *shape: int, dtype: Any = np.float64, least: float = -np.inf, most: float = np.inf
    ) -> NDArray[Any]:
        """Take out an array of that shape, all of it finite and between least and most."""
        name = self._prefix + name
        value = self._tensors.pop(name)
        if value.dtype != dtype or value.shape != shape:
            raise ValueError(f"{name} has shape {value.shape} of {value.dtype}, not {shape} of {np.dtype(dtype)}")
        if not _within(value, least, most):
            raise ValueError(f"{name} holds what it never should")
        return np.require(value, requirements=["C", "A", "W"])

    def flag(self, name: str) -> bool:
        """Take out true or false."""
        check_choice(name, value := self._numbers.pop(name), (True, False))
        return bool(value)

    def count(self, name: str) -> int:
        """Take out a number of rows."""
        value = check_integer(name, self._numbers.pop(name), 0)
        if value > MOST:
            raise ValueError(f"{name} is {value}")
        return value

    def number(self, name: str, least: float = -np.inf) -> float:
        """Take out a finite number."""
        return check_real(name, self._numbers.pop(name), least)

    def text(self, name: str) -> Any:
        """Take out whatever there is."""
        return self._numbers.pop(name)

    def close(self) -> None:
        """Raise if anything is left."""
        left = [*self._numbers, *(name for name in self._tensors if name.startswith(self._prefix))]
        if left:
            raise ValueError(f"unknown parts {sorted(left)}")


# -- for a learner: its rows, the width of them, its states


def pack_common(model: Any, states: list[tuple[Document, Tensors]]) -> tuple[Document, Tensors]:
    """Return document and tensors of a learner with these states."""
    document = {
        "n_features": int(model.n_features_in_),
        "feature_names": list(getattr(model, "feature_names_in_", [])),
        "states": [numbers for numbers, _ in states],
    }
    tensors = {f"states.{i}.{name}": array for i, (_, arrays) in enumerate(states) for name, array in arrays.items()}
    for name, array in tensors.items():
        if not _within(array):
            raise OverflowError(f"{type(model).__name__} has overflowed ({name} is not finite): it cannot be saved.")
    return document, tensors | {"progress": model._progress}


def unpack_common(model: Any, document: Document, tensors: Tensors) -> list[Parts]:
    """Set what is common to all learners; return their states as they are in the file."""
    d = check_integer("n_features", document.pop("n_features"), 1)
    if d >= 2**31:
        raise ValueError(f"n_features is {d}")
    names = document.pop("feature_names")
    check_names(names, d)
    model.n_features_in_ = d
    if names:
        model.feature_names_in_ = np.array(names, dtype=object)
    states = document.pop("states")
    if document or not isinstance(states, list) or not states:
        raise ValueError(f"states are {states!r:.60}, and there is {sorted(document)}")
    record, fresh = tensors.pop("progress"), progress.start()
    rows = record[..., progress.ROWS]
    if record.dtype != fresh.dtype or record.shape != fresh.shape or not np.all((rows >= 0) & (rows <= MOST)):
        raise ValueError("the progress holds what it never should")
    if not np.array_equal(rows, np.floor(rows)):
        raise ValueError("the progress holds a part of a row")
    model._progress = np.require(record, requirements=["C", "A", "W"])
    return [Parts(numbers, tensors, f"states.{i}.") for i, numbers in enumerate(states)]


def _within(array: NDArray[Any], least: float = -np.inf, most: float = np.inf) -> bool:
    """Return whether all numbers are finite, and between least and most."""
    low, high = (array.min(), array.max()) if array.size else (0, 0)  # of NaN, and so false
    return array.size == 0 or bool(max(least, -BIG) <= low and high <= min(most, BIG))


class SavedLearner(Saved):
    """The snapshots of `OnlineLearner`."""

    def _pack(self: Any) -> tuple[Document, Tensors]:
        self._require_rows()
        if self._frozen != self._parameters():
            raise ValueError("The parameters were changed after rows were learnt: set them back before saving.")
        pack = pack_newton if hasattr(self._state, "memory") else pack_row_state
        return pack_common(self, [pack(self._state)])

    def _unpack(self: Any, document: Document, tensors: Tensors) -> None:
        self._check_parameters()
        (parts,) = unpack_common(self, document, tensors)
        d, m, sparse = self.n_features_in_, getattr(self, "sketch_size", 0), parts.flag("sparse")
        if parts.has("basis"):
            m = d + 1 if self.sketch == "full" else m
            if parts.shape("basis", 2) != (d, m):
                raise ValueError(f"the basis has shape {parts.shape('basis', 2)}, expected {(d, m)}")
            self._state = self._start(d, sparse=sparse)
            unpack_newton(self._state, parts, sparse=sparse)
        else:
            if m and parts.shape("c", 1)[0] not in (m, min(m, d)):
                raise ValueError(f"c has shape {parts.shape('c', 1)}, expected {(m,)}")
            self._state = self._start(1, sparse=sparse)  # of one feature, so that little is done in vain
            unpack_row_state(self._state, parts, d, m)
        if tensors:
            raise ValueError(f"unknown tensors {sorted(tensors)}")
        self._frozen, self._numbers = self._parameters(), LOSSES[self.loss].kind != "classification"


def pack_row_state(state: Any) -> tuple[Document, Tensors]:
    """Return numbers and arrays of a state that takes single rows."""
    arrays = {name: getattr(state, name) for name in ROW_STATES[type(state).__name__]}
    numbers: Document = {"sparse": bool(state.sparse), "seen": int(state.seen[0])}
    if hasattr(state, "generator"):
        numbers["generator"] = json.dumps(state.generator.bit_generator.state)
    return numbers, arrays


def unpack_row_state(state: Any, parts: Parts, d: int, m: int) -> None:
    """Make a state, begun with one feature, what was packed."""
    lengths = {"d": d, "m": m, "k": min(m, d), "2": 2}
    for name, letters in ROW_STATES[type(state).__name__].items():
        least = 0.0 if name in NOT_NEGATIVE else -np.inf
        setattr(state, name, parts.array(name, *(lengths[letter] for letter in letters), least=least))
    state.d, state.seen[0] = d, parts.count("seen")
    if hasattr(state, "generator"):
        state.generator.bit_generator.state = json.loads(parts.text("generator"))
    parts.close()


# -- OnlineNewton and RFD-SON


def pack_newton(state: Any) -> tuple[Document, Tensors]:
    """Return numbers and arrays of a `NewtonState`."""
    block, counts = state.block, state.counts
    n = int(counts[_block.FILLED])
    if counts[_block.STATUS] == _block.OVERFLOW:
        raise OverflowError("The weights have overflowed, and the learner can learn no more: it cannot be saved.")
    arrays = {
        "products": block.products[:n],
        "gram": np.tril(block.gram[:n, :n]),
        "n": np.triu(block.n[:n, :n]),
        "rows": block.rows[:n, ROW],
        "lam": block.lam,
        "scalars": block.scalars,
        "ball": block.ball,
    }
    careful = bool(counts[_block.CAREFUL])
    if careful:
        arrays["k"] = np.triu(block.k[:n, :n])
    if state.sparse:
        arrays |= pack_columns(state.columns, n)
    else:
        basis, buffer = open_dense.py_func(block, state.d)
        arrays["basis"] = basis.T
        arrays["buffer"] = buffer[:n]
    numbers = {
        "sparse": bool(state.sparse),
        "seen": int(counts[_block.SEEN]),
        "shrinks": int(counts[_block.SHRINKS]),
        "careful": careful,
    }
    return numbers, arrays


def unpack_newton(state: Any, parts: Parts, *, sparse: bool) -> None:
    """Make a fresh state what was packed; that it is sparse, and the shape of the basis, were looked at."""
    block, counts, d = state.block, state.counts, state.d
    (buffer_size, q), r = block.products.shape, len(block.lam)
    n = parts.shape("products", 2)[0]
    counts[_block.SEEN], counts[_block.SHRINKS] = parts.count("seen"), parts.count("shrinks")
    room = buffer_size - (r if counts[_block.SHRINKS] else 0) - n
    if state.sparse != sparse or room < 1:
        raise ValueError(f"{n} rows in a block for {n + room}, sparse {sparse}")
    counts[_block.FILLED] = n
    block.products[:n] = parts.array("products", n, q)
    block.gram[:n, :n] = parts.array("gram", n, n)
    block.n[:n, :n] = parts.array("n", n, n)
    block.rows[:n, ROW] = parts.array("rows", n, len(ROW))
    block.lam[:] = parts.array("lam", r, least=0.0)
    block.scalars[:] = parts.array("scalars", len(block.scalars), least=0.0)
    block.ball[:] = parts.array("ball", 2 * q)
    if block.ball[0] == 0.0:
        raise ValueError("the weights are nothing")
    counts[_block.CAREFUL] = parts.flag("careful")
    if counts[_block.CAREFUL]:
        block.k[:n, :n] = parts.array("k", n, n)
    elif block.scalars[_block.ALPHA] == 0.0 and (n or counts[_block.SHRINKS]):
        raise ValueError("alpha is zero, but there is no K")
    entered = np.count_nonzero((block.rows[:n, _block.C2] > 0) & (block.rows[:n, _block.ALONG_N] != 0))
    counts[_block.RANK] = np.count_nonzero(block.lam) + entered
    counts[_block.SPAN] = np.count_nonzero(block.lam > block.scalars[_block.ALPHA]) + entered
    if sparse:
        state.columns = unpack_columns(state.columns, parts, n)
        state.columns.scale[: state.columns.counts[FEATURES]] = 1.0
        if len(state.columns.coefficients) - r - state.columns.counts[ROWS] < room:
            raise ValueError("the run has no room for the block")
    else:
        basis, buffer = open_dense.py_func(block, d)
        basis[:] = parts.array("basis", d, q).T
        buffer[:n] = parts.array("buffer", n, d)
    parts.close()


# -- the basis of sparse rows


def pack_columns(columns: Columns, filled: int) -> Tensors:
    """Return the arrays of a basis and its run, of which the last `filled` rows are in a block that goes on."""
    features, rows, run = (int(columns.counts[i]) for i in (FEATURES, ROWS, RUN))
    value, row, where = _columns.entries_of(columns)
    return {
        "basis": columns.basis,
        "age": columns.age,
        "history": columns.history[:run],
        "run.coefficients": columns.coefficients[: columns.history.shape[1] + rows - filled],
        "run.feature": columns.feature[:features],
        "run.gathered": columns.gathered[:features],
        "run.where": where,
        "run.row": row,
        "run.value": value,
    }


def unpack_columns(columns: Columns, parts: Parts, filled: int) -> Columns:
    """Return the basis and the run that were packed, `columns` being a fresh one; `scale` is left to the caller."""
    (d, q), r = columns.basis.shape, columns.history.shape[1]
    run, most = parts.shape("history", 3)[0], len(columns.coefficients)
    features, entries = parts.shape("run.feature", 1)[0], parts.shape("run.value", 1)[0]
    have = parts.shape("run.coefficients", 2)[0]
    rows = have - r + filled
    if run >= RUNS or have < r or r + rows > most or features > min(entries, d):
        raise ValueError(f"run {run} of {rows} rows with {entries} entries of {features} features")
    columns = _columns.with_room(columns, entries)
    columns = columns._replace(basis=parts.array("basis", d, q), age=parts.array("age", d, dtype=np.uint8, most=run))
    columns.history[:run] = parts.array("history", run, r, q)
    columns.coefficients[:have] = parts.array("run.coefficients", have, q)
    feature = parts.array("run.feature", features, dtype=np.int32, least=0, most=d - 1)
    columns.feature[:features] = feature
    columns.place[feature] = np.arange(features)
    if not np.array_equal(columns.place[feature], np.arange(features)):
        raise ValueError("a feature is twice in the run")
    columns.gathered[:features] = parts.array("run.gathered", features, q)
    where = parts.array("run.where", entries, dtype=np.int32, least=0, most=features - 1)
    row = parts.array("run.row", entries, dtype=np.int32, least=0, most=rows - 1)
    if np.any(row[1:] < row[:-1]):
        raise ValueError("the rows of the run are out of order")
    columns.counts[[FEATURES, ROWS, RUN, REACH]] = features, rows, run, 0
    _columns.enter_entries(columns, parts.array("run.value", entries), row, where)
    return columns


# -- the learner with nothing to tune


def pack_untuned(state: Any) -> tuple[Document, Tensors]:
    """Return numbers and arrays of an `UntunedState`."""
    mix, n = state.mix, int(state.mix.counts[_mixture.FILLED])
    if state._room() < 1:  # a shrink has failed
        raise OverflowError("The numbers have overflowed, and the model can learn no more: it cannot be saved.")
    numbers = {
        "sparse": bool(state.sparse),
        "seen": int(state.seen),
        "shrinks": int(mix.counts[_mixture.SHRINKS]),
        "offset": float(state.offset),
    }
    arrays = {name: getattr(mix, name)[:n] for name in ("products", "z", "steps", "curvature", "factor")}
    arrays |= {name: getattr(mix, name) for name in ("m", "lam", "rates", "losses")}
    arrays |= {
        "gram": np.tril(mix.gram[:n, :n]),
        "k": np.triu(mix.k[:n, :n]),
        "root": np.tril(mix.root) if n else np.eye(len(mix.root)),  # between blocks it is that of the past
        "spread": mix.scalars[: _mixture.HUBER],
        "features": state.features.table[:, TABLE],
        "totals": state.features.totals,
        "factors": state.factors[:n],
    }
    if state.sparse:
        arrays |= pack_columns(state.columns, n)
    else:
        arrays |= {"basis": state.basis, "rows": state.rows[:n]}
    if state.seen < state.first:
        arrays |= _pack_kept(state)
    return numbers, arrays


def _pack_kept(state: Any) -> Tensors:
    """Return the first rows."""
    x, y, weight = zip(*state.kept) if state.kept else ((), (), ())
    arrays = {"kept.y": np.concatenate([np.empty(0), *y]), "kept.weight": np.concatenate([np.empty(0), *weight])}
    if not state.sparse:
        return arrays | {"kept.x": np.vstack([np.empty((0, state.d)), *x])}
    lengths = [np.diff(rows.indptr) for rows in x]
    return arrays | {
        "kept.data": np.concatenate([np.empty(0), *(rows.data for rows in x)]),
        "kept.indices": np.concatenate([np.empty(0, np.int32), *(rows.indices for rows in x)]).astype(np.int32),
        "kept.indptr": np.cumsum(np.concatenate([[0], *lengths]), dtype=np.int64),
    }


def sizes_of_untuned(parts: Parts) -> tuple[int, int, int]:
    """Return d, m and the number of outputs that arrays have: what an `UntunedState` is to be begun with."""
    (n, q), (outputs, rates), (r, other) = (parts.shape(name, 2) for name in ("basis", "losses", "m"))
    if n < 2 or r < 1 or outputs < 1 or rates < 1 or other != r or q != outputs * rates + r:
        raise ValueError(f"a basis of shape {(n, q)} for {outputs} outputs, {rates} rates and {r} rows")
    return n - 1, r + 1, outputs


def unpack_untuned(state: Any, parts: Parts) -> None:
    """Make a fresh state of the right sizes what was packed."""
    mix, d = state.mix, state.d
    (rows, q), (outputs, rates), r = mix.products.shape, mix.losses.shape, len(mix.lam)
    n, state.seen = parts.shape("products", 2)[0], parts.count("seen")
    mix.counts[_mixture.FILLED], mix.counts[_mixture.SHRINKS] = n, parts.count("shrinks")
    first, shrunk = state.seen < state.first, bool(mix.counts[_mixture.SHRINKS])
    if first == shrunk or n >= rows - (r if shrunk else 0) or (first and n != state.seen):
        raise ValueError(f"{n} rows in a block after {state.seen}, shrunk {shrunk}")
    state.offset = parts.number("offset")
    mix = state.mix = mix._replace(rates=parts.array("rates", rates, least=0.0))
    for name, width in (("products", q), ("z", r), ("steps", outputs * rates)):
        getattr(mix, name)[:n] = parts.array(name, n, width)
    for name in ("curvature", "factor"):
        getattr(mix, name)[:n] = parts.array(name, n, least=0.0)
    for name in ("gram", "k"):
        getattr(mix, name)[:n, :n] = parts.array(name, n, n)
    for name in ("m", "root"):
        getattr(mix, name)[:] = parts.array(name, r, r)
    mix.lam[:] = parts.array("lam", r, least=0.0)
    mix.losses[:] = parts.array("losses", outputs, rates)
    mix.scalars[: _mixture.HUBER] = parts.array("spread", 2, least=0.0)
    table = parts.array("features", d + 1, len(TABLE))
    if np.any(np.delete(table, 2, axis=1) < 0) or not np.isin(table[:, 3], (0.0, 1.0)).all() or table[0, 3] != 1.0:
        raise ValueError("what is known of the features is impossible")
    state.features.table[:, TABLE] = table
    # The first files had no place for a factor of all rows: in their models each row has its own.
    known = 3 if parts.shape("totals", 1) == (3,) else 4
    state.features.totals[:known] = parts.array("totals", known)
    state.shifted = _features.number_centred(state.features, np.flatnonzero(table[1:, 3]) + 1)
    state.factors[:n] = parts.array("factors", n, least=0.0)
    if state.sparse:
        state.columns = columns = unpack_columns(state.columns, parts, n)
        if columns.counts[ROWS] != n:
            raise ValueError("the run is not the block")
        gathered = columns.feature[: columns.counts[FEATURES]]
        metric = state.features.table[gathered, _features.METRIC]
        columns.scale[: len(gathered)] = np.where(metric > 0, 1.0 / metric, 0.0)
    else:
        state.basis = parts.array("basis", d + 1, q)
        state.rows[:n] = parts.array("rows", n, d + 1)
    if first:
        state.kept = _unpack_kept(state, parts)
    parts.close()


def _unpack_kept(state: Any, parts: Parts) -> list[tuple[Any, Floats, Floats]]:
    n = state.seen
    y, weight = parts.array("kept.y", n), parts.array("kept.weight", n, least=0.0)
    x: Any
    if state.sparse:
        entries = parts.shape("kept.data", 1)[0]
        data = parts.array("kept.data", entries, least=-LARGEST, most=LARGEST)
        indices = parts.array("kept.indices", entries, dtype=np.int32, least=0, most=state.d - 1)
        indptr = parts.array("kept.indptr", n + 1, dtype=np.int64)
        if indptr[0] != 0 or indptr[-1] != entries or np.any(np.diff(indptr) < 0):
            raise ValueError("the first rows are no rows")
        x = sp.csr_array((data, indices, indptr), shape=(n, state.d))
        if not x.has_canonical_format:
            raise ValueError("the entries of the first rows are not ascending")
    else:
        x = parts.array("kept.x", n, state.d, least=-LARGEST, most=LARGEST)
    return [(x, y, weight)] if n else []
