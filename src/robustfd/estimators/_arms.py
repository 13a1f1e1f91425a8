"""The learners behind a bandit: one for each arm, or one over products of arm features and context features."""

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from robustfd._container import Document, Tensors
from robustfd.estimators._untuned import unpack_columns
from robustfd.learners import untuned_merging, untuned_reading
from robustfd.learners.hessian import OFFER_EXACT
from robustfd.learners.rows import CsrRows, Floats, entries_of_runs, plain_rows, sparse_rows
from robustfd.learners.snapshot import Parts
from robustfd.learners.untuned import PRIOR, SPARE, UntunedState

UNPULLED = (1 + 1 / 16) / PRIOR  # the variance of a row of typical length and of the intercept, before the first row
LAST = 2**31 - 2  # largest index of a feature
PRODUCTS = 2**20  # the number of products of rows and arms that are in memory at the same time, unless one row has more

Entries = tuple[NDArray[np.int64], Floats]  # places and values of the features of an arm
Contributions = tuple[NDArray[np.int64], NDArray[np.int64], Floats]  # of rows in CSR format


class _Learners:
    """States by number, and what does not depend on what they mean."""

    def __init__(self, d: int, share: float):
        self.d, self.share = d, share
        self.states: dict[int, UntunedState] = {}

    def seen(self) -> int:
        """Return the number of rows of all states."""
        return sum(state.seen for state in self.states.values())

    def keep(self, rows: int, arms: Iterable[int], features: Callable[[int], Any]) -> Any:
        """Return what `undo` needs to forget the next rows, of these arms or with these features of arms.

        `features` returns the features of contexts that the rows may change, None for all.
        """
        kept = {n: self.states[n].keep(rows, some) for n, some in self._changes(arms, features)}
        return vars(self) | {"states": dict(self.states)}, kept

    @abstractmethod
    def _changes(self, arms: Iterable[int], features: Callable[[int], Any]) -> Iterator[tuple[int, Any]]:
        """Yield states that rows may change, with the features that they may change in them."""

    def undo(self, kept: Any) -> None:
        """Restore the state at the time of `keep`."""
        before, states = kept
        self.__dict__.update(before)
        for number, each in states.items():
            self.states[number].undo(each)

    def _like(self, states: dict[int, UntunedState]) -> Self:
        new = copy.copy(self)
        new.states = states
        return new

    def split(self, k: int, which: Sequence[int]) -> list[Self]:
        """Return the parts `which` of k parts."""
        parts = [self._like({}) for _ in which]
        for number, state in self.states.items():
            for part, new in zip(parts, untuned_merging.split(state, k, which), strict=True):
                part.states[number] = new
        for part in parts:
            part.share = self.share / k
        return parts

    def merge(self, other: Self) -> None:
        """Add the states of another one, with the same features and arms."""
        for number, state in other.states.items():
            mine = self.states.get(number)
            self.states[number] = state if mine is None else untuned_merging.merge(mine, state, max(mine.d, state.d))
        self.share = min(self.share + other.share, 1.0)

    def with_more_prior(self, share: float) -> Self:
        """Return a copy with more of the prior."""
        new = self._like({n: untuned_merging.with_more_prior(state, share) for n, state in self.states.items()})
        new.share = min(self.share + share, 1.0)
        return new

    def pack(self, more: dict[str, Any]) -> list[tuple[Document, Tensors]]:
        """Return the parts of a file; `more` are arrays of the bandit."""
        capacity = self.capacity if isinstance(self, Together) else 0
        places = sorted(self.states)
        own = {"places": places, "share": self.share, "d": self.d, "capacity": capacity}
        return [(own, more), *(self.states[place].pack() for place in places)]


