"""Every level of x86-64 gives the same bits."""

import numpy as np
import pytest

from robustfd import _core
from tests.learners.saved_learners import make, pairs, stream


@pytest.fixture
def best_level():
    level = _core.level()
    yield level
    _core.use_level(level)


@pytest.mark.parametrize("name, form", pairs())
def test_levels_give_the_same_bits(name, form, best_level):
    X, y = stream(form)
    found = set()
    for level in _core.levels():
        _core.use_level(level)
        learner = make(name)
        margins = [learner.learn(X[a:b], y[a:b]) for a, b in ((0, 150), (150, 151), (151, 156), (156, 400))]
        found.add(learner.to_bytes() + np.concatenate(margins).tobytes())
    assert len(found) == 1


def test_rows_of_the_wrong_form_are_refused():
    X, y = stream("wide", 20)
    learner = make("rfd")
    learner.learn(X, y)
    before, core = learner.to_bytes(), learner._state.core
    bad_index = (X.data, np.full_like(X.indices, 700), X.indptr.astype(np.int64))
    for rows in (
        X.toarray(),
        X.toarray()[:, :9],
        bad_index,
        (X.data, X.indices),
        (X.data, X.indices, X.indptr[::-1].copy()),
    ):
        with pytest.raises((TypeError, ValueError, IndexError)):
            core.learn(rows, y, np.ones(20), np.empty(20), None)
    assert learner.to_bytes() == before
