"""Exported models predict in onnxruntime what they predict here, and what cannot be exported says why."""

import numpy as np
import pytest
import scipy.sparse as sp

import robustfd as rf

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")


def run(exported, X, dtype=np.float32):
    data = exported if isinstance(exported, bytes) else exported.SerializeToString()
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": X.astype(dtype)}), strict=True))


def rows(seed, n=600, d=12, *, missing=0.0, sparse=False, wild=False):
    """Return float32 rows of many scales; some columns are mostly 0, one is constant, one is always 0."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-3, 4, d) + rng.integers(-2, 3, d)
    X[:, : d // 3] *= rng.random((n, d // 3)) < 0.2
    X[:, -1], X[:, -2] = 0.0, 7.7
    if sparse:
        X *= rng.random((n, d)) < 0.1
    X[rng.random((n, d)) < missing] = np.nan
    if wild:
        X[::3, rng.integers(d)] = 1e30
        X[1] = 0.0
        X[2, -1] = 5.0  # a column that never occurred
        X[3] = np.nan if missing else 0.0
    return X.astype(np.float32)


LABELS = {
    "two": np.array([0, 1]),
    "text": np.array(["no", "yes", "maybe"]),
    "seven": np.arange(7) * 10,
    "floats": np.array([1.0, 2.0]),
    "booleans": np.array([False, True]),
}


@pytest.mark.parametrize("sketch_size", ["auto", 0, 4])
@pytest.mark.parametrize("missing", [0.0, 0.1])
@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("sparse", [False, True])
def test_a_classifier(labels, missing, sketch_size, sparse):
    X, classes = rows(0, missing=missing, sparse=sparse), LABELS[labels]
    score = np.nan_to_num(X[:, 5] / 10.0 ** np.floor(np.log10(np.nanmax(np.abs(X[:, 5])) + 1e-9)) + X[:, 6] * 0.1)
    y = classes[np.minimum((score.argsort().argsort() * len(classes)) // len(X), len(classes) - 1)]
    model = rf.SketchedNewtonClassifier(sketch_size, random_state=0).fit(sp.csr_array(X) if sparse else X, y)
    new = np.concatenate([X, rows(1, missing=missing, sparse=sparse), rows(2, missing=missing, wild=True)])
    found = run(model.to_onnx(), new)
    chances = model.predict_proba(new)
    assert list(found) == ["label", "probabilities"] and found["probabilities"].dtype == np.float32
    np.testing.assert_allclose(found["probabilities"], chances, atol=1e-5, rtol=0)
    clear = np.diff(np.sort(chances, axis=1)[:, -2:])[:, 0] > 2e-5
    assert clear.mean() > 0.9 and found["label"].tolist()[0] in classes.tolist()
    assert np.array_equal(found["label"][clear].astype(classes.dtype), model.predict(new)[clear])


@pytest.mark.parametrize("loss", ["squared", "huber", "absolute", "quantile", "poisson"])
@pytest.mark.parametrize("missing", [0.0, 0.1])
@pytest.mark.parametrize("sketch_size", ["auto", 0, 4])
def test_a_regressor(loss, missing, sketch_size):
    X = rows(0, missing=missing)
    y = np.exp(np.nan_to_num(X[:, 5] / np.nanmax(np.abs(X[:, 5])))) + 1.0
    model = rf.SketchedNewtonRegressor(sketch_size, loss=loss, random_state=0).fit(X, y)
    new = np.concatenate([X, rows(1, missing=missing), rows(2, missing=missing, wild=True)])
    found = run(model.to_onnx(), new)["variable"]
    np.testing.assert_allclose(found[:, 0], model.predict(new), rtol=1e-5, atol=1e-5)


def test_several_quantiles():
    X = rows(0, missing=0.1)
    y = np.nan_to_num(X[:, 5] / np.nanmax(np.abs(X[:, 5]))) + np.random.default_rng(0).standard_normal(len(X))
    model = rf.SketchedNewtonRegressor(loss="quantile", quantile=[0.1, 0.15, 0.2, 0.9], random_state=0).fit(X, y)
    new = np.concatenate([X, rows(1, missing=0.1), rows(2, missing=0.1, wild=True)])
    np.testing.assert_allclose(run(model.to_onnx(), new)["variable"], model.predict(new), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [1, 3, 63, 64, 65])
def test_a_model_of_few_rows(n):
    X, y = rows(3), np.arange(600) % 3
    model = rf.SketchedNewtonClassifier().partial_fit(X[:n], y[:n], classes=[0, 1, 2])
    np.testing.assert_allclose(run(model.to_onnx(), X)["probabilities"], model.predict_proba(X), atol=1e-5)
    model = rf.SketchedNewtonRegressor().partial_fit(X[:n], y[:n])
    np.testing.assert_allclose(run(model.to_onnx(), X)["variable"][:, 0], model.predict(X), atol=1e-5)


def test_double_precision_and_many_columns():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 4)) + 1.7e9, rng.integers(0, 2, 300)  # seconds, which float32 cannot tell apart
    model = rf.SketchedNewtonClassifier(random_state=0).fit(X, y)
    found = run(model.to_onnx(dtype="float64"), X, np.float64)
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), atol=1e-5)
    assert found["probabilities"].dtype == np.float64
    wide = sp.random_array((400, 20_000), density=0.001, format="csr", random_state=rng, dtype=np.float32)
    model = rf.SketchedNewtonClassifier(random_state=0).fit(wide, np.arange(400) % 2)
    new = sp.random_array((50, 20_000), density=0.001, format="csr", random_state=rng, dtype=np.float32)  # new columns
    np.testing.assert_allclose(
        run(model.to_onnx(), new.toarray())["probabilities"], model.predict_proba(new), atol=1e-5
    )


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pca_and_ridge(whiten, dtype):
    X = rows(0).astype(dtype) / np.abs(rows(0)).max(axis=0).clip(1e-9)
    pca = rf.SketchedPCA(3, whiten=whiten).fit(X)
    np.testing.assert_allclose(run(pca.to_onnx(), X)["variable"], pca.transform(X), atol=1e-5)
    for y in (X[:, 5] - 3, X[:, :2]):
        for intercept in (False, True):
            ridge = rf.SketchedRidge(fit_intercept=intercept).fit(X, y)
            found = run(ridge.to_onnx(dtype="float64"), X, np.float64)["variable"]
            np.testing.assert_allclose(found.reshape(y.shape), ridge.predict(X), atol=1e-5)


def test_what_cannot_be_exported_says_why(tmp_path):
    pd = pytest.importorskip("pandas")
    X, y = rows(0), np.arange(600) % 2
    table = pd.DataFrame({"colour": ["red", "blue"] * 30, "size": np.arange(60.0)})
    for model, message in [
        (rf.SketchedNewtonClassifier().fit(table, y[:60]), "columns of text or dates"),
        (rf.SketchedNewtonClassifier().learn_one({"a": 1.0}, 1), "it learned from dicts"),
        (rf.SketchedNewtonClassifier().learn_one(X[0], 1), "only one class"),
        (rf.SketchedNewtonClassifier(), "has seen no rows"),
        (rf.SketchedPCA(), "has seen no rows"),
        (rf.RFDSONClassifier().fit(X, y), "A RFDSONClassifier cannot be exported to ONNX, only"),
        (rf.MahalanobisDetector().fit(X), "A MahalanobisDetector cannot be exported"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            model.to_onnx()
    with pytest.raises(ValueError, match="dtype.*float16"):
        rf.SketchedPCA(2).fit(X).to_onnx(dtype="float16")


class Own(rf.SketchedPCA):
    """A class of a user."""


def test_a_class_of_a_user_is_exported():
    X = rows(0)
    np.testing.assert_allclose(run(Own(2).fit(X).to_onnx(), X)["variable"], Own(2).fit(X).transform(X), atol=1e-5)
