"""How good another policy would have been, from a log of decisions: estimates, and an interval by betting.

A row of the log has a weight w = (probability of its action under the policy) / (probability under which it was
logged). With rewards r in [0, 1], the mean of w r is the value V of the policy, so for every m >= V and 0 < f < 1

    K_f(m) = prod_t (1 + f (w_t r_t / m - 1))

is the capital of a gambler in a game that is fair or worse. It exceeds 1 / a at any time with probability at most a
(Ville). The lower end is the smallest m at which the mean capital of several f is below 1 / a. The upper end is the
same for 1 - r. There is no bound on the weights and no normal approximation, which fails where weights are large.
"""

import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from robustfd._container import Document, Saved, Tensors
from robustfd._guard import guarded_pair
from robustfd._validation import check_integer, check_range, check_real, check_same_params

Floats = NDArray[np.float64]

FRACTIONS = np.array([0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75])  # f, the stakes
# m, dense where proportions are precise. Between two of them `_lower` interpolates, on the safe side.
GRID = np.concatenate([[1e-5, 1e-4, 1e-3], np.sin(np.pi / 64 * np.arange(1, 32)) ** 2, [1.0]])
SLOPES, KEPT = (FRACTIONS / GRID[:, None]).ravel(), np.tile(1.0 - FRACTIONS, len(GRID))  # K_f: (1 - f) + (f / m) w r
CHUNK = 1024  # rows whose logarithms are computed together
LEAST = 1e-100  # the smallest logged probability; squares of weights then stay finite
MOST = 1e100  # the largest reward


@dataclass(frozen=True)
class Totals:
    """Sums over the rows of a log."""

    sums: Floats = field(default_factory=lambda: np.zeros(4))  # of w, w^2, w r and the doubly robust terms
    # For rewards scaled to [0, 1], and for 1 minus these: log K_f(m) of the rows with w r > 0, numbers of the others.
    logs: Floats = field(default_factory=lambda: np.zeros((2, len(GRID) * len(FRACTIONS))))
    zeros: tuple[int, int] = (0, 0)
    largest: float = 0.0
    rows: int = 0
    predicted: int = 0  # rows with predictions

    def plus(self, other: "Totals") -> "Totals":
        """Return the sums over the rows of both."""
        zeros = self.zeros[0] + other.zeros[0], self.zeros[1] + other.zeros[1]
        largest, rows = max(self.largest, other.largest), self.rows + other.rows
        predicted = self.predicted + other.predicted
        return Totals(self.sums + other.sums, self.logs + other.logs, zeros, largest, rows, predicted)

    def with_rows(self, weights: Floats, rewards: Floats, shares: tuple[Floats, Floats], robust: Any) -> "Totals":
        """Return the sums with these rows added in order, so that batches do not change any digit."""
        n = len(weights)
        terms = np.stack([weights, weights**2, weights * rewards, np.zeros(n) if robust is None else robust], axis=1)
        logs, zeros = list(self.logs), list(self.zeros)
        for i, share in enumerate(shares):
            z = weights * share
            zeros[i] += int(np.count_nonzero(z == 0))
            z = z[z > 0]
            for start in range(0, len(z), CHUNK):
                logs[i] = _in_order(logs[i], np.log(z[start : start + CHUNK, None] * SLOPES + KEPT))
        largest = max(self.largest, float(weights.max(initial=0.0)))
        predicted, sums = self.predicted + (0 if robust is None else n), _in_order(self.sums, terms)
        return Totals(sums, np.stack(logs), (zeros[0], zeros[1]), largest, self.rows + n, predicted)

    def lower(self, i: int, tail: float) -> float:
        """Return the smallest mean of w r that the gamblers do not refute, where r is the i-th of both rewards.

        K_f grows with u = 1 / m, and its logarithm is concave in u. Interpolating it between two m of the grid
        therefore underestimates the capital, and the result is never too large.
        """
        logs = self.logs[i].reshape(len(GRID), -1) + self.zeros[i] * np.log1p(-FRACTIONS)

        def refuted(values: Floats) -> bool:
            return float(np.logaddexp.reduce(values)) - np.log(len(FRACTIONS)) >= -np.log(tail)

        if not refuted(logs[0]):
            return 0.0
        known = [refuted(values) for values in logs]
        if all(known):
            return 1.0
        k = known.index(False)
        inside, outside = 0.0, 1.0  # shares of the way from the k-th point to the one before it; capital grows
        for _ in range(50):
            middle = (inside + outside) / 2
            if refuted(middle * logs[k - 1] + (1 - middle) * logs[k]):
                outside = middle
            else:
                inside = middle
        return float(1.0 / (outside / GRID[k - 1] + (1 - outside) / GRID[k]))


