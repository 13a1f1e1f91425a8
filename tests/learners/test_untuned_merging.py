"""The untuned learner merges by the rule of docs/online-mathematics.md."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from robustfd.learners import hessian, untuned_merging
from robustfd.learners.experts import NumberLoss, with_rungs
from robustfd.learners.hessian import FIRST, LADDER
from robustfd.learners.rows import as_rows
from robustfd.learners.untuned import UntunedState
from tests import reference_merging

# Few features (exact with two memories and with one), a sketch of fixed size, none; classes, numbers, counts.
KINDS = {
    "exact, two memories": ({}, 6, 1, None),
    "exact, one memory": ({}, 70, 1, None),
    "sketch": ({"sketch": 5}, 12, 1, None),
    "diagonal": ({"sketch": 0}, 12, 1, None),
    "three classes": ({}, 6, 3, None),
    "numbers": ({}, 6, 1, NumberLoss()),
    "numbers, sketch": ({"sketch": 4}, 8, 1, NumberLoss(huber=2.0)),
    "quantile": ({"sketch": 0}, 6, 1, NumberLoss(levels=(0.3,))),
    "quantiles": ({}, 6, 3, NumberLoss(levels=(0.1, 0.5, 0.9))),
    "quantiles, sketch": ({"sketch": 4}, 8, 2, NumberLoss(levels=(0.2, 0.7))),
    "counts": ({}, 6, 1, NumberLoss(counts=True)),
}


def rows_for(kind, n, *, seed=0, density=0.8, shift=0.0):
    """Return rows and targets; the density of some columns is near the limit for centring."""
    _, d, outputs, loss = KINDS[kind]
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, d)) + rng.uniform(-2, 2, d) + shift) * (rng.random((n, d)) < density)
    X *= np.exp(np.random.default_rng(5).uniform(-2, 2, d))
    z = X @ np.random.default_rng(6).standard_normal((d, max(outputs, 2))) / d
    if loss is None:
        y = (z + 0.3 * rng.standard_normal(z.shape)).argmax(axis=1).astype(float)
    elif loss.counts:
        y = rng.poisson(np.exp(np.clip(z[:, 0], -3, 3))).astype(float)
    else:
        y = 1000.0 + 50.0 * z[:, 0] + rng.standard_normal(n)
    return X, y


def trained(kind, X, y, *, share=1.0, sparse=False):
    options, d, outputs, loss = KINDS[kind]
    return learn(UntunedState(d, outputs, loss=loss, share=share, **options), X, y, sparse=sparse)


def learn(state, X, y, *, sparse=False):
    X = as_rows(sp.csr_array(X) if sparse else X, sparse=sparse)
    state.learn(X, y, np.ones(len(y)), np.empty((len(y), state.outputs)))
    return state


def assert_close(one, two, X, tolerance=1e-9):
    a, b = one.margins(X), two.margins(X)
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * (1.0 + np.abs(a).max()))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_merge_is_its_transcription(kind, sparse):
    X, y = rows_for(kind, 700)
    parts = [trained(kind, X[i], y[i], share=0.25, sparse=sparse) for i in (slice(0, 300), slice(300, 700))]
    settled = [untuned_merging._copy(part) for part in parts]
    untuned_merging._agree_on_form(*settled)
    for part in settled:
        untuned_merging._settle(part)
    numbers = [part.experts.features.table["number"] > 0 for part in parts]
    if KINDS[kind][1] > 10:
        assert np.any(numbers[0] != numbers[1])  # some features are centred in one part only
    expected = reference_merging.merge(*settled)
    merged = untuned_merging.merge(*parts)
    table, centre = merged.experts.features.table, merged.experts.features.centre
    assert merged.share == pytest.approx(expected["share"]) == pytest.approx(0.5)
    for j, row in enumerate(expected["features"]):
        assert table["inverse"][j] == pytest.approx(1.0 / row["S"], rel=1e-12)
        assert table["prior"][j] == pytest.approx(row["P"], rel=1e-12)
        if number := int(table["number"][j]):
            np.testing.assert_allclose(centre[:2, number - 1], [row["centre"], row["mean"]], rtol=1e-12)
    for name in ("slow", "fast"):
        np.testing.assert_allclose(table[name], expected[name], rtol=1e-9, atol=1e-12)
    w = merged.all_weights()
    np.testing.assert_allclose(w, expected["weights"], rtol=0, atol=1e-6 * np.abs(w).max())  # weights are float32
    for found, shares in zip((merged.experts.mix.share, merged.experts.mix.steady), expected["shares"], strict=True):
        np.testing.assert_allclose(found.ravel(), shares, rtol=1e-12)
    assert merged.experts.mix.targets["age"] == sum(part.experts.mix.targets["age"] for part in settled)
    targets = merged.experts.mix.targets
    assert targets["offset"][0] == pytest.approx(expected["targets"]["offset"])
    assert targets["unit"][0] == pytest.approx(expected["targets"]["unit"])


@given(kind=st.sampled_from(sorted(KINDS)), n=st.integers(1, 400), k=st.integers(1, 5), aside=st.booleans())
def test_merged_parts_of_a_split_are_the_whole(kind, n, k, aside):
    X, y = rows_for(kind, n + 200)
    m = trained(kind, X[:n], y[:n], share=0.5 if aside else 1.0)
    parts = untuned_merging.split(m, k, range(k))
    assert sum(part.share for part in parts) == pytest.approx(m.share)
    assert sum(part.seen for part in parts) == m.seen
    merged = parts[0]
    for part in parts[1:]:
        merged = untuned_merging.merge(merged, part)
    loss = KINDS[kind][3]
    assert_close(merged, m, X, 1e-7 if loss is None or loss.counts else 1e-9)  # sums of bets are float32
    np.testing.assert_allclose(merged.experts.mix.steady, m.experts.mix.steady, rtol=1e-9)
    assert merged.experts.mix.targets["age"][0] == pytest.approx(m.experts.mix.targets["age"][0])
    assert merged.share == pytest.approx(m.share)
    assert (merged.seen, merged.form, merged.size, merged.first) == (m.seen, m.form, m.size, FIRST)
    for name in ("count", "square", "inverse", "prior", "slow"):
        mine, theirs = (s.experts.features.table[name] for s in (merged, m))
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, err_msg=name)
    fades = [s.experts.features.table["fast"] * s.experts.features.totals["fade"] for s in (merged, m)]
    np.testing.assert_allclose(*fades, rtol=1e-9)
    for name in ("share", "plain", "follow"):
        np.testing.assert_allclose(
            getattr(merged.experts.mix, name), getattr(m.experts.mix, name), rtol=1e-9, atol=1e-15
        )
    # Both learn the same afterwards, although a merge updates the better Hessian.
    if merged.form == "diagonal" and not aside:
        assert_close(learn(merged, X[n:], y[n:]), learn(m, X[n:], y[n:]), X, 1e-4)


@given(
    kind=st.sampled_from(sorted(KINDS)),
    sizes=st.tuples(st.integers(0, 300), st.integers(0, 300)),
    whole=st.booleans(),
    sparse=st.booleans(),
)
def test_merging_is_commutative_and_changes_neither(kind, sizes, whole, sparse):
    n, more = sizes
    X, y = rows_for(kind, n + more + 10, seed=n)
    shares = (0.5, 0.5) if whole else (0.25, 0.5)
    one = trained(kind, X[:n], y[:n], share=shares[0], sparse=sparse)
    two = trained(kind, X[n : n + more], y[n : n + more], share=shares[1])
    before = one.pack()[1], two.pack()[1]
    both, other = untuned_merging.merge(one, two), untuned_merging.merge(two, one)
    assert_close(both, other, X, 1e-5)
    assert both.share == other.share == pytest.approx(sum(shares))
    for state, arrays in zip((one, two), before, strict=True):
        for name, array in state.pack()[1].items():
            np.testing.assert_array_equal(array, arrays[name], err_msg=name)


def test_the_turn_of_quantiles_does_not_depend_on_the_order():
    X, y = rows_for("quantiles", 203, seed=64)
    one, two = (trained("quantiles", X[part], y[part], share=0.5) for part in (slice(64), slice(64, 193)))
    assert_close(untuned_merging.merge(one, two), untuned_merging.merge(two, one), X, 1e-5)


def test_rows_set_aside_are_learned_when_all_parts_are_merged():
    X, y = rows_for("diagonal", 2000)
    parts = [trained("diagonal", X[i::4], y[i::4], share=0.25) for i in range(4)]
    aside = [sum(len(y) for _, y, _ in part.aside) for part in parts]
    assert all(n > 0 for n in aside)
    assert [part.seen + n for part, n in zip(parts, aside, strict=True)] == [500] * 4
    some = untuned_merging.merge(untuned_merging.merge(parts[0], parts[1]), parts[2])
    assert some.seen + sum(aside[:3]) == 1500
    whole = untuned_merging.merge(some, parts[3])
    assert whole.seen == 2000
    assert not whole.aside


def test_the_batch_size_does_not_matter_to_a_part():
    X, y = rows_for("diagonal", 900)
    one = trained("diagonal", X, y, share=0.1)
    two = trained("diagonal", X[:0], y[:0], share=0.1)
    for batch in np.split(np.arange(900), [1, 3, 64, 70, 200, 201, 640]):
        learn(two, X[batch], y[batch])
    for name, array in one.pack()[1].items():
        np.testing.assert_array_equal(array, two.pack()[1][name], err_msg=name)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("n", [20, 500])
@pytest.mark.parametrize("kind", ["sketch", "diagonal", "exact, two memories"])
def test_features_may_be_reordered(kind, n, sparse):
    X, y = rows_for(kind, 600)
    d = X.shape[1]
    places = np.append(np.arange(1, d)[::-1], d + 1)
    wide = np.zeros((600, d + 2))
    wide[:, places] = X
    state = trained(kind, X[:n], y[:n], share=0.5, sparse=sparse)
    moved = untuned_merging.with_features_at(state, places, d + 2)
    np.testing.assert_allclose(moved.margins(wide), state.margins(X), rtol=1e-5, atol=1e-5)
    learn(moved, wide[n:], y[n:], sparse=sparse)
    learn(state, X[n:], y[n:], sparse=sparse)
    np.testing.assert_allclose(moved.margins(wide), state.margins(X), rtol=1e-2, atol=1e-2)


def test_a_part_that_grows_past_two_memories_is_saved_and_merged():
    rng = np.random.default_rng(0)
    state = UntunedState(40, 1)
    X = rng.standard_normal((400, 90)) * (rng.random((400, 90)) < 0.3)
    y = (X[:, 0] > 0).astype(float)
    learn(state, X[:200, :40], y[:200], sparse=True)
    assert len(state.experts.exact.past) == 2
    state.widen(90)
    assert len(state.experts.exact.past) == 1
    before = state.margins(X[:, : state.d])
    learn(state, X[200:], y[200:], sparse=True)
    assert np.isfinite(before).all()
    other = learn(UntunedState(90, 1), X, y, sparse=True)
    assert untuned_merging.merge(state, other).seen == 800


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("few", [1, FIRST - 1, FIRST, 5 * FIRST])
def test_rows_set_aside_are_learned_once(kind, few):
    X, y = rows_for(kind, 40 * FIRST + few)
    large, small = (trained(kind, X[i], y[i], share=0.5) for i in (slice(few, None), slice(few)))
    assert large.rows_aside()
    for merged in (untuned_merging.merge(large, small), untuned_merging.merge(small, large)):
        assert merged.seen == len(y) and not merged.aside


def test_rows_set_aside_stay_with_parts_that_are_not_whole():
    kind = "diagonal"
    X, y = rows_for(kind, 50 * FIRST)
    parts = [trained(kind, X[i], y[i], share=0.25) for i in (slice(0, 30 * FIRST), slice(30 * FIRST, 30 * FIRST + 3))]
    merged = untuned_merging.merge(*parts)
    assert merged.seen + merged.rows_aside() == 30 * FIRST + 3
    before = [rows[0].copy() for rows in parts[0].aside]
    learn(merged, X, y)
    assert all(np.array_equal(a, b[0]) for a, b in zip(before, parts[0].aside, strict=True))


def test_rungs_that_one_part_dropped_are_in_use_again():
    X, y = rows_for("exact, two memories", 600)
    one, two = (trained("exact, two memories", X[i::2], y[i::2], share=0.5) for i in (0, 1))
    one.experts = with_rungs(one.experts, LADDER[:1], fast=True)
    two.experts = with_rungs(two.experts, LADDER[2:], fast=True)
    both, other = untuned_merging.merge(one, two), untuned_merging.merge(two, one)
    assert both.experts.exact.ladder.tolist() == other.experts.exact.ladder.tolist() == [1.0, 0.001, 1.0]
    assert_close(both, other, X)
    assert np.mean((both.margins(X)[:, 0] > 0) == y) > np.mean((one.margins(X)[:, 0] > 0) == y) - 0.05


@pytest.mark.parametrize("first", ["exact", "sketch"])
def test_an_exact_hessian_and_a_sketch_merge_to_an_exact_one(first):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2800, 40)) @ rng.standard_normal((40, 300)) + 0.1 * rng.standard_normal((2800, 300))
    y = (X[:, :5].sum(axis=1) > 0).astype(float)
    exact, sketch = UntunedState(300, 1, share=0.5), UntunedState(300, 1, share=0.5)
    learn(exact, X[:2000], y[:2000])
    learn(sketch, X[2000:], y[2000:])
    if exact.form != "exact":
        hessian.set_form(exact, "exact", exact.size, exact.seen)
    assert sketch.form == "sketch"
    both = untuned_merging.merge(*((exact, sketch) if first == "exact" else (sketch, exact)))
    assert both.form == "exact"
    assert np.mean((both.margins(X)[:, 0] > 0) == y) > 0.9
