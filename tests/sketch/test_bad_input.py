"""Bad input raises one clear error and leaves the sketch unchanged."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

import robustfd
from tests.sketch.family import RULES, SKETCHES, fingerprint, made

every_sketch = pytest.mark.parametrize("make", SKETCHES.values(), ids=SKETCHES)
dense_and_sparse = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
GOOD = np.random.default_rng(0).standard_normal((50, 40)) * (np.random.default_rng(1).random((50, 40)) < 0.1)
READS = ["sketch_", "components_", "singular_values_", "alpha_", "error_bound_", "relative_error_bound_"]
READS += ["squared_norm_", "weight_sum_", "n_samples_seen_", "mean_", "n_features_in_"]


def spoiled(value: float, row: int = 20, dtype: Any = float) -> np.ndarray:
    X = GOOD.astype(dtype)
    X[row, 3] = value
    return X


BAD_ROWS: dict[str, tuple[Any, str]] = {
    "NaN": (spoiled(np.nan), "X.*NaN"),
    "infinity": (spoiled(np.inf), "X.*infinity"),
    "minus infinity": (spoiled(-np.inf), "X.*infinity"),
    "single NaN": (spoiled(np.nan, dtype=np.float32), "X.*NaN"),
    "single infinity": (spoiled(np.inf, dtype=np.float32), "X.*infinity"),
    "NaN in the last row": (spoiled(np.nan, row=-1), "X.*NaN"),
    "NaN in the first row": (spoiled(np.nan, row=0), "X.*NaN"),
    "NaN and infinity": (spoiled(np.nan) + spoiled(np.inf, row=30), "X.*NaN"),
    "too large to square": (spoiled(1e200), "X.*too large"),
    "too large together": (np.full((50, 40), 1.3e153), "X.*too large"),
    "one NaN row": (spoiled(np.nan)[20:21], "X.*NaN"),
    "one too large row": (spoiled(1e200)[20:21], "X.*too large"),
    "too narrow": (GOOD[:, :39], "39.*40"),
    "too wide": (np.hstack([GOOD, GOOD]), "80.*40"),
}
NOT_ROWS: dict[str, tuple[Any, str]] = {
    "strings": (GOOD.astype(str).astype(object) + "x", "(?i)string|numeric|float"),
    "one-dimensional": (GOOD[0], "2D|1D"),
    "three-dimensional": (GOOD[None], "dim|2D|<= 2"),
    "a scalar": (3.0, "2D|scalar"),
    "complex": (GOOD + 1j, "(?i)complex"),
    "None": (None, "(?i)None|dtype|2D|scalar|NaN|float"),
    "objects": (np.full((3, 40), object()), "(?i)float|number"),
}


def assert_refused(sketch: Any, call: Any, match: str, error: Any = (ValueError, TypeError)) -> None:
    """Assert that the call raises the error, without a warning, and leaves the sketch unchanged bit for bit."""
    fitted = sketch.__sklearn_is_fitted__()
    before = fingerprint(sketch) if fitted else dict(vars(sketch))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(error, match=match):
            call()
    assert (fingerprint(sketch) if fitted else dict(vars(sketch))) == before


@every_sketch
@dense_and_sparse
@pytest.mark.parametrize("center", [False, True], ids=["", "centred"])
@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_rows_are_refused(make, sparse, center, case):
    X, match = BAD_ROWS[case]
    X = sp.csr_array(X) if sparse else X
    sketch = make(center=center).fit(sp.csr_array(GOOD) if sparse else GOOD)
    B = sketch.sketch_
    assert_refused(sketch, lambda: sketch.partial_fit(X), match)
    if not case.startswith("too narrow") and not case.startswith("too wide"):
        assert_refused(sketch, lambda: sketch.fit(X), match)
        assert_refused(make(center=center), lambda: make(center=center).fit(X), match)
    np.testing.assert_array_equal(sketch.sketch_, B)
    after = fingerprint(sketch.partial_fit(GOOD))
    untouched = make(center=center).fit(sp.csr_array(GOOD) if sparse else GOOD).partial_fit(GOOD)
    assert after == fingerprint(untouched)


@every_sketch
@pytest.mark.parametrize("case", NOT_ROWS)
def test_objects_that_are_not_rows_are_refused(make, case):
    X, match = NOT_ROWS[case]
    sketch = make().fit(GOOD)
    assert_refused(sketch, lambda: sketch.partial_fit(X), match)
    assert_refused(sketch, lambda: sketch.fit(X), match)
    unfitted = make()
    assert_refused(unfitted, lambda: unfitted.partial_fit(X), match)


@every_sketch
@dense_and_sparse
def test_an_error_in_a_later_block_undoes_the_earlier_ones(make, sparse):
    X = np.tile(GOOD, (100, 1))
    X[4990, 7] = np.nan
    sketch = make().fit(GOOD)
    assert_refused(sketch, lambda: sketch.partial_fit(sp.csr_array(X) if sparse else X), "NaN")
    unfitted = make()
    assert_refused(unfitted, lambda: unfitted.partial_fit(sp.csr_array(X) if sparse else X), "NaN")
    assert not hasattr(unfitted, "n_features_in_")


BAD_WEIGHTS: dict[str, tuple[Any, str]] = {
    "negative": (np.r_[np.ones(49), -0.5], "sample_weight.*-0.5"),
    "NaN": (np.r_[np.ones(49), np.nan], "sample_weight.*NaN"),
    "infinite": (np.r_[np.ones(49), np.inf], "sample_weight.*inf"),
    "too few": (np.ones(49), "sample_weight.*49.*50"),
    "too many": (np.ones(51), "sample_weight.*51.*50"),
    "a column": (np.ones((50, 1)), "sample_weight.*50, 1"),
    "strings": (["heavy"] * 50, "sample_weight"),
    "a string": ("balanced", "sample_weight"),
    "complex": (np.ones(50) * 1j, "sample_weight"),
    "negative scalar": (-1.0, "sample_weight.*-1"),
}


@every_sketch
@pytest.mark.parametrize("case", BAD_WEIGHTS)
def test_bad_weights_are_refused(make, case):
    weights, match = BAD_WEIGHTS[case]
    sketch = make().fit(GOOD)
    assert_refused(sketch, lambda: sketch.partial_fit(GOOD, sample_weight=weights), match)
    assert_refused(sketch, lambda: sketch.fit(GOOD, sample_weight=weights), match)
    unfitted = make()
    assert_refused(unfitted, lambda: unfitted.fit(GOOD, sample_weight=weights), match)


BAD_PARAMETERS: list[tuple[str, Any, Any]] = [
    ("sketch_size", 1, ValueError),
    ("sketch_size", 0, ValueError),
    ("sketch_size", -3, ValueError),
    ("sketch_size", 4.0, TypeError),
    ("sketch_size", True, TypeError),
    ("sketch_size", "4", TypeError),
    ("sketch_size", None, TypeError),
    ("buffer_size", 3, ValueError),
    ("buffer_size", 8.0, TypeError),
    ("buffer_size", True, TypeError),
    ("alpha0", -1.0, ValueError),
    ("alpha0", np.nan, ValueError),
    ("alpha0", np.inf, ValueError),
    ("alpha0", "1", TypeError),
    ("decay", 0.0, ValueError),
    ("decay", 1.5, ValueError),
    ("decay", -0.5, ValueError),
    ("decay", np.nan, ValueError),
    ("decay", None, TypeError),
    ("center", 1, (ValueError, TypeError)),
    ("center", "yes", (ValueError, TypeError)),
    ("solver", "qr", ValueError),
    ("solver", None, (ValueError, TypeError)),
    ("beta", 0.0, ValueError),
    ("beta", 1.5, ValueError),
    ("random_state", "seed", (ValueError, TypeError)),
    ("random_state", -1, (ValueError, TypeError)),
]


@every_sketch
@pytest.mark.parametrize("name, value, error", BAD_PARAMETERS)
def test_bad_parameters_are_refused(make, name, value, error):
    """Checked in fit, not in the constructor, which is scikit-learn's convention."""
    if name not in make().get_params():
        return
    unfitted = make().set_params(**{name: value})
    for call in (unfitted.fit, unfitted.partial_fit):
        assert_refused(unfitted, lambda call=call: call(GOOD), rf"(?s){name}.*{value}|{value}.*seed|Seed", error)
    if name == "random_state":
        return
    fitted = make().fit(GOOD)
    previous = fitted.get_params()[name]
    before = fingerprint(fitted)
    with pytest.raises(error, match=name):
        fitted.set_params(**{name: value}).partial_fit(GOOD)
    assert fingerprint(fitted.set_params(**{name: previous})) == before


