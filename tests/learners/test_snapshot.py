"""Snapshots of online learners: a loaded learner continues bit for bit the same."""

import copy
import hashlib
import itertools
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import robustfd as rf
from robustfd.learners import newton_state
from robustfd.learners.learner import OnlineLearner
from tests.learners.saved_learners import FORMS, LEARNERS, MANY, M, again, assert_same, make, pairs, stream

# -- round trips


@pytest.mark.parametrize("name, form", pairs())
def test_a_restored_learner_continues_bit_for_bit(name, form):
    X, y = stream(form)
    learner = make(name)
    moments = [1, 2, 3, 5, 7, 8, 9, 12, 13, 14, 15, 40, 41, 42, 43, 44, 45, 150, 151, 280, 400]
    followers = []
    for start, stop in itertools.pairwise([0, *moments]):
        margins = learner.learn(X[start:stop], y[start:stop])
        for follower in followers:  # each was restored at a different row, and has learned since
            assert follower.learn(X[start:stop], y[start:stop]).tobytes() == margins.tobytes()
        followers.append(again(learner))
        assert_same(learner, followers[-1])
    for follower in followers:
        assert_same(learner, follower)
    assert np.any(learner.weights_ != 0)


@pytest.mark.parametrize("name, form", pairs())
def test_single_rows_and_reading_in_between_make_no_difference(name, form):
    X, y = stream(form, 60)
    learner = make(name)
    learner.learn(X[:21], y[:21])
    restored = again(learner)
    for i in range(21, 60):
        restored.decision_function(X[:3])  # fills `reach` of run.hpp
        restored = again(restored)
        assert (
            restored.learn(X[i : i + 1], y[i : i + 1]).tobytes() == learner.learn(X[i : i + 1], y[i : i + 1]).tobytes()
        )
    assert_same(learner, restored)


def test_many_runs_and_the_update_of_all_features():
    X, y = stream("wide", 2000)
    learner = rf.OnlineNewton("rfd", 2, buffer_size=2)
    blocks = 0
    for _ in range(18):  # a run has 256 rows, and all features are updated after 128 runs
        learner.learn(X, y)
        restored = again(learner)
        blocks = max(blocks, learner._state.core.run.number)
        assert restored.learn(X[:700], y[:700]).tobytes() == learner.learn(X[:700], y[:700]).tobytes()
        assert_same(learner, restored)
    assert blocks > 100 > learner._state.core.run.number


def test_weights_do_not_depend_on_when_they_were_read(monkeypatch):
    monkeypatch.setattr(newton_state, "RUN_ROWS", 8)  # reading fills `reach` of run.hpp, which later runs use
    X, y = stream("wide")
    quiet, asked = (rf.OnlineNewton("rfd", M, alpha0=0.01) for _ in range(2))
    for i in range(0, MANY, 3):
        for learner in (quiet, asked):
            learner.learn(X[i : i + 3], y[i : i + 3])
        asked.decision_function(X[:50])
    assert_same(quiet, asked)


@pytest.mark.parametrize("name, form", pairs())
def test_saving_changes_nothing(name, form):
    X, y = stream(form, 33)
    learner = make(name)
    learner.learn(X, y)
    untouched = copy.deepcopy(learner)
    first, second = learner.to_bytes(), learner.to_bytes()
    assert first == second
    assert_same(learner, untouched)


def test_weights_and_float32_rows_and_zero_weights():
    X, y = stream("dense", 60)
    weight = np.random.default_rng(1).random(60) * (np.arange(60) % 5 > 0)
    learner = make("rfd")
    learner.learn(X[:31].astype(np.float32), y[:31], weight[:31])
    restored = again(learner)
    for each in (learner, restored):
        each.learn(X[31:], y[31:], weight[31:])
    assert_same(learner, restored)


def test_the_model_is_the_same_after_a_reload(tmp_path):
    # Vowpal Wabbit's sketched Newton predicts zero after a reload.
    for name, form in pairs():
        X, y = stream(form)
        learner = make(name)
        learner.learn(X[:300], y[:300])
        learner.save(tmp_path / "model.rfd")
        restored = rf.load(tmp_path / "model.rfd")
        margins = restored.decision_function(X[300:])
        assert type(restored) is type(learner)
        assert margins.tobytes() == learner.decision_function(X[300:]).tobytes()
        assert np.count_nonzero(margins) > 20
        assert form == "wide" or np.mean((margins > 0) == (y[300:] > 0)) > 0.55
        assert restored.progressive_loss_ == learner.progressive_loss_
        assert restored.progressive_error_ == learner.progressive_error_
        assert restored.n_samples_seen_ == 300
        for key, column in restored.progressive_.items():
            np.testing.assert_array_equal(column, learner.progressive_[key])


