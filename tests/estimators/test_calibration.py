"""Recalibrated probabilities of two classes: the transcription, the bound on their loss, and where they help."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss

import robustfd
from robustfd import SketchedNewtonClassifier
from robustfd._core import FIRST_SHARE, NOISE, STEEPNESS, recalibrate
from tests import reference_untuned as ref


def stream(n, *, rare=False, seed=6):
    """Return rows of two classes: with `rare`, one of them is rare and some of its rows have the other label."""
    if not rare:
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n, 5))
        return X, (rng.random(n) < expit(2 * X.sum(axis=1))).astype(int)
    options = {"n_informative": 10, "n_redundant": 5, "weights": [0.97]}
    return make_classification(n, 20, random_state=seed, **options)


def shares_after(margins, y, weight):
    shares, losses = np.array(FIRST_SHARE), np.empty(len(y))
    recalibrate(shares, margins, y.astype(float), weight, losses, np.empty((len(y), 2)))
    return losses, shares


margins_of_rows = st.lists(st.tuples(st.floats(-50, 50), st.booleans()), min_size=1, max_size=60)


@given(margins_of_rows, st.sampled_from([1.0, 0.3, 2.5]))
def test_the_loop_equals_the_transcription(rows, weight):
    margins, y = np.array([m for m, _ in rows]), np.array([label for _, label in rows])
    weights = np.full(len(y), weight)
    losses, shares = shares_after(margins, y, weights)
    expected = ref.recalibrate(margins, y, weights)
    np.testing.assert_allclose(losses, expected[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(shares, expected[1], rtol=1e-7, atol=1e-12)
    assert list(zip(STEEPNESS, NOISE, strict=True)) == ref.MAPS


@given(st.lists(st.tuples(st.floats(-1e5, 1e5), st.booleans()), min_size=1, max_size=60), st.floats(1e-12, 1e12))
def test_the_loss_never_exceeds_that_of_the_model(rows, weight):
    """The mixture loses at most -log(0.999) nats in all, and shares stay positive for any margins and weights."""
    margins, y = np.array([m for m, _ in rows]), np.array([label for _, label in rows])
    losses, _ = shares_after(margins, y, np.ones(len(y)))
    own = np.logaddexp(0.0, np.where(y, -margins, margins))
    assert losses.sum() <= own.sum() + 0.00101 + 1e-6 * len(y)
    _, shares = shares_after(margins, y, np.full(len(y), weight))
    assert (shares > 0).all() and abs(shares.sum() - 1) < 1e-9


def test_probabilities_improve_where_they_can_and_are_kept_elsewhere():
    for rare, gain in ((False, 0.0), (True, 0.02)):
        X, y = stream(8000, rare=rare)
        model = SketchedNewtonClassifier(shuffle=False).fit(X[:5600], y[:5600])
        own = log_loss(y[5600:], expit(model.decision_function(X[5600:])))
        found = log_loss(y[5600:], model.predict_proba(X[5600:]))
        assert found <= (1 - gain) * own + 2e-4
        np.testing.assert_array_equal(model.predict(X), model.decision_function(X) > 0)
        np.testing.assert_array_equal(model.predict(X), model.predict_proba(X).argmax(axis=1))


def test_rows_learned_again_do_not_count():
    X, y = stream(200)
    once, thrice = (SketchedNewtonClassifier(shuffle=False, epochs=n).fit(X, y) for n in (1, 3))
    np.testing.assert_array_equal(once._calibration, thrice._calibration)
    assert once.progressive_loss_ == thrice.progressive_loss_


@pytest.mark.parametrize("weighted", [False, True])
def test_batches_and_single_dicts_give_the_same_shares(weighted):
    X, y = stream(400)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 400) if weighted else np.ones(400)
    whole = SketchedNewtonClassifier().partial_fit(X, y, classes=[0, 1], sample_weight=weight)
    parts = SketchedNewtonClassifier()
    for i in range(0, 400, 7):
        parts.partial_fit(X[i : i + 7], y[i : i + 7], classes=[0, 1], sample_weight=weight[i : i + 7])
    np.testing.assert_array_equal(whole._calibration, parts._calibration)
    one, slow = SketchedNewtonClassifier(), SketchedNewtonClassifier()
    for row, label, times in zip(X.tolist(), y.tolist(), weight.tolist(), strict=True):
        x = {f"x{j}": value for j, value in enumerate(row)}
        one.learn_one(x, label, times)
        slow._learn_one(x, label, times)
    np.testing.assert_array_equal(one._calibration, slow._calibration)
    assert one.progressive_loss_ == slow.progressive_loss_


def test_merging_and_saving_keep_the_calibration(tmp_path):
    X, y = stream(8000, rare=True)
    model = SketchedNewtonClassifier(shuffle=False).fit(X, y)
    assert model._calibration[0] < 0.5
    one, two, three = model.split(3)
    np.testing.assert_allclose(one.merge(two).merge(three)._calibration, model._calibration, rtol=1e-9)
    a, b = (SketchedNewtonClassifier(shuffle=False).fit(X[k::2], y[k::2]) for k in (0, 1))
    assert a.merge(b)._calibration[0] < 0.5  # the evidence of both adds up
    model.save(tmp_path / "model")
    for again in (robustfd.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_many_parts_leave_every_share_positive(tmp_path):
    X, y = make_classification(6400, 5, flip_y=0.3, random_state=0)
    parts = SketchedNewtonClassifier().split(64)
    for k, part in enumerate(parts):
        part.partial_fit(X[k::64], y[k::64], classes=[0, 1])
        part._calibration = np.array([1e-8, 1 - 5e-8, 1e-8, 1e-8, 1e-8, 1e-8])  # the evidence of each part is clear
    merged = robustfd.merge(parts)
    assert (merged._calibration > 0).all() and merged._calibration[1] > 0.999
    merged.save(tmp_path / "model.rfd")
    assert robustfd.load(tmp_path / "model.rfd").predict_proba(X[:1]) == pytest.approx(merged.predict_proba(X[:1]))


def test_a_third_class_starts_over():
    X, y = stream(300)
    model = SketchedNewtonClassifier()
    for row, label in zip(X, y.tolist(), strict=True):
        model.learn_one(row, label)
    assert len(model._calibration) == len(FIRST_SHARE)
    model.learn_one(X[0], 2)
    assert len(model._calibration) == 3 and model.predict_proba(X).shape == (300, 3)
    assert np.isfinite(model.progressive_loss_)


def test_an_error_leaves_the_calibration_unchanged():
    X, y = stream(300)
    model = SketchedNewtonClassifier().partial_fit(X, y, classes=[0, 1])
    before = model._calibration.copy()
    with pytest.raises(ValueError, match="infinity"):
        model.partial_fit(np.full((3, 5), np.inf), y[:3])
    np.testing.assert_array_equal(model._calibration, before)
