"""The River wrappers pass River's own checks and give the results of the wrapped estimators."""

import inspect
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("river", reason="River is an extra: pip install 'robustfd[river]'")

from river import bandit, checks, compose, datasets, evaluate, metrics, preprocessing, stats

import robustfd
import robustfd.river


class Cards:
    """Rows in place of River's CreditCard, which would be downloaded. Every fiftieth is an anomaly."""

    def take(self, n):
        rng = np.random.default_rng(0)
        mix = rng.standard_normal((30, 30))
        for k in range(n):
            row = rng.standard_normal(30) @ mix if k % 50 else rng.standard_normal(30) * 6
            yield {f"V{j}": float(value) for j, value in enumerate(row)}, int(k % 50 == 0)


datasets.CreditCard = Cards
ALL = {name: getattr(robustfd.river, name) for name in robustfd.river.__all__ if name != "ContextualBandit"}
UNSUPERVISED = ("MahalanobisDetector", "SketchedPCA")
CLASSES = {name: each for name, each in ALL.items() if name not in (*UNSUPERVISED, "SketchedRidge")}
CHECKS = [(name, check) for name, each in ALL.items() for check in checks.yield_checks(each(5))]


@pytest.mark.slow
@pytest.mark.parametrize("name, check", CHECKS, ids=[f"{name}-{check.__name__}" for name, check in CHECKS])
@pytest.mark.filterwarnings("default")  # warnings of River itself
def test_river_s_own_checks(name, check):
    check(ALL[name](5))


@pytest.mark.parametrize("name", ALL)
def test_parameters_are_those_of_the_estimator(name):
    ours, theirs = (inspect.signature(each).parameters for each in (ALL[name], getattr(robustfd, name)))
    if name in CLASSES:
        batch = ("shuffle", "epochs", "random_state")  # parameters of fit, which River does not have
        assert [(each.name, each.default) for each in ours.values()] == [
            (each.name, each.default) for each in theirs.values() if each.name not in batch
        ]
    else:
        assert all(theirs[each].default == ours[each].default for each in ours if each != "n_components")
    changed = {"sketch_size": 7} | ({"loss": "huber"} if "Regressor" in name else {})
    changed |= {"n_components": 2} if name == "SketchedPCA" else {}
    assert ALL[name](**changed)._model.get_params() == getattr(robustfd, name)(**changed).get_params()


@pytest.mark.parametrize("name", CLASSES)
def test_it_is_the_same_model(name):
    classification = "Classifier" in name
    stream = datasets.ImageSegments() if classification else datasets.TrumpApproval()
    ours, theirs = getattr(robustfd, name)(5), CLASSES[name](5)
    for i, (x, y) in enumerate(stream.take(150)):
        assert ours.predict_one(x) == theirs.predict_one(x)
        if classification:
            assert ours.predict_proba_one(x) == theirs.predict_proba_one(x)
        ours.learn_one(x, y, 0.5 * (i % 3))
        assert theirs.learn_one(x, y, w=0.5 * (i % 3)) is None
    assert ours.n_samples_seen_ == 100


def test_scores():
    accuracy = evaluate.progressive_val_score(
        datasets.Phishing(), robustfd.river.SketchedNewtonClassifier(), metrics.Accuracy()
    )
    assert accuracy.get() > 0.87
    error = evaluate.progressive_val_score(
        datasets.TrumpApproval(), robustfd.river.SketchedNewtonRegressor(), metrics.MAE()
    )
    assert error.get() < 0.4


def batches(name, rows=150):
    """Return a stream as three pairs of DataFrame and Series. One column has text, the others numbers."""
    stream = datasets.ImageSegments() if "Classifier" in name else datasets.TrumpApproval()
    pairs = list(stream.take(rows))
    x, y = pd.DataFrame([x for x, _ in pairs], index=range(7, 7 + rows)), pd.Series([y for _, y in pairs])
    x["text"] = ["ab"[i % 2] for i in range(rows)]
    return [(x[i : i + 50], y[i : i + 50]) for i in range(0, rows, 50)]