@every_sketch
def test_an_empty_first_batch_is_refused(make):
    unfitted = make()
    for X in (np.empty((0, 5)), sp.csr_array((0, 5)), np.empty((3, 0)), np.empty((0, 0))):
        assert_refused(unfitted, lambda X=X: unfitted.partial_fit(X), "0 (sample|feature)")
        assert_refused(unfitted, lambda X=X: unfitted.fit(X), "0 (sample|feature)")
    assert not hasattr(unfitted, "n_features_in_")


@every_sketch
def test_first_rows_without_any_weight_are_refused(make):
    """The same as for an empty first batch. Later such batches change nothing."""
    unfitted = make()
    assert_refused(unfitted, lambda: unfitted.fit(GOOD, sample_weight=np.zeros(50)), "sample_weight.*zero")
    assert_refused(unfitted, lambda: unfitted.partial_fit(GOOD, sample_weight=np.zeros(50)), "sample_weight.*zero")
    fitted = make().fit(GOOD)
    assert_refused(fitted, lambda: fitted.fit(GOOD, sample_weight=np.zeros(50)), "sample_weight.*zero")
    before = fingerprint(fitted)
    assert fingerprint(fitted.partial_fit(GOOD, sample_weight=np.zeros(50))) == before


@every_sketch
def test_reading_before_any_rows_raises_not_fitted(make):
    sketch = make(center=True)
    for name in READS:
        with pytest.raises(AttributeError if name == "n_features_in_" else NotFittedError):
            getattr(sketch, name)
    for call in (
        sketch.second_moment,
        sketch.covariance,
        sketch.bracket_logdet,
        sketch.bracket_eigenvalues,
        lambda: sketch.bracket_mahalanobis(GOOD),
        lambda: sketch.forget(0.5),
        sketch.to_bytes,
    ):
        with pytest.raises(NotFittedError, match="fit"):
            call()
    with pytest.raises(AttributeError, match="center"):
        getattr(make().fit(GOOD), "mean_")  # noqa: B009


