"""Merging of untuned learners that learned from different rows, and splitting of one into several.

A part has a share of the prior, 1/k for one of k parts. Otherwise it learns like any other learner. A merge first
converts both parts to the same units, centres and offset (untuned_units.py). Then for the experts of every memory and
form

    (H_a + H_b) W = H_a W_a + H_b W_b,   H_i = share_i P + the curvature of the rows of part i

which is the mean of the weights, weighted by the Hessians. A sketch is shrunk only after this. Counts, curvatures and
prior shares are added. Shares of experts are averaged, weighted by numbers of rows. A part that still stores its first
rows passes them to the other part, which learns from them. Splitting divides all sums, so merging the parts restores
the original.
"""

import copy
from collections.abc import Sequence
from hashlib import sha256
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfd._core import WINDOWS
from robustfd._scipy import scipy_linalg
from robustfd._scipy import scipy_sparse as sp
from robustfd.learners import exact, hessian_choice, low_rank, mixture, progress, untuned_growth
from robustfd.learners.feature_stats import Features
from robustfd.learners.rows import CsrRows, as_rows
from robustfd.learners.untuned import UntunedState, is_whole
from robustfd.learners.untuned_snapshot import joined
from robustfd.learners.untuned_state import FIRST, Experts
from robustfd.learners.untuned_units import Part, common_features, common_targets, in_common_units, stride_for
from robustfd.linalg.threads import one_blas_thread

Floats = NDArray[np.float64]


def split(state: UntunedState, k: int, which: Sequence[int]) -> list[UntunedState]:
    """Return some of k states with the same weights, each with a k-th of the rows and of the prior.

    If the state still stores its first rows, part 0 gets them all.
    """
    if is_young(state):
        parts = [_fresh(state, state.share / k) for _ in which]
        return [_with_rows(part, state) if i == 0 else part for i, part in zip(which, parts, strict=True)]
    whole = _copy(state)
    _settle(whole)
    return [_fraction(whole, k, i) for i in which]


def merge(one: UntunedState, two: UntunedState, d: int = 0) -> UntunedState:
    """Return the merged state of two, with memory for at least d features.

    Both states have the same outputs, loss and `sketch`.
    """
    d, share = max(one.d, two.d, d), min(one.share + two.share, 1.0)
    new = _merged(one, two, d, share)
    if new.aside and is_whole(new.share):
        _learn_aside(new)
    return new


def _learn_aside(state: UntunedState) -> None:
    """Learn from the rows set aside, after moving shares halfway to equal ones so that these rows decide."""
    x, y, weight = joined(state.aside)
    state.aside = []
    order = np.array(sorted(range(len(y)), key=_keys(x, y, weight).__getitem__))
    x = sp.csr_array(tuple(x[:3]), shape=(len(y), state.d)) if isinstance(x, CsrRows) else _padded(x, state.d)
    mix = state.experts.mix
    for share in (mix.share, mix.plain):
        share[:] = (share + 1.0 / share.shape[1]) / 2.0
    state.learn(as_rows(x[order], sparse=sp.issparse(x)), y[order], weight[order], np.empty((len(y), state.outputs)))


def _keys(x: Any, y: Floats, weight: Floats) -> list[bytes]:
    """Return a sort key for each row: pseudo-random, and independent of the part that the row was in."""
    if isinstance(x, CsrRows):
        live = x.data != 0
        ends = np.append(0, np.cumsum(live))[x.indptr].tolist()
        columns, values = x.indices[live], x.data[live]
    else:
        rows, columns = x.nonzero()
        ends = np.searchsorted(rows, np.arange(len(y) + 1)).tolist()
        columns, values = columns.astype(np.int32), x[rows, columns]
    # Copy all bytes at once: copying row by row would take most of the time of a merge.
    of_columns, of_values, a, b = (memoryview(each.tobytes()) for each in (columns, values, y, weight))
    i, v, n, w = columns.itemsize, values.itemsize, y.itemsize, weight.itemsize
    keys = []
    for row, (start, stop) in enumerate(pairwise(ends)):
        key = sha256(of_columns[i * start : i * stop])
        for part in (of_values[v * start : v * stop], a[n * row : n * (row + 1)], b[w * row : w * (row + 1)]):
            key.update(part)
        keys.append(key.digest())
    return keys


