"""Common behaviour of PCA, ridge regression and detector: choice of the sketch, snapshots, merging."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import robustfd
from robustfd import (
    ExactSecondMoment,
    MahalanobisDetector,
    RobustFrequentDirections,
    SketchedPCA,
    SketchedRidge,
    SlidingFrequentDirections,
    SnapshotError,
    TwoSidedFrequentDirections,
)
from robustfd.estimators._sketched import default_buffer, exact_is_better

pytestmark = pytest.mark.filterwarnings("ignore::robustfd.SketchSizeWarning")
MODELS = {
    "pca": SketchedPCA(3),
    "pca, sketch": SketchedPCA(3, sketch_size=8),
    "pca, share": SketchedPCA(0.8, sketch_size=20, whiten=True, decay=0.99),
    "pca, window": SketchedPCA(2, sketch_size=8, window=60),
    "ridge": SketchedRidge(0.5),
    "ridge, sketch": SketchedRidge(0.5, sketch_size=8, fit_intercept=False),
    "ridge, window": SketchedRidge(2.0, sketch_size=8, window=70),
    "detector": MahalanobisDetector(trim=0.1),
    "detector, sketch": MahalanobisDetector(5, contamination=0.1, decay=0.999),
    "detector, window": MahalanobisDetector(5, window=90),
}


def rows(n=400, d=20, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * 0.8 ** np.arange(d) + 1.0


def learned(model, X, *, whole=False):
    model = clone(model)
    y = (X[:, :2].sum(axis=1),) if isinstance(model, SketchedRidge) else ()
    return (model.fit if whole else model.partial_fit)(X, *y)


def says(model, X):
    """Return all outputs of a model for rows."""
    if isinstance(model, SketchedPCA):
        found = [
            model.transform(X),
            model.explained_variance_,
            model.explained_variance_interval_,
            model.score_samples(X),
        ]
        return np.concatenate([each.ravel() for each in found])
    if isinstance(model, SketchedRidge):
        return np.append(model.predict(X), model.coef_)
    return np.append(model.score_samples(X), [model.offset_, model.contamination_])


# -- choice of the sketch


@pytest.mark.parametrize(
    ("make", "wide"),
    [
        (SketchedPCA, TwoSidedFrequentDirections),
        (SketchedRidge, RobustFrequentDirections),
        (MahalanobisDetector, RobustFrequentDirections),
    ],
)
def test_auto_keeps_the_exact_matrix_of_few_features_and_a_sketch_of_many(make, wide):
    most = 200 if make is MahalanobisDetector else 1000
    assert type(learned(make(), rows(30, most)).sketch_) is ExactSecondMoment
    if make is MahalanobisDetector:
        assert type(learned(make(), rows(30, 201)).sketch_) is wide
    model = learned(make(), rows(30, 2001))
    assert type(model.sketch_) is wide and model.sketch_ is model.sketch_
    assert f"over {wide.__name__}(" in repr(model) and "over ExactSecondMoment(" in repr(learned(make(), rows(30, 5)))
    assert type(learned(make(sketch_size=10), rows(30, 5)).sketch_) is wide
    assert type(learned(make(window=20), rows(30, 5)).sketch_) is SlidingFrequentDirections
    assert repr(make()) == f"{make.__name__}()"


def test_sizes():
    assert exact_is_better(1400, 70) and not exact_is_better(1401, 70)
    assert exact_is_better(2000, 500) and not exact_is_better(2001, 500)
    assert learned(SketchedPCA(10), rows(5, 3000)).sketch_.sketch_size == 70
    assert learned(SketchedPCA(), rows(5, 3000)).sketch_.sketch_size == 100


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("m", [2, 8, 50, 150, 300])
def test_a_buffer_is_never_near_the_number_of_features(m, sparse):
    for d in (1, 3, 20, 50, 100, 399, 1000, 5000, 10**6):
        buffer = default_buffer(m, d, sparse=sparse)
        assert buffer >= m and not d / 2 < buffer < min(2 * d, max(m, 2 * d))
    large = {2: 16, 8: 64, 50: 400, 150: 800, 300: 1200}[m]
    assert default_buffer(m, 10**6, sparse=sparse) == (large if sparse else 4 * m)
    wide = sp.csr_array((np.ones(2), [1, 5], [0, 1, 2]), shape=(2, 10**5))
    assert learned(SketchedPCA(10), wide).sketch_.buffer_size == 8 * 70
    assert learned(SketchedRidge(), wide).sketch_.buffer_size == 8 * SketchedRidge()._auto_size()


@pytest.mark.slow
def test_sparse_rows_of_the_exact_matrix_are_not_made_dense():
    X = sp.random_array((20_000, 900), density=0.002, rng=np.random.default_rng(0), format="csr")
    seen = ExactSecondMoment(center=True).fit(X)
    dense = X.toarray()
    np.testing.assert_allclose(seen.covariance().to_dense(), np.cov(dense.T), atol=1e-15)
    pca = SketchedPCA(4).fit(X)
    exact = np.linalg.eigvalsh(np.cov(dense.T))[::-1][:4]
    np.testing.assert_allclose(pca.explained_variance_, exact, rtol=1e-10)
    low, high = pca.explained_variance_interval_.T
    assert np.all((low <= exact * (1 + 1e-12)) & (exact <= high * (1 + 1e-12)) & (high - low < 1e-8 * exact))


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("offset", [0.0, 1e7])
@pytest.mark.parametrize("decay", [1.0, 0.99, 0.3])
def test_batches_change_no_digit_of_the_exact_matrix(container, offset, decay):
    X = (
        np.random.default_rng(0).standard_normal((2500, 6)) * (np.random.default_rng(1).random((2500, 6)) < 0.1)
        + offset
    )
    whole, parts = (ExactSecondMoment(center=True, decay=decay) for _ in range(2))
    whole.fit(container(X))
    for part in np.array_split(X, [1, 2, 700, 1024, 2300]):
        parts.partial_fit(container(part))
    assert whole.to_bytes() == parts.to_bytes()
    u = decay ** np.arange(2499.0, -1.0, -1.0)
    mean = u @ (X - offset) / u.sum()
    truth = ((X - offset - mean).T * u) @ (X - offset - mean)
    assert np.linalg.norm(whole.second_moment().to_dense() - truth, 2) <= whole.error_bound_ + 1e-12 * np.trace(truth)


# -- snapshots


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_is_the_model_that_was_saved(name, whole, tmp_path):
    X = rows()
    model = learned(MODELS[name], X[:250], whole=whole)
    model.save(tmp_path / "model.rfd")
    loaded = robustfd.load(tmp_path / "model.rfd")
    assert type(loaded) is type(model) and loaded.get_params() == model.get_params()
    np.testing.assert_array_equal(says(loaded, X), says(model, X))
    assert loaded.to_bytes() == model.to_bytes()
    for each in (model, loaded):
        more = (X[250:], X[250:, 0]) if isinstance(each, SketchedRidge) else (X[250:],)
        each.partial_fit(*more)
    np.testing.assert_array_equal(says(loaded, X), says(model, X))
    assert loaded.n_samples_seen_ == model.n_samples_seen_
    np.testing.assert_array_equal(says(pickle.loads(pickle.dumps(model)), X), says(model, X))


@pytest.mark.parametrize("name", MODELS)
def test_any_batching_gives_the_same_bytes(name):
    if isinstance(MODELS[name], SketchedRidge):
        pytest.skip("X'y is added up by batches: equal to rounding only")
    X = rows(300)
    whole, parts = learned(MODELS[name], X), clone(MODELS[name])
    for part in np.array_split(X, [1, 90, 150, 151]):
        parts.partial_fit(part)
    assert parts.to_bytes() == whole.to_bytes()


def test_names_of_columns_are_saved():
    import pandas as pd

    X = pd.DataFrame(rows(30, 3), columns=["a", "b", "c"])
    loaded = SketchedPCA.from_bytes(SketchedPCA(2).fit(X).to_bytes())
    assert list(loaded.feature_names_in_) == ["a", "b", "c"]
    with pytest.raises(SnapshotError, match="holds a SketchedPCA, not a SketchedRidge"):
        SketchedRidge.from_bytes(loaded.to_bytes())


@pytest.mark.parametrize("name", MODELS)
def test_damaged_content_is_refused(name):
    import json

    from robustfd._container import seal, unseal

    kind, text, tensors = unseal(learned(MODELS[name], rows(), whole=name == "pca, sketch").to_bytes())
    document = json.loads(text)
    for key in tensors:
        for value in (tensors[key][:0], np.full_like(tensors[key], np.nan) if tensors[key].dtype.kind == "f" else None):
            if value is None or np.array_equal(value, tensors[key]):
                continue
            with pytest.raises(SnapshotError):
                type(MODELS[name]).from_bytes(b"".join(seal(kind, document, tensors | {key: value})))
    wrong = document | {"own": document["own"] | {"unknown": 1}}
    with pytest.raises(SnapshotError, match="unknown"):
        type(MODELS[name]).from_bytes(b"".join(seal(kind, wrong, tensors)))
    other = document | {"sketch": document["sketch"] | {"kind": "OjaSketch"}}
    with pytest.raises(SnapshotError, match="kind must be one of"):
        type(MODELS[name]).from_bytes(b"".join(seal(kind, other, tensors)))


# -- merging


@pytest.mark.parametrize("name", ["pca", "ridge", "detector"])
def test_exact_models_merge_to_the_model_of_all_rows(name):
    X = rows()
    one, two = (learned(MODELS[name], part) for part in np.split(X, [150]))
    both, whole = one.merge(two), learned(MODELS[name], X)
    assert both is one and both.n_samples_seen_ == 400
    if name == "detector":
        np.testing.assert_allclose(both.score_samples(X), whole.score_samples(X), rtol=1e-9)
    else:
        np.testing.assert_allclose(says(both, X), says(whole, X), atol=1e-9)
    fresh = clone(MODELS[name]).merge(two)
    np.testing.assert_array_equal(says(fresh, X), says(two, X))


def test_sketches_of_dense_and_sparse_rows_merge():
    X = rows(200, 60)
    one, two = (
        SketchedPCA(3, sketch_size=10).partial_fit(X),
        SketchedPCA(3, sketch_size=10).partial_fit(sp.csr_array(X + 1)),
    )
    both = one.merge(two)
    low, high = both.explained_variance_interval_.T
    exact = np.linalg.eigvalsh(np.cov(np.vstack([X, X + 1]).T))[::-1][:3]
    assert np.all((low <= exact) & (exact <= high))


def test_merged_detectors_go_on():
    X = rows(2000, 8)
    one, two = (MahalanobisDetector(6, contamination=0.05).partial_fit(part) for part in np.split(X, 2))
    one.merge(two).partial_fit(X)
    assert one.n_samples_seen_ == 4000
    assert np.mean(one.predict(X) == -1) == pytest.approx(0.05, abs=0.02)
    with pytest.raises(TypeError, match="other must be a MahalanobisDetector"):
        one.merge(SketchedPCA())
