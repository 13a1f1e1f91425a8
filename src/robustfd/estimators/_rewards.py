"""What a bandit learns: rows of contexts, arms and rewards; merging and snapshots."""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from robustfd._container import Document, Tensors
from robustfd._core import OneChoice
from robustfd._validation import check_integer
from robustfd.estimators._arms import UNPULLED, Apart, Entries, Together, learn_with_event, rows_at, unpack_learners
from robustfd.estimators._online import OnlineEstimator
from robustfd.estimators._rows import entries_of_dict, rows_to_learn
from robustfd.estimators._transfer import pack, plain_label, unpack
from robustfd.estimators._untuned import common_names, features_of, is_time_to_count, join_features, pack_columns
from robustfd.learners.rows import CsrRows, Floats, check_numbers
from robustfd.learners.snapshot import Parts
from robustfd.learners.untuned import is_whole

MANY = 256  # arms share a learner if contexts have more features: their exact Hessians would be too large
_CHOICES = ("_arms", "_seed", "_choices")


class RewardLearner(OnlineEstimator):
    """Learns the rewards of arms in contexts."""

    _readers: ClassVar[frozenset[str]] = frozenset({"arms_", "n_pulls_", "progressive_reward_", "get_params"})
    _learned = (
        *OnlineEstimator._learned, *_CHOICES, "_learners", "_names", "_pulls", "_range", "_missing", "_common_names",
        "_encoder",
    )  # fmt: skip
    _free_to_differ = ("random_state", "arms")
    _takes_missing = True

    arms: Iterable[Any] | None
    epsilon: float
    reward_range: tuple[float, float] | None
    costs: bool
    random_state: int | None
    _arms: list[Any]  # names of arms
    _names: dict[Any, int] | None  # places of the features of arms, None for arms without features
    _given: list[Entries]  # features of the arms of the rows at hand
    _touched: set[int] = set()  # places of their arms

    def _working_copy(self, *, reset: bool) -> Self:
        after = super()._working_copy(reset=reset)
        if reset and not self.__sklearn_is_fitted__():  # choices may come before the first reward
            after.__dict__.update({name: vars(self)[name] for name in _CHOICES if name in vars(self)})
        return after

    def _prepare(self) -> None:
        """Set what choices need."""
        if not hasattr(self, "_seed"):
            self._seed = secrets.randbits(63) if self.random_state is None else int(self.random_state)
            self._choices, self._arms = np.zeros(1, np.int64), distinct(self.arms or ())

    # -- arms

    def _add_arms(self, arms: Sequence[Any]) -> None:
        known = dict.fromkeys([*self._arms, *arms])
        if len(known) > len(self._arms):
            self._arms = list(known)

    def _place_of(self) -> dict[Any, int]:
        return {arm: place for place, arm in enumerate(self._arms)}

    def _keys(self, places: Any) -> Any:
        """Return named arms as the learners expect them."""
        if isinstance(self._learners, Apart):
            return places
        return [(np.array([place]), np.ones(1)) for place in places]

    def _entries(self, features: Any) -> Entries:
        """Return the features of an arm, after adding new names."""
        if self._names is None:
            raise ValueError("This bandit was started with arms without features. Call fit to start over.")
        if not isinstance(features, Mapping):
            raise ValueError(f"This bandit knows arms by their features, a dict for each arm, got {features!r:.60}.")
        places, values, new = entries_of_dict(features, self._names)
        check_numbers(values)
        if new:
            self._names = self._names | new
        return places.astype(np.int64), values

    # -- rows

    def _check_targets(self, y: Any, classes: Any) -> Any:
        """Return places of arms, in `_arms` or `_given`, and rewards (n, 2); `classes` are the arms."""
        try:
            rewards = np.asarray(y, np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"rewards must be numbers, got {y!r:.60}.") from None
        low, high = (-np.inf, np.inf) if self.reward_range is None else self.reward_range
        for i in np.flatnonzero(~(np.isfinite(rewards) & (low <= rewards) & (rewards <= high)))[:1]:
            where = "finite" if self.reward_range is None else f"in reward_range {self.reward_range}"
            raise ValueError(f"rewards must be {where}, got {rewards[i]} in row {i}.")
        self._prepare()
        if not hasattr(self, "_names"):
            self._names = {} if len(classes) and isinstance(classes[0], Mapping) else None
        if self._names is not None:
            self._given = [self._entries(arm) for arm in classes]
            self._touched = {place for places, _ in self._given for place in places.tolist()}
            return np.column_stack([np.arange(len(rewards), dtype=np.float64), rewards])
        arms = [_checked_arm(arm) for arm in classes]
        self._add_arms(arms)
        place_of = self._place_of()
        places = [place_of[arm] for arm in arms]
        self._touched = set(places)
        return np.column_stack([np.array(places, np.float64), rewards])

    def _check_target(self, y: Any) -> Any:
        arm, reward, features = y
        return self._check_targets([reward], [arm if features is None else features])

    def _begin(self, x: Any) -> None:
        together = self._names is not None or x.shape[1] > MANY
        self._learners: Any = (Together if together else Apart)(x.shape[1], getattr(self, "_share", 1.0))
        self._pulls = np.zeros(0, np.int64)
        self._range = np.array(self.reward_range or (np.inf, -np.inf), np.float64)
        self._missing: list[int] = []
        self._common_names: set[Any] = set()

    def _widen(self, d: int) -> None:
        self._learners.widen(d)

    def _keep(self, x: Any) -> Callable[[], object]:
        learners, rows = self._learners, 2 * x.shape[0]  # a reward between the ends counts as two rows
        kept = learners.keep(rows, self._touched, lambda d: features_of(x, self._kind, d))
        self._pulls, self._range = self._pulls.copy(), self._range.copy()
        return partial(learners.undo, kept)

    def _learn_rows(self, x: Any, y: Any, weight: Floats) -> tuple[Floats, Floats]:
        places, rewards = y[:, 0].astype(np.int64), y[:, 1].copy()
        if self._names is None:
            self._pulls = np.append(self._pulls, np.zeros(len(self._arms) - len(self._pulls), np.int64))
            np.add.at(self._pulls, places, 1)
        low = np.minimum.accumulate(np.append(self._range[0], rewards))[1:]
        high = np.maximum.accumulate(np.append(self._range[1], rewards))[1:]
        self._range[:] = low[-1], high[-1]
        size = high - low
        good = np.divide(rewards - low, size, out=np.full(len(size), np.nan), where=size > 0)
        self._learn_good(x, places, 1.0 - good if self.costs else good)
        return rewards, np.full(len(rewards), np.nan)

    def _learn_good(self, x: Any, places: NDArray[np.int64], good: Floats) -> None:
        """Learn rows whose rewards were scaled to [0, 1]; NaN if their range is not known yet."""
        if isinstance(x, CsrRows):
            self._learn_part(x, places, good)
            return
        for here, rows in rows_to_learn(self, x, self._learners.widen):
            self._learn_part(rows, places[here], good[here])

    def _learn_part(self, x: Any, places: NDArray[np.int64], good: Floats) -> None:
        """Learn rows. A reward between the ends counts as a good row and a bad row, with its parts as weights."""
        which = np.flatnonzero(~np.isnan(good))
        which = np.repeat(which, np.where((good[which] > 0) & (good[which] < 1), 2, 1))
        if not len(which):
            return
        second = np.append(False, which[1:] == which[:-1])
        first = np.append(second[1:], False)
        label = np.where(first, 1.0, np.where(second, 0.0, good[which]))
        weight = np.where(first, good[which], np.where(second, 1.0 - good[which], 1.0))
        rows, arms = x if len(which) == x.shape[0] else rows_at(x, which), places[which]
        keys = self._keys(arms) if self._names is None else [self._given[i] for i in arms]
        self._learners.learn(rows, keys, label, weight)
        rows_seen = self._learners.seen()
        if self._kind == "dicts" and is_time_to_count(rows_seen):
            self._common_names = common_names(self._vocabulary, self._learners.counts(), rows_seen)

    def _quick_rows(self) -> OneChoice | None:
        """Return what chooses and learns for the next single rows without a detour through Python, or None."""
        if not self.__sklearn_is_fitted__() or self._names is not None or self._missing or hasattr(self, "_encoder"):
            return None
        learners, arms = self._learners, len(self._arms)
        states = [learners.states.get(place) for place in range(arms if isinstance(learners, Apart) else 1)]
        if len(self._pulls) < arms or any(each and not is_whole(each.share) for each in states):
            return None
        rows, names = learners.seen(), getattr(self, "_vocabulary", {})
        left = (1 << rows.bit_length()) - rows if self._kind == "dicts" else 2**62  # until `is_time_to_count`
        usual = np.array(sorted(names[name] for name in self._common_names), np.int32)
        return OneChoice(
            states, self._place_of(), self._lock, self._kind, names, self._width, usual,
            getattr(learners, "capacity", 0), CsrRows, learn_with_event, [s.quiet_until() if s else 0 for s in states],
            left, self._choices, self._pulls, self._range, self._progress, bool(self.costs), float(self.epsilon),
            UNPULLED, self._seed,
        )  # fmt: skip

    def _loss_name(self) -> str:
        return "cost" if self.costs else "reward"

    @property
    def progressive_(self) -> dict[str, NDArray[Any]]:
        """Arrays "rows" and "loss": mean rewards (or costs) after 1, 2, 4, ... rows and after the last."""
        table = super().progressive_
        del table["error"]
        return table

    # -- merging and snapshots

    def _split_states(self, k: int, which: Sequence[int]) -> list[dict[str, Any]]:
        learners = self._learners.split(k, which)
        parts = []
        for i, some in zip(which, learners, strict=True):
            pulls, choices = ((each + k - 1 - i) // k for each in (self._pulls, self._choices))
            own = np.random.SeedSequence((self._seed, i)).generate_state(1, np.uint64)  # parts do not explore alike
            parts.append({
                "_learners": some, "_pulls": pulls, "_range": self._range.copy(), "_choices": choices,
                "_seed": int(own[0]) if i else self._seed,
            })  # fmt: skip
        return parts

    def _merge_states(self, other: Any) -> None:
        if type(self._learners) is not type(other._learners) or (self._names is None) != (other._names is None):
            raise ValueError("Cannot merge bandits of arms with features and without.")
        here, there, width = join_features(self, other)
        known = {arm: place for place, arm in enumerate(self._arms)}
        places = np.array([known.setdefault(arm, len(known)) for arm in other._arms], np.int64)
        arms, self._arms = (np.arange(len(self._arms)), places), list(known)
        if self._names is not None:
            names = dict(self._names)
            theirs = np.array([names.setdefault(name, len(names)) for name in other._names], np.int64)
            arms, self._names = (np.arange(len(self._names)), theirs), names
        self._learners = self._learners.moved(here, arms[0], width)
        self._learners.merge(other._learners.moved(there, arms[1], width))
        pulls = np.zeros(len(self._arms), np.int64)
        pulls[: len(self._pulls)] += self._pulls
        np.add.at(pulls, places[: len(other._pulls)], other._pulls)
        self._pulls, self._choices = pulls, self._choices + other._choices
        self._range = np.array([min(self._range[0], other._range[0]), max(self._range[1], other._range[1])])

    def _add_prior_share(self, share: float) -> None:
        if self.__sklearn_is_fitted__() and share > 0:
            self._learners = self._learners.with_more_prior(share)

    def _saved_params(self) -> Document:
        arms = None if self.arms is None else [plain_label("The arm", arm) for arm in self.arms]
        ends = None if self.reward_range is None else [float(end) for end in self.reward_range]
        seed = None if self.random_state is None else int(self.random_state)
        return {"arms": arms, "epsilon": float(self.epsilon), "reward_range": ends, "costs": bool(self.costs),
                "random_state": seed}  # fmt: skip

    def _pack(self) -> tuple[Document, Tensors]:
        document, tensors = pack(self)
        arms = [plain_label("The arm", arm) for arm in self._arms]
        names = None if self._names is None else [plain_label("The feature", name) for name in self._names]
        document["bandit"] = {"arms": arms, "names": names, "seed": self._seed, "choices": int(self._choices[0])}
        return document, tensors | {"pulls": self._pulls, "range": self._range}

    def _unpack(self, document: Document, tensors: Tensors) -> None:
        own = document.pop("bandit")
        self._arms, names = distinct(own["arms"]), own["names"]
        self._names = None if names is None else {name: place for place, name in enumerate(distinct(names))}
        self._seed = check_integer("seed", own["seed"], 0, 2**64 - 1)
        self._choices = np.array([check_integer("choices", own["choices"], 0)])
        self._pulls, self._range = tensors.pop("pulls").copy(), tensors.pop("range").copy()
        right = self._pulls.dtype == np.int64 and self._pulls.ndim == 1 and len(self._pulls) <= len(self._arms)
        if not right or (self._pulls < 0).any() or self._range.shape != (2,) or self._range.dtype != np.float64:
            raise ValueError("arms, pulls or the range are inconsistent")
        unpack(self, document, tensors)

    def _pack_states(self) -> list[tuple[Document, Tensors]]:
        return self._learners.pack(pack_columns(self))

    def _unpack_states(self, states: list[Parts]) -> None:
        unpack_learners(self, states)


def _checked_arm(arm: Any) -> Any:
    """Return the name of an arm as a Python object."""
    arm = arm.item() if isinstance(arm, np.generic) else arm
    if type(arm) not in (str, int, bool, float) or arm != arm:
        raise ValueError(f"An arm must be a string, an integer, a boolean or a float, got {arm!r:.60}.")
    return arm


def distinct(arms: Iterable[Any]) -> list[Any]:
    """Return the checked names of arms; raise if one occurs twice."""
    names = [_checked_arm(arm) for arm in arms]
    if len(set(names)) != len(names):
        raise ValueError(f"arms must be distinct, got {names!r:.60}.")
    return names