class PolicyEvaluation(Saved):
    """Estimates of the value of a policy, from a log of the decisions of another, row by row.

    Learn rows with `update` in batches of any size, with the same result, or in parts that are merged. The estimates
    can be read at any time, also to decide when to stop: the interval holds for all numbers of rows at once.

    Parameters
    ----------
    level : float in (0, 1), default=0.95
        The probability that the interval covers the value.
    reward_range : (float, float), default=(0.0, 1.0)
        The smallest and the largest reward that is possible. It must be known in advance. The interval is shorter
        for a narrow range.

    Attributes
    ----------
    ips : float
        Mean of w r (inverse propensity score), where w is the policy's probability of the logged action divided by
        the logged one. Unbiased.
    snips : float
        Sum of w r divided by the sum of w (self-normalised). Usually the best estimate without a model.
    dr : float or None
        Doubly robust: the mean of the predicted value plus w times the error of the prediction. None without
        predictions. Unbiased if the predictions of a row did not use its reward.
    interval : (float, float)
        Betting interval for the value of the policy. If both ends contradict each other, which happens when the logged
        probabilities are wrong, there is a warning and both are NaN.
    effective_rows : float
        (sum of w)^2 / (sum of w^2): the number of equally weighted rows that say as much.
    largest_weight : float
    n_rows : int

    See Also
    --------
    evaluate_policy : The same in one call.

    Examples
    --------
    >>> from robustfd import PolicyEvaluation
    >>> log = PolicyEvaluation(level=0.9)
    >>> log = log.update([1.0, 0.0], rewards=[1.0, 0.0], logged_probabilities=[0.5, 0.5])
    >>> log = log.update(1.0, rewards=0.0, logged_probabilities=0.25)
    >>> log.n_rows, log.snips
    (3, 0.3333333333333333)
    """

    _readers: ClassVar[frozenset[str]] = frozenset(
        ("ips", "snips", "dr", "interval", "effective_rows", "largest_weight", "n_rows")
    )

    def __init__(self, *, level: float = 0.95, reward_range: tuple[float, float] = (0.0, 1.0)):
        self.level = level
        self.reward_range = reward_range
        self._totals = Totals()
        self._check_parameters()

    def _check_parameters(self) -> tuple[float, float]:
        """Return the range of rewards, or raise an error if a parameter is invalid."""
        if check_real("level", self.level, 0.0, 1.0, open_low=True) == 1.0:
            raise ValueError("level must be in (0, 1), got 1. An interval that always covers is all of reward_range.")
        low, high = check_range("reward_range", self.reward_range, MOST)
        if not self.n_rows:
            self._seen_range = low, high
        if (low, high) != self._seen_range:
            raise ValueError(f"reward_range was changed from {self._seen_range} to {low, high} after rows were seen.")
        return low, high

    def update(self, policy_probabilities: Any, rewards: Any, logged_probabilities: Any, predicted: Any = None) -> Self:
        """Learn rows of a log and return self. After an error, nothing has changed.

        Parameters
        ----------
        policy_probabilities, rewards, logged_probabilities : arrays of shape (n,), or numbers for one row
            As for `evaluate_policy`.
        predicted : pair of arrays of shape (n,), optional
            First, a model's prediction of the reward of the logged action. Second, its prediction of the reward under
            the policy: the sum over all actions of prediction times policy probability. The model must not have learned
            the row before. Given for all rows or for none.

        Returns
        -------
        self
        """
        low, high = self._check_parameters()
        policy = _column("policy_probabilities", policy_probabilities)
        given = _column("rewards", rewards, policy)
        logged = _column("logged_probabilities", logged_probabilities, policy)
        _check("policy_probabilities", policy, (policy >= 0) & (policy <= 1), "a probability in [0, 1]")
        known = (logged >= LEAST) & (logged <= 1)
        _check("logged_probabilities", logged, known, f"a probability in (0, 1], at least {LEAST:g}")
        inside = (given >= low) & (given <= high)
        _check("rewards", given, inside, f"a number in reward_range=({low:g}, {high:g})")
        before, weights, robust = self._totals, policy / logged, None
        if len(policy) and before.rows and (predicted is None) != (before.predicted == 0):
            other = "with" if predicted is None else "without"
            raise ValueError(f"The {before.rows} rows so far came {other} predicted. Give it for all rows or for none.")
        if predicted is not None:
            robust = _doubly_robust(weights, given, predicted)
        shares = (given - low) / (high - low), (high - given) / (high - low)
        self._totals = before.with_rows(weights, given, shares, robust)
        return self

    @guarded_pair
    def merge(self, other: "PolicyEvaluation") -> Self:
        """Add the rows of another evaluation, of the same `reward_range`, and return self."""
        if type(other) is not type(self):
            raise TypeError(f"Cannot merge a PolicyEvaluation with a {type(other).__name__}: the classes differ.")
        here, there = ({"reward_range": each._check_parameters()} for each in (self, other))
        check_same_params("evaluations", here, there)
        one, two = self._totals, other._totals
        if one.rows and two.rows and (one.predicted == 0) != (two.predicted == 0):
            raise ValueError("Cannot merge evaluations with and without predicted. Give it for all rows or for none.")
        self._totals = one.plus(two)
        return self

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self._totals.rows

    @property
    def ips(self) -> float:
        """The mean of w r; NaN before the first row."""
        return _ratio(self._totals.sums[2], self._totals.rows)

    @property
    def snips(self) -> float:
        """The sum of w r divided by the sum of w; NaN if the policy never agrees with the log."""
        return _ratio(self._totals.sums[2], self._totals.sums[0])

    @property
    def dr(self) -> float | None:
        """The doubly robust estimate; None without predictions."""
        return _ratio(self._totals.sums[3], self._totals.rows) if self._totals.predicted else None

    @property
    def interval(self) -> tuple[float, float]:
        """The betting interval."""
        low, high = self._ends()
        if low > high:
            warnings.warn(
                f"The log contradicts itself: the value is above {low:g} and below {high:g}. Are the logged "
                "probabilities those of the logged actions?",
                stacklevel=3,
            )
            return float("nan"), float("nan")
        return low, high

    def _ends(self) -> tuple[float, float]:
        """Return both ends of the interval, which may contradict each other."""
        low, high = self._check_parameters()
        tail = (1.0 - self.level) / 2
        return low + (high - low) * self._totals.lower(0, tail), high - (high - low) * self._totals.lower(1, tail)

    @property
    def effective_rows(self) -> float:
        """(sum of w)^2 / (sum of w^2); 0 if all weights are 0."""
        total, squares = self._totals.sums[:2]
        return float(total / squares * total) if squares else 0.0

    @property
    def largest_weight(self) -> float:
        """The largest w so far."""
        return self._totals.largest

    def __repr__(self) -> str:
        if not self.n_rows:
            return "<PolicyEvaluation of 0 rows>"
        low, high = self._ends()
        robust = "" if self.dr is None else f"DR {self.dr:.4g}, "
        return (
            f"<PolicyEvaluation of {self.n_rows} rows: IPS {self.ips:.4g}, SNIPS {self.snips:.4g}, {robust}"
            f"{100 * self.level:g} % interval {low:.4g} to {high:.4g}, {self.effective_rows:.0f} effective rows>"
        )

    # -- saving

    def _saved_params(self) -> Document:
        return {"level": float(self.level), "reward_range": list(self._check_parameters())}

    @classmethod
    def _from_params(cls, params: Document) -> Self:
        low, high = params["reward_range"]
        return cls(level=params["level"], reward_range=(low, high))

    def _pack(self) -> tuple[Document, Tensors]:
        held = self._totals
        counts = {"zeros": held.zeros, "largest": held.largest, "rows": held.rows, "predicted": held.predicted}
        return counts, {"sums": held.sums, "logs": held.logs}

    def _unpack(self, document: Document, tensors: Tensors) -> None:
        fresh, sums, logs = Totals(), tensors.pop("sums"), tensors.pop("logs")
        rows = check_integer("rows", document.pop("rows"), 0)
        predicted = check_integer("predicted", document.pop("predicted"), 0)
        first, second = (check_integer("zeros", count, 0) for count in document.pop("zeros"))
        largest = check_real("largest", document.pop("largest"), 0.0)
        if document or tensors or predicted not in (0, rows) or max(first, second) > rows:
            raise ValueError(f"{rows} rows, {predicted} predicted, {first} and {second} zeros, or unknown parts")
        for found, like in ((sums, fresh.sums), (logs, fresh.logs)):
            if found.shape != like.shape or found.dtype != like.dtype or not np.isfinite(found).all():
                raise ValueError(f"sums have shape {found.shape} of {found.dtype}, or are not finite")
        self._totals = Totals(sums, logs, (first, second), largest, rows, predicted)


