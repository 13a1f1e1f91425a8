"""The tree of merges and the checks that Dask and Spark share, without an engine."""

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import robustfd
from robustfd.distributed._plan import Plan, as_sketch, check_estimator, check_targets
from robustfd.learners import untuned_merging
from tests.distributed.parts import bandit_here, cut, log_of_a_bandit, merged_here


def run(plan, blocks, *, leave_out_empty=False, **more):
    """Run a plan level by level and return the model."""
    models = {i: plan.learn(i, [block], **more) for i, block in enumerate(blocks)}
    if leave_out_empty:
        models = {i: model for i, model in models.items() if model.__sklearn_is_fitted__()}
    for level, nodes in enumerate(plan.levels[1:] or [1], 1):
        below = range(plan.levels[level - 1])
        groups = [{j: models[j] for j in below if j in models and j // plan.fan_in == node} for node in range(nodes)]
        models = {node: plan.merge(level, node, group) for node, group in enumerate(groups)}
        if leave_out_empty:
            models = {i: model for i, model in models.items() if model.__sklearn_is_fitted__()}
    return plan.finish(models[0])


@given(st.integers(1, 40), st.sampled_from([2, 4, 8, 16]), st.integers(0, 2**31))
def test_the_tree_is_that_of_merge_for_powers_of_two(k, fan_in, seed):
    x = np.random.default_rng(seed).standard_normal((60, 7))
    blocks, sketch = cut(x, k), robustfd.RobustFrequentDirections(4, center=bool(seed % 2))
    made = run(Plan(sketch, k, fan_in=fan_in), [(block, None, None) for block in blocks])
    assert made.to_bytes() == merged_here(sketch, blocks).to_bytes()
    assert made.n_samples_seen_ == 60 and not sketch.__sklearn_is_fitted__()


@pytest.mark.parametrize("fan_in", [2, 3, 8])
def test_partitions_that_report_nothing_are_as_those_that_are_empty(fan_in):
    rng = np.random.default_rng(0)
    x, k = rng.standard_normal((300, 5)), 20
    y = x[:, 0] > 0
    blocks = [(x[i : i + 60], y[i : i + 60], None) for i in range(0, 300, 60)]
    blocks = blocks[:2] + [(x[:0], y[:0], None)] * (k - 5) + blocks[2:]
    plan = Plan(robustfd.SketchedNewtonClassifier(), k, fan_in=fan_in)
    made, other = (run(plan, blocks, classes=[False, True], leave_out_empty=each) for each in (False, True))
    assert made.share_ == pytest.approx(1.0) == pytest.approx(other.share_)
    np.testing.assert_allclose(made.coef_, other.coef_, rtol=1e-9)
    assert made.n_samples_seen_ == 300


def test_a_task_that_is_run_again_gives_the_same_model():
    x = np.random.default_rng(0).standard_normal((50, 6))
    for sketch in (robustfd.RobustFrequentDirections(4), robustfd.RandomProjectionSketch(4)):
        plan = Plan(sketch, 3)
        assert plan.learn(1, [(x, None, None)]).to_bytes() == plan.learn(1, [(x, None, None)]).to_bytes()


def test_partitions_draw_random_numbers_of_their_own():
    x = np.random.default_rng(0).standard_normal((50, 6))
    plan = Plan(robustfd.RandomProjectionSketch(4, random_state=5), 2)
    one, two = (plan.learn(i, [(x, None, None)]) for i in range(2))
    assert not np.array_equal(one.sketch_, two.sketch_)
    made = plan.finish(plan.merge(1, 0, {0: one, 1: two}))
    assert made.random_state == 5 and made.n_samples_seen_ == 100


def test_weights_of_zero_are_as_no_rows():
    x = np.random.default_rng(0).standard_normal((50, 6))
    plan = Plan(robustfd.RobustFrequentDirections(4), 2)
    assert not plan.learn(0, [(x, None, np.zeros(50))]).__sklearn_is_fitted__()
    weight = (np.arange(50) < 20) * 2.0
    some = plan.learn(0, [(x, None, weight)])
    assert (
        some.to_bytes() == robustfd.RobustFrequentDirections(4).fit(x[:20], sample_weight=np.full(20, 2.0)).to_bytes()
    )
    with pytest.raises(ValueError, match="sample_weight has 3 rows in a partition where X has 50"):
        plan.learn(0, [(x, None, np.ones(3))])


def test_going_on_keeps_what_was_learned():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 5))
    y = (x[:, 0] > 0) * 1
    before = robustfd.RobustFrequentDirections(8).fit(x[:100])
    saved = before.to_bytes()
    blocks = [(x[100:200], None, None), (x[200:], None, None)]
    after = run(Plan(before, 2, reset=False), blocks)
    assert after.n_samples_seen_ == 400 and before.to_bytes() == saved
    assert run(Plan(before, 2), blocks).n_samples_seen_ == 300  # starts from scratch
    learner = robustfd.SketchedNewtonClassifier().fit(x[:200], y[:200])
    blocks = [(x[200:300], y[200:300], None), (x[300:], y[300:], None)]
    after = run(Plan(learner, 2, reset=False), blocks, classes=[0, 1])
    assert after.n_samples_seen_ == 400 and learner.n_samples_seen_ == 200