@pytest.mark.parametrize("name", CLASSES)
def test_many_rows_are_one_after_the_other(name):
    one, many = CLASSES[name](5), CLASSES[name](5)
    for x, y in batches(name):
        rows = x.to_dict("records")
        weights = [0.5 * (i % 3) for i in range(50)]
        for row, label, weight in zip(rows, y.tolist(), weights):
            one.learn_one(row, label, weight)
        assert many.learn_many(x, y, weights) is None
        predicted = many.predict_many(x)
        assert predicted.tolist() == [one.predict_one(row) for row in rows] and predicted.index.equals(x.index)
        if "Classifier" in name:
            chances = many.predict_proba_many(x)
            assert chances.to_dict("records") == [one.predict_proba_one(row) for row in rows]
            assert chances.index.equals(x.index)
            assert many.progressive_error_ == one.progressive_error_ == one._model.progressive_error_
        assert many.progressive_loss_ == one.progressive_loss_ == one._model.progressive_loss_


@pytest.mark.parametrize("name", CLASSES)
def test_many_rows_are_learned_as_a_whole_or_not_at_all(name):
    model = CLASSES[name](5)
    (x, y), (more, _), _ = batches(name)
    model.learn_many(x, y)
    before = model._model.to_bytes()
    bad = more.astype(object)
    bad.iloc[20, 0] = b"no number"
    with pytest.raises(ValueError, match="must be a number"):
        model.learn_many(bad, y)
    with pytest.raises(ValueError, match="X has 50 rows, but there are 49 in y and 49 weights"):
        model.learn_many(more, y[1:])
    assert model._model.to_bytes() == before and model._model.n_samples_seen_ == 50


@pytest.mark.parametrize("name", CLASSES)
def test_before_the_first_row_many_are_predicted_as_one_is(name):
    (x, _), *_ = batches(name)
    model = CLASSES[name]()
    assert model.predict_many(x).tolist() == [model.predict_one({})] * 50


@pytest.mark.parametrize("name", CLASSES)
def test_save_and_load(name, tmp_path):
    model, path = CLASSES[name](sketch_size=5), tmp_path / "model.rfd"
    (x, y), (more, later), _ = batches(name)
    model.learn_many(x, y)
    model.save(path)
    again = CLASSES[name].load(path)
    assert type(again) is type(model) and again._get_params() == model._get_params()
    again.learn_many(more, later)
    model.learn_many(more, later)
    assert again._model.to_bytes() == model._model.to_bytes()
    assert type(robustfd.load(path)) is getattr(robustfd, name)
    other = next(each for each in CLASSES if each != name)
    with pytest.raises(ValueError, match=f"model.rfd must hold a {other}, got a {name}"):
        CLASSES[other].load(path)


def outputs(model, x):
    """Return what a model says about a row."""
    for name in ("transform_one", "score_one", "predict_one"):
        if hasattr(model, name):
            return getattr(model, name)(x)


