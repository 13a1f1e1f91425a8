"""The basis of wide sparse rows, brought up to date feature by feature and only where rows have been.

For every feature the basis holds q numbers: its weights and its r entries in the rows of B. Shrinks act on all
features alike, by small matrices. So rows are taken in runs of a few hundred: the features that occur in a run are
gathered when they first occur, and until its end

    [W; B] = [W; 0] of its beginning + coefficients of (B of its beginning, rows of the run),

where only the coefficients change. At the end of a run its own features are written back and the others are left
as they are: each remembers up to which run it is right, and catches up, when it next occurs, by the product of the
small matrices it missed. So a row costs by its non-zeros, and nothing of length d happens but a catching-up of all
features once in `RUNS` runs.
"""

import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._compile import entry, loops
from robustfd.linalg.lapack import at, fetch_row, gemm, view
from robustfd.online.rows import CsrRows

Floats = NDArray[np.float64]

RUNS = 128  # runs after which all features catch up
PIECE = 8  # entries of a feature that are kept side by side
GROUP = 64  # features that are written back at a time: they stay in the fastest cache

# The counts of the run that is going on.
RUN = np.dtype((np.record, [
    ("number", np.int64),  # how many runs were before it since all features caught up
    ("rows", np.int64),
    ("entries", np.int64),
    ("features", np.int64),  # how many are gathered
    ("pieces", np.int64),  # how many are in use
    ("reach", np.int64),  # up to which Columns.reach is known
]))  # fmt: skip


class Columns(NamedTuple):
    """The basis, and the run that is going on."""

    basis: Floats  # (d, q): a feature's weights, then its entries in B
    age: NDArray[np.uint8]  # (d,): the run up to which the feature is right
    place: NDArray[np.int32]  # (d,): where the feature is among those gathered, or -1
    history: Floats  # (RUNS, r, q): what each run did to a feature that was not in it
    reach: Floats  # (RUNS + 1, r, q): reach[g] is what the last g runs did, as far as known
    gathered: Floats  # (features, q): the features of this run, as they were at its beginning
    scale: Floats  # (features,): the metric: products are of x and scale times x
    feature: NDArray[np.int32]  # (features,): which feature it is
    latest: NDArray[np.int32]  # (features,): the last piece of this feature's entries, or -1
    used: NDArray[np.int32]  # (features,): how many entries are in that
    value: Floats  # (pieces, PIECE): entries
    row: NDArray[np.int32]  # (pieces, PIECE): their rows of the run
    before: NDArray[np.int32]  # (pieces,): the piece of the same feature before this one, or -1
    coefficients: Floats  # (r + rows, q): transposed, see above
    run: Any  # (1,): a record RUN


def start(d: int, q: int, r: int, rows: int) -> Columns:
    """Return a basis of zeros for d features; `rows` is the most that a run can have."""
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


def room_of(columns: Columns, rows: int) -> Floats:
    """Return scratch memory for what is done with columns, `rows` of them at a time at most."""
    most, q = columns.coefficients.shape
    return np.empty(max(rows, columns.history.shape[1]) * most + most + GROUP * q)


def with_room(columns: Columns, entries: int) -> Columns:
    """Return columns with room for so many more entries, and as many more features."""
    pieces = int(columns.run[0].pieces) + entries
    features = min(int(columns.run[0].features) + entries, len(columns.age))
    of_entries = {name: getattr(columns, name) for name in ("value", "row", "before")}
    of_features = {name: getattr(columns, name) for name in ("gathered", "scale", "feature", "latest", "used")}
    room = {}
    if pieces > len(columns.value):
        room.update(of_entries)
    if features > len(columns.scale):
        room.update(of_features)
    for name, old in room.items():
        size = pieces if name in of_entries else features
        new = np.zeros((max(size, 2 * len(old)), *old.shape[1:]), old.dtype)
        new[: len(old)] = old
        room[name] = new
    return columns._replace(**room)


def with_features(columns: Columns, d: int) -> Columns:
    """Return columns with d features, the new ones zero."""
    more = d - len(columns.age)
    return columns._replace(
        basis=np.vstack([columns.basis, np.zeros((more, columns.basis.shape[1]))]),
        age=np.append(columns.age, np.zeros(more, np.uint8)),
        place=np.append(columns.place, np.full(more, -1, np.int32)),
    )


