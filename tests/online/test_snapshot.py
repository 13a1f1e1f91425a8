"""Snapshots of online learners: going on after a load is bit for bit the same, and nonsense is refused."""

import copy
import hashlib
import itertools
import json
import runpy
import subprocess
import sys
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import robustfd as rf
from robustfd.online import _ball, _columns
from robustfd.online._base import OnlineLearner
from robustfd.online._columns import FEATURES, REACH, RUN
from tests.damage import REMOVED, damaged, opened, put, rewritten

M = 4
LEARNERS = {
    "rfd": rf.OnlineNewton("rfd", M),
    "rfd-alpha0": rf.OnlineNewton("rfd", M, alpha0=0.5, projection=None, loss="logistic"),
    "rfd-late": rf.OnlineNewton("rfd", M, shrink_first=True, projection="next", buffer_size=M),
    "rfd-ball": rf.OnlineNewton("rfd", M, domain="ball", bound=0.3),
    "fd": rf.OnlineNewton("fd", M, alpha0=0.5, buffer_size=11),
    "pfd": rf.OnlineNewton("pfd", M, alpha0=0.5, beta=0.5, rate="1/sqrt(t)"),
    "rp": rf.OnlineNewton("rp", M, alpha0=10.0, random_state=3),
    "oja": rf.OnlineNewton("oja", M, alpha0=10.0, random_state=3),
    "full": rf.OnlineNewton("full", rate=0.1),
    "adagrad": rf.AdaGrad(0.5),
    "descent": rf.OnlineGradientDescent(0.1),
    "descent-ball": rf.OnlineGradientDescent(domain="ball", bound=0.2),
}
FORMS = ("dense", "sparse", "wide")  # wide: above the width up to which sparse rows are made dense
MANY = 400


def stream(form, n=MANY, seed=0):
    """Rows and labels: 9 features, or 700 of which rows have few, and only some ever."""
    rng = np.random.default_rng(seed)
    d = 700 if form == "wide" else 9
    X = rng.standard_normal((n, d)) / 3
    if form != "dense":
        X *= rng.random((n, d)) < (0.3 if d == 9 else 0.01) * np.linspace(1.5, 0.01, d)
        X[5] = 0.0
    y = np.where(X[:, 0] + X[:, 1:9:2].sum(axis=1) + 0.1 * rng.standard_normal(n) > 0, 1.0, -1.0)
    return (X if form == "dense" else sp.csr_array(X)), y


def make(name):
    return clone(LEARNERS[name])


def pairs():
    """Learners with the forms of rows that make sense: the full matrix of 700 features is too much for a test."""
    return [pair for pair in itertools.product(LEARNERS, FORMS) if pair != ("full", "wide")]


def again(learner):
    return type(learner).from_bytes(learner.to_bytes())


def assert_same(one, two):
    """Nothing tells the two apart, not even a last bit."""
    assert type(one) is type(two) and one.get_params() == two.get_params()
    assert vars(one).keys() - {"_quick"} == vars(two).keys() - {"_quick"}  # only a short cut
    assert vars(one._state).keys() == vars(two._state).keys()
    assert one._frozen == two._frozen and one._numbers == two._numbers
    assert one.weights_.tobytes() == two.weights_.tobytes()
    assert one._progress.tobytes() == two._progress.tobytes()
    assert getattr(one, "alpha_", None) == getattr(two, "alpha_", None)
    assert one.to_bytes() == two.to_bytes()


# -- what goes in comes out


@pytest.mark.parametrize("name, form", pairs())
def test_a_restored_learner_goes_on_bit_for_bit(name, form):
    X, y = stream(form)
    learner = make(name)
    moments = [1, 2, 3, 5, 7, 8, 9, 12, 13, 14, 15, 40, 41, 42, 43, 44, 45, 150, 151, 280, 400]
    followers = []
    for start, stop in itertools.pairwise([0, *moments]):
        margins = learner.learn(X[start:stop], y[start:stop])
        for follower in followers:  # each was restored at another moment, and has gone on since
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
        restored.decision_function(X[:3])  # fills what is remembered of runs
        restored = again(restored)
        assert (
            restored.learn(X[i : i + 1], y[i : i + 1]).tobytes() == learner.learn(X[i : i + 1], y[i : i + 1]).tobytes()
        )
    assert_same(learner, restored)


