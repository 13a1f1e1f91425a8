"""The basis of wide sparse rows, updated lazily: a feature is brought up to date when it next occurs.

For every feature the basis holds q numbers: its weights and its r entries in the rows of B. A shrink changes all
features by the same small matrix. So rows are processed in runs of a few hundred. The features of a run are gathered
when they first occur, and until the end of the run

    [W; B] = [W; 0] at its beginning + coefficients of (B at its beginning, rows of the run),

where only the coefficients change. The end of a run writes its own features back and leaves the others unchanged. Each
feature stores the run up to which it is current. When it next occurs, it is multiplied by the product of the small
matrices it missed. So the cost of a row depends on its non-zeros only. The only operation of length d brings all
features up to date, once in `RUNS` runs.
"""

import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._compile import entry, loops
from robustfd.linalg.lapack import at, fetch_row, gemm, view
from robustfd.online.rows import CsrRows

Floats = NDArray[np.float64]

RUNS = 128  # runs after which all features are brought up to date
PIECE = 8  # entries of a feature that are stored contiguously
GROUP = 64  # features that are written back at a time, few enough to stay in the L1 cache

# The counts of the current run.
RUN = np.dtype((np.record, [
    ("number", np.int64),  # earlier runs since all features were brought up to date
    ("rows", np.int64),
    ("entries", np.int64),
    ("features", np.int64),  # number of gathered features
    ("pieces", np.int64),  # number of pieces in use
    ("reach", np.int64),  # Columns.reach is computed up to this index
]))  # fmt: skip


class Columns(NamedTuple):
    """The basis and the current run."""

    basis: Floats  # (d, q): a feature's weights, then its entries in B
    age: NDArray[np.uint8]  # (d,): the run up to which the feature is current
    place: NDArray[np.int32]  # (d,): position of the feature among the gathered ones, or -1
    history: Floats  # (RUNS, r, q): the change of each run to features that did not occur in it
    reach: Floats  # (RUNS + 1, r, q): reach[g] is the change of the last g runs, computed lazily
    gathered: Floats  # (features, q): the features of this run, as they were at its beginning
    scale: Floats  # (features,): the metric: products are those of x and scale * x
    feature: NDArray[np.int32]  # (features,): index of the feature
    latest: NDArray[np.int32]  # (features,): the last piece of this feature's entries, or -1
    used: NDArray[np.int32]  # (features,): number of entries in that piece
    value: Floats  # (pieces, PIECE): entries
    row: NDArray[np.int32]  # (pieces, PIECE): the rows of the entries, counted in the run
    before: NDArray[np.int32]  # (pieces,): the previous piece of the same feature, or -1
    coefficients: Floats  # (r + rows, q): the transposed coefficients of the module docstring
    run: Any  # (1,): a record RUN


def start(d: int, q: int, r: int, rows: int) -> Columns:
    """Return a basis of zeros for d features; `rows` is the largest number of rows of a run."""
    columns = Columns(
        basis=np.zeros((d, q)),
        age=np.zeros(d, np.uint8),
        place=np.full(d, -1, np.int32),
        history=np.zeros((RUNS, r, q)),
        reach=np.zeros((RUNS + 1, r, q)),
        gathered=np.zeros((64, q)),
        scale=np.zeros(64),
        feature=np.zeros(64, np.int32),
        latest=np.zeros(64, np.int32),
        used=np.zeros(64, np.int32),
        value=np.zeros((64, PIECE)),
        row=np.zeros((64, PIECE), np.int32),
        before=np.zeros(64, np.int32),
        coefficients=np.zeros((r + rows, q)),
        run=np.zeros(1, RUN),
    )
    columns.coefficients[range(r), range(q - r, q)] = 1.0
    columns.reach[0] = columns.coefficients[:r]
    return columns


def scratch_for(columns: Columns, rows: int) -> Floats:
    """Return scratch memory for operations on columns, at most `rows` of them at a time."""
    most, q = columns.coefficients.shape
    return np.empty(max(rows, columns.history.shape[1]) * most + most + GROUP * q)


def with_capacity(columns: Columns, entries: int) -> Columns:
    """Return columns with capacity for `entries` more entries, all of new features."""
    pieces = int(columns.run[0].pieces) + entries
    features = min(int(columns.run[0].features) + entries, len(columns.age))
    of_entries = {name: getattr(columns, name) for name in ("value", "row", "before")}
    of_features = {name: getattr(columns, name) for name in ("gathered", "scale", "feature", "latest", "used")}
    grown = {}
    if pieces > len(columns.value):
        grown.update(of_entries)
    if features > len(columns.scale):
        grown.update(of_features)
    for name, old in grown.items():
        size = pieces if name in of_entries else features
        new = np.zeros((max(size, 2 * len(old)), *old.shape[1:]), old.dtype)
        new[: len(old)] = old
        grown[name] = new
    return columns._replace(**grown)


