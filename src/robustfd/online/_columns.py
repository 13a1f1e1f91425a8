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

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd.linalg._compile import compiled, inner
from robustfd.linalg.lapack import at, gemm

Floats = NDArray[np.float64]

RUNS = 128  # runs after which all features catch up
RUN_ROWS = 256  # rows of a run, about: blocks are not divided
RUN_ENTRIES = 2**19  # non-zeros after which a run ends at the next block
FEATURES, ENTRIES, ROWS, RUN, REACH = range(5)  # places in Columns.counts


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
    latest: NDArray[np.int32]  # (features,): the last entry of this feature, or -1
    value: Floats  # (entries,)
    row: NDArray[np.int32]  # (entries,): the row of the run
    where: NDArray[np.int32]  # (entries,): the place of the feature
    before: NDArray[np.int32]  # (entries,): the entry of this feature before this one, or -1
    coefficients: Floats  # (r + rows, q): transposed, see above
    counts: NDArray[np.int64]


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
        value=np.zeros(64),
        row=np.zeros(64, np.int32),
        where=np.zeros(64, np.int32),
        before=np.zeros(64, np.int32),
        coefficients=np.zeros((r + rows, q)),
        counts=np.zeros(8, np.int64),
    )
    columns.coefficients[range(r), range(q - r, q)] = 1.0
    columns.reach[0] = columns.coefficients[:r]
    return columns


def with_room(columns: Columns, entries: int) -> Columns:
    """Return columns with room for so many more entries, and as many more features."""
    needed = int(columns.counts[ENTRIES]) + entries
    of_entries = {name: getattr(columns, name) for name in ("value", "row", "where", "before")}
    of_features = {name: getattr(columns, name) for name in ("gathered", "scale", "feature", "latest")}
    room = {}
    if needed > len(columns.value):
        room.update(of_entries)
    if min(int(columns.counts[FEATURES]) + entries, len(columns.age)) > len(columns.scale):
        room.update(of_features)
    for name, old in room.items():
        size = needed if name in of_entries else min(int(columns.counts[FEATURES]) + entries, len(columns.age))
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


def discard_run(columns: Columns) -> None:
    """Forget the run that is going on."""
    counts, r, q = columns.counts, *columns.history.shape[1:]
    columns.place[columns.feature[: counts[FEATURES]]] = -1
    counts[FEATURES] = counts[ENTRIES] = counts[ROWS] = 0
    columns.coefficients[:r] = np.eye(r, q, q - r)


@inner
def has_room(columns: Columns, entries: int) -> bool:
    """Return whether there is room for so many more entries, all of new features."""
    features = min(columns.counts[FEATURES] + entries, len(columns.age))
    return columns.counts[ENTRIES] + entries <= len(columns.value) and features <= len(columns.scale)


@inner
def gather(routines: Any, columns: Columns, indices: Any, first: int, last: int) -> int:
    """Gather the features of entries first to last - 1 that are not in this run yet; return how many there were."""
    counts, place, gathered = columns.counts, columns.place, columns.gathered
    before, now = counts[FEATURES], counts[RUN]
    oldest = 0
    for e in range(first, last):
        j = indices[e]
        if place[j] < 0:
            k = counts[FEATURES]
            place[j], columns.feature[k], columns.latest[k], columns.scale[k] = k, j, -1, 1.0
            counts[FEATURES] += 1
            oldest = max(oldest, now - columns.age[j])
    if oldest > 0:
        look_back(routines, columns, oldest)
    for k in range(before, counts[FEATURES]):
        j = columns.feature[k]
        right_feature(columns.basis[j], columns.reach[now - columns.age[j]], gathered[k])
    return counts[FEATURES] - before


@inner
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


@inner
def look_back(routines: Any, columns: Columns, runs: int) -> None:
    """Make reach[0 : runs + 1] known: reach[g + 1] is what run now - g - 1 did, and after it what reach[g] says."""
    counts, reach, history = columns.counts, columns.reach, columns.history
    r, q = history.shape[1:]
    for g in range(counts[REACH], runs):
        old, new, then = history[counts[RUN] - g - 1], reach[g + 1], reach[g]
        for i in range(r):
            for j in range(q):
                new[i, j] = old[i, j] if j < q - r else 0.0
        gemm(routines, False, False, r, q, r, 1.0, at(old, q - r), q, at(then, 0), q, 1.0, at(new, 0), q)
    counts[REACH] = max(counts[REACH], runs)