def _merged(one: UntunedState, two: UntunedState, d: int, share: float) -> UntunedState:
    """Return the merged state of two, with the rows that both set aside."""
    if is_young(one) and is_young(two):
        first, second = sorted(
            (one, two), key=_order
        )  # so that the result does not depend on the order of the arguments
        return _with_rows(_with_rows(_fresh(one, share, d), first), second)
    if is_young(two):
        return _with_rows(_with_share(_widened(_copy(one), d), share), two)
    if is_young(one):
        return _merged(two, one, d, share)
    parts = [_widened(_copy(state), d) for state in (one, two)]
    with one_blas_thread():
        _agree_on_form(*parts)
        for part in parts:
            _settle(part)
        return _joined(parts, share)


def with_more_prior(state: UntunedState, share: float) -> UntunedState:
    """Return the state merged with an empty one that has this share of the prior."""
    return merge(state, _fresh(state, share))


def with_features_at(state: UntunedState, places: NDArray[np.int64], d: int) -> UntunedState:
    """Return a copy with d features in which feature j becomes feature places[j].

    Features that have no entry in `places` have never occurred.
    """
    new, at = _fresh(state, state.share, d), np.append(0, places + 1)
    for name in ("first", "seen", "entries", "form", "size", "renew_at", "renewed_at", "look_at", "gain"):
        setattr(new, name, getattr(state, name))
    new.aside = [_with_columns_at(rows, places, d) for rows in state.aside]
    new.kept = [_with_columns_at(rows, places, d) for rows in state.kept]
    old, e, n = state.experts, new.experts, len(at)
    e.features.table[at], e.weights[at] = old.features.table[:n], old.weights[:n]
    features = Features(
        e.features.table, old.features.totals.copy(), at[old.features.centred], old.features.centre.copy()
    )
    whole, low = old.exact, old.low_rank
    if state.form == "exact":
        whole = exact.with_features_at(whole, at, d + 1)
    elif state.form == "sketch":
        low = low_rank.start(d + 1, state.size, new.outputs, new.count)._replace(
            lam=low.lam, along=low.along, filled=low.filled
        )
        for name in ("u", "diagonal", "weights"):
            getattr(low, name)[at] = getattr(old.low_rank, name)[:n]
        low.sketch[:, at], low.buffer[:, at] = old.low_rank.sketch[:, :n], old.low_rank.buffer[:, :n]
    new.experts = Experts(features, old.mix, e.weights, whole, low)
    return new


def _with_columns_at(kept: Any, places: NDArray[np.int64], d: int) -> Any:
    """Return rows with their columns moved to `places`."""
    x, y, weight = kept
    if not isinstance(x, CsrRows):
        wide = np.zeros((len(x), d))
        wide[:, places[: x.shape[1]]] = x
        return wide, y, weight
    moved = sp.csr_array((x.data, places[x.indices], x.indptr), shape=(len(y), d)).sorted_indices()
    return CsrRows(moved.data, moved.indices.astype(np.int32), moved.indptr.astype(np.int64)), y, weight


def is_young(state: UntunedState) -> bool:
    """Return whether a state still stores its first rows, or has none."""
    return state.seen < state.first


# ---------------------------------------------------------------- parts


def _copy(state: UntunedState) -> UntunedState:
    """Return an independent copy, except that it shares the rows set aside, since they never change."""
    return copy.deepcopy(state, {id(state.aside): list(state.aside)})


def _fresh(like: UntunedState, share: float, d: int | None = None) -> UntunedState:
    """Return an empty state with the settings of `like`."""
    return UntunedState(like.d if d is None else d, like.outputs, sketch=like.sketch, loss=like.loss, share=share)


def _widened(state: UntunedState, d: int) -> UntunedState:
    """Enlarge the state to d features, in place, and return it."""
    if d > state.d:
        untuned_growth.widen_to(state, d)
    return state


def _with_rows(state: UntunedState, young: UntunedState) -> UntunedState:
    """Let the state learn from the first rows of a young one, in place, and return it."""
    if young.seen:
        x, y, weight = young.first_rows()
        if not isinstance(x, CsrRows):
            x = _padded(x, state.d)
        state.learn(x, y, weight, np.empty((len(y), state.outputs)))
    return state


def _padded(x: Floats, d: int) -> Floats:
    """Return dense rows padded to d features."""
    return np.pad(x, ((0, 0), (0, d - x.shape[1])))


def _order(state: UntunedState) -> tuple[Any, ...]:
    """Return a sort key of a young state."""
    if not state.seen:
        return (0,)
    x, y, weight = state.first_rows()
    x = x if isinstance(x, CsrRows) else sp.csr_array(x)
    return state.seen, y.tobytes(), weight.tobytes(), x.data.tobytes(), x.indices.astype(np.int32).tobytes()