@every_sketch
@pytest.mark.parametrize("factor", [0.0, -0.5, 1.5, np.nan, "half", None, True])
def test_bad_factors_are_refused(make, factor):
    sketch = make().fit(GOOD)
    if isinstance(sketch, robustfd.SlidingFrequentDirections):
        return  # a sliding window refuses every factor
    assert_refused(sketch, lambda: sketch.forget(factor), "factor")


@every_sketch
@pytest.mark.parametrize("name, value", [("sketch_size", 5), ("buffer_size", 30), ("center", True), ("beta", 0.7)])
def test_structure_changed_after_rows_is_refused(make, name, value):
    sketch = make().fit(GOOD)
    previous = sketch.get_params().get(name, value)
    # In a randomised sketch, buffer_size is only the number of rows that are processed at a time.
    harmless = name == "buffer_size" and "random_state" in sketch.get_params()
    if previous == value or harmless:
        return
    before = fingerprint(sketch)
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        sketch.set_params(**{name: value}).partial_fit(GOOD)
    assert fingerprint(sketch.set_params(**{name: previous})) == before
    assert sketch.set_params(**{name: value}).fit(GOOD).n_samples_seen_ == 50


@every_sketch
@pytest.mark.parametrize(
    "options, value, weight",
    [({}, 6e153, 1.0), ({}, 1e150, 1e9), ({"center": True}, 6e153, 1.0), ({}, 1.0, 1e308)],
    ids=["rows", "weights", "centred", "weights alone"],
)
@dense_and_sparse
def test_rows_that_overflow_only_together_leave_the_sketch_usable(make, options, value, weight, sparse):
    """Each row is fine, but the sum of squares overflows: the row that causes it is refused, and the sketch works."""
    sketch = make(**options)
    refused = 0
    for t in range(20):
        X = np.zeros((1, 40))
        X[0, t] = value * (-1) ** t
        before = fingerprint(sketch) if t and sketch.__sklearn_is_fitted__() else None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                sketch.partial_fit(sp.csr_array(X) if sparse else X, sample_weight=[weight])
        except ValueError as error:
            refused += "too large" in str(error)
            if before is not None:
                assert fingerprint(sketch) == before
        if sketch.__sklearn_is_fitted__():
            assert np.isfinite(sketch.sketch_).all()
            assert np.isfinite(sketch.squared_norm_)
    assert refused > 0


@pytest.mark.parametrize("name", [name for name in SKETCHES if name != "Oja"])
def test_merging_incompatible_sketches_is_refused(name):
    make = SKETCHES[name]
    sketch = make().fit(GOOD)
    others: list[tuple[Any, str]] = [
        (make(center=True).fit(GOOD), "center"),
        (make(alpha0=1.0).fit(GOOD), "alpha0"),
        (make().fit(GOOD[:, :3]), "n_features_in_"),
        (robustfd.OjaSketch(4).fit(GOOD), "OjaSketch"),
        (GOOD, "ndarray"),
        (None, "NoneType"),
    ]
    if name != "sliding":
        others.append((make(decay=0.5).fit(GOOD), "decay"))
    if name != "exact":
        others.append((make().set_params(sketch_size=7).fit(GOOD), "sketch_size"))
    if name == "random projection":
        others.append((make().fit(GOOD), "random_state"))
    for other, match in others:
        assert_refused(sketch, lambda other=other: sketch.merge(other), match)
    with pytest.raises(TypeError):
        sketch + 3


