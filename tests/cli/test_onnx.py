"""`robustfd export --to onnx`."""

import numpy as np
import pytest

import robustfd as rf
from tests.estimators.test_onnx import run as predicted


def test_a_model_of_numbers(run, tmp_path):
    X = np.random.default_rng(0).standard_normal((300, 3)).astype(np.float32)
    X[::7, 1] = np.nan
    cells = [["" if np.isnan(v) else repr(v) for v in row] + ["yes" if row[0] > row[2] else "no"] for row in X.tolist()]
    (tmp_path / "rows.csv").write_text("a,b,c,label\n" + "".join(",".join(each) + "\n" for each in cells))
    assert run("train", tmp_path / "rows.csv", "-o", tmp_path / "model.rfd").status == 0
    done = run("export", tmp_path / "model.rfd", "--to", "onnx", "--json")
    data, model = (tmp_path / "model.onnx").read_bytes(), rf.load(tmp_path / "model.rfd")
    assert done.json == {"file": str(tmp_path / "model.onnx"), "bytes": len(data)}
    found = predicted(data, X)
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), atol=1e-5)
    assert found["label"].tolist() == model.predict(X).tolist()


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("rows.csv", "a,b,label\n" + "x,1,0\ny,2,1\n" * 40, ()),
        ("rows.csv", "a,b,label\n" + "x,1,0\ny,2,1\n" * 40, ("--categories", "onehot")),
        ("rows.csv", "a,b,label\n" + "2020-01-01,1,0\n2020-01-02,2,1\n" * 40, ()),
        ("rows.csv", "a,b,label\n" + "1,1,0\n2,2,1\n" * 40, ("--interactions", "a:b")),
        ("rows.vw", "1 | a:1 b\n-1 | c\n" * 40, ()),
    ],
    ids=["hashed", "one-hot", "dates", "products", "vw"],
)
def test_other_columns_are_refused(run, tmp_path, name, text, options):
    (tmp_path / name).write_text(text)
    done = run("train", tmp_path / name, "-o", tmp_path / "model.rfd", *options)
    assert done.status == 0, done.err
    done = run("export", tmp_path / "model.rfd", "--to", "onnx")
    assert done.status == 2 and "Only models of numeric columns can be." in done.err
    assert not (tmp_path / "model.onnx").exists()


def test_a_sketch_is_refused(run, tmp_path):
    rf.FrequentDirections(3).fit(np.eye(4)).save(tmp_path / "sketch.rfd")
    assert "it makes no predictions" in run("export", tmp_path / "sketch.rfd", "--to", "onnx").err