class Apart(_Learners):
    """One learner for each arm, by the place of the arm.

    A choice reads all of them, so that they have few experts. Bettors and smaller priors earn nothing more here
    (benchmarks/results/bandits.md).
    """

    def _changes(self, arms: Iterable[int], features: Callable[[int], Any]) -> Iterator[tuple[int, Any]]:
        arms = set(arms)
        for arm, state in self.states.items():  # all of them may become wider
            yield arm, features(state.d) if arm in arms else np.empty(0, np.int32)

    def doubts(self, x: Any, arms: Sequence[int]) -> tuple[Floats, Floats]:
        """Return the margins and variances (n, arms) of rows."""
        margins, variances = np.zeros((x.shape[0], len(arms))), np.full((x.shape[0], len(arms)), UNPULLED)
        for column, arm in enumerate(arms):
            if (state := self.states.get(arm)) is not None:
                margins[:, column], variances[:, column] = state.doubts(x)
        return margins, variances

    def explain(self, x: Any, arm: int) -> Contributions:
        """Return the contributions of features of contexts to the margins of an arm, as `untuned_reading` does."""
        if (state := self.states.get(arm)) is None:
            return np.zeros(x.shape[0] + 1, np.int64), np.zeros(0, np.int64), np.zeros((0, 1))
        return untuned_reading.contributions(state, x)

    def learn(self, x: Any, arms: NDArray[np.int64], label: Floats, weight: Floats) -> None:
        """Learn rows, each for its arm. The arms are independent, so their order does not matter."""
        for arm in np.unique(arms).tolist():
            which = np.flatnonzero(arms == arm)
            if arm not in self.states:
                self.states[arm] = UntunedState(self.d, 1, few=True, share=self.share)
            rows = x if len(which) == x.shape[0] else rows_at(x, which)
            self.states[arm].learn(rows, label[which], weight[which], np.empty((len(which), 1)))

    def widen(self, d: int, *, growing: bool = True) -> None:
        """Allocate memory for d features of contexts."""
        self.d = max(d, self.d)
        for state in self.states.values():
            state.widen(d, growing=growing)

    def counts(self) -> Floats:
        """Return how often each feature of contexts occurred."""
        total = np.zeros(max(state.d for state in self.states.values()))
        for state in self.states.values():
            total[: state.d] += state.experts.features.table["count"][1:]
        return total

    def moved(self, here: NDArray[np.int64], arms: NDArray[np.int64], d: int) -> "Apart":
        """Return a copy in which context feature j is here[j] and arm a is arms[a]."""
        new, same = Apart(d, self.share), np.array_equal(here, np.arange(len(here)))
        for arm, state in self.states.items():
            width = max(d, state.d)
            new.states[int(arms[arm])] = state if same else untuned_merging.with_features_at(state, here, width)
        return new


