"""Contextual bandits without an exploration parameter: one untuned learner for each arm."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from robustfd._core import choose_probabilities, draw_arm
from robustfd._guard import guarded, guards_itself
from robustfd._scipy import scipy_sparse as sp
from robustfd._validation import check_choice, check_integer, check_range, check_real
from robustfd.estimators import explain
from robustfd.estimators._arms import UNPULLED, rows_at
from robustfd.estimators._rewards import RewardLearner, distinct
from robustfd.estimators._rows import kind_of, rows_to_read, single_row, with_indicators
from robustfd.learners import progress
from robustfd.learners.rows import CsrRows, Floats


class ContextualBandit(RewardLearner):
    """Chooses among arms by context, learns from the rewards of its choices, and has nothing to tune.

    Each arm has its own untuned learner, that of `SketchedNewtonClassifier` with fewer experts, which predicts its
    reward for a context. Arms with features of their own, and contexts of more than 256 features, share one learner
    over the products of arm features and context features.

    The learner also knows how little it knows: the variance x'H^-1 x of the context under its Hessian, times the root
    of the learning rates that do best if it is above 1. The bandit chooses by RandUCB: it draws one level z, the
    absolute value of a normal number, and takes the arm with the largest predicted margin plus z standard deviations.
    The probability of every choice is exact, so logs of choices can evaluate other policies (`evaluate_policy`).

    Rewards may have any range. The bandit scales them by the smallest and the largest reward so far, or by
    `reward_range`. While all rewards so far are equal there is nothing to learn, and the arms are equally probable.

    Parameters
    ----------
    arms : list, optional
        Names of the arms: strings, integers, booleans or floats. Other arms appear when they are first named.
    epsilon : float, default=0.0
        The part of the probability that all arms share equally. A log that will evaluate other policies needs a value
        above 0, such as 0.02, because RandUCB never chooses an arm that is certainly worse.
    reward_range : (float, float), optional
        The smallest and the largest reward. By default, those seen so far.
    costs : bool, default=False
        Whether the numbers given as rewards are costs: the smaller the better.
    random_state : int, optional
        Seed of the choices. The choices of a bandit that is saved and loaded continue as if it had not been.

    Attributes
    ----------
    arms_ : list
        The names of the arms.
    n_pulls_ : dict
        How often each arm was learned.
    progressive_reward_ : float
        The mean reward (or cost) so far.
    n_samples_seen_, n_features_in_ : int
        Number of rewards learned and of features.

    See Also
    --------
    evaluate_policy : What another policy would have earned on the log of this one.

    Examples
    --------
    >>> from robustfd import ContextualBandit
    >>> bandit = ContextualBandit(["news", "sport"], random_state=0)
    >>> for day in range(200):
    ...     x = {"weekend": day % 7 > 4}
    ...     arm, probability = bandit.choose_one(x)
    ...     bandit = bandit.learn_one(x, arm, reward=float((arm == "sport") == x["weekend"]), probability=probability)
    >>> bandit.predict_one({"weekend": True}), bandit.predict_one({"weekend": False})
    ('sport', 'news')
    >>> bool(bandit.progressive_reward_ > 0.9)
    True
    """

    def __init__(
        self,
        arms: Iterable[Any] | None = None,
        *,
        epsilon: float = 0.0,
        reward_range: tuple[float, float] | None = None,
        costs: bool = False,
        random_state: int | None = None,
    ):
        self.arms = arms
        self.epsilon = epsilon
        self.reward_range = reward_range
        self.costs = costs
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_real("epsilon", self.epsilon, 0.0, 1.0)
        check_choice("costs", self.costs, (True, False))
        if self.random_state is not None:
            check_integer("random_state", self.random_state, 0, 2**64 - 1)
        if self.reward_range is not None:
            check_range("reward_range", self.reward_range, np.inf)
        distinct(self.arms or ())

    # -- choosing

    @guards_itself
    def choose_one(self, x: Any, arms: Any = None) -> tuple[Any, float]:
        """Choose an arm for a context.

        Parameters
        ----------
        x : dict, (indices, values) or array of shape (d,)
            The context, as in `learn_one`.
        arms : list or dict, optional
            The arms to choose from, by default all. New arms are added. A dict gives each arm its features, which are
            a dict as well; such arms may be new in every round and are not remembered by name.

        Returns
        -------
        arm
            The name of the chosen arm.
        probability : float
            The probability with which it was chosen.
        """
        quick = self.__dict__.get("_quick")
        if quick is not None and (found := quick.choose(x, arms)) is not None:
            return (self._arms if arms is None else arms)[found[0]], found[1]
        return self._choose_one(x, arms)

    @guarded
    def _choose_one(self, x: Any, arms: Any) -> tuple[Any, float]:
        before = self.__dict__.copy()
        try:
            if not self.__sklearn_is_fitted__():
                self._check_parameters()
            names, chances = self._chances_of_one(x, arms)
            place = draw_arm(chances, self._seed, int(self._choices[0]))
        except BaseException:
            self.__dict__ = before
            raise
        self._choices = self._choices + 1
        self._renew_quick()
        return names[place], float(chances[place])

    def _chances_of_one(self, x: Any, arms: Any) -> tuple[list[Any], Floats]:
        """Return the arms to choose from, and their probabilities."""
        self._prepare()
        names, margins, variances = self._doubts_of_one(x, arms)
        return names, _chances(margins, variances, self.epsilon)[0]

    def _doubts_of_one(self, x: Any, arms: Any) -> tuple[list[Any], Floats, Floats]:
        """Return the arms to choose from, and their margins and variances (1, arms)."""
        names = list(self._arms if arms is None else arms)
        if not names:
            raise ValueError("There are no arms to choose from. Give `arms` here or in the constructor.")
        features = arms if isinstance(arms, Mapping) else None
        if features is None:
            self._add_arms(distinct(names))
        if not self.__sklearn_is_fitted__():
            if not isinstance(x, Mapping | tuple) and np.ndim(x) != 1:
                raise ValueError(f"x must be a dict, a pair (indices, values) or an array of one row, got {x!r:.60}.")
            return names, np.zeros((1, len(names))), np.full((1, len(names)), UNPULLED)
        row = single_row(self, x, kind_of(self, x), known_only=True)[0]
        row = row if isinstance(row, CsrRows) else with_indicators(row, self._missing)
        if features is not None or self._names is not None:
            keys: Any = [self._entries(None if features is None else features[name]) for name in names]
        else:
            place_of = self._place_of()
            keys = self._keys([place_of[name] for name in names])
        return names, *self._finite_doubts(row, keys)

    def _finite_doubts(self, x: Any, keys: Any) -> tuple[Floats, Floats]:
        margins, variances = self._learners.doubts(x, keys)
        if not np.isfinite(margins).all():
            raise OverflowError("The predictions of ContextualBandit overflow: weights or X are too large.")
        return margins, variances

    # -- learning

    def fit(self, X: Any, arms: Any, rewards: Any, probabilities: Any = None) -> Self:  # type: ignore[override]
        """Learn a log from scratch; see `partial_fit`."""
        return self._learn_log(X, arms, rewards, probabilities, reset=True)

    def partial_fit(self, X: Any, arms: Any, rewards: Any, probabilities: Any = None) -> Self:
        """Learn more rows of a log. The result does not depend on the batch sizes.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n, d)
            The contexts.
        arms : list of length n, or sparse matrix of shape (n, features of arms)
            The arm that was chosen for each row: its name, or a dict of its features. In a matrix, features of arms
            have the numbers of their columns as names.
        rewards : array of shape (n,)
            The reward of each choice, or its cost.
        probabilities : array of shape (n,), optional
            The probabilities of the choices. They are checked and not used: weighting rows by them makes the learner
            worse.

        Returns
        -------
        self
        """
        return self._learn_log(X, arms, rewards, probabilities, reset=not self.__sklearn_is_fitted__())

    def _learn_log(self, X: Any, arms: Any, rewards: Any, probabilities: Any, *, reset: bool) -> Self:
        arms = _listed(arms)
        rewards = np.asarray(rewards)
        if len(arms) != len(rewards):
            raise ValueError(f"arms has {len(arms)} rows, but rewards has {len(rewards)}.")
        _check_probabilities(probabilities, len(arms))
        return self._learn(X, rewards, None, reset=reset, classes=arms)

    @guards_itself
    def learn_one(  # type: ignore[override]
        self, x: Any, arm: Any, reward: float, probability: float | None = None, *, features: Any = None
    ) -> Self:
        """Learn the reward of a choice. It may come late, and in any order.

        Parameters
        ----------
        x : dict, (indices, values) or array of shape (d,)
            The context.
        arm : str, int, bool or float
            The chosen arm.
        reward : float
            Its reward, or its cost.
        probability : float, optional
            The probability of the choice. It is checked and not used.
        features : dict, optional
            The features of the arm, if `choose_one` was given features of arms.

        Returns
        -------
        self
        """
        if probability is not None and not (type(probability) is float and 0.0 < probability <= 1.0):
            _check_probabilities([probability], 1)
        quick = self.__dict__.get("_quick")
        if quick is None or features is not None or not quick.learn(x, arm, reward):
            self._learn_one(x, (arm, reward, features), 1.0)
        return self

    # -- reading

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the arm with the best predicted reward for each context."""
        names = np.array(self._require_rows()._arms)
        return np.asarray(names[self._margins(self._checked(X)).argmax(axis=1)])

    def predict_proba(self, X: Any, arms: Any = None) -> Any:
        """Return the probabilities (n, arms) with which `choose_one` chooses arms, in the order of `arms_`.

        With `arms`, which has for each row a list of names or of dicts of features, or a sparse matrix of features,
        return a list with the probabilities of the arms of each row.
        """
        x = self._require_rows()._checked(X)
        if arms is None:
            return _chances(*self._all_doubts(x), self.epsilon)
        return [_chances(*doubts, self.epsilon)[0] for doubts in self._doubts_by_row(x, arms)]

    def predict_rewards(self, X: Any, arms: Any = None) -> Any:
        """Return the predicted rewards (n, arms), or costs, in the order of `arms_`; with `arms` as `predict_proba`."""
        x = self._require_rows()._checked(X)
        if arms is None:
            return self._rewards_of(self._margins(x))
        return [self._rewards_of(margins[0]) for margins, _ in self._doubts_by_row(x, arms)]

    def _rewards_of(self, margins: Floats) -> Floats:
        good = 1.0 / (1.0 + np.exp(-np.clip(margins, -700, 700)))
        low, high = self._range
        return np.asarray(low + (high - low) * (1.0 - good if self.costs else good))

    def predict_one(self, x: Any, arms: Any = None) -> Any:
        """Return the arm with the best predicted reward for one context, or None before the first reward."""
        if not self.__sklearn_is_fitted__():
            return None
        names, margins, _ = self._doubts_of_one(x, arms)
        return names[int(margins[0].argmax())]

    def predict_proba_one(self, x: Any, arms: Any = None) -> dict[Any, float]:
        """Return the probability of each arm for one context."""
        names, chances = self._chances_of_one(x, arms)
        return dict(zip(names, chances.tolist(), strict=True))

    def contributions(
        self, X: Any, arm: Any, *, by: Literal["column", "value"] = "column", intercept: bool = False
    ) -> Any:
        """Return what each feature of the contexts adds to the margin of an arm.

        The margin is the logarithm of the odds of a good reward. The rest of it, which also has what the arm earns in
        any context, is the column that `intercept=True` adds.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n, n_features)
            The contexts.
        arm : str, int, bool, float or dict
            The name of the arm, or a dict of its features if the bandit knows arms by their features.
        by : {"column", "value"}, default="column"
            For a table with text or dates: one contribution for each column, or one for each value.
        intercept : bool, default=False
            Whether to add a last column, "(intercept)" in a table, so that each row sums to the margin.

        Returns
        -------
        array, sparse array or DataFrame of shape (n, n_features)
            Sparse if X is sparse, a table of the same library if X is a table.
        """
        return explain.contributions(_Arm(self._require_rows(), arm), X, by=by, intercept=intercept)[0]

    def contributions_one(
        self, x: Any, arm: Any, *, by: Literal["column", "value"] = "column", intercept: bool = False
    ) -> dict[Any, float]:
        """Return the contributions to the margin of an arm in one context, by name or index; see `contributions`.

        Before the first reward it is empty.
        """
        if not self.__sklearn_is_fitted__():
            return {}
        return explain.contributions_of_one(_Arm(self, arm), x, by=by, intercept=intercept)[0]

    @property
    def arms_(self) -> list[Any]:
        """The names of the arms; empty if they are known by their features."""
        return list(getattr(self, "_arms", []))

    @property
    def n_pulls_(self) -> dict[Any, int]:
        """How often each arm was learned."""
        pulls = self._require_rows()._pulls.tolist()
        return dict(zip(self._arms, pulls + [0] * (len(self._arms) - len(pulls)), strict=True))

    @property
    def progressive_reward_(self) -> float:
        """The mean reward (or cost) so far."""
        return progress.mean_loss(self._require_rows()._progress)

    def _margins(self, x: Any) -> Floats:
        return self._all_doubts(x)[0]

    def _doubts_by_row(self, x: Any, arms: Sequence[Any]) -> Iterator[tuple[Floats, Floats]]:
        """Yield the margins and variances (1, arms) of the arms of each row."""
        if len(arms) != x.shape[0]:
            raise ValueError(f"arms has {len(arms)} rows, but X has {x.shape[0]}.")
        if self._names is not None:
            blocks = self._blocks_of(x)
            rows: Any = (rows_at(block, np.array([i])) for block in blocks for i in range(block.shape[0]))
            for row, some in zip(rows, arms, strict=True):
                yield self._finite_doubts(row, [self._entries(each) for each in _listed(some)])
            return
        margins, variances = self._all_doubts(x)
        place_of = self._place_of()
        for i, some in enumerate(arms):
            for name in some:
                if name not in place_of:
                    raise ValueError(f"arms of row {i} must be some of {self._arms!r:.60}, got {name!r}.")
            places = [place_of[name] for name in some]
            yield margins[i : i + 1, places], variances[i : i + 1, places]

    def _all_doubts(self, x: Any) -> tuple[Floats, Floats]:
        """Return the margins and variances (n, arms) of rows."""
        if self._names is not None:
            raise ValueError("This bandit knows arms by their features. Give them to predict_one or predict_proba_one.")
        keys = self._keys(range(len(self._arms)))
        found = [self._finite_doubts(rows, keys) for rows in self._blocks_of(x)]
        empty = np.empty((0, len(self._arms)))
        return np.vstack([empty, *(m for m, _ in found)]), np.vstack([empty, *(v for _, v in found)])

    def _blocks_of(self, x: Any) -> Iterator[Any]:
        """Yield blocks of rows as the learners take them."""
        if isinstance(x, CsrRows):  # rows of text have no missing values to indicate
            yield x
        else:
            yield from (rows for _, rows in rows_to_read(x, self._missing))