def test_what_cannot_be_learned_in_parts_is_refused():
    with pytest.raises(TypeError, match="got the class RobustFrequentDirections"):
        check_estimator(robustfd.RobustFrequentDirections)
    with pytest.raises(TypeError, match="that has partial_fit"):
        check_estimator(3)
    with pytest.raises(ValueError, match="estimator must not have a window"):
        check_estimator(robustfd.SlidingFrequentDirections(10))
    with pytest.raises(ValueError, match="SketchedNewtonClassifier needs targets"):
        check_targets(robustfd.SketchedNewtonClassifier(), None, None)
    with pytest.raises(ValueError, match="classes must be None for .*, which is not a classifier"):
        check_targets(robustfd.RobustFrequentDirections(), None, [1, 2])
    with pytest.raises(ValueError, match="fan_in must be at least 2, got 1"):
        Plan(robustfd.RobustFrequentDirections(), 3, fan_in=1)
    with pytest.raises(TypeError, match="sketch must be an integer"):
        as_sketch("large")
    plan = Plan(robustfd.RobustFrequentDirections(), 3)
    with pytest.raises(ValueError, match="all 3 partitions are empty"):
        plan.finish(copy.copy(plan.part(0)))


@pytest.mark.parametrize("partitions", [1, 5, 16])
def test_a_partition_of_a_fitted_learner_takes_its_own_part_only(partitions, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    model = robustfd.SketchedNewtonClassifier().fit(X, X[:, 0] > 0)
    plan, made, fraction = Plan(model, partitions, reset=False), [], untuned_merging._fraction
    monkeypatch.setattr(untuned_merging, "_fraction", lambda whole, k, i: made.append(i) or fraction(whole, k, i))
    parts = [plan.part(i) for i in range(partitions)]
    assert made == list(range(partitions))
    for part, expected in zip(parts, model.split(partitions), strict=True):
        assert part.to_bytes() == expected.to_bytes()


@pytest.mark.parametrize("k", [1, 2, 7])
def test_a_bandit_learns_partitions_of_a_log(k):
    """Each part has arms of its own, some parts are empty, and a task that is run again gives the same bandit."""
    log = log_of_a_bandit()
    blocks = list(zip(*(cut(each, k) for each in log), strict=True))
    bandit = robustfd.ContextualBandit(random_state=0)
    plan = Plan(bandit, k)
    made = run(plan, [(x, reward, None, arm, p) for x, arm, reward, p in blocks])
    assert made.to_bytes() == bandit_here(blocks).to_bytes()
    assert made.n_samples_seen_ == 1200 and sorted(made.arms_) == ["a", "b", "c"] and bandit.arms_ == []
    assert made.progressive_reward_ == pytest.approx(log[2].mean())
    more = run(Plan(made, 2, reset=False), [(x[:300], r[:300], None, a[:300], None) for x, a, r, _ in [log] * 2])
    assert more.n_samples_seen_ == 1800
    plan = Plan(robustfd.ContextualBandit(), 2)  # its seed is drawn once
    x, arm, reward, p = log
    one, two = (plan.learn(1, [(x, reward, None, arm, p)]).to_bytes() for _ in range(2))
    assert one == two


def test_what_is_wrong_with_the_columns_of_a_bandit():
    bandit, x = robustfd.ContextualBandit(), np.ones((3, 2))
    for arguments, message in (
        ((bandit, [1], None), "ContextualBandit needs arms, got none"),
        ((robustfd.RobustFrequentDirections(3), None, None, [1]), "has no arms"),
        ((bandit, [1], None, [1], [1]), "ContextualBandit has no weights"),
        ((bandit, None, None, [1]), "needs targets"),
    ):
        with pytest.raises(ValueError, match=message):
            check_targets(*arguments)
    plan = Plan(bandit, 1)
    with pytest.raises(ValueError, match="arms has 2 rows in a partition where X has 3"):
        plan.learn(0, [(x, np.ones(3), None, ["a", "b"], None)])
    with pytest.raises(ValueError, match=r"probabilities must be in \(0, 1\], got 2.0 in row 1"):
        plan.learn(0, [(x, np.ones(3), None, ["a", "b", "a"], [1, 2, 1])])
