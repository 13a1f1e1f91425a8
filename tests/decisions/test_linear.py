"""SketchedLinUCB: the transcription, regret, seeds, merging, saving, bad input."""

import contextlib
import copy
import pickle
import tracemalloc
from itertools import islice

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import robustfd
from robustfd import SketchedLinUCB, SnapshotError
from robustfd.experiments.bandits import Case, play
from tests import damage
from tests.reference_decisions import DenseLinUCB

METHODS = ["rfd", "fd", "scfd", "exact"]


def played(bandit, rounds, seed=0, d=8, arms=4):
    """Return the bandit after these rounds, and its choices with their probabilities."""
    rng, found = np.random.default_rng(seed), []
    w = np.arange(1.0, d + 1) / d
    for _ in range(rounds):
        x = rng.standard_normal((arms, d)) / np.arange(1, d + 1)
        found.append(bandit.choose(x))
        bandit.learn(x[found[-1][0]], x[found[-1][0]] @ w + 0.1 * rng.standard_normal())
    return bandit, found


@pytest.mark.parametrize("method, growth", [*((method, None) for method in METHODS), ("rfd", "auto")])
@pytest.mark.parametrize("d, m, scale", [(9, 3, 1.0), (4, 20, 1.0), (6, 2, 1e4)])
def test_the_transcription_gives_the_same(method, growth, d, m, scale):
    rng, alpha = np.random.default_rng(d), 0.5 * scale**2
    bandit = SketchedLinUCB(m, method=method, alpha=alpha, growth=growth)
    dense = DenseLinUCB(d, m, method, alpha, grows=growth == "auto")
    w = rng.standard_normal(d)
    for _ in range(60):
        x = scale * rng.standard_normal((3, d)) / np.arange(1, d + 1)
        assert np.allclose(bandit.predict(x), dense.read(x)[0], rtol=1e-8, atol=1e-8 * scale)
        assert np.allclose(bandit.predict_proba(x), dense.probabilities(x))
        chosen, probability = bandit.choose(x)
        assert probability == pytest.approx(dense.probabilities(x)[chosen])
        reward = x[chosen] @ w + rng.standard_normal()
        bandit.learn(x[chosen], reward)
        dense.learn(x[chosen], reward)
    assert bandit.sketch_size_ == dense.m and bandit.n_samples_seen_ == bandit.n_choices_ == 60
    assert bandit.alpha_ == pytest.approx(alpha + dense.share * dense.delta, rel=1e-9)
    assert np.allclose(bandit.weights_ @ x[0], bandit.predict(x[:1])[0], rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_the_certificate_holds(method):
    bandit, _ = played(SketchedLinUCB(3, method=method, growth=None), 0)
    rng, a = np.random.default_rng(1), np.eye(10)
    for _ in range(100):
        x = rng.standard_normal(10)
        bandit.learn(x, 0.0)
        a += np.outer(x, x)
    h = bandit._state.rows.T @ bandit._state.rows + bandit.alpha_ * np.eye(10)
    assert np.linalg.norm(a - h, 2) <= bandit.error_bound_ + 1e-9 * np.linalg.norm(a, 2)
    assert (bandit.error_bound_ == 0) == (method == "exact")


def test_the_sketch_grows_until_it_is_exact():
    case = Case(30, 5, 0.0, 300)
    exact, grown, fixed = (
        play(case, 0, **s) for s in ({"method": "exact"}, {"sketch_size": 4}, {"sketch_size": 4, "growth": None})
    )
    assert grown[1].sketch_size_ == 31 and fixed[1].sketch_size_ == 4
    assert grown[0][-1] < 1.5 * exact[0][-1] < fixed[0][-1]
    slow = play(Case(30, 5, 3.0, 300), 0, sketch_size=8)[1]
    assert slow.sketch_size_ == 8 and slow.error_bound_ <= 1.0


def test_memory_is_that_of_the_sketch():
    """Neither learning nor choosing among K arms needs more than O(m (d + K)) numbers, beside the arms themselves."""
    d, k, m, rng = 1000, 400, 5, np.random.default_rng(0)
    rows, arms = rng.standard_normal((40, d)), rng.standard_normal((k, d))
    tracemalloc.start()
    bandit = SketchedLinUCB(m, growth=None)
    for row in rows:
        bandit.learn(row, 1.0)
        bandit.choose(arms)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 8 * 12 * m * (d + k) < 8 * k * d


def test_choices_depend_on_the_seed_and_their_number_only():
    _, first = played(SketchedLinUCB(3, random_state=5), 40)
    _, again = played(SketchedLinUCB(3, random_state=5), 40)
    _, other = played(SketchedLinUCB(3, random_state=6), 40)
    assert first == again != other


@pytest.mark.parametrize("method", METHODS)
def test_saving_and_copying(method, tmp_path):
    bandit, _ = played(SketchedLinUCB(3, method=method), 25)
    bandit.save(tmp_path / "bandit.rfd")
    copies = [robustfd.load(tmp_path / "bandit.rfd"), pickle.loads(pickle.dumps(bandit)), copy.copy(bandit)]
    expected = played(bandit, 25, seed=1)[1]
    for each in copies:
        assert played(each, 25, seed=1)[1] == expected
        assert each.to_bytes() == bandit.to_bytes()


def test_merging_counts_all_rows():
    parts = [played(SketchedLinUCB(9, method="rfd"), 30, seed=seed)[0] for seed in (0, 1, 2)]
    merged = robustfd.merge([SketchedLinUCB(9), *parts])
    exact = np.eye(8) + sum(part._state.rows.T @ part._state.rows for part in parts)
    assert np.allclose(merged.weights_, np.linalg.solve(exact, sum(part._state.b for part in parts)))
    assert merged.n_samples_seen_ == merged.n_choices_ == 90
    played(merged, 10, seed=3)
    small = [played(SketchedLinUCB(3, growth=None), 40, seed=seed)[0] for seed in (0, 1)]
    before = sum(part.error_bound_ for part in small)
    assert small[0].merge(small[1]).error_bound_ >= before > 0
    with pytest.raises(ValueError, match="different sketch_size: 3 here, 9 there"):
        small[0].merge(merged)
    with pytest.raises(TypeError, match="classes differ"):
        small[0].merge(3)
    with pytest.raises(ValueError, match="8 features|of 8"):
        played(SketchedLinUCB(3, growth=None), 1, d=5)[0].merge(small[0])


def test_damaged_snapshots_are_refused():
    data = played(SketchedLinUCB(3), 20)[0].to_bytes()
    for what, bad in islice(damage.damaged(data, 0, ("SketchedLinUCB",)), 200):
        with contextlib.suppress(SnapshotError), np.errstate(all="ignore"):
            assert SketchedLinUCB.from_bytes(bad).n_samples_seen_ >= 0, what


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda b: b.choose([[1.0, np.nan] * 4]), r"X_arms\[0, 1\] is nan"),
        (lambda b: b.choose(np.ones(8)), r"X_arms must have shape \(n_arms, d\), got \(8,\)"),
        (lambda b: b.choose(np.ones((0, 8))), r"got \(0, 8\)"),
        (lambda b: b.choose(np.ones((2, 7))), "X_arms has 7 features, but the bandit has seen rows of 8"),
        (lambda b: b.choose([["a"] * 8]), "X_arms must be numbers"),
        (lambda b: b.learn(np.ones(7), 1.0), "x has 7 features"),
        (lambda b: b.learn(np.ones((2, 8)), 1.0), r"x must have shape \(d,\), got \(2, 8\)"),
        (lambda b: b.learn(1.0, 1.0), r"x must have shape \(d,\), got \(\)"),
        (lambda b: b.learn(np.full(8, np.inf), 1.0), r"x\[0\] is inf"),
        (lambda b: b.learn(np.ones(8), np.nan), "reward must be in"),
    ],
)
def test_bad_rows_change_nothing(call, message):
    bandit, _ = played(SketchedLinUCB(3), 20)
    before = bandit.to_bytes()
    with pytest.raises(ValueError, match=message):
        call(bandit)
    assert bandit.to_bytes() == before