def with_features(columns: Columns, d: int) -> Columns:
    """Return columns with d features, the new ones zero."""
    more = d - len(columns.age)
    return columns._replace(
        basis=np.vstack([columns.basis, np.zeros((more, columns.basis.shape[1]))]),
        age=np.append(columns.age, np.zeros(more, np.uint8)),
        place=np.append(columns.place, np.full(more, -1, np.int32)),
    )


def keep(columns: Columns, features: NDArray[np.int32] | None, runs: int, *, ends_block: bool) -> Any:
    """Return the copies that `undo` needs to revert rows with these features, which end at most `runs` runs.

    Rows are appended to the run. The end of a block changes the coefficients of the run, and the end of a run changes
    its features. Once in RUNS runs all features change: then everything is copied, as it is if `features` is None.
    """
    run = columns.run[0]
    if features is None or run.number + runs >= RUNS:
        return copy.deepcopy(columns), []
    features = features[features < len(columns.age)]
    here = columns.place[features]
    here = here[here >= 0]
    parts: list[tuple[str, Any]] = [("place", features), ("latest", here), ("used", here)]
    if ends_block:
        parts.append(("coefficients", slice(None)))
    if runs > 0:
        count, pieces = int(run.features), int(run.pieces)
        changed = np.union1d(features, columns.feature[:count])
        parts += [(name, changed) for name in ("basis", "age", "place")]
        parts += [(name, slice(count)) for name in ("gathered", "scale", "feature", "latest", "used")]
        parts += [(name, slice(pieces)) for name in ("value", "row", "before")]
    kept = [(name, where, getattr(columns, name)[where].copy()) for name, where in parts]
    return columns._replace(run=columns.run.copy()), kept


def undo(kept: Any) -> Columns:
    """Return the columns as they were when `keep` was called."""
    columns, parts = kept
    for name, where, values in parts:
        getattr(columns, name)[where] = values
    columns.run[0].reach = 0  # recomputed from the history when needed
    return Columns(*columns)


def entries_of(columns: Columns) -> tuple[Floats, NDArray[np.int32], NDArray[np.int32]]:
    """Return the values, rows and feature positions of all entries of the run, in the order of rows."""
    features, pieces = int(columns.run[0].features), int(columns.run[0].pieces)
    sizes, of = np.full(pieces, PIECE), np.zeros(pieces, np.int32)
    sizes[columns.latest[:features]] = columns.used[:features]
    of[columns.latest[:features]] = np.arange(features)
    for piece in range(pieces - 1, -1, -1):  # earlier pieces of a feature have smaller indices
        if columns.before[piece] >= 0:
            of[columns.before[piece]] = of[piece]
    there = np.arange(PIECE) < sizes[:, None]
    value, row, where = columns.value[:pieces][there], columns.row[:pieces][there], np.repeat(of, sizes)
    order = np.lexsort((where, row))
    return value[order], row[order], where[order]


