"""Dask: a real cluster of two worker processes gives the results of one process, even if a worker dies."""

import os
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

import robustfd
from tests.distributed.parts import assert_same, bandit_here, cut, log_of_a_bandit, merged_here, sizes, true_error

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

import dask.array as da  # noqa: E402
import dask.bag as db  # noqa: E402
import dask.dataframe as dd  # noqa: E402
import pandas as pd  # noqa: E402

from robustfd.distributed import dask as on_dask  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1500, 12))
    return x, np.where(x @ rng.standard_normal(12) > 0, "yes", "no")


def as_delayed(blocks):
    return [dask.delayed(block, traverse=False) for block in blocks]


def as_array(x, k):
    return da.from_array(x, chunks=(tuple(sizes(x.shape[0], k)), *x.shape[1:]))


@pytest.mark.parametrize("k", [1, 2, 7, 64])
@pytest.mark.parametrize("name", ["mnist", "a9a"])
def test_certificates_bound_the_true_error(client, request, name, k):
    x = request.getfixturevalue(name)[0][:1200]
    sketch = robustfd.RobustFrequentDirections(20)
    made = on_dask.sketch(as_delayed(cut(x, k)), sketch)
    assert_same(made, merged_here(sketch, cut(x, k)))
    assert made.n_samples_seen_ == 1200
    assert true_error(made, x) <= made.error_bound_ <= made.squared_norm_ / 10  # at most 1/20 with 20 rows


@pytest.mark.parametrize("fan_in", [2, 8])
def test_learners_are_those_of_one_machine(client, rows, fan_in):
    x, y = rows
    untuned = robustfd.SketchedNewtonClassifier
    for estimator in (untuned(), untuned(expand="trees", random_state=0), robustfd.RFDSONClassifier()):
        here = merged_here(estimator, cut(x, 7), cut(y, 7), ["no", "yes"])
        made = on_dask.fit(estimator, as_array(x, 7), as_array(y, 7), fan_in=fan_in)
        assert_same(made, here)
    assert (on_dask.predict(made, as_array(x, 7)).compute() == y).mean() > 0.9


def dies_once(block, flag):
    if not os.path.exists(flag):
        with open(flag, "w"):
            pass
        os._exit(1)
    return block


def test_a_worker_that_is_killed_changes_nothing(client, rows, tmp_path):
    x, y = rows
    blocks = as_delayed(cut(x, 7))
    blocks[5] = dask.delayed(dies_once)(blocks[5], str(tmp_path / "died"))
    estimator = robustfd.SketchedNewtonClassifier()
    made = on_dask.fit(estimator, blocks, as_delayed(cut(y, 7)))
    assert (tmp_path / "died").exists()
    assert_same(made, merged_here(estimator, cut(x, 7), cut(y, 7), ["no", "yes"]))
    assert made.n_samples_seen_ == 1500
    client.wait_for_workers(2)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_every_scheduler_gives_the_same_and_nothing_happens_before_compute(rows, scheduler):
    x, y = rows
    lazy = on_dask.fit(robustfd.SketchedNewtonClassifier(), as_array(x, 7), as_array(y, 7), compute=False)
    here = merged_here(robustfd.SketchedNewtonClassifier(), cut(x, 7), cut(y, 7), ["no", "yes"])
    assert lazy.compute(scheduler=scheduler).to_bytes() == here.to_bytes()
    with dask.config.set(scheduler=scheduler):
        sparse = as_array(x, 7).map_blocks(sp.csr_array)
        made = on_dask.sketch(sparse, 8)
        assert made.to_bytes() == merged_here(robustfd.RobustFrequentDirections(8), cut(sp.csr_array(x), 7)).to_bytes()


