"""evaluate_policy and PolicyEvaluation: the transcription, coverage, batches, merging, saving, bad input."""

import contextlib
import copy
import pickle
import warnings
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import robustfd
from robustfd import PolicyEvaluation, SnapshotError, evaluate_policy
from tests import damage, reference_decisions

RESULTS = ("ips", "snips", "dr", "interval", "effective_rows", "largest_weight", "n_rows")


def results(evaluation):
    return {name: getattr(evaluation, name) for name in RESULTS}


def a_log(n, seed, floor=0.02, low=0.0, high=1.0):
    """Return policy and logged probabilities, rewards, and predictions for both."""
    rng = np.random.default_rng(seed)
    first, wanted = np.where(rng.random(n) < 0.5, 1 - floor, floor + 0.3 * rng.random(n)), rng.random(n)
    wanted = np.where(rng.random(n) < 0.5, wanted, wanted > 0.5)
    chosen = rng.random(n) < first
    logged, policy = np.where(chosen, first, 1 - first), np.where(chosen, wanted, 1 - wanted)
    rewards = low + (high - low) * np.where(rng.random(n) < 0.3, rng.random(n), rng.integers(2, size=n))
    return policy, rewards, logged, rng.random((2, n))


@given(st.integers(1, 300), st.integers(0, 2**20), st.sampled_from([0.5, 0.9, 0.95, 0.999]), st.booleans())
def test_the_transcription_gives_the_same(n, seed, level, negative):
    span = (-3.0, 7.0) if negative else (0.0, 1.0)
    policy, rewards, logged, predicted = a_log(n, seed, low=span[0], high=span[1])
    policy[0] = 0.5  # otherwise there may be no weight at all
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = evaluate_policy(policy, rewards, logged, predicted, level=level, reward_range=span)
        low, high = found.interval
    ips, snips, dr, rows = reference_decisions.estimates(policy, rewards, logged, predicted)
    assert np.allclose([found.ips, found.snips, found.dr, found.effective_rows], [ips, snips, dr, rows])
    assert found.largest_weight == (policy / logged).max() and found.n_rows == n
    exact = reference_decisions.interval(policy, rewards, logged, level, *span)
    if np.isnan(low):
        assert exact[0] > exact[1] - 0.02 * (span[1] - span[0])
    else:  # interpolation makes the interval longer, by little
        slack = 0.004 * (span[1] - span[0])
        assert exact[0] - slack <= low <= exact[0] + 1e-9 and exact[1] - 1e-9 <= high <= exact[1] + slack


@pytest.mark.parametrize("epsilon, soft", [(0.1, False), (0.02, False), (0.02, True)])
@pytest.mark.parametrize("value", [0.5, 0.97])
def test_the_interval_covers(epsilon, soft, value):
    """Three actions; the log prefers another action than the policy in a third of the rows."""
    rng = np.random.default_rng(5)
    covered, n = 0, 300
    for _ in range(100):
        agrees = rng.random(n) < 0.67
        best = 0.6 if soft else 1.0
        greedy = np.where(agrees, best, (1 - best) / 2)
        probability = (1 - epsilon) * greedy + epsilon / 3
        chosen = rng.random(n) < probability
        logged = np.where(chosen, probability, 1 - probability)
        low, high = evaluate_policy(chosen, rng.random(n) < value, logged).interval
        covered += low <= value <= high
    assert covered >= 95


@given(st.lists(st.integers(0, 1500), max_size=4), st.integers(0, 100))
def test_batches_do_not_change_any_digit(sizes, seed):
    policy, rewards, logged, predicted = a_log(sum(sizes) + 5, seed)
    whole, parts, start = evaluate_policy(policy, rewards, logged, predicted), PolicyEvaluation(), 0
    for stop in [*np.cumsum(sizes), len(policy)]:
        rows = slice(start, stop)
        parts.update(policy[rows], rewards[rows], logged[rows], predicted[:, rows])
        start = stop
    assert results(parts) == results(whole)
    assert parts.to_bytes() == whole.to_bytes()


def test_one_row_at_a_time():
    policy, rewards, logged, _ = a_log(40, 1)
    single = PolicyEvaluation()
    for row in zip(policy, rewards, logged):
        single.update(*row)
    assert results(single) == results(evaluate_policy(policy, rewards, logged))


@given(st.integers(0, 2000), st.integers(1, 5), st.integers(0, 2**20), st.booleans())
def test_parts_merge(n, k, seed, given_models):
    """Rows are dealt to parts at random. The parts, some of them empty, are saved, loaded and merged in any order."""
    policy, rewards, logged, predicted = a_log(n, seed)
    whole = evaluate_policy(policy, rewards, logged, predicted if given_models else None)
    rng = np.random.default_rng(seed)
    owner, parts = rng.integers(0, k, n), []
    for i in rng.permutation(k):
        mine = owner == i
        part = evaluate_policy(policy[mine], rewards[mine], logged[mine], predicted[:, mine] if given_models else None)
        parts.append(PolicyEvaluation.from_bytes(part.to_bytes()))
    merged = robustfd.merge([PolicyEvaluation(), *parts])
    for name, value in results(merged).items():
        same = np.array([value, getattr(whole, name)], float)  # None becomes NaN
        assert np.allclose(*same, rtol=1e-9, equal_nan=True), name
    assert merged.n_rows == n and sum(part.n_rows for part in parts) == n