def _listed(arms: Any) -> list[Any]:
    """Return names or features of arms as a list, and the rows of a sparse matrix as dicts by column."""
    if not isinstance(arms, CsrRows) and not sp.issparse(arms):
        return arms.tolist() if hasattr(arms, "tolist") else list(arms)
    rows = arms if isinstance(arms, CsrRows) else arms.tocsr()
    columns, values = rows.indices.tolist(), rows.data.tolist()
    return [dict(zip(columns[a:b], values[a:b], strict=True)) for a, b in pairwise(rows.indptr.tolist())]


class _Arm:
    """An arm of a bandit, as explanations read a model."""

    def __init__(self, bandit: ContextualBandit, arm: Any):
        self._bandit = bandit
        if bandit._names is not None or isinstance(arm, Mapping):
            self._key: Any = bandit._entries(arm)
        elif arm in bandit._arms:
            self._key = bandit._keys([bandit._arms.index(arm)])[0]
        else:
            raise ValueError(f"arm must be one of {bandit._arms!r:.200}, got {arm!r:.60}.")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bandit, name)

    def _explain(self, rows: Any) -> Any:
        return self._bandit._learners.explain(rows, self._key)

    def _finite_margins(self, x: Any) -> Floats:
        doubts = (self._bandit._finite_doubts(rows, [self._key]) for rows in self._bandit._blocks_of(x))
        return np.vstack([np.empty((0, 1)), *(margins for margins, _ in doubts)])

    def _number_loss(self) -> None:
        """Margins are not numbers of a regression."""


def _check_probabilities(probabilities: Any, n: int) -> None:
    if probabilities is None:
        return
    given = np.asarray(probabilities, np.float64)
    if given.shape != (n,):
        raise ValueError(f"probabilities must be an array of shape ({n},), got shape {given.shape}.")
    for i in np.flatnonzero(~((given > 0) & (given <= 1)))[:1]:
        raise ValueError(f"probabilities must be in (0, 1], got {given[i]} in row {i}.")


def _chances(margins: Floats, variances: Floats, epsilon: float) -> Floats:
    out = np.empty_like(margins)
    choose_probabilities(np.ascontiguousarray(margins), np.ascontiguousarray(variances), float(epsilon), out)
    return out