def test_all_kinds_of_collections_give_the_same_model(rows):
    x, y = rows
    classes, estimator = ["no", "yes"], robustfd.SketchedNewtonClassifier()
    with dask.config.set(scheduler="synchronous"):
        frame = dd.from_pandas(pd.DataFrame(x, columns=list("abcdefghijkl")).assign(y=y, w=1.0), npartitions=3)
        chunks = tuple(frame.map_partitions(len).compute().tolist())
        places = np.cumsum([0, *chunks])
        blocks, targets = ([each[a:b] for a, b in pairwise(places)] for each in (x, y))
        here = merged_here(estimator, blocks, targets, classes)
        wide = da.from_array(x, chunks=(chunks, (5, 7)))  # columns in two blocks
        bags = [db.from_delayed(as_delayed([list(part) for part in parts])) for parts in (blocks, targets)]
        for rows_, targets_ in (
            (wide, da.from_array(y, chunks=400)),
            (wide, y),
            (bags[0], bags[1]),
            (as_delayed(blocks), as_delayed(targets)),
        ):
            assert on_dask.fit(estimator, rows_, targets_, classes=classes).to_bytes() == here.to_bytes()
        named = on_dask.fit(estimator, frame, "y", sample_weight="w")
        np.testing.assert_array_equal(named.coef_, here.coef_)
        assert named.feature_names_in_.tolist() == list("abcdefghijkl")

        proba = here.predict_proba(x)
        np.testing.assert_array_equal(on_dask.predict_proba(here, wide).compute(), proba)
        np.testing.assert_array_equal(np.array(on_dask.predict_proba(here, bags[0]).compute()), proba)
        found = on_dask.predict_proba(named, frame.drop(columns=["y", "w"])).compute()
        np.testing.assert_array_equal(found.to_numpy(), proba)
        assert found.columns.tolist() == classes and found.index.equals(pd.RangeIndex(1500))
        found = on_dask.predict(named, frame).compute()  # finds its columns by name
        np.testing.assert_array_equal(found.to_numpy().astype(str), here.predict(x))
        delayed = dask.compute(*on_dask.predict(here, as_delayed(blocks)))
        np.testing.assert_array_equal(np.concatenate(delayed), here.predict(x))
        pca = robustfd.SketchedPCA(2, sketch_size=8).fit(x)
        np.testing.assert_allclose(on_dask.transform(pca, wide).compute(), pca.transform(x))


def test_estimators_over_sketches_are_those_of_one_machine(rows):
    x = rows[0]
    target = x[:, 0] + 2.0
    with dask.config.set(scheduler="synchronous"):
        for estimator, y, method in (
            (robustfd.SketchedPCA(2, sketch_size=8), None, "transform"),
            (robustfd.SketchedRidge(sketch_size=20), target, "predict"),
            (robustfd.MahalanobisDetector(sketch_size=20), None, "predict"),
            (robustfd.RFDSONRegressor(), target, "predict"),
        ):
            targets = None if y is None else cut(y, 7)
            here = merged_here(estimator, cut(x, 7), targets)
            made = on_dask.fit(estimator, as_array(x, 7), y)
            found = getattr(on_dask, method)(made, as_array(x, 7)).compute()
            np.testing.assert_allclose(found, getattr(here, method)(x), rtol=1e-9, atol=1e-9)
            assert made.n_samples_seen_ == 1500


def test_bags_of_dicts_and_of_sparse_rows(rows):
    items = [{"kind": "ab"[i % 2], "size": float(i)} for i in range(40)]
    labels = [i % 2 for i in range(40)]
    x, y = (db.from_sequence(each, npartitions=2) for each in (items, labels))
    with dask.config.set(scheduler="synchronous"):
        model = on_dask.fit(robustfd.SketchedNewtonClassifier(), x, y)
        assert model.n_features_in_ == 2**18 and on_dask.predict(model, x).compute()[-4:] == labels[-4:]
        sparse = sp.csr_array(rows[0])
        bag = db.from_delayed(
            as_delayed([[sparse[[i]] for i in range(100)], [], [sparse[[i]] for i in range(100, 200)]])
        )
        assert (
            on_dask.sketch(bag, 8).to_bytes()
            == on_dask.sketch(as_delayed([sparse[:100], sparse[100:200]]), 8).to_bytes()
        )