SCRIPT = """
import hashlib, sys
import numpy as np, scipy.sparse as sp
import robustfd
folder = sys.argv[1]
for name in sys.argv[2:]:
    learner = robustfd.load(f"{folder}/{name}.rfd")
    form = name.rsplit("@")[1]
    with np.load(f"{folder}/{form}.npz") as data:
        X, y = data["X"], data["y"]
    X = X if form == "dense" else sp.csr_array(X)
    margins = [learner.learn(X[a:b], y[a:b]) for a, b in ((0, 1), (1, 30), (30, 200))]
    print(name, hashlib.sha256(learner.to_bytes() + np.concatenate(margins).tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_continuing_in_a_new_process(tmp_path):
    expected = []
    for form in FORMS:
        X, y = stream(form, 200, seed=5)
        np.savez(tmp_path / f"{form}.npz", X=X if form == "dense" else X.toarray(), y=y)
    for name, form in pairs():
        X, y = stream(form, 90)
        learner = make(name)
        learner.learn(X, y)
        learner.save(tmp_path / f"{name}@{form}.rfd")
        X, y = stream(form, 200, seed=5)
        margins = [learner.learn(X[a:b], y[a:b]) for a, b in ((0, 1), (1, 30), (30, 200))]
        digest = hashlib.sha256(learner.to_bytes() + np.concatenate(margins).tobytes()).hexdigest()
        expected.append(f"{name}@{form} {digest}")
    names = [line.split()[0] for line in expected]
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), *names]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert found == expected


# -- contents of files


def test_names_parameters_and_classes():
    pd = pytest.importorskip("pandas")
    X, y = stream("dense", 20)
    frame = pd.DataFrame(X, columns=list("abcdefghü"))
    learner = rf.OnlineNewton("rfd", np.int64(4), alpha0=np.float32(0.5), curvature=0.25)
    learner.learn(frame, y)
    restored = again(learner)
    assert list(restored.feature_names_in_) == list("abcdefghü")
    assert restored.get_params() == learner.get_params()
    assert learner.learn(frame, y).tobytes() == restored.learn(frame, y).tobytes()
    with pytest.raises(ValueError, match="feature names"):
        restored.learn(frame[list("bacdefghü")], y)
    restored.set_params(alpha0=1.0)
    with pytest.raises(ValueError, match="parameters were changed"):
        restored.learn(frame, y)
    with pytest.raises(ValueError, match="parameters were changed"):
        restored.to_bytes()
    with pytest.raises(rf.SnapshotError, match="holds a OnlineNewton, not a AdaGrad"):
        rf.AdaGrad.from_bytes(learner.to_bytes())
    assert isinstance(OnlineLearner.from_bytes(learner.to_bytes()), rf.OnlineNewton)


def test_invalid_states_cannot_be_saved():
    for name in LEARNERS:
        with pytest.raises(NotFittedError):
            make(name).to_bytes()

    class Mine(rf.AdaGrad):
        pass

    X, y = stream("dense", 20)
    mine = Mine()
    mine.learn(X, y)
    with pytest.raises(TypeError, match="own sketches and learners"):
        mine.to_bytes()


@pytest.mark.parametrize(
    "learner",
    [
        rf.OnlineNewton("fd", 3, projection=None, alpha0=1e-3, curvature=0.0, rate=0.0),  # H stays alpha0 I
        rf.OnlineGradientDescent(9.0, projection=None),
    ],
)
def test_a_learner_whose_steps_grow_without_end_is_saved_as_it_was_before_they_overflowed(learner, tmp_path):
    X, y = stream("dense", 300)
    learner = clone(learner)
    learner.learn(X[:1], y[:1])
    with pytest.raises(OverflowError, match="would overflow at row"):  # noqa: PT012
        for _ in range(5):
            stored = learner.to_bytes()
            learner.learn(30 * X, y)
    assert learner.to_bytes() == stored
    assert np.isfinite(learner.weights_).all()
    learner.save(tmp_path / "model.rfd")


def test_a_sparse_file_holds_the_basis_and_little_else():
    rng = np.random.default_rng(0)
    X = sp.csr_array((rng.standard_normal(3000), rng.integers(0, 20_000, 3000), np.arange(0, 3001, 10)), (300, 20_000))
    X.sum_duplicates()
    learner = rf.OnlineNewton("rfd", 10)
    learner.learn(X, np.where(rng.random(300) < 0.5, 1.0, -1.0))
    assert len(learner.to_bytes()) < 1.25 * 8 * 10 * 20_000
