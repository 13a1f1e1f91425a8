"""Boosted trees and blends of the core against their transcription, and what must hold for any rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustfd._core import (
    BINS,
    BLENDED,
    INNER,
    UNSPLIT,
    Objective,
    bin_column,
    blend,
    blended,
    level,
    levels,
    use_level,
)
from robustfd.learners import forest
from tests import reference_trees as reference

OBJECTIVES = ("logistic", "softmax", "squared", "pinball", "counts")


def rows_of(kind, n=160, d=4, seed=0):
    """Return rows, targets, weights and margins."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, d)).round(2)
    x[:, 1] = random.integers(0, 3, n)
    x[random.random((n, d)) < 0.1] = np.nan
    signal = np.nan_to_num(x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2]))
    outputs = 3 if kind == "softmax" else 1
    y = {
        "logistic": (signal > 0).astype(float),
        "softmax": np.digitize(signal, [-0.5, 0.5]).astype(float),
        "counts": random.poisson(np.exp(signal / 2)).astype(float),
    }.get(kind, signal)
    return x, y, random.uniform(0.5, 1.5, n), 0.1 * random.normal(size=(n, outputs))


def grown(kind, x, y, weight, margin, *, steps=(10**9,), seed=3):
    """Return trees that are grown in steps of this much work, in units of the margin."""
    objective, level_of = Objective[kind], {"pinball": 0.3, "squared": 1.5}.get(kind, 0.0)
    start = np.exp(margin) if kind == "counts" else margin
    build = forest.start_build(x, np.zeros(x.shape[1], bool), y, weight, start, objective)
    for k in range(10**6):
        forest.advance(build, objective, level_of, seed, steps[k % len(steps)])
        if build.finished:
            return build
    raise AssertionError("the trees are never finished")


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_trees_are_those_of_the_transcription(kind):
    x, y, weight, margin = rows_of(kind)
    build = grown(kind, x, y, weight, margin)
    weight = weight / weight.mean()
    if kind in ("squared", "pinball"):
        unit = build.unit[0]
        y, margin = (y - margin[:, 0]) / unit, np.zeros_like(margin)
    level_of = {"pinball": 0.3, "squared": 1.5}.get(kind, 0.0)
    count = 12
    trees = reference.boost(x.tolist(), y.tolist(), weight.tolist(), margin.tolist(), kind, level_of, 3, count)
    some = build.forest._replace(column=np.arange(len(build.forest.column), dtype=np.int32))
    found = some.read(x, np.zeros(x.shape[1], bool))[0][:, :count]
    expected = [[reference.value_of(tree, row) for tree in trees] for row in x.tolist()]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_steps_of_any_size_give_the_same_trees(kind):
    rows = rows_of(kind)
    at_once, slowly = grown(kind, *rows), grown(kind, *rows, steps=(1.0, 5e4, 1e5))
    for one, two in zip(at_once.forest[:5], slowly.forest[:5], strict=True):
        np.testing.assert_array_equal(one, two)


def test_all_levels_give_the_same_bits():
    before, found = level(), []
    try:
        for each in levels():
            use_level(each)
            build = grown("logistic", *rows_of("logistic"))
            found.append((*build.forest[:5], forest.result(build).read(rows_of("logistic")[0], np.zeros(4, bool))[0]))
    finally:
        use_level(before)
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


@given(st.lists(st.one_of(st.floats(-1e150, 1e150), st.just(float("nan"))), min_size=1, max_size=300))
def test_a_bin_is_the_number_of_cuts_below(values):
    values = np.array(values)
    n = len(values)
    bins, of_all = np.empty((n, 4), np.uint8), np.empty((2, BINS))
    bin_column(np.column_stack([np.zeros(n), values]), 1, of_all, bins)
    cuts = of_all[1]
    finite = cuts[np.isfinite(cuts)]
    assert np.all(np.diff(finite) > 0)
    assert np.all(np.isinf(cuts[len(finite) :]))
    np.testing.assert_array_equal(finite, reference.cuts_of(values.tolist()))
    expected = np.where(np.isnan(values), 0, 1 + (values[:, None] > finite).sum(axis=1))
    np.testing.assert_array_equal(bins[:, 2], expected)
    np.testing.assert_array_equal(bins[:, 3], (expected - 1) % 256)


@pytest.mark.parametrize("x", [np.zeros((200, 2)), np.full((200, 2), np.nan), np.ones((1, 1)), np.ones((200, 0))])
def test_rows_without_information_have_trees_without_splits(x):
    n = len(x)
    y, weight, margin = np.arange(n) % 2.0, np.ones(n), np.zeros((n, 1))
    if not x.shape[1]:
        with pytest.raises(ValueError, match="columns"):
            grown("logistic", x, y, weight, margin)
        return
    build = grown("logistic", x, y, weight, margin)
    assert (build.forest.limit == UNSPLIT).all()