class Together(_Learners):
    """One learner over the products of arm features and context features.

    An arm has features, as a context has; the only feature of a named arm is its name. The row of an arm in a context
    has the features of the context, those of the arm, and all products of one of these with one of those. Feature f of
    arms and feature j of contexts, both counted from 1, have the product number f C + j, where C is the capacity for
    features of contexts. With 0 for j or f it is the other feature alone.
    """

    def __init__(self, d: int, share: float):
        super().__init__(d, share)
        self.capacity = d + 1
        self.states = {0: UntunedState(2 * self.capacity, 1, share=share)}

    def _changes(self, arms: Iterable[int], features: Callable[[int], Any]) -> Iterator[tuple[int, Any]]:
        some = features(self.d)
        columns = np.arange(self.capacity) if some is None else np.append(0, np.unique(some).astype(np.int64) + 1)
        places = np.append(0, np.array(sorted(arms), np.int64) + 1)
        products = (places[:, None] * self.capacity + columns).ravel()
        yield 0, products[products < self.states[0].d].astype(np.int32)

    def _width(self, places: int) -> int:
        """Return the capacity for the products of so many features of arms, whatever the batches they came in."""
        width = (places + 1) * self.capacity
        return width if width <= OFFER_EXACT else max(width, min((1 << places.bit_length()) * self.capacity, LAST))

    def rows(self, x: CsrRows, arms: "_Arms") -> CsrRows:
        """Return the products of rows with arms, row by row."""
        last = int(arms.place.max(initial=0))
        if (last + 1) * self.capacity > LAST:
            raise ValueError(f"{last} features of arms and {self.d} features of contexts have more than 2^31 products.")
        column, value, lengths = _with_constant(x.indices.astype(np.int64) + 1, x.data, np.diff(x.indptr))
        # Product k of a row is that of entry k // n of the arm and entry k % n of the context, which has n entries.
        firsts, starts = (np.append(0, np.cumsum(some))[:-1] for some in (arms.lengths, lengths))
        sizes = arms.lengths * lengths
        row, product = np.repeat(np.arange(len(sizes)), sizes), entries_of_runs(np.zeros_like(sizes), sizes)[0]
        one, two = np.divmod(product, lengths[row])
        one, two = one + firsts[row], two + starts[row]
        kept = product > 0  # all but the constant
        columns = (arms.place[one] * self.capacity + column[two])[kept].astype(np.int32)
        self.states[0].widen_to(self._width(int(columns.max(initial=0)) // self.capacity))
        indptr = np.append(0, np.cumsum(sizes - 1))
        return CsrRows((arms.factor[one] * value[two])[kept], columns, indptr, self.states[0].d)

    def doubts(self, x: Any, arms: Sequence[Entries]) -> tuple[Floats, Floats]:
        """Return the margins and variances (n, arms) of rows."""
        n, k, x = x.shape[0], len(arms), sparse_rows(plain_rows(x))
        margins, variances = np.zeros((n, k)), np.full((n, k), UNPULLED)
        if self.states[0].seen == 0:
            return margins, variances
        every = _Arms.of(arms)
        for part in _parts(np.diff(x.indptr) + 1, int(every.lengths.sum())):
            several = rows_at(x, np.repeat(np.arange(n)[part], k))
            found = self.states[0].doubts(self.rows(several, every.times(part.stop - part.start)))
            margins[part], variances[part] = (some.reshape(-1, k) for some in found)
        return margins, variances

    def explain(self, x: Any, arm: Entries) -> Contributions:
        """Return the contributions of features of contexts, alone and in products, to the margins of an arm."""
        every = rows_at(sparse_rows(plain_rows(x)), np.arange(x.shape[0]))
        rows = self.rows(every, _Arms.of([arm]).times(x.shape[0]))
        indptr, which, parts = untuned_reading.contributions(self.states[0], rows)
        column = which % self.capacity
        kept = column > 0  # the others are features of the arm alone
        return np.append(0, np.cumsum(kept))[indptr], column[kept] - 1, parts[kept]

    def learn(self, x: Any, arms: Sequence[Entries], label: Floats, weight: Floats) -> None:
        """Learn rows, each for its arm. The capacity grows at the rows that need it, as for single rows."""
        most = np.maximum.accumulate([int(places[-1]) + 1 if len(places) else 0 for places, _ in arms])
        widths = [self._width(int(places)) for places in most]
        ends = [i for i in range(1, len(widths)) if widths[i] > max(widths[i - 1], self.states[0].d)]
        x, longest = sparse_rows(plain_rows(x)), max((len(places) for places, _ in arms), default=0) + 1
        for start, end in pairwise([0, *ends, len(widths)]):
            for part in _parts(np.diff(x.indptr)[start:end] + 1, longest):
                some = slice(start + part.start, start + part.stop)
                rows = self.rows(rows_at(x, np.arange(some.start, some.stop)), _Arms.of(arms[some]))
                self.states[0].learn(rows, label[some], weight[some], np.empty((some.stop - some.start, 1)))

    def widen(self, d: int, *, growing: bool = True) -> None:
        """Allocate memory for d features of contexts, and for as many more if their number keeps growing."""
        self.d = max(d, self.d)
        if d + 1 <= self.capacity:
            return
        old, self.capacity = self.capacity, 2 * d + 1 if growing else d + 1
        state = self.states[0]
        places = np.arange(state.d)
        places = places // old * self.capacity + places % old
        self.states = {0: untuned_merging.with_features_at(state, places, int(places[-1]) + self.capacity)}

    def counts(self) -> Floats:
        """Return how often each feature of contexts occurred."""
        return np.asarray(self.states[0].experts.features.table["count"][2 : self.capacity + 1])

    def moved(self, here: NDArray[np.int64], arms: NDArray[np.int64], d: int) -> "Together":
        """Return a copy in which context feature j is here[j] and arm feature f is arms[f]."""
        new, state = Together(d, self.share), self.states[0]
        place, column = np.divmod(np.arange(state.d), self.capacity)
        used = (place <= len(arms)) & (column <= len(here))  # the others have never occurred
        to = np.append(0, arms + 1)[place[used]] * new.capacity + np.append(0, here + 1)[column[used]]
        size = max((int(arms.max(initial=-1)) + 2) * new.capacity, len(to) + int((~used).sum()))
        places = np.empty(state.d, np.int64)
        places[used] = to
        places[~used] = np.setdiff1d(np.arange(size + state.d), to)[: (~used).sum()]
        new.states = {0: untuned_merging.with_features_at(state, places, int(max(size, places.max() + 1)))}
        return new


def learn_with_event(state: UntunedState, x: Any, label: Floats, weight: Floats) -> int:
    """Learn rows, or leave the state as it was. Return the number of rows at which its next event is due."""
    kept = state.keep(len(label), x.indices if isinstance(x, CsrRows) else None)
    try:
        state.learn(x, label, weight, np.empty((len(label), 1)))
        return state.quiet_until()
    except BaseException:
        state.undo(kept)
        raise


class _Arms(NamedTuple):
    """Features of arms, one after the other. Each begins with the constant 1, whose place is 0."""

    place: NDArray[np.int64]
    factor: Floats
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, arms: Sequence[Entries]) -> "_Arms":
        """Return the features of these arms, each after the constant."""
        places = np.concatenate([np.empty(0, np.int64), *(each for each, _ in arms)])
        values = np.concatenate([np.empty(0), *(each for _, each in arms)])
        return cls(*_with_constant(places + 1, values, np.array([len(each) for each, _ in arms], np.int64)))

    def times(self, n: int) -> "_Arms":
        """Return the arms n times."""
        return _Arms(np.tile(self.place, n), np.tile(self.factor, n), np.tile(self.lengths, n))


def _with_constant(
    places: NDArray[np.int64], values: Floats, lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], Floats, NDArray[np.int64]]:
    """Return the entries of rows of these lengths, after an entry of place 0 and value 1 in each row."""
    at = np.append(0, np.cumsum(lengths))[:-1]
    return np.insert(places, at, 0), np.insert(values, at, 1.0), lengths + 1


