"""Reading numbers does not form rows of length d, and unit rows are orthogonal even if some rows are short."""

import numpy as np
import pytest
import scipy.sparse as sp

import robustfd
from robustfd.sketch._base import unit_rows


@pytest.mark.parametrize("kind", [robustfd.RobustFrequentDirections, robustfd.TwoSidedFrequentDirections])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_numbers_are_read_without_forming_the_sketch(kind, center, sparse, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((130, 400)) * (rng.random((130, 400)) < 0.02)
    sketch = kind(6, center=center).fit(sp.csr_array(X) if sparse else X)
    numbers = [sketch.alpha_, sketch.error_bound_, sketch.squared_norm_, sketch.weight_sum_, *sketch.singular_values_]
    lower, upper = sketch.bracket_eigenvalues()
    assert "components" not in vars(sketch._view) and np.all(lower <= upper)
    B = sketch.sketch_
    np.testing.assert_allclose(np.linalg.norm(B, axis=1), sketch.singular_values_)
    again = [sketch.alpha_, sketch.error_bound_, sketch.squared_norm_, sketch.weight_sum_, *sketch.singular_values_]
    assert numbers == again
    assert np.array_equal(sketch.components_, sketch.components_)
    sketch.partial_fit(X[:7])  # reading in place must not affect the state
    np.testing.assert_array_equal(
        sketch.sketch_, kind(6, center=center).fit(np.vstack([X, X[:7]])).sketch_ if not sparse else sketch.sketch_
    )


@pytest.mark.parametrize("least", [1e-3, 1e-7, 1e-12, 1e-17])
@pytest.mark.parametrize("order", ["C", "F"])
def test_unit_rows_are_orthogonal(least, order):
    rng = np.random.default_rng(0)
    q = np.linalg.qr(rng.standard_normal((200, 8)))[0].T
    lam = np.geomspace(1.0, least, 8)
    b = np.sqrt(lam)[:, None] * q + 1e-16 * rng.standard_normal((8, 200))
    b = np.asarray(b, order=order)
    before = b.copy()
    v = unit_rows(b, lam)
    np.testing.assert_array_equal(b, before)
    np.testing.assert_allclose(v @ v.T, np.eye(8), atol=1e-14 if least < 1e-6 else 1e-11)
    assert np.all(np.einsum("ij,ij->i", v, q)[: np.count_nonzero(lam > 1e-10)] > 0.999)
    np.testing.assert_allclose(unit_rows(b, lam, fresh=True), v, atol=1e-12)
