"""The River wrappers pass River's own checks and give the results of the wrapped estimators."""

import inspect
import subprocess
import sys

import pandas as pd
import pytest

pytest.importorskip("river", reason="River is an extra: pip install 'robustfd[river]'")

from river import checks, compose, datasets, evaluate, metrics, preprocessing

import robustfd
import robustfd.river

CLASSES = {name: getattr(robustfd.river, name) for name in robustfd.river.__all__}
CHECKS = [(name, check) for name, each in CLASSES.items() for check in checks.yield_checks(each(5))]


@pytest.mark.slow
@pytest.mark.parametrize("name, check", CHECKS, ids=[f"{name}-{check.__name__}" for name, check in CHECKS])
@pytest.mark.filterwarnings("default")  # warnings of River itself
def test_river_s_own_checks(name, check):
    check(CLASSES[name](5))


@pytest.mark.parametrize("name", CLASSES)
def test_parameters_are_those_of_the_estimator(name):
    ours, theirs = (inspect.signature(each).parameters for each in (CLASSES[name], getattr(robustfd, name)))
    batch = ("shuffle", "epochs", "random_state")  # parameters of fit, which River does not have
    assert [(each.name, each.default) for each in ours.values()] == [
        (each.name, each.default) for each in theirs.values() if each.name not in batch
    ]
    changed = {"sketch_size": 7} | ({"loss": "huber"} if "Regressor" in name else {})
    assert CLASSES[name](**changed)._model.get_params() == getattr(robustfd, name)(**changed).get_params()


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