def _parts(lengths: NDArray[np.int64], times: int) -> Iterator[slice]:
    """Yield slices of rows. Each entry of a row has `times` products; a slice has at most PRODUCTS, or one row."""
    step = max(PRODUCTS // (times * int(lengths.max(initial=1))), 1)
    for start in range(0, len(lengths), step):
        yield slice(start, min(start + step, len(lengths)))


def rows_at(x: Any, which: NDArray[np.int64]) -> Any:
    """Return the rows at these places, which may repeat."""
    return x.take(which) if isinstance(x, CsrRows) else x[which]


def unpack_learners(model: Any, states: list[Parts]) -> None:
    """Restore the learners of a bandit from a file, and its columns with missing values."""
    first, *others = states
    check = unpack_columns(model, first)
    places, share = first.text("places"), first.number("share", 0.0)
    d, capacity = first.count("d"), first.count("capacity")
    first.close()
    inputs = model._width + len(model._missing)
    arms = len(model._arms if model._names is None else model._names)
    allowed = set(range(arms)) if capacity == 0 else {0}
    if not isinstance(places, list) or len(set(places)) != len(places) or not set(places) <= allowed:
        raise ValueError("the places of arms are inconsistent")
    if len(others) != len(places) or not inputs <= d <= 2 * inputs + SPARE or share > 1.0:
        raise ValueError("the sizes of the learners are inconsistent")
    if capacity and not d < capacity <= 2 * d + 1:
        raise ValueError(f"a capacity of {capacity} for {d} features")

    def check_products(width: int, outputs: int) -> None:
        most = 2 * (arms + 2) * capacity + SPARE
        if width > most or outputs != 1:
            raise ValueError(f"capacity for {width} features, of which at most {most} were seen")

    learners: Any = Together(1, share) if capacity else Apart(1, share)
    learners.d, learners.capacity = d, capacity
    fits = check_products if capacity else check
    few = isinstance(learners, Apart)
    learners.states = {
        place: UntunedState.unpack(parts, fits, few=few) for place, parts in zip(places, others, strict=True)
    }
    if capacity and 0 not in learners.states:
        raise ValueError("the learner is missing")
    model._learners = learners