def keep(columns: Columns, features: NDArray[np.int32] | None, runs: int, *, ends_block: bool) -> Any:
    """Return what `undo` needs after rows with these features, which end so many runs at most.

    Rows are appended to the run. The end of a block changes its coefficients, and the end of a run its features. Once
    in RUNS runs all features change, and a copy of everything is kept; so it is if `features` is None.
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
    """Return the columns as they were when that was kept."""
    columns, parts = kept
    for name, where, values in parts:
        getattr(columns, name)[where] = values
    columns.run[0].reach = 0  # to be made again, from the history
    return Columns(*columns)


def entries_of(columns: Columns) -> tuple[Floats, NDArray[np.int32], NDArray[np.int32]]:
    """Return all entries of the run, in the order of rows: values, rows, and places of features."""
    features, pieces = int(columns.run[0].features), int(columns.run[0].pieces)
    sizes, of = np.full(pieces, PIECE), np.zeros(pieces, np.int32)
    sizes[columns.latest[:features]] = columns.used[:features]
    of[columns.latest[:features]] = np.arange(features)
    for piece in range(pieces - 1, -1, -1):  # a piece comes after those before it
        if columns.before[piece] >= 0:
            of[columns.before[piece]] = of[piece]
    there = np.arange(PIECE) < sizes[:, None]
    value, row, where = columns.value[:pieces][there], columns.row[:pieces][there], np.repeat(of, sizes)
    order = np.lexsort((where, row))
    return value[order], row[order], where[order]


def enter_entries(columns: Columns, value: Floats, row: NDArray[np.int32], where: NDArray[np.int32]) -> None:
    """Make these, in the order of rows, the entries of a run that has none; its features are there."""
    features = int(columns.run[0].features)
    order, count = np.argsort(where, kind="stable"), np.bincount(where, minlength=features)
    pieces = -(-count // PIECE)
    first = np.cumsum(pieces) - pieces
    number = np.arange(len(where)) - np.repeat(np.cumsum(count) - count, count)  # of an entry, among its feature's
    piece, inside = np.repeat(first, count) + number // PIECE, number % PIECE
    columns.value[piece, inside], columns.row[piece, inside] = value[order], row[order]
    columns.before[piece] = np.where(number < PIECE, -1, piece - 1)
    columns.latest[:features] = np.where(count > 0, first + pieces - 1, -1)
    columns.used[:features] = np.where(count > 0, (count - 1) % PIECE + 1, PIECE)
    columns.run[0].entries, columns.run[0].pieces = len(where), pieces.sum()


@loops
def has_room(columns: Columns, entries: int) -> bool:
    """Return whether there is room for so many more entries, all of new features."""
    features = min(columns.run[0].features + entries, len(columns.age))
    return columns.run[0].pieces + entries <= len(columns.value) and features <= len(columns.scale)


@loops
def gather(routines: Any, columns: Columns, indices: Any, first: int, last: int) -> int:
    """Gather the features of entries first to last - 1 that are not in this run yet; return how many there were."""
    run, place, gathered = columns.run[0], columns.place, columns.gathered
    before, now = run.features, run.number
    oldest: Any = np.int64(0)  # a plain 0 is a type of its own, and what takes it would be compiled for both
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
        look_back(routines, columns, oldest)
    for k in range(before, run.features):
        j = columns.feature[k]
        source, target, missed = columns.basis[j], gathered[k], now - columns.age[j]
        if missed > 0:
            right_feature(source, columns.reach[missed], target)
        else:
            for i in range(len(target)):
                target[i] = source[i]
    return run.features - before


@loops
def right_feature(old: Any, matrix: Any, new: Any) -> None:
    """Fill `new` with what a feature has become of `old` by the matrix (r, q) of what it missed."""
    r, q = matrix.shape
    for j in range(q):
        new[j] = old[j] if j < q - r else 0.0
    for i in range(r):
        x, row = old[q - r + i], matrix[i]
        if x != 0.0:
            for j in range(q):
                new[j] += x * row[j]


@loops
def look_back(routines: Any, columns: Columns, runs: int) -> None:
    """Make reach[0 : runs + 1] known: reach[g + 1] is what run now - g - 1 did, and after it what reach[g] says."""
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
def enter_row(columns: Columns, rows: CsrRows, i: int, products: Any, overlaps: Any) -> None:
    """Enter row i; fill products (q) of the basis with it and overlaps (rows) of earlier rows, and it, with it."""
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
def change_columns(routines: Any, columns: Columns, room: Any, on_b: Any, on_x: Any) -> None:
    """Let W be W + on_b[:-r] B + on_x[:-r] X and B be on_b[-r:] B + on_x[-r:] X, X the last rows of the run.

    `room` is scratch memory, for as many numbers as `room_of` says.
    """
    c = columns.coefficients
    (q, r), count = on_b.shape, on_x.shape[1]
    have = r + columns.run[0].rows - count
    old = view(room, 0, (have, r))
    for i in range(have):
        for j in range(r):
            old[i, j] = c[i, q - r + j]
            c[i, q - r + j] = 0.0
    gemm(routines, False, True, have, q, r, 1.0, at(old, 0), r, at(on_b, 0), r, 1.0, at(c, 0), q)
    for i in range(count):
        for j in range(q):
            c[have + i, j] = on_x[j, i]


@loops
def end_run(routines: Any, columns: Columns, room: Any) -> None:
    """Write the features of the run back and begin a new one; `room` is scratch memory."""
    run, c, gathered = columns.run[0], columns.coefficients, columns.gathered
    r, q = columns.history.shape[1:]
    new = view(room, 0, (GROUP, q))
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
        look_back(routines, columns, len(columns.history))
        _catch_up(columns, room[:q])
        run.number = run.reach = 0


@loops
def add_entries(columns: Columns, place: int, coefficients: Any, target: Any) -> None:
    """Add to `target` what the rows of the run are to a feature of it, by the coefficients of the rows."""
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
    """Write features of the run, from place `first` on, into the basis, with what the rows of the run are to them."""
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
def _catch_up(columns: Columns, right: Any) -> None:
    """Bring all features up to date."""
    for feature in range(len(columns.age)):
        if columns.age[feature] < RUNS:
            right_feature(columns.basis[feature], columns.reach[RUNS - columns.age[feature]], right)
            target = columns.basis[feature]
            for j in range(len(right)):
                target[j] = right[j]
        columns.age[feature] = 0


def weights_of(routines: Any, columns: Columns, indices: NDArray[np.int32], on_b: Floats, on_x: Floats) -> Floats:
    """Return the weights (indices, q - r) of features, with the steps of the last rows of the run, on_b B + on_x X."""
    c, (p, count), rows = columns.coefficients, on_x.shape, int(columns.run[0].rows)
    r = c.shape[1] - p
    before = r + rows - count
    steps = np.empty((r + rows, p))
    steps[:before] = c[:before, :p] + c[:before, p:] @ on_b.T
    steps[before:] = on_x.T
    out = np.empty((len(indices), p))
    _read_weights(routines, columns, indices, steps, np.empty(r + p), out)
    return out


@entry
@loops
def _read_weights(routines: Any, columns: Columns, indices: Any, steps: Any, right: Any, out: Any) -> None:
    """Fill out with the weights of features; `steps` are their coefficients, `right` is scratch memory."""
    run, r, p = columns.run[0], columns.history.shape[1], out.shape[1]
    look_back(routines, columns, run.number)
    for k in range(len(indices)):
        feature, target = indices[k], out[k]
        here = np.int64(columns.place[feature])
        if here >= 0:
            source = columns.gathered[here]
            for j in range(len(right)):
                right[j] = source[j]
        else:
            right_feature(columns.basis[feature], columns.reach[run.number - columns.age[feature]], right)
        for j in range(p):
            target[j] = right[j]
        for i in range(r):
            x, line = right[p + i], steps[i]
            for j in range(p):
                target[j] += x * line[j]
        if here >= 0:
            add_entries(columns, here, steps[r:], target)