def evaluate_policy(
    policy_probabilities: Any,
    rewards: Any,
    logged_probabilities: Any,
    predicted: Any = None,
    *,
    level: float = 0.95,
    reward_range: tuple[float, float] = (0.0, 1.0),
) -> PolicyEvaluation:
    """Return estimates of the mean reward of a policy, from a log of the decisions of another.

    Parameters
    ----------
    policy_probabilities : array of shape (n,)
        The probability, in [0, 1], with which the policy in question would choose the action that was logged.
    rewards : array of shape (n,)
        The rewards of the logged actions, within `reward_range`.
    logged_probabilities : array of shape (n,)
        The probability, in (0, 1], with which the logged action was chosen.
    predicted : pair of arrays of shape (n,), optional
        A model's prediction of the reward of the logged action, and its prediction of the reward under the policy.
    level : float in (0, 1), default=0.95
        The probability that the interval covers the value.
    reward_range : (float, float), default=(0.0, 1.0)
        The smallest and the largest reward that is possible.

    Returns
    -------
    PolicyEvaluation
        With the attributes `ips`, `snips`, `dr`, `interval`, `effective_rows`, `largest_weight` and `n_rows`.

    See Also
    --------
    PolicyEvaluation : The same for logs that come in batches, or in parts.

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd import evaluate_policy
    >>> rng = np.random.default_rng(0)
    >>> action = rng.integers(2, size=2000)  # logged: each with probability 1/2
    >>> reward = rng.random(2000) < np.where(action == 1, 0.7, 0.4)
    >>> found = evaluate_policy(action == 1, reward, np.full(2000, 0.5))  # the policy: always action 1
    >>> found.interval[0] < 0.7 < found.interval[1]
    True
    """
    evaluation = PolicyEvaluation(level=level, reward_range=reward_range)
    return evaluation.update(policy_probabilities, rewards, logged_probabilities, predicted)