def store_entries(columns: Columns, value: Floats, row: NDArray[np.int32], where: NDArray[np.int32]) -> None:
    """Store these entries, in the order of rows, in a run that has features but no entries."""
    features = int(columns.run[0].features)
    order, count = np.argsort(where, kind="stable"), np.bincount(where, minlength=features)
    pieces = -(-count // PIECE)
    first = np.cumsum(pieces) - pieces
    number = np.arange(len(where)) - np.repeat(np.cumsum(count) - count, count)  # index within its feature
    piece, inside = np.repeat(first, count) + number // PIECE, number % PIECE
    columns.value[piece, inside], columns.row[piece, inside] = value[order], row[order]
    columns.before[piece] = np.where(number < PIECE, -1, piece - 1)
    columns.latest[:features] = np.where(count > 0, first + pieces - 1, -1)
    columns.used[:features] = np.where(count > 0, (count - 1) % PIECE + 1, PIECE)
    columns.run[0].entries, columns.run[0].pieces = len(where), pieces.sum()


@loops
def has_capacity(columns: Columns, entries: int) -> bool:
    """Return whether `entries` more entries fit, all of new features."""
    features = min(columns.run[0].features + entries, len(columns.age))
    return columns.run[0].pieces + entries <= len(columns.value) and features <= len(columns.scale)


@loops
def gather(routines: Any, columns: Columns, indices: Any, first: int, last: int) -> int:
    """Gather the features of entries first to last - 1 that are new in this run; return their number."""
    run, place, gathered = columns.run[0], columns.place, columns.gathered
    before, now = run.features, run.number
    oldest: Any = np.int64(0)  # a literal 0 has its own numba type, and would compile callees twice
    for e in range(first, last):
        j = indices[e]
        if place[j] < 0:
            k = run.features
            place[j], columns.feature[k], columns.scale[k] = k, j, 1.0
            columns.latest[k], columns.used[k] = -1, PIECE
            fetch_row(columns.basis, j)
            run.features += 1
            oldest = max(oldest, now - columns.age[j])
    if oldest > 0:
        fill_reach(routines, columns, oldest)
    for k in range(before, run.features):
        j = columns.feature[k]
        source, target, missed = columns.basis[j], gathered[k], now - columns.age[j]
        if missed > 0:
            update_feature(source, columns.reach[missed], target)
        else:
            for i in range(len(target)):
                target[i] = source[i]
    return run.features - before


@loops
def update_feature(old: Any, matrix: Any, new: Any) -> None:
    """Apply the change (r, q) of the runs a feature missed to its `old` values, and store the result in `new`."""
    r, q = matrix.shape
    for j in range(q):
        new[j] = old[j] if j < q - r else 0.0
    for i in range(r):
        x, row = old[q - r + i], matrix[i]
        if x != 0.0:
            for j in range(q):
                new[j] += x * row[j]


@loops
def fill_reach(routines: Any, columns: Columns, runs: int) -> None:
    """Compute reach[0 : runs + 1]: reach[g + 1] is the change of run now - g - 1, followed by reach[g]."""
    run, reach, history = columns.run[0], columns.reach, columns.history
    r, q = history.shape[1:]
    for g in range(run.reach, runs):
        old, new, then = history[run.number - g - 1], reach[g + 1], reach[g]
        for i in range(r):
            for j in range(q):
                new[i, j] = old[i, j] if j < q - r else 0.0
        gemm(routines, False, False, r, q, r, 1.0, at(old, q - r), q, at(then, 0), q, 1.0, at(new, 0), q)
    run.reach = max(run.reach, runs)


@loops
def append_row(columns: Columns, rows: CsrRows, i: int, products: Any, overlaps: Any) -> None:
    """Add row i to the run; fill its products (q) with the basis, and with all rows of the run (overlaps)."""
    run, data, indices = columns.run[0], rows.data, rows.indices
    q, row, latest, used = len(products), run.rows, columns.latest, columns.used
    first, last = rows.indptr[i], rows.indptr[i + 1]
    for j in range(q):
        products[j] = 0.0
    for j in range(row):
        overlaps[j] = 0.0
    own = 0.0
    for e in range(first, last):
        k = columns.place[indices[e]]
        x = data[e] * columns.scale[k]
        source = columns.gathered[k]
        for j in range(q):
            products[j] += x * source[j]
        piece, size = latest[k], used[k]
        while piece >= 0:
            others, values = columns.row[piece], columns.value[piece]
            for j in range(size):
                overlaps[others[j]] += x * values[j]
            piece, size = columns.before[piece], PIECE
        own += x * data[e]
    overlaps[row] = own
    for e in range(first, last):
        k = columns.place[indices[e]]
        if used[k] == PIECE:
            columns.before[run.pieces] = latest[k]
            latest[k], used[k] = run.pieces, 0
            run.pieces += 1
        columns.value[latest[k], used[k]], columns.row[latest[k], used[k]] = data[e], row
        used[k] += 1
    run.entries += last - first
    run.rows += 1


@loops
def change_columns(routines: Any, columns: Columns, scratch: Any, coef_b: Any, coef_x: Any) -> None:
    """Replace W by W + coef_b[:-r] B + coef_x[:-r] X and B by coef_b[-r:] B + coef_x[-r:] X.

    X are the last rows of the run. `scratch` is memory from `scratch_for`.
    """
    c = columns.coefficients
    (q, r), count = coef_b.shape, coef_x.shape[1]
    have = r + columns.run[0].rows - count
    old = view(scratch, 0, (have, r))
    for i in range(have):
        for j in range(r):
            old[i, j] = c[i, q - r + j]
            c[i, q - r + j] = 0.0
    gemm(routines, False, True, have, q, r, 1.0, at(old, 0), r, at(coef_b, 0), r, 1.0, at(c, 0), q)
    for i in range(count):
        for j in range(q):
            c[have + i, j] = coef_x[j, i]


@loops
def end_run(routines: Any, columns: Columns, scratch: Any) -> None:
    """Write the features of the run back and begin a new run; `scratch` is memory from `scratch_for`."""
    run, c, gathered = columns.run[0], columns.coefficients, columns.gathered
    r, q = columns.history.shape[1:]
    new = view(scratch, 0, (GROUP, q))
    for first in range(0, run.features, GROUP):
        size = min(GROUP, run.features - first)
        for i in range(size):
            for j in range(q):
                new[i, j] = gathered[first + i, j] if j < q - r else 0.0
        old = at(gathered, first * q + q - r)
        gemm(routines, False, False, size, q, r, 1.0, old, q, at(c, 0), q, 1.0, at(new, 0), q)
        _write_back(columns, first, new[:size])
    for i in range(r):
        for j in range(q):
            columns.history[run.number, i, j] = c[i, j]
            c[i, j] = 1.0 if j == q - r + i else 0.0
    run.number += 1
    run.features = run.entries = run.rows = run.reach = run.pieces = 0
    if run.number == RUNS:
        fill_reach(routines, columns, len(columns.history))
        _catch_up(columns, scratch[:q])
        run.number = run.reach = 0


@loops
def add_entries(columns: Columns, place: int, coefficients: Any, target: Any) -> None:
    """Add to `target` the entries of a feature in the rows of the run, times the coefficients of these rows."""
    piece, size = columns.latest[place], columns.used[place]
    while piece >= 0:
        rows, values = columns.row[piece], columns.value[piece]
        for i in range(size):
            x, source = values[i], coefficients[rows[i]]
            for j in range(len(target)):
                target[j] += x * source[j]
        piece, size = columns.before[piece], PIECE


@loops
def _write_back(columns: Columns, first: int, new: Any) -> None:
    """Add the rows of the run to features of the run, starting at position `first`, and write them to the basis."""
    on_rows = columns.coefficients[columns.history.shape[1] :]
    for k in range(len(new)):
        fetch_row(columns.basis, columns.feature[first + k])
    for k in range(len(new)):
        feature, source = columns.feature[first + k], new[k]
        add_entries(columns, first + k, on_rows, source)
        target = columns.basis[feature]
        columns.place[feature] = -1
        columns.age[feature] = columns.run[0].number + 1
        for j in range(len(source)):
            target[j] = source[j]


@loops
def _catch_up(columns: Columns, current: Any) -> None:
    """Bring all features up to date."""
    for feature in range(len(columns.age)):
        if columns.age[feature] < RUNS:
            update_feature(columns.basis[feature], columns.reach[RUNS - columns.age[feature]], current)
            target = columns.basis[feature]
            for j in range(len(current)):
                target[j] = current[j]
        columns.age[feature] = 0


def weights_of(routines: Any, columns: Columns, indices: NDArray[np.int32], coef_b: Floats, coef_x: Floats) -> Floats:
    """Return the weights (indices, q - r) of features, including the steps coef_b B + coef_x X of the last rows."""
    c, (p, count), rows = columns.coefficients, coef_x.shape, int(columns.run[0].rows)
    r = c.shape[1] - p
    before = r + rows - count
    steps = np.empty((r + rows, p))
    steps[:before] = c[:before, :p] + c[:before, p:] @ coef_b.T
    steps[before:] = coef_x.T
    out = np.empty((len(indices), p))
    _read_weights(routines, columns, indices, steps, np.empty(r + p), out)
    return out


@entry
@loops
def _read_weights(routines: Any, columns: Columns, indices: Any, steps: Any, current: Any, out: Any) -> None:
    """Fill `out` with the weights of features; `steps` are their coefficients, `current` is scratch memory."""
    run, r, p = columns.run[0], columns.history.shape[1], out.shape[1]
    fill_reach(routines, columns, run.number)
    for k in range(len(indices)):
        feature, target = indices[k], out[k]
        here = np.int64(columns.place[feature])
        if here >= 0:
            source = columns.gathered[here]
            for j in range(len(current)):
                current[j] = source[j]
        else:
            update_feature(columns.basis[feature], columns.reach[run.number - columns.age[feature]], current)
        for j in range(p):
            target[j] = current[j]
        for i in range(r):
            x, line = current[p + i], steps[i]
            for j in range(p):
                target[j] += x * line[j]
        if here >= 0:
            add_entries(columns, here, steps[r:], target)
