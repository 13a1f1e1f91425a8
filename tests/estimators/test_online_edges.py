"""Edge cases: few rows or columns, constant or extreme columns, and every dtype of rows and labels."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import robustfd
from tests.estimators.online_faces import FACES, assert_same, every_face, in_batches, read, targets

rng = np.random.default_rng(0)
LABELS = np.arange(90) % 3


def finite(model, X):
    """Return all predictions and attributes of a model after checking that they are finite."""
    found = read(model, X)
    for name, value in found.items():
        assert value.dtype.kind not in "fc" or np.isfinite(value).all(), name
    if "proba" in found:
        np.testing.assert_allclose(found["proba"].sum(axis=1), 1.0)
        assert (found["proba"] >= 0).all()
    return found


STRANGE = {
    "one column": rng.standard_normal((90, 1)),
    "a constant column": np.column_stack([np.full(90, 3.7), LABELS + 0.1 * rng.standard_normal(90)]),
    "constant columns": np.full((90, 4), 0.1),
    "zeros": np.zeros((90, 5)),
    "fewer columns than the sketch has rows": rng.standard_normal((90, 2)),
    "rank one": rng.standard_normal((90, 1)) @ rng.standard_normal((1, 12)),
    "the same row": np.tile(rng.standard_normal(6), (90, 1)),
    "every row twice": np.repeat(rng.standard_normal((45, 6)), 2, axis=0),
    "a column twice": np.repeat(rng.standard_normal((90, 3)), 2, axis=1),
    "many zeros": rng.standard_normal((90, 20)) * (rng.random((90, 20)) < 0.05),
    "zero rows among others": rng.standard_normal((90, 6)) * (np.arange(90) % 4 == 0)[:, None],
    "tiny": 1e-150 * rng.standard_normal((90, 6)),
    "huge": 1e149 * rng.standard_normal((90, 6)),
    "columns of all sizes": rng.standard_normal((90, 7)) * 10.0 ** np.linspace(-149, 149, 7),
    "rows of all sizes": rng.standard_normal((90, 7)) * 10.0 ** np.linspace(-149, 149, 90)[:, None],
    "rows of falling sizes": rng.standard_normal((90, 7)) * 10.0 ** np.linspace(149, -149, 90)[:, None],
    "numbers of all sizes": rng.standard_normal((90, 7)) * 10.0 ** rng.uniform(-149, 149, (90, 7)),
    "subnormal": 5e-324 * rng.integers(-3, 4, (90, 5)),
    "far from zero": 1e9 + rng.standard_normal((90, 5)),
    "a column that wakes up": np.column_stack(
        [rng.standard_normal(90), (np.arange(90) > 60) * rng.standard_normal(90)]
    ),
    "a column that goes mad": np.column_stack([rng.standard_normal(90), 10.0 ** np.maximum(0, np.arange(90) - 60)]),
}


BEYOND = ("rows of all sizes", "rows of falling sizes", "numbers of all sizes")  # 10^298 times as large as others
BEYOND_PAPER = ("tiny", "huge", "a column that goes mad")  # for learners that do not scale features


@every_face
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", STRANGE)
def test_strange_rows(make, classification, name, sparse, monkeypatch):
    X, y = STRANGE[name], LABELS if classification else LABELS - 0.7
    if sparse:
        monkeypatch.setattr("robustfd.estimators.rfdson.NARROW", 0)
        X = sp.csr_array(X)
    try:
        finite(make().fit(X, y), X)
        assert finite(in_batches(make(), X, y, [1, 2, 30, 61]), X)["seen"] == 90
    except OverflowError:  # an error is fine, a silent failure is not
        assert name in BEYOND or ("RFD" in str(make()) and name in BEYOND_PAPER)


@every_face
@pytest.mark.parametrize("scale", [1e-149, 1e-6, 1.0, 1e6, 1e149])
def test_one_row_and_two(make, classification, scale):
    X = scale * rng.standard_normal((2, 3))
    extra = {"classes": [0, 1]} if classification else {}
    model = make().partial_fit(X[:1], [1], **extra)
    assert finite(model, X)["seen"] == 1
    assert model.predict(X[:1]).shape == (1,)
    assert finite(model.partial_fit(X[1:], [0], **extra), X)["seen"] == 2
    one = make().learn_one(X[0], 1)
    assert one.predict_one(X[0]) == 1 if classification else np.isfinite(one.predict_one(X[0]))


@every_face
def test_no_rows(make, classification):
    X, y = targets(classification)
    extra = {"classes": [0, 1, 2]} if classification else {}
    with pytest.raises(ValueError, match="0 sample"):
        make().partial_fit(X[:0], y[:0], **extra)
    with pytest.raises(ValueError, match="0 sample"):
        make().fit(X[:0], y[:0])
    with pytest.raises(ValueError, match="0 feature"):
        make().fit(X[:, :0], y)
    model, same = make().fit(X, y), make().fit(X, y)
    model.partial_fit(X[:0], y[:0]).partial_fit(sp.csr_array(X[:0]), y[:0])
    model.partial_fit(X, y, sample_weight=np.zeros(200))
    assert_same(model, same, X)
    for name in ("predict", "predict_proba", "decision_function"):
        if hasattr(model, name):
            assert len(getattr(model, name)(X[:0])) == len(getattr(model, name)(sp.csr_array(X[:0]))) == 0


@every_face
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.int8, np.uint8, bool])
def test_types_of_numbers(make, classification, dtype):
    X, y = targets(classification)
    X = np.abs(X * 3).astype(dtype)
    expected = make().fit(X.astype(np.float64), y)
    for container in (np.asarray, sp.csr_array, np.asfortranarray, lambda x: np.repeat(x, 2, axis=0)[::2]):
        assert_same(make().fit(container(X) if dtype != np.float16 else X, y), expected, X, tolerance=1e-9)
    assert expected.predict(X[:3]).dtype == (y.dtype if classification else np.float64)


@every_face
def test_lists_and_frames(make, classification):
    X, y = targets(classification)
    expected = make().fit(X, y)
    assert_same(make().fit(X.tolist(), y.tolist()), expected, X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make().fit(pd.DataFrame(X), pd.Series(y))
        np.testing.assert_allclose(model.predict(pd.DataFrame(X)), expected.predict(X), rtol=1e-6)
    with pytest.warns(UserWarning, match="column-vector"):
        make().fit(X, y[:, None])


@every_face
def test_memory_maps_and_arrays_that_must_not_be_written_to(make, classification, tmp_path):
    X, y = targets(classification)
    expected = make().fit(X, y)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    mapped, labels = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("X", "y"))
    assert_same(in_batches(make(), mapped, labels, [50]), in_batches(make(), X, y, [50]), mapped)
    assert_same(make().fit(mapped, labels), expected, X)
    rows = sp.csr_array(X)
    for part in (rows.data, rows.indices, rows.indptr):
        part.setflags(write=False)
    assert_same(make().fit(rows, labels), make().fit(sp.csr_array(X), y), rows)


@every_face
@pytest.mark.parametrize("wide", [False, True])
def test_sparse_rows_out_of_order(make, classification, wide):
    """Explicit zeros, unsorted indices, duplicates and int64 indices give the same rows."""
    X, y = targets(classification, density=0.5)
    if wide:
        X = np.hstack([X, np.zeros((200, 600))])
    plain = sp.csr_array(X)
    expected = make().fit(plain, y)
    zeros = sp.csr_array((np.append(plain.data, 0.0), np.append(plain.indices, 5), np.append(plain.indptr[:-1], plain.nnz + 1)), shape=X.shape)  # fmt: skip  # noqa: E501
    turned = plain.copy()
    for i in range(200):
        part = slice(turned.indptr[i], turned.indptr[i + 1])
        turned.data[part], turned.indices[part] = turned.data[part][::-1].copy(), turned.indices[part][::-1].copy()
    turned.has_sorted_indices = False
    halves = sp.csr_array((np.repeat(plain.data / 2, 2), np.repeat(plain.indices, 2), 2 * plain.indptr), shape=X.shape)
    long = plain.copy()
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    for same in (zeros, turned, halves, long):
        before = same.indices.copy()
        assert_same(make().fit(same, y), expected, plain, tolerance=1e-9)
        np.testing.assert_array_equal(same.indices, before)  # the caller's matrix is unchanged


LABELLINGS = {
    "strings": np.array(["no", "maybe", "yes"]),
    "objects": np.array(["no", "maybe", "a longer one"], dtype=object),
    "integers": np.array([-5, 7, 3]),
    "small integers": np.array([200, 1, 7], dtype=np.uint8),
    "floats": np.array([2.0, -1.0, 0.0]),
    "booleans": np.array([True, False]),
}


@pytest.mark.parametrize("make", [make for make, classification in FACES.values() if classification])
@pytest.mark.parametrize("name", LABELLINGS)
def test_labels_of_every_type(make, name):
    labels = LABELLINGS[name]
    X, y = targets(True, classes=len(labels))
    y[:3] = np.arange(3) % len(labels)
    ordered, named = np.sort(labels), np.sort(labels)[y]
    plain, model = make().fit(X, y), make().fit(X, named)
    np.testing.assert_array_equal(model.classes_, ordered)
    assert model.classes_.dtype == model.predict(X).dtype == named.dtype
    np.testing.assert_array_equal(model.predict(X), ordered[plain.predict(X)])
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    one = make()
    for row, label in zip(X[:60], named, strict=False):
        one.learn_one(row, label)
    assert set(one.classes_.tolist()) == set(ordered.tolist())
    guess = one.predict_one(X[0])
    assert guess in ordered.tolist() and type(guess) in (str, int, float, bool)
    assert set(one.predict_proba_one(X[0])) == set(ordered.tolist())
    if name == "booleans":
        assert type(guess) is bool


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_targets_that_are_constant_or_of_any_size(loss):
    X = rng.standard_normal((90, 4))
    for level in (0.0, 1.0, -1e-140, 1e140):
        for model in (
            robustfd.SketchedNewtonRegressor(4, loss=loss, shuffle=False),
            robustfd.RFDSONRegressor(4, loss=loss),
        ):
            predicted = finite(model.fit(X, np.full(90, level)), X)["predict"]
            if isinstance(model, robustfd.SketchedNewtonRegressor):
                np.testing.assert_allclose(predicted, level, rtol=1e-9)
    y = X[:, 0] * 10.0 ** np.linspace(-140, 140, 90)
    for model in (
        robustfd.SketchedNewtonRegressor(4, loss=loss, shuffle=False),
        robustfd.RFDSONRegressor(4, loss=loss),
    ):
        finite(model.fit(X, y[::-1].copy()), X)
        try:
            finite(model.fit(X, y), X)
        except OverflowError:  # every row is an extreme outlier
            assert loss == "huber"


@every_face
@pytest.mark.parametrize("weight", [1e-300, 1e-12, 1e12, 1e100, 1e300])
def test_weights_of_any_size(make, classification, weight):
    X, y = targets(classification)
    for weights in (np.full(200, weight), np.where(np.arange(200) % 3 == 0, weight, 1.0)):
        try:
            finite(make().fit(X, y, sample_weight=weights), X)
        except OverflowError:
            assert not 1e-100 < weight < 1e100


def test_after_an_overflow_there_is_the_model_of_before():
    X, y = targets(True)
    huge = np.where(np.arange(200) > 100, 1e308, 1.0)
    for name, (make, _) in FACES.items():
        if name.startswith("untuned"):
            continue  # nothing overflows: see below
        model = make(**({"normalize_rows": False} if "classifier" in name else {})).fit(X, y)
        before = read(model, X)
        with pytest.raises(OverflowError, match="overflow"):
            model.fit(X, y, sample_weight=huge)
        for name, value in read(model, X).items():
            np.testing.assert_array_equal(value, before[name], err_msg=name)
        with pytest.raises(OverflowError, match="overflow"):
            model.partial_fit(X, y, sample_weight=huge)
        for name, value in read(model, X).items():
            np.testing.assert_array_equal(value, before[name], err_msg=name)
        assert finite(model.partial_fit(X, y).learn_one(X[0], y[0]), X)


@pytest.mark.parametrize("name", [name for name in FACES if name.startswith("untuned")])
def test_the_untuned_learn_on_after_a_row_of_any_size_and_weight(name):
    make, classification = FACES[name]
    X, y = targets(classification, n=400)
    weight, odd = np.ones(400), X.copy()
    weight[200], odd[100, 3] = 1e308, 1e150
    model = make().fit(odd, y, sample_weight=weight)
    assert finite(model, X)
    assert finite(type(model).from_bytes(model.to_bytes()), X)
    assert model.partial_fit(X, y).score(X, y) > 0.5