def test_many_runs_and_the_catching_up_of_all_features():
    X, y = stream("wide", 2000)
    learner = rf.OnlineNewton("rfd", 2, buffer_size=2)
    blocks = 0
    for _ in range(18):  # a run has 256 rows, and after 128 of them all features catch up
        learner.learn(X, y)
        restored = again(learner)
        blocks = max(blocks, int(learner._state.columns.counts[RUN]))
        assert restored.learn(X[:700], y[:700]).tobytes() == learner.learn(X[:700], y[:700]).tobytes()
        assert_same(learner, restored)
    assert blocks > 100 > learner._state.columns.counts[RUN]


@pytest.mark.parametrize("form", FORMS)
def test_a_ball_whose_factor_is_put_into_the_weights(form, monkeypatch):
    monkeypatch.setattr(_ball, "SMALLEST", 0.9)  # often, not once in a thousand rows
    X, y = stream(form)
    learner = rf.OnlineNewton("rfd", M, domain="ball", bound=0.05, alpha0=0.01)
    for start in range(0, MANY, 25):
        restored = again(learner) if start else make("rfd")
        part = slice(start, start + 25)
        margins = learner.learn(X[part], y[part])
        learner.decision_function(X[:50])
        if start:
            assert restored.learn(X[part], y[part]).tobytes() == margins.tobytes()
            assert_same(learner, restored)


def test_weights_do_not_depend_on_when_they_were_read(monkeypatch):
    # What is remembered of past runs is made again after the factor of a ball went into them.
    monkeypatch.setattr(_ball, "SMALLEST", 0.9)
    monkeypatch.setattr(_columns, "RUN_ROWS", 8)
    X, y = stream("wide")
    quiet, asked = (rf.OnlineNewton("rfd", M, domain="ball", bound=0.05, alpha0=0.01) for _ in range(2))
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


def test_what_was_learnt_is_there_after_a_reload(tmp_path):
    # Vowpal Wabbit's sketched Newton predicts zero after it.
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


def test_going_on_in_a_fresh_process(tmp_path):
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


# -- what is and what is not saved


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


def test_what_cannot_be_saved():
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
    [rf.OnlineNewton("fd", 3, projection=None, alpha0=1e-300), rf.OnlineGradientDescent(9.0, projection=None)],
)
def test_an_overflowed_learner_is_an_overflow_error(learner, tmp_path):
    X, y = stream("dense", 300)
    learner = clone(learner)
    with pytest.warns(RuntimeWarning, match="overflowed"):  # noqa: PT031
        for _ in range(5):
            learner.learn(30 * X, y)
    with pytest.raises(OverflowError):
        learner.weights_  # noqa: B018
    with pytest.raises(OverflowError, match="cannot be saved"):
        learner.save(tmp_path / "model.rfd")
    assert list(tmp_path.iterdir()) == []


def test_a_sparse_file_holds_the_basis_and_little_else():
    rng = np.random.default_rng(0)
    X = sp.csr_array((rng.standard_normal(3000), rng.integers(0, 20_000, 3000), np.arange(0, 3001, 10)), (300, 20_000))
    X.sum_duplicates()
    learner = rf.OnlineNewton("rfd", 10)
    learner.learn(X, np.where(rng.random(300) < 0.5, 1.0, -1.0))
    assert len(learner.to_bytes()) < 1.25 * 8 * 10 * 20_000


# -- right checksum, wrong content


def healthy(name, form="dense", n=30):
    X, y = stream(form, n)
    learner = make(name)
    learner.learn(X, y)
    return learner


