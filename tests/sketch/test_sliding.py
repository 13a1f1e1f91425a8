"""The sliding window: certificates at every row of adversarial streams, clocks, transcription, merging."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import robustfd
from robustfd import SlidingFrequentDirections
from tests.reference_sliding import SlidingReference
from tests.sketch.family import fingerprint

EPS = float(np.finfo(float).eps)
D = 12
seeds = st.integers(0, 2**32 - 1)


def hostile(kind: str, n: int, d: int = D, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * 0.8 ** np.arange(d)
    if kind == "burst":
        X[n // 3 : n // 3 + n // 12] *= 1e3
    elif kind == "one row of 1e140":
        X[n // 3] *= 1e140
    elif kind == "zeros":
        X[rng.random(n) < 0.7] = 0.0
        X[n // 2 : n // 2 + n // 3] = 0.0
    elif kind == "lengths over 12 orders":
        X *= 10.0 ** rng.uniform(-6, 6, (n, 1))
    elif kind == "repeated":
        X = X[rng.integers(0, min(3, n), n)]
    elif kind == "turning":
        X = X * (np.arange(d) < 3)
        X[n // 2 :] = np.roll(X[n // 2 :], d // 2, axis=1)
    elif kind == "growing":
        X *= np.exp(np.linspace(0, 30, n))[:, None]
    elif kind == "fading":
        X *= np.exp(-np.linspace(0, 30, n))[:, None]
    elif kind == "large mean":
        X += 100.0
    return X


KINDS = [
    "plain",
    "burst",
    "one row of 1e140",
    "zeros",
    "lengths over 12 orders",
    "repeated",
    "turning",
    "growing",
    "fading",
]


def scatter(A: np.ndarray, weights: Any = None, center: bool = False) -> np.ndarray:
    weights = np.ones(len(A)) if weights is None else np.asarray(weights)
    if center and len(A):
        A = A - weights @ A / weights.sum()
    return (A * weights[:, None]).T @ A


def assert_certified(sketch: Any, A: np.ndarray, weights: Any = None, rounding_scale: float = 0.0) -> None:
    """Assert the certificate, the brackets and the totals, for the rows A that are in the window."""
    T, raw = scatter(A, weights, sketch.center), scatter(A, weights)
    unit = max(float(np.trace(raw)), rounding_scale) or 1.0
    tol = 1e-11 + 8 * EPS * sketch.alpha0 / unit
    T = T / unit
    M = sketch.second_moment()
    approximation = M.to_dense() / unit - sketch.alpha0 / unit * np.eye(len(T))
    error = np.abs(np.linalg.eigvalsh(T - approximation)).max()
    assert error <= sketch.error_bound_ / unit * (1 + 1e-9) + tol
    lower, upper = sketch.bracket_eigenvalues()
    values = np.linalg.eigvalsh(T)[::-1][: len(lower)]
    assert np.all((lower - sketch.alpha0) / unit <= values + tol)
    assert np.all(values <= (upper - sketch.alpha0) / unit + tol)
    assert len(sketch.sketch_) <= 6 * sketch.sketch_size + 2
    if not sketch.center:
        assert abs(sketch.squared_norm_ / unit - np.trace(T)) <= sketch._view.norm_slack / unit + tol


# ------------------------------------------------------------- the certificate


@pytest.mark.parametrize("center", [False, True], ids=["", "centred"])
@pytest.mark.parametrize("kind", [*KINDS, "large mean"])
@pytest.mark.parametrize("window, m", [(1, 3), (7, 3), (40, 2), (60, 4), (150, 5)])
def test_certificate_holds_at_every_row_of_hostile_streams(kind, window, m, center):
    """Windows of one row, windows short enough to be stored exactly, and longer ones."""
    X = hostile(kind, 330)
    sketch = SlidingFrequentDirections(window, m, center=center)
    for t in range(len(X)):
        sketch.partial_fit(X[t : t + 1])
        if t % 7 == 0 or t > 322 or 107 < t < 113:
            A = X[max(0, t + 1 - window) : t + 1]
            # With centring, the frame comes from the first rows, so rounding errors are relative to them.
            rounding_scale = float(np.trace(scatter(X[: t + 1][-2 * window :]))) if center else 0.0
            assert_certified(sketch, A, rounding_scale=rounding_scale)
            assert sketch.weight_sum_ == len(A)


@given(
    seed=seeds,
    n=st.sampled_from([1, 9, 60, 250]),
    d=st.sampled_from([1, 2, 7, 30]),
    m=st.sampled_from([2, 3, 6]),
    window=st.sampled_from([1, 2, 11, 45, 120, 10_000]),
    kind=st.sampled_from([*KINDS, "large mean"]),
    scale=st.sampled_from([1e-140, 1.0, 1e100]),
    sparse=st.booleans(),
    center=st.booleans(),
    alpha0=st.sampled_from([0.0, 0.5]),
)
def test_certificate_for_any_shape_scale_and_shorter_window(seed, n, d, m, window, kind, scale, sparse, center, alpha0):
    rng = np.random.default_rng(seed)
    X = hostile(kind, n, d, seed)
    X = X * (scale if kind != "one row of 1e140" else 1.0)
    X = X * (rng.random(X.shape) < 0.3) if sparse else X
    sketch = SlidingFrequentDirections(window, m, center=center, alpha0=alpha0)
    for stop in np.unique(np.append(rng.integers(1, n + 1, 3), n)):
        seen = getattr(sketch, "n_samples_seen_", 0) if hasattr(sketch, "n_features_in_") else 0
        sketch.partial_fit(sp.csr_array(X[seen:stop]) if sparse else X[seen:stop])
        for shorter in {window, min(window, 1 + int(rng.integers(0, window))), window / 3}:
            A = X[max(0, stop - int(np.ceil(shorter))) : stop]
            rounding_scale = float(np.trace(scatter(X[max(0, stop - 2 * window) : stop])))
            assert_certified(
                sketch.within(shorter), A, rounding_scale=rounding_scale if center or shorter < window else 0.0
            )
    moment = sketch.second_moment(window=min(window, 5))
    np.testing.assert_array_equal(moment.to_dense(), sketch.within(min(window, 5)).second_moment().to_dense())


@pytest.mark.parametrize("center", [False, True], ids=["", "centred"])
@settings(max_examples=12)
@given(seed=seeds, m=st.sampled_from([2, 4]), window=st.sampled_from([0.5, 3.0, 20.0]), weighted=st.booleans())
def test_certificate_by_time_with_ties_gaps_and_time_without_rows(seed, m, window, weighted, center):
    rng = np.random.default_rng(seed)
    n = 200
    X = hostile("lengths over 12 orders" if seed % 3 == 0 else "plain", n, 6, seed)
    gaps = rng.choice([0.0, 0.0, 0.0, 0.05, 0.3, 4.0], n, p=[0.3, 0.2, 0.1, 0.2, 0.19, 0.01])
    times = 1e6 + np.cumsum(gaps)
    weights = rng.choice([0.5, 1.0, 3.0], n) if weighted else np.ones(n)
    sketch = SlidingFrequentDirections(window, m, center=center)
    seen = 0
    while seen < n:
        stop = min(n, seen + int(rng.integers(1, 25)))
        sketch.partial_fit(X[seen:stop], times=times[seen:stop], sample_weight=weights[seen:stop])
        now, seen = times[stop - 1], stop
        if rng.random() < 0.2:
            now = min(now + rng.choice([0.01, 1.0, 100.0]), times[stop] if stop < n else np.inf)
            sketch.advance(now)
        assert sketch.now_ == now
        for shorter in (window, 0.4 * window):
            live = times[:stop] > now - shorter
            near = times[:stop] > now - 2 * window
            rounding_scale = float(np.trace(scatter(X[:stop][near], weights[:stop][near])))
            assert_certified(
                sketch.within(shorter), X[:stop][live], weights[:stop][live], rounding_scale=rounding_scale
            )


@settings(max_examples=12)
@given(seed=seeds, m=st.sampled_from([2, 4]), window=st.sampled_from([0.3, 5.0, 60.0]))
def test_certificate_by_weight(seed, m, window):
    rng = np.random.default_rng(seed)
    X, weights = hostile("plain", 150, 6, seed), rng.choice([0.0, 0.01, 1.0, 4.0], 150)
    weights[0] = 1.0
    clock = np.cumsum(weights)
    sketch = SlidingFrequentDirections(window, m, clock="weight")
    for start in range(0, 150, 7):
        part = slice(start, start + 7)
        sketch.partial_fit(X[part], sample_weight=weights[part])
        live = (clock[: start + 7] > sketch.now_ - window) & (weights[: start + 7] > 0)
        assert_certified(sketch, X[: start + 7][live], weights[: start + 7][live])


def test_a_row_that_left_has_no_influence():
    """After a row of 1e140 has left the window, neither the error nor the certificate is larger."""
    X = hostile("plain", 1500)
    Y = X.copy()
    Y[300] *= 1e140
    clean, after = (SlidingFrequentDirections(200, 6).fit(each) for each in (X, Y))
    assert_certified(after, Y[-200:])
    assert after.error_bound_ <= 1.5 * clean.error_bound_


def test_a_window_that_fits_is_exact_and_longer_ones_hold_few_rows():
    X = hostile("plain", 900)
    short = SlidingFrequentDirections(40, 10).fit(X)
    assert short.error_bound_ <= 1e-12 * short.squared_norm_ and short.alpha_ == 0.0
    np.testing.assert_allclose(short.second_moment().to_dense(), scatter(X[-40:]), atol=1e-12)
    long = SlidingFrequentDirections(10_000, 10).fit(hostile("plain", 20_000))
    assert len(long._state.b) + len(long._state.dumps) + len(long._queue) <= 7 * 10
    assert long._state.marks.shape[1] <= 28 * 3 * 10
    assert 0 < long.error_bound_ <= long.squared_norm_ / 30


def test_it_is_invertible_once_a_shrink_removed_mass():
    sketch = SlidingFrequentDirections(300, 4).fit(hostile("plain", 500))
    assert sketch.alpha_ > 0
    b = np.ones(D)
    np.testing.assert_allclose(sketch.second_moment() @ sketch.second_moment().solve(b), b)


def test_error_falls_with_the_sketch_size():
    X = hostile("plain", 1500, 40)
    bounds = [SlidingFrequentDirections(700, m).fit(X).error_bound_ for m in (5, 10, 20)]
    assert all(one > 1.3 * two for one, two in pairwise(bounds))


# ------------------------------------------------------------- its transcription


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "one row of 1e140"])
@pytest.mark.parametrize("window, m", [(9, 2), (60, 3), (160, 4), (400, 2)])
def test_sliding_equals_its_transcription(kind, window, m):
    X = hostile(kind, 500, seed=3)
    sketch, reference = SlidingFrequentDirections(window, m), SlidingReference(window, m, D)
    for t, a in enumerate(X):
        sketch.partial_fit(a[None])
        reference.row(t + 1, a)
        if t % 11 == 0:
            assert_equals(sketch, reference)
        if t % 49 == 0:
            assert_equals(sketch.within(window / 2), reference, window / 2)


@pytest.mark.parametrize("window", [2.0, 15.0])
def test_sliding_by_time_equals_its_transcription(window):
    rng = np.random.default_rng(5)
    X = hostile("plain", 500, seed=4)
    times = np.cumsum(rng.choice([0.0, 0.02, 0.1, 3.0], 500, p=[0.4, 0.4, 0.19, 0.01]))
    sketch, reference = SlidingFrequentDirections(window, 3), SlidingReference(window, 3, D, counts_rows=False)
    for t, a in zip(times, X):
        sketch.partial_fit(a[None], times=[t])
        reference.row(t, a)
        assert_equals(sketch, reference)


def assert_equals(sketch: Any, reference: SlidingReference, window: float | None = None) -> None:
    expected = reference.read(window)
    unit = max(np.trace(expected.F), expected.hi, expected.lo, 1e-300)
    view = sketch._view
    # Up to rounding of the stored rows, which may be much longer than those in the window.
    kept = unit + sum(float(x.row @ x.row) for x in reference.dumps) + float((reference.pool**2).sum())
    np.testing.assert_allclose((view.components.T * view.lam) @ view.components, expected.F, rtol=0, atol=1e-10 * kept)
    np.testing.assert_allclose([view.lo, view.hi], [expected.lo, expected.hi], rtol=1e-7, atol=1e-10 * kept)
    np.testing.assert_allclose(sketch.alpha_, expected.alpha, rtol=1e-7, atol=1e-10 * kept)
    np.testing.assert_allclose(sketch.error_bound_, expected.error_bound, rtol=1e-7, atol=1e-10 * kept)
    if window is None:
        assert sketch._state.marks.shape[1] == len(reference.marks)
        assert len(sketch._state.dumps) == len(reference.dumps)


# ------------------------------------------------------------- any batches, the same bytes


@pytest.mark.parametrize("center", [False, True], ids=["", "centred"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("clock", ["rows", "time", "weight"])
def test_any_batching_gives_the_same_bytes(clock, sparse, center):
    rng = np.random.default_rng(6)
    X = hostile("lengths over 12 orders", 500, 60) * (rng.random((500, 60)) < 0.1)
    X = sp.csr_array(X) if sparse else X
    times = np.cumsum(rng.choice([0.0, 0.5, 1.0, 90.0], 500, p=[0.3, 0.3, 0.395, 0.005]))
    weights = rng.choice([0.3, 1.0, 0.0], 500)
    weights[0] = 1.0
    whole, pieces = (SlidingFrequentDirections(80, 4, clock=clock, center=center) for _ in range(2))
    with_times = {"times": times} if clock == "time" else {}
    whole.fit(X, sample_weight=weights, **with_times)
    start = 0
    while start < 500:
        part = slice(start, start + int(rng.integers(1, 40)))
        pieces.partial_fit(X[part], sample_weight=weights[part], **{k: v[part] for k, v in with_times.items()})
        assert pieces.error_bound_ >= 0  # reading changes nothing
        pieces = SlidingFrequentDirections.from_bytes(pieces.to_bytes())
        start = part.stop
    assert fingerprint(whole) == fingerprint(pieces)


# ------------------------------------------------------------- merging


@pytest.mark.parametrize("center", [False, True], ids=["", "centred"])
@settings(max_examples=15)
@given(seed=seeds, m=st.sampled_from([2, 4]), window=st.sampled_from([0.5, 6.0, 40.0]), parts=st.integers(2, 4))
def test_merged_windows_are_certified_and_accept_more_rows(seed, m, window, parts, center):
    """Streams that share a clock are merged, continued and merged again."""
    rng = np.random.default_rng(seed)
    kind = ["plain", "burst", "large mean", "lengths over 12 orders"][seed % 4]
    rows: list[tuple[float, np.ndarray]] = []
    sketches = []
    for i in range(parts):
        n = int(rng.integers(1, 160))
        X, times = hostile(kind, n, 6, seed + i) + i * center, np.sort(rng.uniform(0, 50, n))
        sketches.append(SlidingFrequentDirections(window, m, center=center, clock="time").fit(X, times=times))
        rows += list(zip(times, X))
    union = robustfd.merge(sketches)
    for round_ in range(3):
        now = union.now_
        rounding_scale = float(np.trace(scatter(np.array([x for t, x in rows if t > now - 2 * window]))))
        rounding_scale *= 1e3 if center else 1.0  # the parts have different frames, and merging rounds the rows again
        for shorter in (window, window / 3):
            live = np.array([x for t, x in rows if t > now - shorter])
            assert_certified_merged(union.within(shorter), live, rounding_scale)
        n = int(rng.integers(1, 60))
        X, times = hostile(kind, n, 6, seed + 10 + round_), now + np.cumsum(rng.exponential(0.1, n))
        union.partial_fit(X, times=times)
        rows += list(zip(times, X))


def assert_certified_merged(sketch: Any, A: np.ndarray, rounding_scale: float) -> None:
    error = np.abs(np.linalg.eigvalsh(scatter(A, None, sketch.center) - sketch.second_moment().to_dense())).max()
    assert error <= sketch.error_bound_ * (1 + 1e-9) + 1e-11 * rounding_scale


def test_few_rows_merge_without_error():
    X, times = hostile("plain", 30), np.arange(30.0)
    one, two = (SlidingFrequentDirections(20.0, 8).fit(X[i::2], times=times[i::2]) for i in (0, 1))
    union = one + two
    assert union.error_bound_ <= 1e-12 * union.squared_norm_
    np.testing.assert_allclose(union.second_moment().to_dense(), scatter(X[-20:]), atol=1e-12)


def test_windows_of_different_clocks_do_not_merge():
    X = hostile("plain", 30)
    rows, time = SlidingFrequentDirections(20, 4).fit(X), SlidingFrequentDirections(20, 4).fit(X, times=np.arange(30))
    with pytest.raises(ValueError, match="different clocks: rows here, time there"):
        rows.merge(time)
    with pytest.raises(ValueError, match="different window"):
        rows.merge(SlidingFrequentDirections(21, 4).fit(X))


# ------------------------------------------------------------- errors


def test_bad_times_are_refused_and_change_nothing():
    X = hostile("plain", 5)
    sketch = SlidingFrequentDirections(20.0, 4).fit(X, times=np.arange(5.0))
    before = fingerprint(sketch)
    for times, match in [
        ([3.0, 5, 6, 7, 8], "times goes backwards: 3 comes after 4"),
        ([5.0, 6, 5.5, 7, 8], "times goes backwards: 5.5 comes after 6"),
        ([5.0, 6, 7, np.nan, 8], "times contains NaN"),
        ([5.0, 6, 7], "times has shape \\(3,\\), but X has 5 rows"),
        (["noon"] * 5, "times must be 5 numbers"),
        (None, "times is missing"),
        (np.arange(5) + 1e30, "float64 cannot tell times apart"),
    ]:
        with pytest.raises(ValueError, match=match):
            sketch.partial_fit(X, times=times)
        assert fingerprint(sketch) == before
    with pytest.raises(ValueError, match="now goes backwards: 3 comes after 4"):
        sketch.advance(3.0)
    with pytest.raises(ValueError, match="times was given, but the clock of this sketch counts rows"):
        SlidingFrequentDirections(20, 4).fit(X).partial_fit(X, times=np.arange(5))
    with pytest.raises(ValueError, match="advance is for a clock of time, but here the clock counts rows"):
        SlidingFrequentDirections(20, 4).fit(X).advance(99.0)


def test_bad_windows_are_refused():
    X = hostile("plain", 5)
    for window in (0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="window must be in"):
            SlidingFrequentDirections(window).fit(X)
    with pytest.raises(TypeError, match="window must be a number"):
        SlidingFrequentDirections("day").fit(X)
    with pytest.raises(ValueError, match="clock must be one of"):
        SlidingFrequentDirections(5, clock="moon").fit(X)
    sketch = SlidingFrequentDirections(5, 3).fit(X)
    with pytest.raises(ValueError, match="window must be in \\(0, 5\\], got 6"):
        sketch.within(6)
    with pytest.raises(NotImplementedError, match="forgets by its clock alone"):
        sketch.forget(0.5)


def test_an_empty_window():
    for center in (False, True):
        sketch = SlidingFrequentDirections(10.0, 3, center=center).fit(hostile("plain", 200), times=np.arange(200) / 9)
        sketch.advance(1000.0)
        assert sketch.sketch_.shape == (0, D)
        assert (sketch.alpha_, sketch.error_bound_, sketch.squared_norm_, sketch.weight_sum_) == (0, 0, 0, 0)
        sketch.partial_fit(np.eye(3, D), times=[1000.0, 1001, 1002])
        assert sketch.weight_sum_ == 3


def test_mean_of_the_window_is_close():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, D)) + 5.0 + np.linspace(0, 2, 4000)[:, None]
    sketch = SlidingFrequentDirections(1000, 20, center=True).fit(X)
    np.testing.assert_allclose(sketch.mean_, X[-1000:].mean(axis=0), atol=0.3)
    exact = np.cov(X[-1000:].T)
    assert np.linalg.norm(sketch.covariance().to_dense() - exact, 2) <= sketch.error_bound_ / 999
