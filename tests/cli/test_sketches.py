"""`robustfd sketch`, `merge`, `info`, `export`, `pca`, `ridge` and `outliers` give what the library gives."""

import csv
import json

import numpy as np
import pyarrow.parquet
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge

import robustfd
from robustfd import MahalanobisDetector, SketchedPCA
from robustfd.cli.sketch import METHODS


def same(one, two):
    assert type(one) is type(two) and one.n_samples_seen_ == two.n_samples_seen_
    np.testing.assert_array_equal(one.sketch_, two.sketch_)
    assert one.alpha_ == two.alpha_ and one.error_bound_ == two.error_bound_


@pytest.mark.parametrize("method", METHODS)
def test_sketch_is_that_of_the_library(run, svm, rows, tmp_path, method):
    seed = ["--seed", 3] if method in ("rp", "oja") else []
    done = run("sketch", svm, "-m", 6, "--method", method, *seed, "-o", tmp_path / "s.rfd", "--json", "-q")
    kind = getattr(robustfd, METHODS[method])
    given = {"sketch_size": 6, "random_state": 3}
    expected = kind(**{name: value for name, value in given.items() if name in kind._get_param_names()})
    expected.fit(sp.csr_matrix(rows[0]))
    sketch = robustfd.load(tmp_path / "s.rfd")
    same(sketch, expected)
    assert (done.status, done.err) == (0, "")
    assert done.json["alpha"] == sketch.alpha_ and done.json["error_bound"] == sketch.error_bound_
    assert done.json["rows"] == 400 and done.json["features"] == 12


def test_parts_merge_to_the_whole(run, svm, rows, tmp_path):
    text = svm.read_text().splitlines(keepends=True)
    for k in range(4):
        part = tmp_path / f"part{k}.svm"
        part.write_text("".join(text[100 * k : 100 * (k + 1)]))
        run("sketch", part, "-m", 6, "--features", 12, "-o", tmp_path / f"{k}.rfd")
    done = run("merge", *(tmp_path / f"{k}.rfd" for k in range(4)), "-o", tmp_path / "all.rfd", "--json")
    merged = robustfd.load(tmp_path / "all.rfd")
    parts = [
        robustfd.RobustFrequentDirections(6).fit(sp.csr_matrix(rows[0][100 * k : 100 * (k + 1)])) for k in range(4)
    ]
    same(merged, robustfd.merge(parts))
    assert done.json["rows"] == 400 and done.json["files"] == 4


def test_sketches_of_other_columns_do_not_merge(run, svm, tmp_path):
    run("sketch", svm, "-m", 6, "-o", tmp_path / "a.rfd")
    run("sketch", svm, "-m", 6, "--features", 13, "-o", tmp_path / "b.rfd")
    done = run("merge", tmp_path / "a.rfd", tmp_path / "b.rfd", "-o", tmp_path / "c.rfd")
    assert done.status == 2 and "other columns" in done.err
    assert not (tmp_path / "c.rfd").exists()


def test_models_of_files_merge(run, svm, rows, tmp_path):
    lines = svm.read_text().splitlines(keepends=True)
    for k in range(2):
        (tmp_path / f"{k}.svm").write_text("".join(lines[k::2]))
        run("train", tmp_path / f"{k}.svm", "-o", tmp_path / f"{k}.rfd", "--features", 12)
    done = run("merge", tmp_path / "0.rfd", tmp_path / "1.rfd", "-o", tmp_path / "all.rfd", "--json")
    assert done.status == 0, done.err
    assert done.json["rows"] == 400 and done.json["files"] == 2
    assert robustfd.load(tmp_path / "all.rfd").score(sp.csr_matrix(rows[0]), rows[1]) > 0.9
    assert run("predict", tmp_path / "all.rfd", svm, "-o", tmp_path / "p.csv").status == 0
    run("sketch", svm, "-o", tmp_path / "s.rfd")
    done = run("merge", tmp_path / "0.rfd", tmp_path / "s.rfd", "-o", tmp_path / "x.rfd")
    assert done.status == 2 and "holds a RobustFrequentDirections" in done.err