def test_merge_takes_sketches_only():
    with pytest.raises(TypeError, match="single one"):
        robustfd.merge(robustfd.FrequentDirections(3))
    with pytest.raises(TypeError, match="takes sketches or models, got 3"):
        robustfd.merge([3])
    with pytest.raises(ValueError, match="at least one"):
        robustfd.merge([])


def test_oja_cannot_be_merged():
    one, two = (robustfd.OjaSketch(4, random_state=s).fit(GOOD) for s in (0, 1))
    assert_refused(one, lambda: one.merge(two), "cannot be merged", NotImplementedError)


@pytest.mark.parametrize("name", [name for name in SKETCHES if name not in ("Oja", "random projection")])
def test_merging_sketches_whose_sum_overflows_is_refused(name):
    one, two = (SKETCHES[name]().fit(np.eye(1, 3) * 9e152) for _ in range(2))
    assert_refused(one, lambda: one.merge(two), "too large")


@pytest.mark.parametrize("name", RULES)
def test_brackets_refuse_bad_rows(name):
    sketch = RULES[name].make(4).fit(GOOD)
    bad = [
        (GOOD[:, :3], "3.*40"),
        (GOOD[0], "2D|1D"),
        ([["a"] * 40], "(?i)string|numeric|float"),
        (spoiled(np.nan), "NaN"),
    ]
    for X, match in bad:
        assert_refused(sketch, lambda X=X: sketch.bracket_mahalanobis(X), match)


# ------------------------------------------------------------- memory ownership


@every_sketch
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_read_only_arrays_and_memory_maps_work(make, dtype, tmp_path: Path):
    X = (10 * GOOD).astype(dtype)
    np.save(tmp_path / "rows.npy", X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    locked = X.copy()
    locked.setflags(write=False)
    expected = fingerprint(make().fit(X))
    assert fingerprint(make().fit(mapped)) == expected
    assert fingerprint(make().fit(locked)) == expected
    S = sp.csr_array(X)
    for buffer in (S.data, S.indices, S.indptr):
        buffer.setflags(write=False)
    assert fingerprint(make().fit(S)) == fingerprint(make().fit(sp.csr_array(X)))


@every_sketch
@pytest.mark.parametrize("n", [1, 5, 50])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("form", [np.array, sp.csr_matrix, sp.csr_array, sp.csc_array])
def test_the_callers_rows_are_neither_changed_nor_referenced(make, n, center, form):
    X, weights = form(GOOD[:n]), np.linspace(0.5, 2, n)
    sketch = made(make, center=center, decay=0.9).fit(X, sample_weight=weights)
    before = fingerprint(sketch)
    dense = X.toarray() if sp.issparse(X) else X
    np.testing.assert_array_equal(dense, GOOD[:n])
    np.testing.assert_array_equal(weights, np.linspace(0.5, 2, n))
    (X.data if sp.issparse(X) else X)[...] = 7.0
    if sp.issparse(X):
        X.indices[...] = 0
    weights[...] = 3.0
    assert fingerprint(sketch) == before
    sketch.bracket_mahalanobis(GOOD)


@every_sketch
def test_unsorted_sparse_rows_of_the_caller_stay_unsorted(make):
    indices = np.array([3, 1, 1, 0], dtype=np.int32)
    X = sp.csr_array((np.ones(4), indices, np.array([0, 3, 4], dtype=np.int32)), shape=(2, 40))
    make().fit(X).bracket_mahalanobis(X)
    np.testing.assert_array_equal(indices, [3, 1, 1, 0])
    np.testing.assert_array_equal(X.indices, [3, 1, 1, 0])


@every_sketch
def test_attributes_can_be_written_to(make):
    sketch = make(center=True).fit(GOOD)
    before, reading = fingerprint(sketch), sketch.sketch_.copy()
    for name in ("sketch_", "components_", "singular_values_", "mean_"):
        value = getattr(sketch, name)
        if value.flags.writeable:
            value[...] = 0.0
    assert fingerprint(sketch) == before
    np.testing.assert_array_equal(sketch.sketch_, reading)