def _with_share(state: UntunedState, share: float) -> UntunedState:
    """Change the state's share of the prior, in place, and return it."""
    times, features = share / state.share, state.experts.features
    features.totals["prior"] *= times
    features.table["prior"] *= times
    if state.form != "diagonal":
        hessian_choice.renew_now(state)
    return state


def _settle(state: UntunedState) -> None:
    """Bring the better Hessian and the decay of the fast memory up to date."""
    if state.form != "diagonal":
        hessian_choice.renew_now(state)
    features = state.experts.features
    features.table["fast"] *= features.totals["fade"]
    features.totals["fade"] = 1.0


def _agree_on_form(one: UntunedState, two: UntunedState) -> None:
    """Convert both to the same form of the Hessian: that of the state with more rows, or the better one if equal."""
    forms = {state.form for state in (one, two)}
    if len(forms) > 1:
        plain, better = (one, two) if one.form == "diagonal" else (two, one)
        if better.seen < plain.seen and one.sketch is None:
            size = better.size
            hessian_choice.set_form(better, "diagonal")
            better.size = size
        else:
            hessian_choice.set_form(plain, better.form, better.size, plain.seen)
            share, n = plain.experts.mix.share, 2 * plain.count
            share[:, n:] = better.experts.mix.share[:, n:]
            share[:, :n] = plain.experts.mix.plain * better.experts.mix.share[:, :n].sum(axis=1, keepdims=True)
    size = max(one.size, two.size)
    for state in (one, two):
        if state.form == "sketch" and state.size < size:
            hessian_choice.grow(state, size)
        state.size = size


# -------------------------------------------------------------- joining


def _joined(states: list[UntunedState], share: float) -> UntunedState:
    """Return the merged state of two settled states of the same form."""
    one, two = states
    new, n = _fresh(one, share, one.d), np.array([state.seen for state in states])
    new.first, new.seen = (FIRST if n.sum() >= FIRST else 0), int(n.sum())
    new.entries, new.gain = max(one.entries, two.entries), max(one.gain, two.gain)
    new.form, new.size, new.look_at = one.form, one.size, one.look_at + two.look_at
    new.aside = [*one.aside, *two.aside]
    features = common_features(
        [state.experts.features for state in states], share / np.array([s.share for s in states])
    )
    targets = common_targets([state.experts.mix.targets for state in states], n)
    table = features.table
    every = new.form == "exact"
    which = np.flatnonzero((table["inverse"] > 0) | (table["number"] > 0) | every)
    parts = [in_common_units(state, features, targets, which) for state in states]
    table["slow"][which], table["fast"][which] = (
        sum(getattr(part, name) for part in parts) for name in ("slow", "fast")
    )
    weights = np.concatenate([_solve_diagonal(parts, new.count), _solve_better(parts, new)], axis=2)
    e = new.experts._replace(features=features)
    some = np.zeros((len(which), e.weights.shape[1]), np.float32)
    better = new.set_diagonal_weights(some, weights)
    e.weights[which] = some
    mix = _mixed(states, parts, n)._replace(targets=targets)
    new.experts = _with_hessian(new, e._replace(mix=mix), parts, which, better)
    if new.form != "diagonal":
        new.renewed_at = new.seen  # the decay is already applied
        hessian_choice.renew_now(new)
    return new


def _solve_diagonal(parts: list[Part], count: int) -> Floats:
    """Return the merged weights (features, outputs, 2 L) of the diagonal experts."""
    solved = []
    for memory, past in enumerate(("slow", "fast")):
        some = slice(memory * count, (memory + 1) * count)
        h = np.array([part.prior + getattr(part, past) for part in parts])
        total = h.sum(axis=0)
        h = np.divide(h, total, out=np.zeros_like(h), where=total > 0)
        solved.append(sum(each[:, None, None] * part.weights[:, :, some] for each, part in zip(h, parts)))
    return np.concatenate(solved, axis=2)


