"""The sketches follow the conventions of scikit-learn estimators."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import robustfd
from tests.sketch.family import SKETCHES, fingerprint, made

SLIDING = robustfd.SlidingFrequentDirections
CLASSES = [partial(SLIDING, 25) if name == "sliding" else type(make()) for name, make in SKETCHES.items()]
every_sketch = pytest.mark.parametrize("make", SKETCHES.values(), ids=SKETCHES)
X = np.random.default_rng(0).standard_normal((30, 6))


EXPECTED: dict[str, str] = {}  # checks that fail by design, each with its reason; currently none


@parametrize_with_checks([cls() for cls in CLASSES], expected_failed_checks=lambda estimator: EXPECTED)
def test_estimator_checks(estimator, check):
    check(estimator)


@every_sketch
def test_clone_copies_parameters_and_no_rows(make):
    sketch = made(make, alpha0=0.5, decay=0.9, center=True).fit(X)
    copy = clone(sketch)
    assert copy.get_params() == sketch.get_params()
    assert not hasattr(copy, "n_features_in_")
    with pytest.raises(NotFittedError):
        copy.to_bytes()
    assert fingerprint(copy.fit(X)) == fingerprint(sketch)


@pytest.mark.parametrize("cls", CLASSES)
def test_get_params_and_set_params(cls):
    params = cls().get_params()
    assert {"alpha0", "window" if "window" in params else "decay", "center"} <= set(params)
    assert type(cls())(**params).get_params() == params
    with pytest.raises(ValueError, match="nonsense"):
        cls().set_params(nonsense=1)
    with pytest.raises(TypeError):
        cls(10, 20)  # only the first parameter may be positional


@every_sketch
def test_repr_shows_parameters_that_differ_from_the_default(make):
    shown = repr(make(alpha0=0.25))
    assert shown.startswith(type(make()).__name__ + "(")
    assert "alpha0=0.25" in shown
    assert "decay" not in shown
    assert repr(make(alpha0=0.25).fit(X)) == shown


@every_sketch
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_continuing_after_unpickling_is_bitwise_the_same(make, protocol):
    sketch = made(make, center=True, decay=0.9).partial_fit(X[:11])
    copy = pickle.loads(pickle.dumps(sketch, protocol=protocol))
    assert fingerprint(sketch.partial_fit(X[11:])) == fingerprint(copy.partial_fit(X[11:]))
    np.testing.assert_array_equal(sketch.sketch_, copy.sketch_)
    assert pickle.loads(pickle.dumps(make())).get_params() == make().get_params()


@every_sketch
def test_data_frames_set_feature_names(make):
    frame = pd.DataFrame(X, columns=list("abcdef"))
    sketch = make().fit(frame)
    assert list(sketch.feature_names_in_) == list("abcdef")
    np.testing.assert_array_equal(sketch.sketch_, make().fit(X).sketch_)
    before = fingerprint(sketch)
    for wrong in (frame[list("bacdef")], frame.rename(columns={"a": "z"})):
        with pytest.raises(ValueError, match="feature names"):
            sketch.partial_fit(wrong)
        with pytest.raises(ValueError, match="feature names"):
            sketch.bracket_mahalanobis(wrong)
    with pytest.raises(ValueError, match="feature"):
        sketch.partial_fit(frame[list("abc")])
    assert fingerprint(sketch) == before
    assert list(type(sketch).from_bytes(sketch.to_bytes()).feature_names_in_) == list("abcdef")
    assert sketch.partial_fit(frame.iloc[:0]).n_samples_seen_ == 30
    bad = pd.DataFrame(np.full((3, 2), np.nan), columns=["u", "v"])
    with pytest.raises(ValueError, match="NaN"):
        sketch.fit(bad)
    assert list(sketch.feature_names_in_) == list("abcdef")
    assert not hasattr(sketch.fit(X), "feature_names_in_")


@pytest.mark.parametrize("name", [name for name in SKETCHES if name not in ("Oja", "random projection")])
def test_sketches_of_differently_named_columns_do_not_merge(name):
    one, two = (SKETCHES[name]().fit(pd.DataFrame(X, columns=list(names))) for names in ("abcdef", "fedcba"))
    with pytest.raises(ValueError, match="feature_names_in_"):
        one.merge(two)


@every_sketch
def test_integer_and_mixed_data_frames_work(make):
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5], "c": [True, False, True]})
    np.testing.assert_array_equal(make().fit(frame).sketch_, make().fit(frame.to_numpy(float)).sketch_)


# ------------------------------------------------------------- parameters changed on a fitted sketch


def test_reads_do_not_depend_on_earlier_reads():
    """A changed alpha0 shows in the next read, whether or not there was one before."""
    rows = np.random.default_rng(0).standard_normal((25, 40))
    one, two = (robustfd.RobustFrequentDirections(10).fit(rows) for _ in range(2))
    assert one.alpha_ > 0
    for sketch in (one, two):
        sketch.set_params(alpha0=5.0)
    assert one.alpha_ == two.alpha_


def test_a_changed_size_is_refused_by_reads_and_by_saving():
    sketch = robustfd.FrequentDirections(10).fit(np.eye(25, 40)).set_params(sketch_size=3)
    for call in (lambda: sketch.sketch_, sketch.to_bytes):
        with pytest.raises(ValueError, match="sketch_size was changed from 10 to 3"):
            call()


def test_numpy_parameters_are_accepted():
    sketch = robustfd.FrequentDirections(np.int64(5), center=np.bool_(True), solver=np.str_("svd"))
    assert sketch.fit(np.eye(9)).n_samples_seen_ == 9


def test_third_party_classes_are_neither_saved_nor_loaded():
    class FrequentDirections(robustfd.RobustFrequentDirections):
        pass

    ours = robustfd.FrequentDirections(4).fit(np.eye(9))
    assert type(robustfd.FrequentDirections.from_bytes(ours.to_bytes())) is robustfd.FrequentDirections
    with pytest.raises(TypeError, match="own sketches"):
        FrequentDirections(4).fit(np.eye(9)).to_bytes()