@pytest.mark.parametrize(
    "name, value",
    [
        ("sketch_size", 1),
        ("method", "x"),
        ("alpha", 0),
        ("alpha", np.nan),
        ("growth", "x"),
        ("random_state", -1),
        ("random_state", 2**64),
    ],
)
def test_bad_parameters(name, value):
    with pytest.raises(ValueError, match=name):
        SketchedLinUCB(**{name: value}).choose(np.ones((2, 3)))
    if name == "alpha":
        bandit = played(SketchedLinUCB(), 2)[0]
        bandit.alpha = 3.0
        with pytest.raises(ValueError, match="alpha was changed from 1.0 to 3.0"):
            bandit.choose(np.ones((2, 8)))


def test_before_the_first_row_and_extreme_rows():
    bandit = SketchedLinUCB(3)
    with pytest.raises(NotFittedError, match="no rows yet"):
        bandit.weights_  # noqa: B018
    assert bandit.predict(np.ones((2, 3))).tolist() == [0, 0]
    assert bandit.choose(np.float32([[1, 0, 0], [0, 2, 0]])) == (1, 1.0)  # the more uncertain one
    assert bandit.predict_proba(np.zeros((4, 3))).tolist() == [0.25] * 4
    for size in (0.0, 1e49, 1e-50, 1e8, 1.0):
        for _ in range(10):
            x = size * np.random.default_rng(1).standard_normal((4, 3))
            bandit.learn(x[bandit.choose(x)[0]], size)
    assert np.isfinite(bandit.weights_).all() and np.isfinite(bandit.residual_size_)
    steep = SketchedLinUCB(3, alpha=1e-10)
    for sign in (1, -1, 1):
        steep.learn(1e50 * np.eye(3)[0] + np.eye(3)[1], sign * 1e50)
    assert steep.predict_proba(1e50 * np.eye(3)).sum() == pytest.approx(1)  # squares of the widths exceed all floats
    single = SketchedLinUCB(5)
    assert single.choose([[1]]) == (0, 1.0) and single.learn([1], 1).sketch_size_ == 2