@pytest.mark.parametrize("name", [*UNSUPERVISED, "SketchedRidge"])
def test_sketches_grow_with_the_features(name, tmp_path):
    """The model of dicts with more and more features is that of whole rows with zeros."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((300, 12)) @ np.diag(0.7 ** np.arange(12))
    X[:100, 4:], X[100:200, 8:] = 0, 0
    names, y = [f"f{j:02}" for j in range(12)], X @ rng.standard_normal(12) + 3
    model, many = ALL[name](), ALL[name]()
    supervised = name == "SketchedRidge"
    rows = [{each: value for each, value in zip(names, row) if value} for row in X]
    assert outputs(model, rows[0]) in (0.0, {0: 0.0, 1: 0.0})
    for row, target in zip(rows, y):
        model.learn_one(row, target) if supervised else model.learn_one(row)
    if name != "MahalanobisDetector":
        for k in range(3):
            part = pd.DataFrame(rows[100 * k : 100 * (k + 1)])
            many.learn_many(part, pd.Series(y[100 * k : 100 * (k + 1)])) if supervised else many.learn_many(part)
        assert many._model.to_bytes() == model._model.to_bytes()
    whole = model._model
    other = type(whole)(**whole.get_params()).partial_fit(pd.DataFrame(X, columns=names), y if supervised else None)
    assert whole.feature_names_in_.tolist() == names and whole.n_samples_seen_ == 300
    frame = pd.DataFrame(X, columns=names)
    method = {"SketchedPCA": "transform", "SketchedRidge": "predict", "MahalanobisDetector": "mahalanobis"}[name]
    expected = getattr(other, method)(frame)
    np.testing.assert_allclose(getattr(whole, method)(frame), expected, rtol=1e-9, atol=1e-9)
    got = [outputs(model, row) for row in rows]
    np.testing.assert_allclose(
        [list(each.values()) if name == "SketchedPCA" else each for each in got], expected, rtol=1e-9, atol=1e-9
    )
    model.save(tmp_path / "m.rfd")
    again = ALL[name].load(tmp_path / "m.rfd")
    assert again._get_params() == model._get_params() and outputs(again, rows[7]) == outputs(model, rows[7])
    new = {**rows[7], "new": 1.0, "colour": "red"}
    for each in (model, again):
        each.learn_one(new, 1.0) if supervised else each.learn_one(new)
    assert again._model.to_bytes() == model._model.to_bytes()
    assert whole.n_features_in_ == 14 and whole.feature_names_in_[12:].tolist() == ["colour=red", "new"]


@pytest.mark.parametrize("name", [*UNSUPERVISED, "SketchedRidge"])
def test_wide_rows_and_errors_of_single_rows(name):
    model = ALL[name]()
    target = (1.0,) if name == "SketchedRidge" else ()
    with pytest.raises(ValueError, match="a feature in the first row"):
        model.learn_one({}, *target)
    for k in range(40):
        model.learn_one({f"w{k}-{j}": 1.0 for j in range(50)}, *target)
    assert model._model.n_features_in_ == 2000 and outputs(model, {}) is not None
    before = model._model.to_bytes()
    for bad in ({"new": np.nan}, {"new": None}, {"new": b"1"}, {"w0-0": np.inf}, {1: 2.0, "1": 3.0}):
        with pytest.raises(ValueError, match="x"):
            model.learn_one(bad, *target)
    assert model._model.to_bytes() == before


def test_the_estimator_scores_single_rows():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((300, 5))
    one, other = robustfd.MahalanobisDetector(), robustfd.MahalanobisDetector().partial_fit(X)
    assert one.score_one(X[0]) == 0.0
    for row in X:
        assert one.learn_one(row) is one
    one.learn_one(X[0], sample_weight=0)
    assert one.to_bytes() == other.to_bytes()
    assert one.score_one(X[3]) == other.mahalanobis(X[3:4])[0]
    with pytest.raises(ValueError, match="5 numbers"):
        one.score_one(X[0, :4])
    with pytest.raises(ValueError, match="without names"):
        one.score_one({"a": 1.0})
    named = robustfd.MahalanobisDetector().fit(pd.DataFrame(X, columns=list("abcde")))
    assert named.score_one(dict(zip("edcba", X[3, ::-1]))) == named.score_one(X[3])
    with pytest.raises(ValueError, match="sliding window"):
        robustfd.MahalanobisDetector(window=50).learn_one({"a": 1.0}).learn_one({"b": 1.0})
    assert isinstance(named.learn_one({"f": 1.0, "a": 2.0}).sketch_, robustfd.ExactSecondMoment)
    with pytest.raises(ValueError, match="the exact matrix has 2006 columns"):
        named.learn_one({str(k): 1.0 for k in range(2000)})
    assert robustfd.MahalanobisDetector().learn_one({"a": 1.0}).score_one({"a": 1.0, "b": 2.0}) > 1e6


def test_in_a_pipeline():
    names = ("age_of_domain", "long_url", "https")
    model = compose.Select(*names) | preprocessing.StandardScaler() | robustfd.river.RFDSONClassifier(4)
    stream = datasets.Phishing().take(300)
    assert evaluate.progressive_val_score(stream, model, metrics.Accuracy()).get() > 0.55
    assert set(model["RFDSONClassifier"]._model.vocabulary_) == set(names)


def test_without_river_there_is_a_word_on_what_to_install():
    code = "import sys; sys.modules['river'] = None; import robustfd.river"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: robustfd.river needs River: pip install 'robustfd[river]'" in done.stderr


def test_a_row_is_explained_by_its_names():
    model = robustfd.river.SketchedNewtonRegressor()
    for k in range(50):
        model.learn_one({"x": float(k % 7), "kind": "u" if k % 2 else "v"}, 2.0 * (k % 7))
    found = model.contributions_one({"x": 3.0, "kind": "u"}, intercept=True)
    assert list(found) == ["x", "kind", "(intercept)"]
    assert sum(found.values()) == pytest.approx(model.predict_one({"x": 3.0, "kind": "u"}))


def test_several_quantiles_are_a_dict_by_level():
    levels, rng = [0.1, 0.5, 0.9], np.random.default_rng(0)
    model = robustfd.river.SketchedNewtonRegressor(loss="quantile", quantile=levels)
    rows = [{"a": value} for value in rng.standard_normal(300).tolist()]
    for row in rows:
        model.learn_one(row, 2 * row["a"] + rng.exponential())
    found = model.predict_one(rows[0])
    assert list(found) == levels and found[0.1] < found[0.5] < found[0.9]
    table = model.predict_many(pd.DataFrame(rows))
    assert table.columns.tolist() == levels and table.iloc[0].tolist() == list(found.values())
    assert model.clone().quantile == levels


# -- bandits


def clicks(n, seed=1):
    """Yield rows of a log as River expects them. The best of three arms, chosen at random, depends on the context."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        x = {"age": float(rng.random()), "kind": str(rng.choice(["a", "b"]))}
        best = 1 if x["kind"] == "a" else 2 if x["age"] > 0.5 else 3
        arm = int(rng.integers(1, 4))
        yield [1, 2, 3], x, arm, bool(rng.random() < (0.9 if arm == best else 0.1))


