"""Curves and interactions: a second linear learner whose rows have sums of boosted trees as additional columns.

The trees are grown from stored rows, starting from the margins of the first learner. Whenever they are grown anew, they
replace those behind the same columns, and the second learner keeps its weights: they decide how much of the trees to
use. A blend of both learners predicts.
"""

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._core import BLENDED, INNER, Objective, blend, blended
from robustfd._scipy import scipy_sparse as sp
from robustfd.learners import forest, hessian, untuned_merging, untuned_reading
from robustfd.learners.experts import NumberLoss
from robustfd.learners.forest import Build, Forest
from robustfd.learners.rows import CsrRows, Floats, plain_rows, writable
from robustfd.learners.untuned import UntunedState

FIRST_TREES = 128  # rows after which trees are grown for the first time, then each time their number has doubled
MOST_ROWS = 2**14  # rows that are stored
REGROW = 2  # with more rows, trees are grown after so many times the stored ones again
MOST_CELLS = 2**22  # numbers that are stored
WORK = 4e6  # at most so much of growing trees at one row, some milliseconds
FIRST_LOOK, LEAST_GAIN, PAUSE = 1024, 0.005, 4  # when trees are judged; the gain that pays; a pause if they do not
WIDEST, DENSE = 1024, 0.1  # "auto" tries trees on at most so many columns, with at least this share of non-zeros
LEAVES = INNER + 1  # of a tree
MEMBERS = 4  # of the blend: the linear learner, both others, and their mean
MOST_AT_ONCE = 1024  # rows between events, whose arrays with leaves fit into a cache
FEW_ROWS = 64  # a call of so few rows keeps only what they change
ALL = 1e18  # more work than all trees
CLIP = 8.0  # residuals beyond so many mean ones are clipped


class Store(NamedTuple):
    """The last rows, as a ring: cells (capacity, columns), targets, weights, margins of the first learner."""

    cells: Floats
    y: Floats
    weight: Floats
    margin: Floats


