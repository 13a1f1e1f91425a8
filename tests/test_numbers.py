"""Parameters may be any real number, not only a float: fractions, and numbers of numpy."""

import inspect
from fractions import Fraction

import numpy as np
import pytest

import robustfd

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4))
Y = np.where(X[:, 0] + 0.1 * RNG.standard_normal(60) > 0, 1.0, -1.0)
EXACT = 0.25  # a value that fits all parameters, of which a fraction and a float are the same number


def cases():
    """Every parameter of every sketch, learner and estimator whose default is a float."""
    for name in robustfd.__all__:
        kind = getattr(robustfd, name)
        if inspect.isclass(kind) and hasattr(kind, "get_params"):
            parameters = inspect.signature(kind).parameters
            yield from ((name, each) for each, it in parameters.items() if type(it.default) is float)


CASES = list(cases())


def learnt(name, parameter, value):
    kind = getattr(robustfd, name)
    small = "sketch_size" in inspect.signature(kind).parameters and name != "SketchedRidge"  # which would warn
    more = {"sketch_size": 3} if small else {}
    if "random_state" in inspect.signature(kind).parameters:
        more["random_state"] = 0
    if "Sliding" in name:
        more["window"] = Fraction(41, 2)
    model = kind(**more, **{parameter: value})
    if name == "SketchedLinUCB":
        for x, y in zip(X, Y, strict=True):
            model.learn(x, y)
    elif name == "ContextualBandit":
        model.partial_fit(X, Y > 0, X[:, 1])
    elif hasattr(model, "learn"):
        model.learn(X, Y)
    elif name.endswith("Classifier"):
        model.partial_fit(X, Y, classes=[-1, 1])
    elif hasattr(model, "predict") and not hasattr(model, "score_samples"):
        model.partial_fit(X, Y)
    else:
        model.fit(X)
    return model


def readings(model):
    """All that can be read of a model, as arrays."""
    found = {}
    for name in dir(model):
        if name.endswith("_") and not name.startswith("_"):
            try:
                value = getattr(model, name)
            except AttributeError:
                continue
            if isinstance(value, int | float | Fraction | np.ndarray | np.generic):
                found[name] = np.asarray(value)
    for name in ("bracket_eigenvalues", "bracket_logdet"):
        if hasattr(model, name):
            found[name] = np.asarray(getattr(model, name)())
    if hasattr(model, "second_moment"):
        operator = model.second_moment()
        found["product"] = operator @ X[0]
        if model.alpha_ > 0:
            found["solution"] = operator.solve(X[0])
    return found


def test_all_families_are_here():
    assert {"alpha0", "decay", "beta"} <= {parameter for _, parameter in CASES}


@pytest.mark.parametrize("name, parameter", CASES, ids="-".join)
@pytest.mark.parametrize("number", [Fraction, np.float32], ids=["fraction", "numpy"])
def test_any_real_number_is_as_good_as_a_float(name, parameter, number):
    expected, model = (learnt(name, parameter, kind(EXACT)) for kind in (float, number))
    before, after = readings(expected), readings(model)
    assert before.keys() == after.keys()
    for each, value in after.items():
        assert value.dtype == before[each].dtype, each
        np.testing.assert_array_equal(value, before[each], err_msg=each)
    if hasattr(model, "to_bytes"):
        assert model.to_bytes() == expected.to_bytes()
        assert getattr(type(model).from_bytes(model.to_bytes()), parameter) == EXACT


def test_a_fraction_that_no_float_is(tmp_path):
    sketch = robustfd.RobustFrequentDirections(3, alpha0=Fraction(1, 3)).fit(X)
    sketch.save(tmp_path / "sketch")
    assert robustfd.load(tmp_path / "sketch").alpha0 == 1 / 3
    assert robustfd.load(tmp_path / "sketch").alpha_ == sketch.alpha_


def test_a_number_that_is_too_large_for_a_float():
    with pytest.raises(ValueError, match="alpha0 must be in .* too large"):
        robustfd.RobustFrequentDirections(3, alpha0=Fraction(10**400)).fit(X)