def test_weights_and_rounds(rows):
    x, y = rows
    weight = np.arange(1500) % 3
    with dask.config.set(scheduler="synchronous"):
        made = on_dask.sketch(as_array(x, 7), robustfd.ExactSecondMoment(), sample_weight=weight)
        np.testing.assert_allclose(made.second_moment() @ np.eye(12), (x.T * weight) @ x, rtol=1e-9, atol=1e-9)
        model = on_dask.fit(robustfd.SketchedNewtonRegressor(), as_array(x, 2), x[:, 0])
        again = on_dask.partial_fit(model, as_array(x, 2), x[:, 0])
        assert again.n_samples_seen_ == 3000 and model.n_samples_seen_ == 1500
        assert np.abs(again.predict(x) - x[:, 0]).mean() < np.abs(model.predict(x) - x[:, 0]).mean() + 1e-3


def test_bad_input_is_refused_by_a_sentence(rows):
    x, y = rows
    learner = robustfd.SketchedNewtonClassifier()
    with pytest.raises(
        TypeError, match="x must be a dask array, DataFrame, bag or a list of delayed blocks, got ndarray"
    ):
        on_dask.fit(learner, x, y)
    with pytest.raises(ValueError, match="x must have two dimensions"):
        on_dask.sketch(as_array(y, 2), 5)
    with pytest.raises(ValueError, match="y must have shape .1500,., as x has 1500 rows, got .3,"):
        on_dask.fit(learner, as_array(x, 2), y[:3])
    with pytest.raises(ValueError, match="y has 3 partitions, but x has 2"):
        on_dask.fit(learner, as_delayed([x, x]), as_delayed([y, y, y]))
    with pytest.raises(TypeError, match="y must be a Dask collection"):
        on_dask.fit(learner, as_delayed([x, x]), y)
    with pytest.raises(TypeError, match="RobustFrequentDirections has no predict"):
        on_dask.predict(robustfd.RobustFrequentDirections(4).fit(x), as_array(x, 2))
    with pytest.raises(ValueError, match="has seen no rows yet"):
        on_dask.predict(learner, as_array(x, 2))
    with pytest.raises(TypeError, match="model must be a fitted model"):
        on_dask.predict(on_dask.fit(learner, as_array(x, 2), y, compute=False), as_array(x, 2))
    with dask.config.set(scheduler="synchronous"), pytest.raises(ValueError, match="all 2 partitions are empty"):
        on_dask.sketch(as_delayed([x[:0], x[:0]]), 5)


def test_bandits_learn_arrays_and_tables(client):
    x, arm, reward, p = log = log_of_a_bandit()
    here = bandit_here(list(zip(*(cut(each, 5) for each in log), strict=True)))
    columns = [as_array(each, 5) for each in log]
    bandit = robustfd.ContextualBandit(random_state=0)
    made = on_dask.fit(bandit, columns[0], columns[2], arms=columns[1], probabilities=columns[3])
    np.testing.assert_allclose(made.predict_rewards(x), here.predict_rewards(x), rtol=1e-6)
    assert made.n_pulls_ == here.n_pulls_ and bandit.arms_ == []
    table = pd.DataFrame(x, columns=list("wxyz")).assign(arm=arm, reward=reward, p=p)
    frame = dd.from_pandas(table, npartitions=3)
    made = on_dask.fit(bandit, frame, "reward", arms="arm", probabilities="p")
    assert made.feature_names_in_.tolist() == list("wxyz") and made.n_samples_seen_ == 1200
    chances = on_dask.predict_proba(made, frame).compute()
    assert chances.columns.tolist() == made.arms_ and chances.shape == (1200, 3)
    more = on_dask.partial_fit(made, frame, "reward", arms="arm", probabilities="p")
    assert more.n_samples_seen_ == 2400
    with pytest.raises(ValueError, match="needs arms"):
        on_dask.fit(bandit, frame, "reward")