@inner
def enter_row(columns: Columns, data: Any, indices: Any, first: int, last: int, products: Any, overlaps: Any) -> None:
    """Enter one row; fill products (q) of the basis with it and overlaps (rows) of earlier rows, and it, with it."""
    counts = columns.counts
    q, row, entry = len(products), counts[ROWS], counts[ENTRIES]
    products[:] = 0.0
    overlaps[: row + 1] = 0.0
    own = 0.0
    for e in range(first, last):
        k = columns.place[indices[e]]
        x = data[e] * columns.scale[k]
        source = columns.gathered[k]
        for j in range(q):
            products[j] += x * source[j]
        other = columns.latest[k]
        while other >= 0:
            overlaps[columns.row[other]] += x * columns.value[other]
            other = columns.before[other]
        own += x * data[e]
    overlaps[row] = own
    for e in range(first, last):
        k = columns.place[indices[e]]
        columns.value[entry], columns.row[entry], columns.where[entry] = data[e], row, k
        columns.before[entry] = columns.latest[k]
        columns.latest[k] = entry
        entry += 1
    counts[ENTRIES], counts[ROWS] = entry, row + 1


@inner
def change(routines: Any, columns: Columns, on_b: Any, on_x: Any, count: int) -> None:
    """Let W be W + on_b[:-r] B + on_x[:-r] X and B be on_b[-r:] B + on_x[-r:] X, X the last `count` rows."""
    c = columns.coefficients
    q, r = on_b.shape
    have = r + columns.counts[ROWS] - count
    old = np.empty((have, r))
    for i in range(have):
        for j in range(r):
            old[i, j] = c[i, q - r + j]
            c[i, q - r + j] = 0.0
    gemm(routines, False, True, have, q, r, 1.0, at(old, 0), r, at(on_b, 0), r, 1.0, at(c, 0), q)
    for i in range(count):
        for j in range(q):
            c[have + i, j] = on_x[j, i]


@inner
def end_run(routines: Any, columns: Columns) -> None:
    """Write the features of the run back and begin a new one."""
    counts, c, gathered = columns.counts, columns.coefficients, columns.gathered
    d, q = columns.basis.shape
    r = columns.history.shape[1]
    features = counts[FEATURES]
    new = np.zeros((features, q))
    for k in range(features):
        for j in range(q - r):
            new[k, j] = gathered[k, j]
    gemm(routines, False, False, features, q, r, 1.0, at(gathered, q - r), q, at(c, 0), q, 1.0, at(new, 0), q)
    for e in range(counts[ENTRIES]):
        x, source, target = columns.value[e], c[r + columns.row[e]], new[columns.where[e]]
        for j in range(q):
            target[j] += x * source[j]
    for i in range(r):
        for j in range(q):
            columns.history[counts[RUN], i, j] = c[i, j]
            c[i, j] = 1.0 if j == q - r + i else 0.0
    counts[RUN] += 1
    for k in range(features):
        feature, target = columns.feature[k], new[k]
        columns.place[feature] = -1
        columns.age[feature] = counts[RUN]
        for j in range(q):
            columns.basis[feature, j] = target[j]
    counts[FEATURES] = counts[ENTRIES] = counts[ROWS] = counts[REACH] = 0
    if counts[RUN] == RUNS:
        look_back(routines, columns, RUNS)
        right = np.empty(q)
        for feature in range(d):
            if columns.age[feature] < RUNS:
                right_feature(columns.basis[feature], columns.reach[RUNS - columns.age[feature]], right)
                for j in range(q):
                    columns.basis[feature, j] = right[j]
            columns.age[feature] = 0
        counts[RUN] = counts[REACH] = 0


@compiled
def weights_of(routines: Any, columns: Columns, indices: Any, on_b: Any, on_x: Any, count: int, out: Any) -> None:
    """Fill out (indices, q - r) with the weights of features, steps of a block of `count` rows not yet in included."""
    counts, c = columns.counts, columns.coefficients
    d, q = columns.basis.shape
    r = columns.history.shape[1]
    p = q - r
    rows = r + counts[ROWS] - count
    look_back(routines, columns, counts[RUN])
    whole = np.zeros((r + counts[ROWS], p))  # the coefficients of the weights, with those steps
    for i in range(rows):
        for j in range(p):
            whole[i, j] = c[i, j]
            for l in range(r):
                whole[i, j] += c[i, p + l] * on_b[j, l]
    for i in range(count):
        for j in range(p):
            whole[rows + i, j] = on_x[j, i]
    right = np.empty(q)
    for k in range(len(indices)):
        feature, target = indices[k], out[k]
        here = columns.place[feature]
        if here >= 0:
            right[:] = columns.gathered[here]
        else:
            right_feature(columns.basis[feature], columns.reach[counts[RUN] - columns.age[feature]], right)
        for j in range(p):
            target[j] = right[j]
        for i in range(r):
            for j in range(p):
                target[j] += right[p + i] * whole[i, j]
        if here >= 0:
            entry = columns.latest[here]
            while entry >= 0:
                for j in range(p):
                    target[j] += columns.value[entry] * whole[r + columns.row[entry], j]
                entry = columns.before[entry]