def test_parts_that_do_not_fit():
    parts = [evaluate_policy(*a_log(70, 3))]
    other = evaluate_policy(1.0, 0.5, 0.5)
    with pytest.raises(ValueError, match="with and without predicted"):
        parts[0].merge(other)
    with pytest.raises(ValueError, match=r"different reward_range: \(0.0, 1.0\) here, \(0.0, 2.0\) there"):
        other.merge(PolicyEvaluation(reward_range=(0, 2)))
    with pytest.raises(TypeError, match="classes differ"):
        other.merge(3)


def test_saving_and_copying(tmp_path):
    found = evaluate_policy(*a_log(200, 4), level=0.8)
    found.save(tmp_path / "log.rfd")
    loaded = robustfd.load(tmp_path / "log.rfd")
    for again in (loaded, pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        assert results(again) == results(found) and again.level == 0.8
    more = a_log(50, 5)
    assert results(loaded.update(*more)) == results(found.update(*more))


def test_damaged_snapshots_are_refused():
    data = evaluate_policy(*a_log(50, 6)).to_bytes()
    for what, bad in islice(damage.damaged(data, 0, ("PolicyEvaluation",)), 200):
        with contextlib.suppress(SnapshotError):
            assert PolicyEvaluation.from_bytes(bad).n_rows >= 0, what


BAD = [
    (([0.5, 1.5], [0, 1], [0.5, 0.5]), r"policy_probabilities\[1\] is 1.5, expected a probability in \[0, 1\]"),
    (([0.5, 0.5], [0, 1], [0.5, 0]), r"logged_probabilities\[1\] is 0, expected a probability in \(0, 1\]"),
    (([0.5, 0.5], [0, 1], [1.01, 1]), r"logged_probabilities\[0\] is 1.01"),
    (([0.5, np.nan], [0, 1], [0.5, 1]), r"policy_probabilities\[1\] is nan"),
    (([0.5, 0.5], [0, np.inf], [0.5, 1]), r"rewards\[1\] is inf, expected a number in reward_range=\(0, 1\)"),
    (([0.5, 0.5], [0, -2], [0.5, 1]), r"rewards\[1\] is -2"),
    (([0.5, 0.5], [0, 1, 1], [0.5, 1]), "rewards has 3 rows, but policy_probabilities has 2"),
    (([0.5, 0.5], [0, 1], [0.5]), "logged_probabilities has 1 rows"),
    (([[0.5]], [0], [0.5]), "policy_probabilities must be one number for each row"),
    ((["a"], [0], [0.5]), "policy_probabilities must be one number for each row"),
    (([0.5], [0], [0.5], [0.5]), "predicted must be a pair"),
    (([0.5], [0], [0.5], ([0.5], [0.5, 1])), r"predicted\[1\] has 2 rows"),
    (([0.5], [0], [0.5], ([np.nan], [0.5])), r"predicted\[0\]\[0\] is nan, expected a finite number"),
    (([0.5], [0], [0.5]), "The 20 rows so far came with predicted"),
]


@pytest.mark.parametrize("arguments, message", BAD)
def test_bad_rows_are_named_and_nothing_is_lost(arguments, message):
    found = evaluate_policy(*a_log(20, 7))
    before = found.to_bytes()
    with pytest.raises(ValueError, match=message):
        found.update(*arguments)
    assert found.to_bytes() == before


@pytest.mark.parametrize("level", [0.0, 1.0, 1.5, np.nan])
def test_bad_levels(level):
    with pytest.raises(ValueError, match="level must be in"):
        evaluate_policy([1], [1], [1], level=level)


@pytest.mark.parametrize("span", [(1, 0), (0, np.inf), 3, (0, 1, 2), (1, 1)])
def test_bad_ranges(span):
    with pytest.raises(ValueError, match="reward_range must be"):
        PolicyEvaluation(reward_range=span)


def test_the_range_is_fixed_by_the_first_rows():
    found = evaluate_policy([1, 1], [1, 0], [1, 0.5])
    found.reward_range = (0, 10)
    for use in (lambda: found.interval, lambda: found.update(1, 1, 1), found.to_bytes):
        with pytest.raises(ValueError, match=r"changed from \(0.0, 1.0\) to \(0.0, 10.0\)"):
            use()


def test_no_rows_and_no_agreement():
    found = PolicyEvaluation().update([], [], [])
    assert np.isnan(found.ips) and np.isnan(found.snips) and found.dr is None
    assert found.interval == (0, 1) and found.effective_rows == 0 and "0 rows" in repr(found)
    found = evaluate_policy(np.zeros(100), np.ones(100), np.ones(100))
    assert found.ips == 0 and np.isnan(found.snips) and found.interval == (0, 1)
    assert "interval 0 to 1" in repr(found)


def test_a_log_that_contradicts_itself():
    found = evaluate_policy(np.ones(500), np.arange(500) % 2, np.full(500, 0.2))  # all weights are 5
    with pytest.warns(UserWarning, match="The log contradicts itself"):
        assert np.isnan(found.interval).all()


def test_extreme_numbers_stay_finite():
    found = evaluate_policy([1, 1], [1e100, -1e100], [1e-100, 1], reward_range=(-1e100, 1e100))
    assert np.isfinite([found.ips, found.snips, found.effective_rows, *found._ends()]).all()
    found = evaluate_policy(np.float32([1, 0.5]), np.array([True, False]), np.float32([1, 0.5]))
    assert found.n_rows == 2