class Expansion:
    """The stored rows, the trees, the two learners of trees and the blend."""

    def __init__(self, category: NDArray[np.bool_], outputs: int, loss: NumberLoss | None, *, seed: int, always: bool):
        """Start with these columns, numbers or categories; `always` keeps the trees even if they do not help."""
        self.outputs, self.loss, self.seed, self.always = outputs, loss, seed, always
        self.category = category
        self.seen = 0  # rows so far
        self.count = 0  # rows in the store
        self.next = 0  # the place of the next row in the store
        self.store = Store(np.empty((0, len(category))), np.empty(0), np.empty(0), np.empty((0, outputs)))
        self.grow_at, self.look_at, self.generation = FIRST_TREES, FIRST_LOOK, 0
        self.build: Build | None = None
        self.forests: list[Forest] = []  # those behind the sums of the two learners; none before the first trees
        self.states: list[UntunedState] = []  # learners of rows with sums, and of rows with sums and leaves
        self.share = np.full(MEMBERS, 1.0 / MEMBERS)
        self.steady = self.share.copy()
        self.labels = np.full(2, 0.5)  # shares of the blend and of the linear learner, by wrong labels
        self.totals = np.zeros(BLENDED)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"store": Store(*(array[: self.count] for array in self.store))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({name: writable(value) for name, value in state.items()})  # joblib may load memory maps
        self.store = Store(*map(writable, self.store))
        self.build = self.build and self.build.copy()

    @property
    def objective(self) -> Objective:
        """The loss of the trees."""
        if self.loss is None:
            return Objective.logistic if self.outputs == 1 else Objective.softmax
        if self.loss.counts:
            return Objective.counts
        return Objective.pinball if self.loss.levels else Objective.squared

    @property
    def level(self) -> float:
        """The level of a quantile, or where residuals are clipped."""
        if self.loss is None or self.loss.counts:
            return 0.0
        return self.loss.levels[0] if self.loss.levels else self.loss.huber or CLIP

    @property
    def capacity(self) -> int:
        """The number of rows to store."""
        return int(min(MOST_ROWS, max(MOST_CELLS // columns, FIRST_TREES))) if (columns := len(self.category)) else 0

    @property
    def missing(self) -> int:
        """How many more rows must be stored after `forget_rows` before new trees may replace the present ones."""
        return max(min(self.seen, self.capacity) // 2 - self.count, 0) if self.states else 0

    # -- learning

    def learn(
        self, base: UntunedState, x: Any, cells: Floats, y: Floats, weight: Floats, margins: Floats,
        readings: Floats | None = None,
    ) -> None:  # fmt: skip
        """Let the linear learner, `base`, and the others learn rows; fill the margins before each step.

        `readings` gets what `margins` of this class would have returned for each row then.
        """
        y, weight, x = np.ascontiguousarray(y, np.float64), np.ascontiguousarray(weight), plain_rows(x)
        read = np.empty((0, margins.shape[1])) if readings is None else readings
        for part in self._parts(len(y), base):
            rows = some_rows(x, part), cells[part], y[part], weight[part]
            base.learn(rows[0], *rows[2:], margins[part], read[part] if len(read) else None)
            first = margins[part].copy()
            self._learn_trees(rows, first, read[part].copy(), margins[part], read[part])
            self._remember(Store(*rows[1:], first))

    def learn_stored(self, base: UntunedState, x: Any, stored: Store) -> None:
        """Learn the stored rows of another model, whose linear learner is part of `base`. x has all their features."""
        x, out, now = plain_rows(x), np.empty_like(stored.margin), base.margins(x)
        for part in self._parts(len(out), base):
            rows = Store(*(each[part] for each in stored))
            self._learn_trees((some_rows(x, part), *rows[:3]), rows.margin, out[:0], out[part], out[:0])
            self._remember(rows._replace(margin=now[part]))

    def _parts(self, n: int, base: UntunedState) -> Iterator[slice]:
        """Yield slices of the next n rows, to be learned between events."""
        done = 0
        while done < n:
            until = min(self.grow_at, self.look_at) if self.states else self.grow_at
            stop = done + 1 if self.build is not None else min(n, done + max(min(until - self.seen, MOST_AT_ONCE), 1))
            yield slice(done, stop)
            self.seen += stop - done
            self._handle_events(base)
            done = stop

    def _learn_trees(self, rows: Any, first: Floats, reading: Floats, out: Floats, read: Floats) -> None:
        """Let the learners of trees learn rows, given margins and readings of the linear learner; fill in the blend."""
        if not self.states:
            return
        x, cells, y, weight = rows
        each, readings = np.empty((MEMBERS, *out.shape)), np.empty((MEMBERS, *read.shape))
        each[0], readings[0] = first, reading
        for k, (state, some) in enumerate(zip(self.states, self._rows(x, cells), strict=True), 1):
            state.learn(some, y, weight, each[k], readings[k] if len(read) else None)
        both = self._with_mean(each), self._with_mean(readings)
        blend(
            self.objective, self.level, *both, y, weight, self.share, self.labels, self.steady, self.totals, out, read
        )

    def _with_mean(self, each: Floats) -> Floats:
        """Fill in the margins of the last member, the mean of the two before it; return them as a matrix."""
        _, one, two, mean = each
        mean[:] = np.sqrt(one * two) if self.objective == Objective.counts else (one + two) / 2.0
        return each.reshape(-1, each.shape[2])

    def learn_again(
        self, base: UntunedState, x: Any, cells: Floats, y: Floats, weight: Floats, margins: Floats
    ) -> None:
        """Let all learners learn rows that they have learned before; fill the margins before each step."""
        x, each = plain_rows(x), np.empty((MEMBERS, *margins.shape))
        rows = [x, *(self._rows(x, cells) if self.states else [])]
        for state, some, out in zip([base, *self.states], rows, each, strict=False):
            state.learn_known(some, y, weight, out)
        if self.states:
            blended(self.objective, self._with_mean(each), self.steady, margins)
        else:
            margins[:] = each[0]

    def _rows(self, x: Any, cells: Floats) -> list[Any]:
        """Return rows with the sums of trees in front, and sparse ones with sums and leaves in front."""
        sums, leaves = self.forests[0].read(cells, self.category)
        others, there = sums, leaves
        if self.forests[1] is not self.forests[0]:
            others, there = self.forests[1].read(cells, self.category)
        place = there + (others.shape[1] + LEAVES * np.arange(there.shape[1], dtype=np.int32))
        return [with_sums(sums, x), with_leaves(others, place, self.fronts[1], x)]

    def _remember(self, rows: Store) -> None:
        """Put rows into the store, in place of the oldest."""
        if not self.capacity:
            return
        more = len(rows.y)
        self._enlarge(min(self.count + more, self.capacity))
        size, n = len(self.store.y), min(more, len(self.store.y))
        at = (self.next + np.arange(more - n, more)) % size
        for mine, new in zip(self.store, rows, strict=True):
            mine[at] = new[more - n :]
        self.count, self.next = min(self.count + more, size), (self.next + more) % self.capacity

    def _enlarge(self, rows: int) -> None:
        """Allocate space for so many rows. Before the store is full, row i is at place i."""
        if rows <= len(self.store.y):
            return
        size = min(1 << (rows - 1).bit_length(), self.capacity)
        self.store = Store(*(np.concatenate([old, np.zeros((size - len(old), *old.shape[1:]))]) for old in self.store))

    # -- trees

    def _handle_events(self, base: UntunedState) -> None:
        """Begin to grow trees, go on with it, or drop them if it is time."""
        if self.build is not None:
            forest.advance(self.build, self.objective, self.level, self._seed(), WORK)
            if self.build.finished:
                trees, self.build = forest.result(self.build), None
                self.use_trees(base, trees)
        if self.seen >= self.grow_at and self.missing:
            self.grow_at = self.seen + self.missing
        elif self.seen >= self.grow_at:
            self.grow_at = self.seen + min(self.seen, max(REGROW * self.capacity, FIRST_TREES))
            if self.always or self._is_dense():
                self._begin_build()
        if self.states and self.seen >= self.look_at:
            self._look()

    def _is_dense(self) -> bool:
        """Return whether the stored rows have few columns, and not too many zeros."""
        return 0 < len(self.category) <= WIDEST and bool(
            np.count_nonzero(self.store.cells[: self.count]) >= DENSE * self.store.cells[: self.count].size
        )

    def _seed(self) -> int:
        return (self.seed + 0x9E3779B97F4A7C15 * self.generation) % 2**64

    def _begin_build(self) -> None:
        """Start to grow trees from the stored rows, the oldest first."""
        if not self.count:
            return
        cells, y, weight, margin = self.stored()
        self.generation += 1
        self.build = forest.start_build(cells, self.category, y, weight, margin, self.objective)

    def stored(self) -> Store:
        """Return the stored rows, the oldest first."""
        size = max(len(self.store.y), 1)
        first = (self.next - self.count) % size
        last = first + self.count
        return Store(*(np.concatenate([each[first:last], each[: max(last - size, 0)]]) for each in self.store))

    def put(self, rows: Store) -> None:
        """Replace the stored rows by the last of these."""
        self.store = Store(*(each[max(len(each) - self.capacity, 0) :].copy() for each in rows))
        self.count = len(self.store.y)
        self.next = self.count % max(self.capacity, 1)

    def use_trees(self, base: UntunedState, trees: Forest) -> None:
        """Put these trees behind the columns of both learners. Leaves are new features."""
        self.forests, (sums, column) = [trees, trees], forest.groups(self.outputs)
        leaves = np.arange(sums, sums + LEAVES * len(column))
        if self.states:
            self.states = list(self.states)
            self.states[1] = without_features(self.states[1], leaves)
            return
        base = untuned_merging.whole(base)  # learners of parts do not merge, but learn the stored rows of each other
        diagonal = copy.deepcopy(base)
        diagonal.sketch = 0
        hessian.set_form(diagonal, "diagonal")
        for start, before in ((base, sums), (diagonal, sums + len(leaves))):
            places = np.arange(base.d, dtype=np.int64) + before
            self.states.append(untuned_merging.with_features_at(start, places, base.d + before))
        self.share[:] = self.steady[:] = 1.0 / MEMBERS
        self.labels[:] = 0.5
        self.totals[2:] = 0.0

    def _look(self) -> None:
        """Drop the trees if the blend is hardly better than the linear learner alone."""
        first, both = self.totals[-2:]
        self.look_at = 2 * self.seen
        self.totals[-2:] = 0.0
        if not self.always and both > (1.0 - LEAST_GAIN) * first:
            self.states, self.forests, self.build = [], [], None
            self.grow_at = PAUSE * self.seen
            self.look_at = 2 * self.grow_at

    def complete(self, base: UntunedState) -> None:
        """Grow the trees behind the sums once more, from all stored rows, if there are any of both."""
        if not self.count or self.missing or (not self.forests and self.build is None):
            return
        trees = self.grown()
        if not self.states:
            self.use_trees(base, trees)
        else:
            self.forests = [trees, self.forests[1]]

    def grown(self) -> Forest:
        """Return trees that are grown from the stored rows at once."""
        self._begin_build()
        assert self.build is not None
        forest.advance(self.build, self.objective, self.level, self._seed(), ALL)
        build, self.build = self.build, None
        return forest.result(build)

    # -- more columns, classes and features

    def widen(self, d: int, category: NDArray[np.bool_], *, growing: bool) -> None:
        """Make room for d features of the linear learner, and for these columns."""
        for state, before in zip(self.states, self.fronts, strict=False):
            state.widen(d + before, growing=growing)
        if (more := len(category) - len(self.category)) > 0:
            self.category = category
            new = np.where(category[-more:], np.nan, 0.0)
            cells = np.hstack([self.store.cells, np.broadcast_to(new, (len(self.store.y), more))])
            self.store = self.store._replace(cells=cells)
            if self.count > self.capacity:  # there is less space for rows with more columns
                self.put(self.stored())

    def forget_trees(self) -> None:
        """Start over with trees, such as after a new class appeared."""
        self.states, self.forests, self.build = [], [], None
        self.look_at = max(self.look_at, 2 * self.seen)
        self.grow_at = max(self.seen + 1, FIRST_TREES)

    def add_outputs(self, outputs: int) -> None:
        """Add new classes. Trees start over."""
        margin = np.zeros((len(self.store.y), outputs))
        old = self.store.margin
        margin[:, : max(old.shape[1], 2)] = np.hstack([-old, old]) / 2.0 if old.shape[1] == 1 else old
        self.outputs, self.store = outputs, self.store._replace(margin=margin)
        self.forget_trees()

    @property
    def fronts(self) -> tuple[int, int]:
        """The numbers of columns that are in front of the rows of both learners."""
        sums, column = forest.groups(self.outputs)
        return sums, sums + LEAVES * len(column)

    # -- all rows of a call, or none

    def keep(self, x: Any, cells: Floats) -> Any:
        """Return what `undo` needs to forget the next rows."""
        at = (self.next + np.arange(min(len(cells), len(self.store.y)))) % max(len(self.store.y), 1)
        stored = [(array, array[at]) for array in self.store]
        arrays = [(array, array.copy()) for array in (self.share, self.labels, self.steady, self.totals)]
        few = self.states and len(cells) <= FEW_ROWS
        rows = self._rows(plain_rows(x), cells) if few else self.states
        touched = [self._touched(k, each, x.shape[1]) for k, each in enumerate(rows)]
        states = [(state, state.keep(len(cells), some)) for state, some in zip(self.states, touched, strict=True)]
        numbers = vars(self) | {"states": list(self.states), "build": self.build and self.build.copy(cells=False)}
        return numbers, at, stored, arrays, states

    def _touched(self, k: int, rows: Any, d: int) -> NDArray[np.int32] | None:
        """Return the features of sparse rows of learner k, with all that may be new; None for all features."""
        if not isinstance(rows, CsrRows):
            return None
        new = np.arange(self.fronts[k] + d, self.states[k].d, dtype=np.int32)
        return np.concatenate([rows.indices, new])

    def undo(self, kept: Any) -> None:
        """Restore the state at the time of `keep`."""
        numbers, at, stored, arrays, states = kept
        self.__dict__.update(numbers)
        for array, before in stored:
            array[at] = before
        for array, before in arrays:
            array[:] = before
        for state, before in states:
            state.undo(before)

    # -- reading

    def margins(self, x: Any, cells: Floats, first: Floats) -> Floats:
        """Return the margins of rows, given those of the linear learner."""
        if not self.states:
            return first
        out, each = np.empty_like(first), np.empty((MEMBERS, *first.shape))
        each[0] = first
        for state, rows, margins in zip(self.states, self._rows(plain_rows(x), cells), each[1:]):
            margins[:] = state.margins(rows, len(first))
        blended(self.objective, self._with_mean(each), self.steady, out)
        return out

    def contributions(self, base: UntunedState, x: Any, cells: Floats) -> tuple[list[Any], list[Floats]]:
        """Return for each output what features (n, d), sparse, and columns (n, columns) add to the margins of rows."""
        x = plain_rows(x)
        n, (linear, sums, leaves, both) = len(cells), self.steady
        of_features = [linear * each for each in by_feature(base, x, n)]
        of_columns = [np.zeros(cells.shape) for _ in of_features]
        rows, shares = self._rows(x, cells), (sums + both / 2.0, leaves + both / 2.0)
        for state, trees, some, front, share in zip(self.states, self.forests, rows, self.fronts, shares, strict=True):
            filled, leaf = trees.read(cells, self.category)
            for k, each in enumerate(by_feature(state, some, n)):
                of_features[k] = of_features[k] + share * each[:, front : front + base.d]
                own = each[:, : filled.shape[1]].toarray()
                factor = share * np.divide(own, filled, out=np.zeros_like(own), where=filled != 0.0)
                amounts = None
                if front > filled.shape[1]:
                    place = filled.shape[1] + LEAVES * np.arange(leaf.shape[1]) + leaf
                    amounts = share * np.asarray(each[np.arange(n)[:, None], place].todense())
                of_columns[k] += trees.paths(cells, self.category, factor, amounts)
        return of_features, of_columns


def by_feature(state: UntunedState, x: Any, n: int) -> list[Any]:
    """Return for each output a sparse matrix (n, d) of the contributions of features to the margins of rows."""
    indptr, which, parts = untuned_reading.contributions(state, x)
    return [sp.csr_array((part, which, indptr), shape=(n, state.d)) for part in parts.T]


def without_features(state: UntunedState, which: NDArray[np.int64]) -> UntunedState:
    """Return a copy of a state with a diagonal Hessian to which some features are new."""
    new = copy.deepcopy(state)
    e = new.experts
    for array in (e.features.table, e.weights, e.bets)[: 3 if len(e.bets) else 2]:
        array[which + 1] = 0
    return new


def some_rows(x: Any, part: slice) -> Any:
    """Return a slice of dense or sparse rows."""
    if not isinstance(x, CsrRows):
        return x[part]
    return x._replace(indptr=x.indptr[part.start : part.stop + 1])


def with_sums(sums: Floats, x: Any) -> Any:
    """Return rows with dense columns in front, sparse if they are."""
    if not isinstance(x, CsrRows):
        return np.hstack([sums, x])
    return prepended(sums, np.tile(np.arange(sums.shape[1], dtype=np.int32), (len(sums), 1)), sums.shape[1], x)


def with_leaves(sums: Floats, leaves: NDArray[np.int32], width: int, x: Any) -> CsrRows:
    """Return rows with dense columns and indicators of leaves in front."""
    (n, k), trees = sums.shape, leaves.shape[1]
    front = np.arange(k, dtype=np.int32)
    if isinstance(x, CsrRows):
        places = np.hstack([np.broadcast_to(front, sums.shape), leaves])
        return prepended(np.hstack([sums, np.ones(leaves.shape)]), places, width, x)
    size = k + trees + x.shape[1]
    data, indices = np.empty((n, size)), np.empty((n, size), np.int32)
    data[:, :k], data[:, k : k + trees], data[:, k + trees :] = sums, 1.0, x
    indices[:, :k], indices[:, k : k + trees], indices[:, k + trees :] = front, leaves, width + np.arange(x.shape[1])
    return CsrRows(data.reshape(-1), indices.reshape(-1), np.arange(n + 1) * size, width + x.shape[1])


def prepended(values: Floats, places: NDArray[np.int32], width: int, x: CsrRows) -> CsrRows:
    """Return sparse rows with values at places below `width` in front of each."""
    k, entries = values.shape[1], slice(int(x.indptr[0]), int(x.indptr[-1]))
    indptr = np.append(0, np.cumsum(np.diff(x.indptr) + k))
    front = (indptr[:-1, None] + np.arange(k)).reshape(-1)
    data, indices, back = np.empty(indptr[-1]), np.empty(indptr[-1], np.int32), np.ones(indptr[-1], bool)
    back[front] = False
    data[front], indices[front] = values.reshape(-1), places.reshape(-1)
    data[back], indices[back] = x.data[entries], x.indices[entries] + width
    return CsrRows(data, indices, indptr, x.width + width if x.width else 0)