def test_info_brackets_the_eigenvalues(run, svm, rows, tmp_path):
    run("sketch", svm, "-m", 6, "-o", tmp_path / "s.rfd")
    done = run("info", tmp_path / "s.rfd", "--plot", tmp_path / "s.png", "--json")
    truth = np.linalg.eigvalsh(rows[0].T @ rows[0])[::-1]
    for value, found in zip(truth, done.json["spectrum"], strict=False):
        assert found["least"] <= value <= found["most"]
        assert abs(found["estimate"] - value) <= done.json["error_bound"]
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")
    text = run("info", tmp_path / "s.rfd").out
    assert "RobustFrequentDirections" in text and "at least" in text


def test_export_gives_the_arrays(run, svm, tmp_path):
    run("sketch", svm, "-m", 6, "--center", "-o", tmp_path / "s.rfd")
    sketch = robustfd.load(tmp_path / "s.rfd")
    assert run("export", tmp_path / "s.rfd").status == 0
    with np.load(tmp_path / "s.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["sketch"], sketch.sketch_)
        np.testing.assert_array_equal(arrays["mean"], sketch.mean_)
        assert arrays["alpha"] == sketch.alpha_ and arrays["error_bound"] == sketch.error_bound_
    run("export", tmp_path / "s.rfd", "--to", "csv", "-o", tmp_path / "b.csv")
    head, *lines = (tmp_path / "b.csv").read_text().splitlines()
    assert head == ",".join(map(str, range(1, 13)))
    np.testing.assert_array_equal([[float(v) for v in line.split(",")] for line in lines], sketch.sketch_)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
def test_pca_gives_the_scores_of_the_library(run, svm, rows, tmp_path, suffix):
    run("sketch", svm, "-m", 30, "--center", "-o", tmp_path / "s.rfd")  # larger than the rank: exact
    done = run("pca", tmp_path / "s.rfd", svm, "-k", 3, "-o", tmp_path / f"out.{suffix}", "--json")
    if suffix == "parquet":
        table = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pydict()
    else:
        with open(tmp_path / f"out.{suffix}") as file:
            names = file.readline().strip().replace('"', "").split("," if suffix == "csv" else "\t")
            values = np.loadtxt(file, delimiter="," if suffix == "csv" else "\t")
        table = dict(zip(names, values.T, strict=True))
    X = rows[0]
    values, vectors = np.linalg.eigh(np.cov(X.T))
    np.testing.assert_array_equal(table["target"], rows[1])
    for k in range(3):
        v = vectors[:, -1 - k]
        v = v * np.sign(v[np.abs(v).argmax()])
        np.testing.assert_allclose(table[f"pc{k + 1}"], (X - X.mean(axis=0)) @ v, atol=1e-8)
    np.testing.assert_allclose(done.json["explained_variance"], values[::-1][:3], rtol=1e-9)


def test_pca_to_standard_output_is_nothing_but_the_table(run, svm, tmp_path):
    run("sketch", svm, "-m", 6, "-o", tmp_path / "s.rfd")
    done = run("pca", tmp_path / "s.rfd", svm, "-k", 2)
    lines = done.out.splitlines()
    assert lines[0] == "target,pc1,pc2" and len(lines) == 401
    assert "without --center" in done.err


def test_result_is_json_on_request_and_a_table_otherwise(run, svm, tmp_path):
    done = run("sketch", svm, "-m", 6, "-o", tmp_path / "s.rfd", "--json")
    assert json.loads(done.out)["kind"] == "RobustFrequentDirections"
    assert "certified" not in done.out
    assert "relative error bound" in run("info", tmp_path / "s.rfd").out


def test_a_header_of_numbers_is_said_and_can_be_overruled(run, tmp_path):
    path, output = tmp_path / "rows.csv", tmp_path / "s.rfd"
    path.write_text("0,1,2,3,y\n" + "".join(f"{k / 7},{k},{-k},{k % 3},{k % 2}\n" for k in range(5)))
    seen = run("sketch", path, "-o", output, "--json")
    assert (seen.json["rows"], seen.json["features"]) == (5, 5)
    assert "the first line is read as column names. Use --no-header" in seen.err
    told = run("sketch", path, "-o", output, "--json", "--no-header", "--hash-bits", 3)
    assert (told.json["rows"], told.json["features"]) == (6, 12)
    assert "first line" not in told.err


@pytest.fixture
def timed(rows, tmp_path):
    """A table with a column of times, and those times."""
    X, times = rows[0], np.cumsum(np.random.default_rng(0).choice([0.0, 0.25, 1.0], len(rows[0])))
    lines = [",".join(["when", *(f"f{i}" for i in range(X.shape[1]))])]
    lines += [",".join(map(repr, [float(t), *map(float, x)])) for t, x in zip(times, X)]
    (tmp_path / "timed.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "timed.csv", times


def test_a_window_is_that_of_the_library(run, svm, rows, tmp_path):
    done = run("sketch", svm, "-m", 6, "--window", 150, "-o", tmp_path / "s.rfd", "--json")
    expected = robustfd.SlidingFrequentDirections(150.0, 6).fit(sp.csr_matrix(rows[0]))
    same(robustfd.load(tmp_path / "s.rfd"), expected)
    assert done.json["window"] == 150 and done.json["now"] == 400


def test_a_window_of_time(run, timed, rows, tmp_path):
    path, times = timed
    done = run("sketch", path, "-m", 6, "--window", 40, "--time", "when", "-o", tmp_path / "s.rfd", "--json")
    expected = robustfd.SlidingFrequentDirections(40.0, 6).fit(rows[0], times=times)
    same(robustfd.load(tmp_path / "s.rfd"), expected)
    assert done.json["features"] == 12 and done.json["now"] == times[-1]
    assert run("info", tmp_path / "s.rfd").status == 0


@pytest.mark.parametrize(
    "options, message",
    [
        (["--time", "when"], "--time when needs --window"),
        (["--window", 40, "--method", "fd"], "cannot be combined with --method or --decay"),
        (["--window", 40, "--decay", 0.5], "cannot be combined with --method or --decay"),
        (["--window", 40, "--time", "when", "--target", "f1"], "cannot be combined"),
        (["--window", -1], "window must be in"),
        (["--window", 40, "--time", "f1"], "times goes backwards"),
    ],
)
def test_windows_that_make_no_sense_are_refused(run, timed, tmp_path, options, message):
    done = run("sketch", timed[0], "-m", 6, *options, "-o", tmp_path / "s.rfd")
    assert done.status == 2 and message in done.err
    assert not (tmp_path / "s.rfd").exists()


def test_files_of_estimators_are_read_as_their_sketches(run, svm, rows, tmp_path):
    X = rows[0]
    half = len(X) // 2
    for name, part in (("one", X[:half]), ("two", X[half:])):
        SketchedPCA(3).fit(part).save(tmp_path / f"{name}.rfd")
    done = run("info", tmp_path / "one.rfd", "--json").json
    assert (done["kind"], done["sketch"], done["rows"]) == ("SketchedPCA", "ExactSecondMoment", half)
    done = run("merge", tmp_path / "one.rfd", tmp_path / "two.rfd", "-o", tmp_path / "both.rfd", "--json").json
    assert done["rows"] == len(X)
    whole = SketchedPCA(3).fit(X)
    done = run("pca", tmp_path / "both.rfd", svm, "-k", 2, "-o", tmp_path / "pc.csv", "--json").json
    np.testing.assert_allclose(done["explained_variance"], whole.explained_variance_[:2], rtol=1e-9)
    scores = np.loadtxt(tmp_path / "pc.csv", delimiter=",", skiprows=1)[:, -2:]
    np.testing.assert_allclose(scores, whole.transform(X)[:, :2], atol=1e-8)
    done = run("inspect", tmp_path / "both.rfd")
    assert done.status == 2 and "holds a SketchedPCA. Give a file that `robustfd train` wrote" in done.err


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