S = "states.0."
NONSENSE = [
    # counts that follow from lengths
    ("rfd", {"tensors": {S + "products": lambda a: np.vstack([a, a])}}),
    ("rfd", {"tensors": {S + "products": lambda a: a[:-1]}}),
    ("rfd", {"tensors": {S + "products": lambda a: a[:, :-1]}}),
    ("rfd", {"tensors": {S + name: lambda a: np.vstack([a] * 4) for name in ("products", "rows", "buffer")}}),
    ("rfd", {"tensors": {S + "buffer": lambda a: a[:, :-1]}}),
    ("rfd", {"tensors": {S + "buffer": REMOVED}}),
    ("rfd", {"tensors": {S + "basis": lambda a: a.T}}),
    ("rfd", {"tensors": {S + "basis": lambda a: a[:-1]}}),
    ("rfd", {"tensors": {S + "basis": lambda a: np.zeros((10**12, 0))}}),
    ("rfd", {"tensors": {S + "basis": put((0, 0), np.nan)}}),
    ("rfd", {"tensors": {S + "basis": lambda a: a.astype(np.float32)}}),
    ("rfd", {"tensors": {S + "lam": put(0, -1.0)}}),
    ("rfd", {"tensors": {S + "scalars": put(0, -1.0)}}),
    ("rfd", {"tensors": {S + "scalars": put(0, 0.0)}}),  # then there should be an N
    ("rfd", {"tensors": {S + "ball": put(0, 0.0)}}),
    ("rfd", {"tensors": {S + "gram": lambda a: a[:, :-1]}}),
    ("rfd", {"tensors": {S + "k": put((0, 0), np.inf)}}),
    ("rfd", {"tensors": {"more": np.ones(3)}}),
    ("rfd", {"tensors": {S + "more": np.ones(3)}}),
    ("rfd", {"tensors": {"states.1.basis": np.ones(3)}}),
    ("rfd", {"document": {"states/0/shrinks": -1}}),
    ("rfd", {"document": {"states/0/shrinks": 0.5}}),
    ("rfd", {"document": {"states/0/shrinks": 2**63}}),
    ("rfd", {"document": {"states/0/shrinks": 2**53 + 1}}),
    ("rfd", {"document": {"states/0/seen": "1"}}),
    ("rfd", {"document": {"states/0/sparse": True}}),
    ("rfd", {"document": {"states/0/sparse": 0}}),
    ("rfd", {"document": {"states/0/more": 1}}),
    ("rfd", {"document": {"states/0/seen": REMOVED}}),
    ("rfd", {"document": {"states": []}}),
    ("rfd", {"document": {"states": [{}]}}),
    ("rfd", {"document": {"states": [None]}}),
    ("rfd", {"document": {"states": {}}}),
    ("rfd", {"document": {"states": lambda s: s * 2}}),
    ("rfd", {"document": {"more": 1}}),
    ("rfd", {"document": {"n_features": 8}}),
    ("rfd", {"document": {"n_features": 0}}),
    ("rfd", {"document": {"n_features": 2**31}}),
    ("rfd", {"document": {"n_features": 9.0}}),
    ("rfd", {"document": {"feature_names": ["a"]}}),
    ("rfd", {"document": {"feature_names": None}}),
    ("rfd", {"document": {"params/sketch_size": 5}}),
    ("rfd", {"document": {"params/sketch_size": 10**6}}),
    ("rfd", {"document": {"params/sketch_size": "4"}}),
    ("rfd", {"document": {"params/buffer_size": 4}}),  # the block has more rows than that
    ("rfd", {"document": {"params/buffer_size": 10**9}}),
    ("rfd", {"document": {"params/buffer_size": 10**30}}),
    ("rfd", {"document": {"params/sketch": "full"}}),
    ("rfd", {"document": {"params/sketch": "oja"}}),
    ("rfd", {"document": {"params/sketch": ["rfd"]}}),
    ("rfd", {"document": {"params/loss": "eval"}}),
    ("rfd", {"document": {"params/rate": "os.system"}}),
    ("rfd", {"document": {"params/bound": 0.0}}),
    ("rfd", {"document": {"params/alpha0": 10**400}}),
    ("rfd", {"document": {"params/random_state": 0.5}}),
    ("rfd", {"document": {"params/more": 0.5}}),
    ("rfd", {"document": {"params": []}}),
    ("rfd", {"meta": {"kind": "AdaGrad"}}),
    ("rfd", {"meta": {"kind": "OnlineLearner"}}),
    ("rfd", {"meta": {"kind": "SavedLearner"}}),
    ("rfd", {"meta": {"kind": "Saved"}}),
    ("rfd", {"meta": {"kind": "SketchedPCA"}}),
    ("rfd", {"meta": {"kind": "load"}}),
    ("rfd", {"meta": {"kind": "__class__"}}),
    ("rfd", {"meta": {"kind": "RobustFrequentDirections"}}),
    ("rfd", {"meta": {"kind": "SketchedNewtonClassifier"}}),
    # the progress, whose number of rows is a place in a table
    ("rfd", {"tensors": {"progress": put((0, 3), 1e300)}}),
    ("rfd", {"tensors": {"progress": put((0, 3), -1.0)}}),
    ("rfd", {"tensors": {"progress": put((0, 3), np.nan)}}),
    ("rfd", {"tensors": {"progress": put((0, 3), 2.5)}}),
    ("rfd", {"tensors": {"progress": lambda a: a[:-1]}}),
    ("rfd", {"tensors": {"progress": lambda a: a[:, :3]}}),
    ("rfd", {"tensors": {"progress": lambda a: a.astype(np.float32)}}),
    ("rfd", {"tensors": {"progress": REMOVED}}),
    # the run of wide rows
    ("wide", {"tensors": {S + "age": put(3, 200)}}),
    ("wide", {"tensors": {S + "age": lambda a: a.astype(np.int32)}}),
    ("wide", {"tensors": {S + "age": lambda a: a[:-1]}}),
    ("wide", {"tensors": {S + "history": lambda a: np.zeros((128, *a.shape[1:]))}}),
    ("wide", {"tensors": {S + "history": lambda a: np.zeros((0, 0, 0))}}),
    ("wide", {"tensors": {S + "run.feature": put(0, -1)}}),
    ("wide", {"tensors": {S + "run.feature": put(0, 700)}}),
    ("wide", {"tensors": {S + "run.feature": lambda a: np.full_like(a, 3)}}),
    ("wide", {"tensors": {S + "run.feature": lambda a: a.astype(np.int64)}}),
    ("wide", {"tensors": {S + "run.feature": lambda a: a[:-1]}}),
    ("wide", {"tensors": {S + "run.gathered": lambda a: a[:-1]}}),
    ("wide", {"tensors": {S + "run.where": put(0, -1)}}),
    ("wide", {"tensors": {S + "run.where": put(0, 10**6)}}),
    ("wide", {"tensors": {S + "run.where": lambda a: a[:-1]}}),
    ("wide", {"tensors": {S + "run.row": put(0, -1)}}),
    ("wide", {"tensors": {S + "run.row": put(-1, 10**6)}}),
    ("wide", {"tensors": {S + "run.row": put(-1, 256)}}),
    ("wide", {"tensors": {S + "run.row": lambda a: a[::-1]}}),
    ("wide", {"tensors": {S + "run.value": lambda a: a[:-1]}}),
    ("wide", {"tensors": {S + "run.value": put(0, np.inf)}}),
    ("wide", {"tensors": {S + "run.coefficients": lambda a: a[:2]}}),
    ("wide", {"tensors": {S + "run.coefficients": lambda a: np.zeros((260, a.shape[1]))}}),
    ("wide", {"tensors": {S + "run.coefficients": lambda a: np.zeros((254, a.shape[1]))}}),
    ("wide", {"tensors": {S + name: lambda a: a[:0] for name in ("run.value", "run.row", "run.where")}}),
    ("wide", {"document": {"states/0/sparse": False}}),
    ("wide", {"document": {"params/buffer_size": 10**9}}),
    # states of single rows
    ("adagrad", {"tensors": {S + "w": lambda a: a[:-1]}}),
    ("adagrad", {"tensors": {S + "w": lambda a: a[:, None]}}),
    ("adagrad", {"tensors": {S + "squares": put(0, -1.0)}}),
    ("adagrad", {"tensors": {S + "basis": np.ones((9, 4))}}),
    ("descent", {"tensors": {S + "scalars": lambda a: a[:-1]}}),
    ("descent", {"tensors": {S + "v": REMOVED}}),
    ("rp", {"tensors": {S + "bt": lambda a: a[:, :-1]}}),
    ("rp", {"tensors": {S + "bt": lambda a: a[:-1]}}),
    ("rp", {"tensors": {S + "gram": lambda a: a[:-1]}}),
    ("rp", {"tensors": {S + "c": lambda a: np.ones(10**5)}}),
    ("rp", {"document": {"params/sketch_size": 10**6}}),
    ("rp", {"document": {"states/0/generator": "{}"}}),
    ("rp", {"document": {"states/0/generator": "print('hello')"}}),
    ("rp", {"document": {"states/0/generator": '{"bit_generator": "MT19937"}'}}),
    ("rp", {"document": {"states/0/generator": 5}}),
    ("rp", {"document": {"states/0/generator": REMOVED}}),
    ("oja", {"document": {"states/0/generator": "{}"}}),
    ("oja", {"tensors": {S + "f": lambda a: a[:-1, :-1]}}),
    ("oja", {"tensors": {S + "yt": lambda a: a.T}}),
    ("oja", {"tensors": {S + "energy": put(0, -1.0)}}),
]