def test_policies_are_evaluated_on_logs():
    policy = robustfd.river.ContextualBandit(seed=0)
    found, used = bandit.evaluate_offline(policy, clicks(1500), stats.Mean())
    other, _ = bandit.evaluate_offline(bandit.EpsilonGreedy(0.1, seed=0), clicks(1500), stats.Mean())
    assert found.get() > 0.7 > 0.6 > other.get()
    assert used == policy._n == policy._model.n_samples_seen_ and policy._counts == policy._model.n_pulls_
    assert found.get() == pytest.approx(policy.progressive_reward_) and sorted(policy.ranking) == [1, 2, 3]
    assert policy.predict_proba_one({"age": 0.9, "kind": "b"})[2] > 0.9
    assert list(policy.predict_proba_one({"age": 0.9, "kind": "b"}, range(1, 3))) == [1, 2]
    assert set(policy.contributions_one({"age": 0.9, "kind": "b"}, 2)) == {"age", "kind"}


class Machines:
    """A Gym environment in the parts that River uses: arm 3 of 5 pays most."""

    class Space:
        n = 5

        def seed(self, seed):
            pass

    action_space = Space()

    def reset(self, seed):
        self.rng, self.left = np.random.default_rng(seed), 150

    def step(self, arm):
        self.left -= 1
        return None, float(self.rng.random() < (0.9 if arm == 3 else 0.2)), False, self.left == 0, {}