def _solve_better(parts: list[Part], new: UntunedState) -> Floats:
    """Return the merged weights (features, outputs, memories L) of the experts with a better Hessian."""
    n, outputs, experts = parts[0].weights.shape
    count = new.count
    solved = [np.zeros((n, outputs, 0))]
    for memory in range((experts - 2 * count) // count):
        some = slice((memory + 2) * count, (memory + 3) * count)
        w = [part.weights[:, :, some].reshape(n, -1) for part in parts]
        solve = _solve_exact if new.form == "exact" else _solve_sketch
        solved.append(solve(parts, w, memory).reshape(n, outputs, count))
    return np.concatenate(solved, axis=2)


def _solve_exact(parts: list[Part], w: list[Floats], memory: int) -> Floats:
    """Return (H_a + H_b)^-1 (H_a w_a + H_b w_b) for exact Hessians."""
    hessians = [part.past[memory] + np.diag(part.prior) for part in parts]
    total = hessians[0] + hessians[1]
    unseen = np.diag(total) <= 0
    total[unseen, unseen] = 1.0
    return np.asarray(scipy_linalg.cho_solve(scipy_linalg.cho_factor(total), hessians[0] @ w[0] + hessians[1] @ w[1]))


def _solve_sketch(parts: list[Part], w: list[Floats], memory: int) -> Floats:
    """Do the same as `_solve_exact` for D + B'B, with the rows of both sketches, by the Woodbury formula."""
    rest = [part.prior + np.maximum(part.slow - np.square(part.rows).sum(axis=0), 0.0) for part in parts]
    h = sum(d[:, None] * each + part.rows.T @ (part.rows @ each) for part, d, each in zip(parts, rest, w))
    d, c = rest[0] + rest[1], np.vstack([part.rows for part in parts])
    inverse = np.divide(1.0, d, out=np.zeros_like(d), where=d > 0)
    first, scaled = inverse[:, None] * h, c * inverse
    small = np.eye(len(c)) + scaled @ c.T
    return np.asarray(first - scaled.T @ scipy_linalg.cho_solve(scipy_linalg.cho_factor(small), c @ first))


def _with_hessian(new: UntunedState, e: Any, parts: list[Part], which: NDArray[np.int64], weights: Floats) -> Any:
    """Return the experts with these weights and the sum of the better Hessians, which still need an update."""
    size, outputs, count = new.d + 1, new.outputs, new.count
    if new.form == "exact":
        whole = exact.start(size, len(parts[0].past), outputs, count)
        whole.past[:] = parts[0].past + parts[1].past
        whole.weights[:] = weights
        return e._replace(exact=whole)
    if new.form == "sketch":
        low = low_rank.start(size, new.size, outputs, count)
        low.weights[which] = weights
        rows = np.vstack([part.rows for part in parts])
        low.buffer[: len(rows), which] = rows
        low.filled[0] = len(rows)
        return e._replace(low_rank=low)
    return e


def _mixed(states: list[UntunedState], parts: list[Part], n: NDArray[np.int64]) -> mixture.Mixture:
    """Return the merged mixture, with shares averaged over rows."""
    vote, mixes = progress.vote(n), [state.experts.mix for state in states]
    means = {name: sum(v * getattr(mix, name) for v, mix in zip(vote, mixes)) for name in ("share", "plain")}
    follow = sum(v * part.follow for v, part in zip(vote, parts))
    return mixes[0]._replace(**means, follow=follow, trace=_trace(states, int(n.sum())))


def _trace(states: list[UntunedState], n: int) -> Floats:
    """Return the trace of n rows in windows of `stride_for(n)` rows, as if the states' rows had been interleaved."""
    ends = np.minimum(np.arange(WINDOWS + 1) * stride_for(n), n)
    sums = np.zeros(WINDOWS + 1)
    for state in states:
        mix, rows = state.experts.mix, state.seen
        mine = np.minimum(np.arange(WINDOWS + 1) * int(mix.targets["stride"][0]), rows)
        sums += np.interp(ends * (rows / max(n, 1)), mine, np.append(0.0, np.cumsum(mix.trace)))
    return np.diff(sums)


# ------------------------------------------------------------ splitting


def _fraction(whole: UntunedState, k: int, i: int) -> UntunedState:
    """Return part i of k of a settled state."""
    part, e = _copy(whole), whole.experts
    part.seen, part.look_at = ((n + k - 1 - i) // k for n in (whole.seen, whole.look_at))
    part.aside = whole.aside if i == 0 else []
    part.first = FIRST if part.seen >= FIRST else 0
    part.renewed_at = part.renew_at = part.seen
    e = part.experts
    for name in ("count", "prior", "slow", "fast"):
        e.features.table[name] /= k
    for name in ("logarithms", "log_weight", "prior"):
        e.features.totals[name] /= k
    e.features.totals["rows"] = part.seen
    for name in ("spread", "spread_weight", "loss", "plain_loss"):
        e.mix.targets[name] /= k
    e.mix.targets["stride"] = stride_for(part.seen)
    e.mix.trace[:] = _trace([whole], part.seen) * (part.seen / max(whole.seen, 1))
    for array, times in ((e.exact.past, 1 / k), (e.low_rank.sketch, k**-0.5), (e.low_rank.lam, 1 / k)):
        array *= times
    if part.form != "diagonal":
        hessian_choice.renew_now(part)
    return part
