"""The contextual bandit as a policy of River."""

import os
from collections.abc import Iterable
from typing import Any, Literal, Self

from river import bandit, base

from robustfd.estimators.bandit import ContextualBandit as Estimator
from robustfd.river._base import Wrapper


class ContextualBandit(Wrapper, bandit.base.ContextualPolicy):
    """Bandit policy without an exploration parameter. See `robustfd.ContextualBandit`.

    It works in `bandit.evaluate` and `bandit.evaluate_offline`. Contexts are dicts of numbers and strings, or None.
    Neither they nor the rewards need scaling, and no burn-in is necessary: arms without rewards are uncertain.

    Parameters
    ----------
    epsilon
        The part of the probability that all arms share equally, for logs that evaluate other policies.
    reward_range
        The smallest and the largest reward. By default, those seen so far.
    costs
        Whether the numbers given as rewards are costs.
    seed
        Seed of the choices.

    Examples
    --------
    >>> from robustfd.river import ContextualBandit
    >>> policy = ContextualBandit(seed=0)
    >>> for day in range(200):
    ...     context = {"weekend": day % 7 > 4}
    ...     arm = policy.pull(["news", "sport"], context=context)
    ...     policy.update(arm, context, float((arm == "sport") == context["weekend"]))
    >>> policy.predict_proba_one({"weekend": True})["sport"] > 0.5
    True
    >>> policy.progressive_reward_ > 0.9
    True
    """

    def __init__(
        self,
        epsilon: float = 0.0,
        reward_range: tuple[float, float] | None = None,
        costs: bool = False,
        seed: int | None = None,
    ):
        bandit.base.ContextualPolicy.__init__(self)
        self._start(Estimator, epsilon=epsilon, reward_range=reward_range, costs=costs, random_state=seed)
        self.seed = seed

    def __repr__(self) -> str:
        table: Any = super().__repr__  # it needs a row
        return str(table() if self._rewards else base.Base.__repr__(self))

    def _pull(self, arm_ids: Iterable[Any], context: dict[Any, Any] | None = None) -> Any:
        return self._model.choose_one({} if context is None else context, list(arm_ids))[0]

    def update(self, arm_id: Any, context: Any, *reward_args: Any, **reward_kwargs: Any) -> None:
        """Learn the reward of an arm in a context, as `update(arm_id, context, reward)`.

        `update(arm_id, reward)`, the call for policies without contexts, learns the reward in an empty context.
        """
        if not reward_args:
            context, reward_args = None, (context,)
        (reward,) = reward_args
        reward = float(reward) if isinstance(reward, int) else reward
        self._model.learn_one({} if context is None else context, arm_id, reward)
        rank: Any = super().update
        rank(arm_id, context, -reward if self._model.costs else reward, **reward_kwargs)

    def predict_proba_one(self, x: dict[Any, Any] | None, arm_ids: Iterable[Any] | None = None) -> dict[Any, float]:
        """Return the probability with which `pull` pulls each arm, by default of all arms seen so far."""
        arms = None if arm_ids is None else list(arm_ids)
        return dict(self._model.predict_proba_one({} if x is None else x, arms))

    def contributions_one(
        self, x: dict[Any, Any], arm_id: Any, *, by: Literal["column", "value"] = "column", intercept: bool = False
    ) -> dict[Any, float]:
        """Return what each feature of a context adds to the log-odds of a good reward of an arm."""
        return dict(self._model.contributions_one(x, arm_id, by=by, intercept=intercept))

    @property
    def progressive_reward_(self) -> float:
        """The mean reward so far."""
        return float(self._model.progressive_reward_)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the policy that this class, or the estimator of the same name, saved. `ranking` starts anew."""
        policy = super().load(path)
        policy._counts.update(policy._model.n_pulls_)
        policy._n = policy._model.n_samples_seen_
        return policy