def test_policies_are_evaluated_in_environments():
    """River gives no context there, not even to policies that could use one."""
    policies = [robustfd.river.ContextualBandit(seed=0), bandit.RandomPolicy(seed=0)]
    trace = pd.DataFrame(bandit.evaluate(policies, Machines(), n_episodes=2, seed=0))
    assert len(trace) == 2 * 2 * 150
    earned = trace.groupby("policy_idx")["reward"].mean()
    assert earned[0] > 0.7 and earned[1] < 0.5
    again = pd.DataFrame(bandit.evaluate(policies[:1], Machines(), n_episodes=2, seed=0))
    assert again["arm"].tolist() == trace[trace["policy_idx"] == 0]["arm"].tolist()  # the seed decides


def test_a_policy_is_the_estimator(tmp_path):
    policy, model = (
        robustfd.river.ContextualBandit(epsilon=0.1, seed=4),
        robustfd.ContextualBandit(epsilon=0.1, random_state=4),
    )
    assert "seed=4" in repr(policy)
    for arms, x, _, _ in clicks(120):
        arm, chance = model.choose_one(x, arms)
        assert policy.predict_proba_one(x, arms)[arm] == chance and policy.pull(arms, context=x) == arm
        model.learn_one(x, arm, float(x["age"]))
        policy.update(arm, x, x["age"])
    assert policy._model.to_bytes() == model.to_bytes() and "Pulls" in repr(policy)
    fresh = policy.clone()
    assert fresh.seed == 4 and fresh.epsilon == 0.1 and fresh._n == 0 and fresh._model.arms_ == []
    policy.save(tmp_path / "policy.rfd")
    again = robustfd.river.ContextualBandit.load(tmp_path / "policy.rfd")
    assert again._get_params() == policy._get_params() and again._counts == policy._counts and again._n == 120
    assert [again.pull(arms, context=x) for arms, x, _, _ in clicks(50, 2)] == [
        policy.pull(arms, context=x) for arms, x, _, _ in clicks(50, 2)
    ]
    with pytest.raises(ValueError, match="rewards must be numbers"):
        policy.update(1, {"age": 1.0}, "much")
    assert policy._n == 120


def test_policies_of_costs_rank_the_cheapest_first():
    policy = robustfd.river.ContextualBandit(costs=True, seed=0)
    for _ in range(100):
        arm = policy.pull(["dear", "cheap"])
        policy.update(arm, 5.0 if arm == "dear" else 1.0)
    assert policy.ranking == ["cheap", "dear"] and policy._counts["cheap"] > 80


def test_intervals_as_river_s_conformal_models():
    from river import conf

    model = compose.Prefixer("x_") | robustfd.river.SketchedNewtonRegressor(intervals=True)
    inside = []
    for x, y in datasets.TrumpApproval():
        found = model.predict_one(x, with_interval=True, level=0.8)
        assert isinstance(found, conf.Interval)
        inside.append(y in found)
        model.learn_one(x, y)
    assert np.mean(inside) == pytest.approx(0.8, abs=0.02)
    last = model["SketchedNewtonRegressor"]
    assert last.progressive_coverage_[0.8] == pytest.approx(0.8, abs=0.02)
    assert last.clone().intervals
    with pytest.raises(AttributeError, match="intervals=True"):
        robustfd.river.SketchedNewtonRegressor().predict_one({"a": 1.0}, with_interval=True)


def test_sets_of_classes():
    model = robustfd.river.SketchedNewtonClassifier(intervals=True)
    for x, y in datasets.Phishing():
        model.learn_one(x, y)
    assert model.progressive_coverage_[0.95] > 0.94
    assert model.predict_set_one(x, 0.999)[0] == model.predict_one(x)
    assert 1 <= model.progressive_width_[0.5] <= model.progressive_width_[0.99] <= 2
