"""`robustfd ridge` and `robustfd outliers`: what they write is what the library says."""

import csv

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge

from robustfd import MahalanobisDetector


def table(text):
    lines = list(csv.reader(text.splitlines()))
    return lines[0], lines[1:]


def test_ridge_writes_the_weights_by_name(run, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    y = X @ (1, -2, 0.5) + 4 + 0.1 * rng.standard_normal(200)
    rows = [",".join(map(repr, row)) for row in np.column_stack([X, y]).tolist()]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,y", *rows]) + "\n")
    head, lines = table(run("ridge", tmp_path / "t.csv", "-r", 3).out)
    expected = Ridge(alpha=3).fit(X, y)
    assert head == ["feature", "weight"] and [name for name, _ in lines] == ["(intercept)", "a", "b", "c"]
    np.testing.assert_allclose([float(v) for _, v in lines], [expected.intercept_, *expected.coef_], rtol=1e-8)
    done = run("ridge", tmp_path / "t.csv", "-r", 3, "-o", tmp_path / "w.csv", "--json")
    assert done.json["rows"] == 200 and done.json["intercept"] == pytest.approx(expected.intercept_)
    assert table((tmp_path / "w.csv").read_text())[1] == lines


def test_ridge_needs_labels_that_are_numbers(run, tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n1,red\n2,blue\n")
    done = run("ridge", tmp_path / "t.csv")
    assert done.status == 2 and "needs numbers as labels" in done.err
    (tmp_path / "t.csv").write_text("a,b\n1,2\n2,3\n")
    done = run("ridge", tmp_path / "t.csv")
    assert done.status == 2 and "--target" in done.err


def test_outliers_are_those_of_the_detector(run, svm, rows, tmp_path):
    X = sp.csr_matrix(rows[0])
    expected = MahalanobisDetector(5, contamination=0.05).partial_fit(X)
    head, lines = table(run("outliers", svm, "-m", 5, "--contamination", 0.05).out)
    assert head == ["distance", "outlier"]
    np.testing.assert_allclose([float(d) for d, _ in lines], expected.mahalanobis(X), rtol=1e-8)
    assert [o == "1" for _, o in lines] == (expected.predict(X) < 0).tolist()
    done = run("outliers", svm, "-m", 5, "--contamination", 0.05, "-o", tmp_path / "d.csv", "--json")
    assert done.json["outliers"] == sum(o == "1" for _, o in lines) > 0


def test_outliers_need_a_file_that_can_be_read_twice(run, svm):
    done = run("outliers", "-", "--features", 12, stdin=svm.read_bytes())
    assert done.status == 2 and "only once" in done.err