def test_categories_become_means_of_targets():
    codes = np.array([5.0, 5.0, 9.0, np.nan, 9.0, 7.0])
    cells, y = np.column_stack([np.arange(6.0), codes]), np.array([1.0, 0.0, 1.0, 0.0, 1.0, 1.0])
    category = np.array([False, True])
    learned = forest.learn_codes(cells, category, y[:, None], np.ones(6))
    encoded = forest.encode(np.array([[0.0, 5.0], [1.0, 9.0], [2.0, np.nan], [3.0, 8.0]]), category, learned)
    mean, prior = y.mean(), forest.PRIOR
    expected = [(1 + prior * mean) / (2 + prior), (2 + prior * mean) / (2 + prior), np.nan, mean]
    np.testing.assert_allclose(encoded[:, 1], expected)
    np.testing.assert_array_equal(encoded[:, 0], np.arange(4.0))


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_blends_are_those_of_the_transcription(kind):
    _, y, _, _ = rows_of(kind, n=400)
    random, outputs = np.random.default_rng(1), 3 if kind == "softmax" else 1
    margins = random.normal(size=(3, len(y), outputs)) + np.arange(3)[:, None, None] / 4
    margins = np.exp(margins) if kind == "counts" else margins
    share, labels, steady = np.full(3, 1 / 3), np.full(2, 0.5), np.full(3, 1 / 3)
    out, totals, flat = np.empty((len(y), outputs)), np.zeros(BLENDED), margins.reshape(-1, outputs)
    read = np.empty_like(out)
    blend(Objective[kind], 0.3, flat, flat, y, np.ones(len(y)), share, labels, steady, totals, out, read)
    expected, last, mean = reference.blend(kind, 0.3, margins, y.tolist())
    np.testing.assert_allclose(out, expected, rtol=1e-9)
    np.testing.assert_allclose(share, last, rtol=1e-9)
    np.testing.assert_allclose(steady, mean, rtol=1e-9)
    np.testing.assert_allclose(read[0], margins[:, 0].mean(axis=0) if kind != "counts" else out[0], rtol=1e-9)
    again = np.empty_like(out)
    blended(Objective[kind], flat, np.array([1.0, 0.0, 0.0]), again)
    np.testing.assert_allclose(again, margins[0], rtol=1e-12)


def test_paths_sum_to_the_sums():
    x, y, weight, margin = rows_of("logistic")
    trees, none = forest.result(grown("logistic", x, y, weight, margin)), np.zeros(4, bool)
    sums, leaves = trees.read(x, none)
    parts = trees.paths(x, none, np.ones(sums.shape), None)
    np.testing.assert_allclose(parts.sum(axis=1) + trees.value[:, 0].sum(), sums.sum(axis=1))
    amounts = np.random.default_rng(0).normal(size=leaves.shape)
    divided = trees.paths(x, none, np.zeros(sums.shape), amounts)
    np.testing.assert_allclose(divided.sum(axis=1), amounts.sum(axis=1))


def test_gains_of_pairs_find_the_interaction():
    random = np.random.default_rng(0)
    x = random.normal(size=(4000, 4))
    y = x[:, 1] * x[:, 3] + 0.1 * random.normal(size=4000)
    trees = forest.result(grown("squared", x, y, np.ones(4000), np.zeros((4000, 1))))
    alone, pairs = forest.importances(trees, np.arange(4))
    assert set(np.argsort(alone)[2:]) == {1, 3}
    assert max(pairs, key=pairs.get) == (1, 3)


def test_arrays_of_other_shapes_are_refused():
    x, y, weight, margin = rows_of("logistic")
    trees = forest.result(grown("logistic", x, y, weight, margin))
    with pytest.raises(ValueError, match="no column"):
        trees.read(x[:, :1], np.zeros(1, bool))
    with pytest.raises(ValueError, match="depth"):
        trees._replace(limit=np.zeros((len(trees.limit), INNER - 1), np.uint8)).read(x, np.zeros(4, bool))


@pytest.mark.parametrize("damage", ["cuts", "bins", "places"])
def test_bins_that_do_not_fit_their_cuts_are_refused(damage):
    x, y, weight, margin = rows_of("logistic")
    objective = Objective.logistic
    build = forest.start_build(x, np.zeros(4, bool), y, weight, margin, objective)
    while build.done[0] < 4:
        forest.advance(build, objective, 0.0, 3, 1.0)
    if damage == "cuts":
        build.forest.cuts[0, 1:] = np.inf  # as if there were one
    else:
        build.bins[5, 0 if damage == "bins" else 1] = BINS + 1
    with pytest.raises(ValueError, match="a bin is out of range"):
        forest.advance(build, objective, 0.0, 3, 1e9)
