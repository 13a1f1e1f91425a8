"""Contextual bandits: choices, learning, arms, rewards, snapshots."""

import copy
import pickle
from functools import partialmethod

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from robustfd import ContextualBandit, load
from robustfd._core import choose_probabilities, draw_arm
from robustfd.learners.untuned import UntunedState
from tests import reference_bandits as reference

K, D, N = 5, 6, 700


@pytest.fixture(scope="module")
def problem():
    """Contexts, and the arm that earns 1."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    return X, (X @ rng.standard_normal((K, D)).T).argmax(axis=1)


def dicts(X):
    return [{f"f{j}": float(value) for j, value in enumerate(row)} for row in X]


def played(bandit, contexts, best, reward=lambda good: float(good), **options):
    choices = []
    for x, arm in zip(contexts, best, strict=True):
        choice, chance = bandit.choose_one(x, **options)
        choices.append((choice, chance))
        bandit.learn_one(x, choice, reward(choice == arm), chance)
    return choices


@given(
    # Rounded: scores that differ by rounding errors only may tie here and not there.
    st.lists(
        st.tuples(st.floats(-5, 5), st.floats(0, 9)).map(lambda arm: tuple(np.round(arm, 6))), min_size=1, max_size=8
    ),
    st.sampled_from([0.0, 0.02, 1.0]),
)
def test_probabilities_are_those_of_the_transcription(arms, epsilon):
    margins, variances = np.array(arms).T.copy()
    out = np.empty((1, len(arms)))
    choose_probabilities(margins[None], variances[None], epsilon, out)
    np.testing.assert_allclose(out[0], reference.probabilities(margins, variances, epsilon), atol=1e-12)
    assert abs(out.sum() - 1) < 1e-12 and out.max() <= 1 and out.min() >= epsilon / len(arms) - 1e-15


def test_draws_have_their_probabilities():
    chances = np.array([0.1, 0.0, 0.6, 0.3])
    drawn = np.array([draw_arm(chances, 7, i) for i in range(20_000)])
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / len(drawn), chances, atol=0.012)


@pytest.mark.parametrize("rows", [3, 40, 300])
def test_the_variance_is_that_of_the_transcription(rows):
    rng = np.random.default_rng(rows)
    X = rng.standard_normal((rows, D)) * (rng.random((rows, D)) < [1, 1, 0.5, 0.2, 0.1, 0]) * 10.0 ** np.arange(D)
    state = UntunedState(D, 1, sketch=0)
    state.learn(X, (X[:, 0] > 0).astype(float), np.ones(rows), np.empty((rows, 1)))
    for x in (*X[:3], rng.standard_normal(D), np.zeros(D)):  # the last column has never occurred
        expected = reference.diagonal_variance(state, x)
        np.testing.assert_allclose(state.doubts(x[None])[1][0], expected, rtol=1e-9)
        np.testing.assert_allclose(state.doubts(x[None])[0], state.margins(x[None])[:, 0], rtol=1e-9, atol=1e-12)


def test_it_earns_far_more_than_chance(problem):
    X, best = problem
    bandit = ContextualBandit(range(K), random_state=0)
    played(bandit, dicts(X), best)
    assert bandit.progressive_reward_ > 0.55
    assert np.mean([bandit.predict_one(x) == arm for x, arm in zip(dicts(X), best, strict=True)]) > 0.75
    assert sum(bandit.n_pulls_.values()) == N == bandit.n_samples_seen_


def test_unpulled_arms_are_equally_probable():
    bandit = ContextualBandit(["a", "b", "c"], random_state=3)
    assert bandit.predict_proba_one({"x": 1.0}) == pytest.approx(dict.fromkeys("abc", 1 / 3))
    assert len({bandit.choose_one({"x": 1.0})[0] for _ in range(30)}) == 3


def test_batches_and_single_rows_give_the_same_model(problem):
    X, best = problem
    X = np.where(np.arange(N)[:, None] % 97 == 50, np.nan, X)  # missing values appear on the way
    rng = np.random.default_rng(1)
    arms, rewards = rng.integers(0, K, N), rng.choice([0.0, 0.25, 1.0], N)
    whole = ContextualBandit(range(K), random_state=0).fit(X, arms, rewards)
    some = ContextualBandit(range(K), random_state=0)
    for part in np.split(np.arange(N), [1, 2, 60, 61, 400]):
        some.partial_fit(X[part], arms[part], rewards[part])
    single = ContextualBandit(range(K), random_state=0)
    for x, arm, reward in zip(X, arms.tolist(), rewards.tolist(), strict=True):
        single.learn_one(x, arm, reward)
    for other in (some, single):
        np.testing.assert_array_equal(other.predict_rewards(X), whole.predict_rewards(X))
    assert some.to_bytes() == whole.to_bytes()


@pytest.mark.parametrize("width", [3, 60, 300])
def test_batches_of_arms_that_share_a_learner_do_not_matter(width):
    """New arms and features of arms appear in the middle of batches. The products exceed 256 on the way."""
    rng = np.random.default_rng(width)
    X, rewards = rng.standard_normal((90, width)), rng.choice([0.0, 0.5, 1.0], 90)
    arms = [f"arm {i // 9}" for i in range(90)]
    if width < 300:
        arms = [{arm: 1.0, "size": float(i % 4)} for i, arm in enumerate(arms)]
    whole = ContextualBandit(random_state=0).fit(X, arms, rewards)
    for cuts in ([1, 2, 30, 50], list(range(1, 90))):
        some = ContextualBandit(random_state=0)
        for part in np.split(np.arange(90), cuts):
            some.partial_fit(X[part], [arms[i] for i in part], rewards[part])
        assert some.to_bytes() == whole.to_bytes()


def as_kind(X, kind, wide):
    """Contexts as dicts, arrays or pairs; wide ones, with noise far to the right, share a learner."""
    if wide:
        X = np.hstack([X, np.zeros((N, 300))])
        X[np.arange(N), D + np.random.default_rng(4).integers(0, 300, N)] = 1.0
    if kind == "rows":
        return X
    if kind == "dicts":
        return [{f"f{j}": float(row[j]) for j in np.flatnonzero(row)} for row in X]
    types = np.int32, np.int64  # both have the same meaning
    return [(np.flatnonzero(row).astype(types[i % 2]), row[row != 0]) for i, row in enumerate(X)]


def counted(bandit, detours, *given, learn=ContextualBandit._learn_one):
    detours.append(given)
    learn(bandit, *given)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("kind", ["dicts", "rows", "pairs"])
def test_quick_rows_are_the_ordinary_ones(problem, monkeypatch, kind, wide):
    X, best = problem
    contexts, rng = as_kind(X, kind, wide), np.random.default_rng(5)
    arms = [rng.permutation(K)[: 1 + i % K].tolist() if i % 3 else None for i in range(N)]
    late = rng.random((N, 2))  # rewards between the ends, and from the past

    def run(bandit):
        log = []
        for i, (x, right) in enumerate(zip(contexts, best.tolist(), strict=True)):
            arm, chance = bandit.choose_one(x, arms[i])
            reward = float(arm == right) if late[i, 0] < 0.8 else round(late[i, 1], 2)
            before = i // 2 if late[i, 1] < 0.2 else i
            bandit.learn_one(contexts[before], arm, 1 - reward if bandit.costs else reward, chance)
            log.append((arm, chance))
        return log

    for costs in (False, True):
        quick, slow = (ContextualBandit(range(K), random_state=0, costs=costs) for _ in range(2))
        detours = []
        with monkeypatch.context() as patch:
            patch.setattr(ContextualBandit, "_learn_one", partialmethod(counted, detours))
            choices = run(quick)
        assert "_quick" in vars(quick) and len(detours) < (N if kind != "rows" and wide else 60)
        with monkeypatch.context() as patch:
            patch.setattr(ContextualBandit, "_quick_rows", lambda self: None)
            assert run(slow) == choices
        assert slow.to_bytes() == quick.to_bytes()


def test_an_interrupt_at_an_event_leaves_the_bandit_as_it_was(problem, monkeypatch):
    X, best = problem
    bandit = ContextualBandit(range(K), random_state=0)
    played(bandit, X[:300], best[:300])
    renewed, states = [], []

    def renew(state, rows):
        renewed.append(rows)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("robustfd.learners.hessian.renew", renew)
        for x in X[300:400]:
            before = bandit.to_bytes()
            try:
                bandit.learn_one(x, 0, 1.0)
            except KeyboardInterrupt:
                states.append(bandit.to_bytes() == before)
                break
    assert renewed and states == [True] and "_quick" in vars(bandit)
    played(bandit, X[400:], best[400:])


@pytest.mark.parametrize("x", [
    (np.array([1, 0]), np.ones(2)), (np.array([0, 2**40]), np.ones(2)), (np.array([0]), np.ones(2)),
    (np.array([-1]), np.ones(1)), (np.array([0]), np.array([np.nan])), (np.array([0]), np.array([1e200])),
    (np.zeros(1), np.ones(1)), (np.array([0]),), (np.array([3, 3]), np.ones(2)), [1.0], {"a": 1.0},
])  # fmt: skip
def test_odd_pairs_are_as_in_the_ordinary_path(problem, monkeypatch, x):
    def outcome(bandit):
        found = []
        for call in (lambda: bandit.choose_one(x), lambda: bandit.learn_one(x, 0, 1.0) and None):
            try:
                found.append(call())
            except Exception as error:
                found.append((type(error), str(error)))
        return found, bandit.to_bytes()

    quick = ContextualBandit(range(K), random_state=0)
    played(quick, as_kind(problem[0], "pairs", False)[:200], problem[1][:200])
    slow = copy.deepcopy(quick)
    monkeypatch.setattr(type(slow), "_quick_rows", lambda self: None)
    expected = outcome(slow)
    monkeypatch.undo()
    assert outcome(quick) == expected


@pytest.mark.parametrize("scale, shift", [(1000.0, 5.0), (2.0**-30, -3.0)])
def test_units_of_rewards_do_not_matter(problem, scale, shift):
    X, best = problem
    plain = played(ContextualBandit(range(K), random_state=0), X[:300], best[:300])
    scaled = ContextualBandit(range(K), random_state=0)
    assert played(scaled, X[:300], best[:300], lambda good: scale * good + shift) == plain
    costs = ContextualBandit(range(K), random_state=0, costs=True)
    assert played(costs, X[:300], best[:300], lambda good: 1.0 - good) == plain
    low, high = scaled.predict_rewards(X).min(), scaled.predict_rewards(X).max()
    assert shift <= low < high <= scale + shift


def test_arms_appear_at_any_time(problem):
    X, best = problem
    bandit = ContextualBandit(random_state=0)
    played(bandit, X[:200], best[:200], arms=[0, 1])
    assert bandit.arms_ == [0, 1]
    arm, chance = bandit.choose_one(X[0], arms=[0, 1, 2, 3, 4])
    assert bandit.arms_ == [0, 1, 2, 3, 4] and chance > 0 and bandit.predict_proba_one(X[0])[4] > 0
    played(bandit, X[200:], best[200:])
    assert bandit.n_pulls_[4] > 0
    assert bandit.choose_one(X[0], arms=[3])[0] == 3


def test_epsilon_gives_every_arm_a_chance(problem):
    X, best = problem
    bandit = ContextualBandit(range(K), epsilon=0.1, random_state=0)
    played(bandit, X[:300], best[:300])
    chances = bandit.predict_proba(X)
    assert chances.min() >= 0.1 / K - 1e-15 and np.allclose(chances.sum(axis=1), 1)


@pytest.mark.parametrize("kind", ["dicts", "rows", "features"])
def test_saved_copied_and_loaded_bandits_go_on_alike(problem, tmp_path, kind):
    X, best = problem
    contexts = dicts(X) if kind == "dicts" else X
    arms = {k: {"number": float(k), f"arm {k}": 1.0} for k in range(K)} if kind == "features" else None
    bandit = ContextualBandit(None if arms else range(K))
    for x, arm in zip(contexts[:150], best[:150], strict=True):
        choice, chance = bandit.choose_one(x, arms)
        bandit.learn_one(x, choice, float(choice == arm), chance, features=arms and arms[choice])
    bandit.save(tmp_path / "bandit")
    others = [load(tmp_path / "bandit"), pickle.loads(pickle.dumps(bandit)), copy.deepcopy(bandit)]
    for x, arm in zip(contexts[150:250], best[150:250], strict=True):
        choice, chance = bandit.choose_one(x, arms)
        for each in others:
            assert each.choose_one(x, arms) == (choice, chance)
        for each in (bandit, *others):
            each.learn_one(x, choice, float(choice == arm), chance, features=arms and arms[choice])
    assert all(each.to_bytes() == bandit.to_bytes() for each in others)


@pytest.mark.parametrize("wide", [False, True])
def test_parts_merge(problem, wide):
    X, best = problem
    X = np.hstack([X, np.zeros((N, 300))]) if wide else X  # above 256 features the arms share a learner
    rng = np.random.default_rng(2)
    arms = rng.integers(0, K, N)
    rewards = (arms == best).astype(float)
    names = [f"arm {k}" for k in arms]
    one = ContextualBandit(random_state=0).fit(X, names, rewards)
    back = one.split(3)
    np.testing.assert_allclose((back[0] + back[1] + back[2]).predict_rewards(X), one.predict_rewards(X), atol=1e-6)
    first = ContextualBandit(random_state=0).fit(X[:100], names[:100], rewards[:100])
    parts = first.split(2)
    parts[0].partial_fit(X[100::2], names[100::2], rewards[100::2])
    parts[1].partial_fit(X[101::2], names[101::2], rewards[101::2])
    merged = parts[0].merge(parts[1])
    assert sum(merged.n_pulls_.values()) == N
    assert np.mean(merged.predict(X) == [f"arm {k}" for k in best]) > 0.7


def test_choices_are_reproducible_also_after_split_and_merge(problem, tmp_path):
    X, best = problem
    bandit = ContextualBandit(range(K), epsilon=1.0, random_state=7)  # every choice is the draw alone
    played(bandit, X[:103], best[:103])
    parts, again = bandit.split(3), bandit.split(3)
    merged = copy.deepcopy(parts[0]).merge(parts[1]).merge(parts[2])
    merged.save(tmp_path / "merged")
    loaded = load(tmp_path / "merged")
    expected = [bandit.choose_one(x)[0] for x in X[:60]]  # draws 104 to 163 of seed 7
    assert [merged.choose_one(x)[0] for x in X[:60]] == [loaded.choose_one(x)[0] for x in X[:60]] == expected
    draws = [[part.choose_one(x)[0] for x in X[:60]] for part in parts]
    assert draws == [[part.choose_one(x)[0] for x in X[:60]] for part in again]
    assert all(np.mean(np.equal(draws[i], draws[j])) < 0.5 for i, j in ((0, 1), (0, 2), (1, 2)))  # 0.2 by chance
    both = parts[0].merge(parts[1]).merge(parts[2])
    assert int(both._choices[0]) == 103 + 3 * 60


@pytest.mark.parametrize("kind", ["dicts", "rows", "features"])
def test_late_rewards_need_nothing_of_the_choice(problem, tmp_path, kind):
    """The bandit that learns is another one than the bandit that chose, and rewards come late and in any order."""
    X, best = problem
    contexts = dicts(X) if kind == "dicts" else X
    arms = {k: {"number": float(k), f"arm {k}": 1.0} for k in range(K)} if kind == "features" else None
    learner, rng, log = ContextualBandit(None if arms else range(K), random_state=0), np.random.default_rng(0), []
    for start in range(0, 160, 40):
        chooser = copy.deepcopy(learner) if start == 0 else None
        if chooser is None:
            learner.save(tmp_path / "bandit")
            chooser = load(tmp_path / "bandit")
        late = [(i, *chooser.choose_one(contexts[i], arms)) for i in range(start, start + 40)]
        for i, arm, chance in [late[j] for j in rng.permutation(40)]:
            features = arms and arms[arm]
            learner.learn_one(contexts[i], arm, float(arm == best[i]), chance, features=features)
            log.append((i, arm, features))
    assert learner.n_samples_seen_ == 160 and chooser.n_samples_seen_ == 120
    order, rewards = [i for i, _, _ in log], [float(arm == best[i]) for i, arm, _ in log]
    if kind == "dicts":
        other = ContextualBandit(range(K), random_state=0)
        for (i, arm, _), reward in zip(log, rewards, strict=True):
            other.learn_one(contexts[i], arm, reward)
    else:
        other = ContextualBandit(None if arms else range(K), random_state=0)
        other.fit(X[order], [arm if features is None else features for _, arm, features in log], rewards)
    for x in contexts[:50]:
        assert other.predict_proba_one(x, arms) == learner.predict_proba_one(x, arms)


def test_merging_joins_arms_and_features_by_name():
    one, two = (ContextualBandit(random_state=0) for _ in range(2))
    for i in range(100):
        one.learn_one({"x": float(i % 2), "y": 1.0}, "left", float(i % 2))
        two.learn_one({"z": float(i % 2), "x": 1.0}, "right", float(i % 2))
        two.learn_one({"x": float(i % 2)}, "left", float(i % 2))
    merged = one.merge(two)
    assert merged.arms_ == ["left", "right"] and merged.n_pulls_ == {"left": 200, "right": 100}
    assert merged.predict_one({"x": 0.0, "z": 1.0}) == "right" and merged.predict_one({"x": 1.0, "z": 0.0}) == "left"


def test_arms_are_known_by_their_features():
    """Arms are new in every round; the features that pay depend on the context."""
    rng = np.random.default_rng(0)
    bandit, earned = ContextualBandit(random_state=0), []
    for t in range(600):
        x = {"rich": float(rng.integers(2)), "poor": 0.0}
        x["poor"] = 1.0 - x["rich"]
        arms = {f"{t} {k}": {"colour": rng.choice(["red", "blue"]), "size": float(k)} for k in range(3)}
        arm, chance = bandit.choose_one(x, arms)
        reward = float((arms[arm]["colour"] == "red") == (x["rich"] > 0))
        earned.append(reward)
        bandit.learn_one(x, arm, reward, chance, features=arms[arm])
    assert np.mean(earned[100:]) > 0.8 and bandit.arms_ == []
    best = bandit.predict_one({"rich": 1.0, "poor": 0.0}, {"a": {"colour": "red"}, "b": {"colour": "blue"}})
    assert best == "a"
    with pytest.raises(ValueError, match="knows arms by their features"):
        bandit.learn_one({"rich": 1.0}, "a", 1.0)


def test_tables_and_missing_values(problem):
    X, best = problem
    table = pd.DataFrame(X, columns=[f"c{j}" for j in range(D)]).assign(town=np.where(X[:, 0] > 0, "Rome", "Oslo"))
    table.loc[5, "c1"] = np.nan
    rng = np.random.default_rng(0)
    arms = rng.integers(0, K, N)
    bandit = ContextualBandit(random_state=0).fit(table, arms, arms == best, np.full(N, 1 / K))
    assert np.mean(bandit.predict(table) == best) > 0.6
    assert bandit.choose_one(table.iloc[0].to_dict())[0] in range(K)
    by_column = bandit.contributions(table, 2, intercept=True)
    assert list(by_column) == [*table, "(intercept)"]
    np.testing.assert_allclose(by_column.sum(axis=1), bandit._margins(bandit._checked(table))[:, 2], atol=1e-5)
    one = bandit.contributions_one(table.iloc[3].to_dict(), 2, by="value")
    assert abs(one["town=Rome"] if X[3, 0] > 0 else one["town=Oslo"]) > 0


def log_odds(bandit, contexts, arm, features=None):
    """Return the margins of an arm."""
    return np.array([bandit._doubts_of_one(x, {arm: features} if features else [arm])[1][0, 0] for x in contexts])


@pytest.mark.parametrize("kind", ["rows", "dicts", "sparse", "wide", "features"])
def test_contributions_sum_to_the_log_odds_of_an_arm(problem, kind):
    X, best = problem
    X = np.hstack([X, np.zeros((N, 300))]) if kind == "wide" else X + 1  # above 256 features the arms share a learner
    arms = np.random.default_rng(2).integers(0, K, N)
    features = {k: {"number": float(k), f"arm {k}": 1.0} for k in range(K)}
    if kind == "dicts":
        bandit = ContextualBandit(range(K), random_state=0)
        for x, arm, right in zip(dicts(X), arms.tolist(), best, strict=True):
            bandit.learn_one(x, arm, float(arm == right))
    else:
        given = [features[k] for k in arms.tolist()] if kind == "features" else arms
        rows = sp.csr_array(X) if kind == "sparse" else X
        bandit = ContextualBandit(random_state=0).fit(rows, given, arms == best)
    named = features[2] if kind == "features" else 2
    contexts = dicts(X[:20]) if kind == "dicts" else X[:20]
    margins = log_odds(bandit, contexts, 2, named if kind == "features" else None)
    assert np.ptp(margins) > 1
    for x, margin in zip(contexts, margins, strict=True):
        found = bandit.contributions_one(x, named, intercept=True)
        assert sum(found.values()) == pytest.approx(margin, abs=1e-5)
    if kind != "dicts":
        whole = bandit.contributions(rows[:20], named, intercept=True)
        assert sp.issparse(whole) == (kind == "sparse") and whole.shape == (20, X.shape[1] + 1)
        np.testing.assert_allclose(whole.sum(axis=1), margins, atol=1e-5)
        parts = bandit.contributions(rows[:20], named)
        assert abs(parts - whole[:, :-1]).max() == 0
        if kind in ("rows", "sparse"):  # the rest depends on the arm only; a shared learner also scales it by the row
            assert np.ptp(margins - parts.sum(axis=1)) < 1e-5
        assert bandit.contributions(rows[:0], named, intercept=True).shape == (0, X.shape[1] + 1)


def test_explanations_of_arms_that_are_new_or_unknown():
    bandit = ContextualBandit(["a", "b", "c"], random_state=0)
    assert bandit.contributions_one({"x": 1.0}, "a") == {}
    for i in range(40):
        bandit.learn_one({"x": float(i % 2), "y": "left"}, "ab"[i % 3 == 0], float(i % 2))
    assert set(bandit.contributions_one({"x": 1.0, "y": "left", "z": 1.0}, "a")) == {"x", "y", "z"}
    assert bandit.contributions_one({"x": 1.0}, "c", intercept=True) == {"x": 0.0, "(intercept)": 0.0}
    with pytest.raises(ValueError, match=r"arm must be one of \['a', 'b', 'c'\], got 'd'"):
        bandit.contributions_one({"x": 1.0}, "d")
    with pytest.raises(ValueError, match="without features"):
        bandit.contributions_one({"x": 1.0}, {"colour": "red"})


BAD = {
    "reward nan": (lambda b: b.learn_one({"x": 1.0}, "a", np.nan), "rewards must be finite, got nan in row 0"),
    "reward text": (lambda b: b.learn_one({"x": 1.0}, "a", "good"), "rewards must be numbers"),
    "probability": (lambda b: b.learn_one({"x": 1.0}, "a", 1.0, 1.5), r"in \(0, 1\], got 1.5"),
    "probability 0": (lambda b: b.learn_one({"x": 1.0}, "a", 1.0, 0.0), r"in \(0, 1\], got 0.0"),
    "arm": (lambda b: b.learn_one({"x": 1.0}, [1], 1.0), "An arm must be"),
    "twice": (lambda b: b.choose_one({"x": 1.0}, ["a", "a"]), "distinct"),
    "none": (lambda b: b.choose_one({"x": 1.0}, []), "no arms"),
    "context": (lambda b: b.choose_one({"x": object()}), "must be a number"),
    "features": (lambda b: b.choose_one({"x": 1.0}, {"a": {"size": 1.0}}), "without features"),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_leave_the_bandit_as_it_was(case):
    bandit = ContextualBandit(["a", "b"], random_state=0)
    for i in range(40):
        bandit.learn_one({"x": float(i)}, "ab"[i % 2], float(i % 3 == 0))
    before, (call, words) = bandit.to_bytes(), BAD[case]
    with pytest.raises(ValueError, match=words):
        call(bandit)
    assert bandit.to_bytes() == before


@pytest.mark.parametrize("options, words", [
    ({"epsilon": 2.0}, "epsilon"), ({"arms": ["a", "a"]}, "distinct"), ({"reward_range": (1, 0)}, "reward_range"),
    ({"reward_range": (0, np.inf)}, "reward_range"), ({"reward_range": 1}, "reward_range"),
    ({"costs": 3}, "costs"), ({"random_state": -1}, "random_state"),
    ({"random_state": 2**64}, "random_state"),
])  # fmt: skip
def test_parameters_are_checked(options, words):
    with pytest.raises(ValueError, match=words):
        ContextualBandit(**{"arms": ["a", "b"], **options}).choose_one({"x": 1.0})


def test_logs_are_checked_row_by_row():
    X = np.ones((3, 2))
    bandit = ContextualBandit(reward_range=(0, 1))
    with pytest.raises(ValueError, match=r"in reward_range \(0, 1\), got 2.0 in row 1"):
        bandit.fit(X, ["a", "b", "a"], [0, 2, 1])
    with pytest.raises(ValueError, match="arms has 2 rows, but rewards has 3"):
        bandit.fit(X, ["a", "b"], [0, 1, 1])
    with pytest.raises(ValueError, match=r"got 0.0 in row 2"):
        bandit.fit(X, ["a", "b", "a"], [0, 1, 1], [0.5, 0.5, 0.0])
    assert bandit.arms_ == []