def victim(which):
    return healthy("rfd", "wide") if which == "wide" else healthy(which)


def named(case):
    which, change = case
    return f"{which}-{'-'.join(name for part in change.values() for name in part)}"


@pytest.mark.parametrize("which, change", NONSENSE, ids=map(named, NONSENSE))
def test_senseless_content_is_refused(which, change):
    data = rewritten(victim(which).to_bytes(), **change)
    with pytest.raises(rf.SnapshotError, match=r"does not make sense|does not know|not a OnlineLearner"):
        OnlineLearner.from_bytes(data)


@pytest.mark.parametrize("form", ["dense", "wide"])
def test_a_file_that_claims_to_be_huge_costs_no_memory(form):
    data = healthy("rfd", form).to_bytes()
    assert len(data) < 150_000
    tracemalloc.start()
    try:
        for change in (
            {"n_features": 10**8},
            {"params/sketch_size": 10**5},
            {"params/sketch": "full"},
            {"params/sketch": "rp", "params/sketch_size": 10**5},
            {"params/sketch": "oja", "n_features": 10**8},
        ):
            with pytest.raises(rf.SnapshotError):
                OnlineLearner.from_bytes(rewritten(data, document=change))
        assert tracemalloc.get_traced_memory()[1] < 2e6
    finally:
        tracemalloc.stop()


