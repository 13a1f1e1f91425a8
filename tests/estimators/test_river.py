"""The estimators as River knows them pass River's own checks, and are the estimators they stand for."""

import inspect
import subprocess
import sys

import pytest

pytest.importorskip("river", reason="River is an extra: pip install 'robustfd[river]'")

from river import checks, compose, datasets, evaluate, metrics, preprocessing

import robustfd
import robustfd.river

CLASSES = {name: getattr(robustfd.river, name) for name in robustfd.river.__all__}
CHECKS = [(name, check) for name, each in CLASSES.items() for check in checks.yield_checks(each(5))]


@pytest.mark.parametrize("name, check", CHECKS, ids=[f"{name}-{check.__name__}" for name, check in CHECKS])
@pytest.mark.filterwarnings("default")  # of River itself
def test_river_s_own_checks(name, check):
    check(CLASSES[name](5))


@pytest.mark.parametrize("name", CLASSES)
def test_parameters_are_those_of_the_estimator(name):
    ours, theirs = (inspect.signature(each).parameters for each in (CLASSES[name], getattr(robustfd, name)))
    batch = ("shuffle", "epochs", "random_state")  # of fit, which River has not
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