def _column(name: str, values: Any, like: Floats | None = None) -> Floats:
    """Return numbers, one for each row, as many as in `like`."""
    try:
        found = np.atleast_1d(np.asarray(values)).astype(np.float64, casting="same_kind")
    except (TypeError, ValueError):
        found = np.zeros((0, 0))
    if found.ndim != 1:
        raise ValueError(f"{name} must be one number for each row, got {values!r:.60}.")
    if like is not None and len(found) != len(like):
        raise ValueError(f"{name} has {len(found)} rows, but policy_probabilities has {len(like)}.")
    return found


def _check(name: str, values: Floats, right: NDArray[np.bool_], expected: str) -> None:
    """Raise an error that names the first row and its value, unless all are right."""
    if not right.all():
        row = int(np.argmin(right))
        raise ValueError(f"{name}[{row}] is {values[row]:g}, expected {expected}.")


def _doubly_robust(weights: Floats, rewards: Floats, predicted: Any) -> Floats:
    """Return predicted value plus weighted error of the prediction, for each row."""
    try:
        logged, value = predicted
    except (TypeError, ValueError):
        raise ValueError("predicted must be a pair: predictions of the logged actions, and of the policy.") from None
    logged, value = _column("predicted[0]", logged, weights), _column("predicted[1]", value, weights)
    for name, each in (("predicted[0]", logged), ("predicted[1]", value)):
        _check(name, each, np.abs(each) <= MOST, "a finite number")
    return value + weights * (rewards - logged)


def _in_order(total: Floats, terms: Floats) -> Floats:
    """Return the sum of `total` and the rows of `terms`, added one after the other."""
    return np.asarray(np.add.reduce(np.concatenate([total[None], terms]), axis=0))


def _ratio(total: float, count: float) -> float:
    return float(total / count) if count else float("nan")