def test_rewriting_nothing_is_accepted():
    for name, form in pairs():
        learner = healthy(name, form)
        assert_same(OnlineLearner.from_bytes(rewritten(learner.to_bytes())), learner)
    wide = healthy("rfd", "wide")._state.columns
    assert wide.counts[FEATURES] > 10 and wide.counts[REACH] == 0


def test_every_truncation_and_changed_byte_is_noticed():
    data = healthy("rfd", "wide").to_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(data), 300):
        with pytest.raises(rf.SnapshotError):
            OnlineLearner.from_bytes(data[:place])
        with pytest.raises(rf.SnapshotError):
            OnlineLearner.from_bytes(data[:place] + bytes([data[place] ^ rng.integers(1, 256)]) + data[place + 1 :])


def use(learner, form):
    """Do with a learner what users do; numbers may be absurd, but compiled loops must stay where they belong."""
    X, y = stream(form, 40, seed=9)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            learner.decision_function(X)
            for part in (slice(0, 1), slice(1, 40)):
                learner.learn(X[part], y[part])
            learner.decision_function(X)
        except (ArithmeticError, ValueError, np.linalg.LinAlgError):
            pass
        learner.progressive_  # noqa: B018


@pytest.mark.parametrize(
    "name, form", [("rfd", "dense"), ("rfd", "wide"), ("rfd-ball", "wide"), ("rp", "dense"), ("oja", "wide")]
)
def test_made_up_files_are_refused_or_harmless(name, form):
    kinds = ("OnlineNewton", "AdaGrad", "OnlineGradientDescent", "RFDSONClassifier", "OjaSketch", "Nothing")
    data, accepted = healthy(name, form, 30).to_bytes(), 0
    for _, bad in itertools.islice(damaged(data, 0, kinds), 150):
        try:
            learner = rf.OnlineNewton.from_bytes(bad)
        except rf.SnapshotError:
            continue
        accepted += 1
        use(learner, form)
    assert 5 <= accepted <= 75  # a number that is another number cannot be told


# -- files of the past


V1 = Path(__file__).parent.parent / "data" / "v1-learners"
make_v1 = runpy.run_path(str(V1.parent / "make_v1.py"))
RECORDED = json.loads((V1 / "numbers.json").read_text()) if (V1 / "numbers.json").exists() else {}


def assert_close(ours, theirs):
    assert type(ours) is type(theirs)
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert_close(ours[key], theirs[key])
    elif isinstance(ours, float) or (isinstance(ours, list) and ours and isinstance(ours[0], float)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)
    else:
        assert ours == theirs


@pytest.mark.parametrize("name", RECORDED)
def test_a_file_of_version_1_loads_and_gives_its_numbers(name):
    learner = rf.load(V1 / f"{name}.rfd")
    found = json.loads(json.dumps(make_v1["numbers_of_learner"](name, learner)))
    assert_close(found, RECORDED[name])


def test_the_files_of_version_1_are_all_there():
    assert {path.stem for path in V1.glob("*.rfd")} == RECORDED.keys()
    assert {each["kind"] for each in RECORDED.values()} == {
        "AdaGrad", "OnlineGradientDescent", "OnlineNewton", "RFDSONClassifier", "RFDSONRegressor",
        "SketchedNewtonClassifier", "SketchedNewtonRegressor",
    }  # fmt: skip
    tensors = {name: opened((V1 / f"{name}.rfd").read_bytes())[2].keys() for name in RECORDED}
    assert {"states.0.buffer", "states.0.n"} <= tensors["newton-rfd"]
    assert {"states.0.run.feature", "states.0.history"} <= tensors["newton-rfd-wide"]
    assert "states.0.kept.x" in tensors["untuned-first-rows"]
    assert {"vocabulary", "states.0.kept.indptr"} <= tensors["untuned-dicts"]
