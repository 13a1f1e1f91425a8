"""Merging of untuned learners that learned from different rows, and splitting of one into several.

A part has a share of the prior, 1/k for one of k parts. Otherwise it learns like any other learner. A merge first
converts both parts to common units: scales and centres of features, offset and unit of targets. Then for the experts of
every memory and form

    (H_a + H_b) W = H_a W_a + H_b W_b,   H_i = share_i P + the curvature of the rows of part i

which is the mean of the weights, weighted by the Hessians. A sketch is shrunk only after this. Counts, curvatures and
prior shares are added. Shares of experts are averaged, weighted by numbers of rows. A part that still stores its first
rows passes them to the other part, which learns from them. Splitting divides all sums, so merging the parts restores
the original.
"""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfd._core import WINDOWS, Untuned
from robustfd._scipy import scipy_linalg
from robustfd._scipy import scipy_sparse as sp
from robustfd.learners import experts, hessian, line, progress
from robustfd.learners.common_units import Converted, common_features, common_targets, in_common_units, stride_for
from robustfd.learners.experts import (
    Exact,
    memories_of,
    slow_rungs,
    start_exact,
    start_low_rank,
    with_rungs,
)
from robustfd.learners.hessian import FIRST
from robustfd.learners.rows import CsrRows, Floats, as_rows, joined, sort_keys, sparse_rows, widened, with_columns_at
from robustfd.learners.untuned import UntunedState, is_whole, set_diagonal_weights
from robustfd.linalg.threads import one_blas_thread

FORMS = ("diagonal", "sketch", "exact")  # from the cheapest to the best


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
    young = sorted((state for state in (one, two) if is_young(state)), key=_order)  # in the same order for (two, one)
    grown = [_widened(_copy(state), d) for state in (one, two) if not is_young(state)]
    if len(grown) == 2:
        with one_blas_thread():
            _agree_on_form(*grown)
            for state in grown:
                _settle(state)
            new = _joined(grown, share)
    else:
        new = _with_share(grown[0], share) if grown else _fresh(one, share, d)
    for state in young:
        _with_rows(new, state)
    if new.aside and is_whole(new.share):
        _learn_aside(new)
    return new


def with_more_prior(state: UntunedState, share: float) -> UntunedState:
    """Return the state merged with an empty one that has this share of the prior."""
    return merge(state, _fresh(state, share))


def whole(state: UntunedState) -> UntunedState:
    """Return the state with the whole prior, the state itself if it has that."""
    return state if is_whole(state.share) else with_more_prior(state, 1.0 - state.share)


def with_features_at(state: UntunedState, places: NDArray[np.int64], d: int) -> UntunedState:
    """Return a copy with d features in which feature j becomes feature places[j].

    Features that have no entry in `places` have never occurred.
    """
    new = copy.copy(state)
    new.core, new.d = Untuned(), d
    new.experts = experts.with_features_at(state.experts, np.append(0, places + 1), d + 1)
    new.seen = state.seen
    new.kept = [with_columns_at(rows, places, d) for rows in state.kept]
    new.aside = [with_columns_at(rows, places, d) for rows in state.aside]
    return new


def is_young(state: UntunedState) -> bool:
    """Return whether a state still stores its first rows, or has none."""
    return state.seen < state.first


# -- states before they are joined


def _copy(state: UntunedState) -> UntunedState:
    """Return an independent copy, except that it shares the rows set aside, since they never change."""
    return copy.deepcopy(state, {id(state.aside): list(state.aside)})


def _fresh(like: UntunedState, share: float, d: int | None = None) -> UntunedState:
    """Return an empty state with the settings of `like`."""
    d = like.d if d is None else d
    return UntunedState(d, like.outputs, sketch=like.sketch, loss=like.loss, few=like.few, share=share)


def _widened(state: UntunedState, d: int) -> UntunedState:
    """Enlarge the state to d features, in place, and return it."""
    state.widen_to(d)
    return state


def _with_rows(state: UntunedState, young: UntunedState) -> UntunedState:
    """Let the state learn from the first rows of a young one, in place, and return it."""
    if young.seen:
        x, y, weight = young.first_rows()
        x = x if isinstance(x, CsrRows) else widened(x, state.d)
        state.learn(x, y, weight, np.empty((len(y), state.outputs)))
    return state


def _order(state: UntunedState) -> tuple[Any, ...]:
    """Return a sort key of a young state."""
    if not state.seen:
        return (0,)
    x, y, weight = state.first_rows()
    x = sparse_rows(x)
    return state.seen, y.tobytes(), weight.tobytes(), x.data.tobytes(), x.indices.tobytes()


def _with_share(state: UntunedState, share: float) -> UntunedState:
    """Change the state's share of the prior, in place, and return it."""
    times, features = share / state.share, state.experts.features
    features.totals["prior"] *= times
    features.table["prior"] *= times
    _renew(state)
    return state


def _settle(state: UntunedState) -> None:
    """Bring the better Hessian and the decay of the fast memory up to date."""
    _renew(state)
    features = state.experts.features
    features.table["fast"] *= features.totals["fade"]
    features.totals["fade"] = 1.0


def _renew(state: UntunedState) -> None:
    """Update the better Hessian now, if there is one."""
    if state.form != "diagonal":
        hessian.renew(state, state.seen)


def _agree_on_form(one: UntunedState, two: UntunedState) -> None:
    """Convert both to the same form of the Hessian: that of the state with more rows, or the better one if equal.

    Of an exact Hessian and a sketch the exact one is better, whatever the numbers of rows.
    If one of them has dropped the experts of line.py, the other drops them, too.
    """
    for state in (one, two):
        if min(line.count(one), line.count(two)) == 0:
            line.drop(state)
    if one.form != two.form:
        plain, better = (one, two) if FORMS.index(one.form) < FORMS.index(two.form) else (two, one)
        if better.seen < plain.seen and one.sketch is None and plain.form == "diagonal":
            hessian.drop(better)
        else:
            hessian.set_form(plain, better.form, better.size, plain.seen)
            if better.form == "exact":
                slow = slow_rungs(better.experts.exact)
                plain.experts = with_rungs(plain.experts, slow, fast=len(better.experts.exact.past) > 1)
            mix, n = plain.experts.mix, plain.experts.mix.plain.shape[1]
            for share, known in ((mix.share, better.experts.mix.share), (mix.steady, better.experts.mix.steady)):
                share[:, n:] = known[:, n:]
                share[:, :n] = mix.plain * known[:, :n].sum(axis=1, keepdims=True)
    if one.form == "exact":  # rungs that one of them dropped are in use again
        slow = sorted({f for state in (one, two) for f in slow_rungs(state.experts.exact)}, reverse=True)
        for state in (one, two):
            state.experts = with_rungs(state.experts, slow, fast=len(state.experts.exact.past) > 1)
    size = max(one.size, two.size)
    for state in (one, two):
        if state.form == "sketch" and state.size < size:
            hessian.grow(state, size)
        state.size = size


def _learn_aside(state: UntunedState) -> None:
    """Learn from the rows set aside, after moving shares halfway to equal ones so that these rows decide."""
    x, y, weight = joined(state.aside)
    state.aside = []
    order = np.array(sorted(range(len(y)), key=sort_keys(x, y, weight).__getitem__))
    x = sp.csr_array(tuple(x[:3]), shape=(len(y), state.d)) if isinstance(x, CsrRows) else widened(x, state.d)
    mix = state.experts.mix
    for share in (mix.share, mix.plain):
        share[:] = (share + 1.0 / share.shape[1]) / 2.0
    mix.targets["age"] = mix.targets["lead"] = 0.0  # the mean shares start over
    state.learn(as_rows(x[order], sparse=sp.issparse(x)), y[order], weight[order], np.empty((len(y), state.outputs)))


# -- joining


def _joined(states: list[UntunedState], share: float) -> UntunedState:
    """Return the merged state of two settled states of the same form."""
    one, two = states
    new, n = _fresh(one, share), np.array([state.seen for state in states])
    new.first, new.seen = (FIRST if n.sum() >= FIRST else 0), int(n.sum())
    new.entries, new.gain = max(one.entries, two.entries), max(one.gain, two.gain)
    new.form, new.size, new.look_at = one.form, one.size, one.look_at + two.look_at
    new.aside = [*one.aside, *two.aside]
    mixes = [state.experts.mix for state in states]
    features = common_features(
        [state.experts.features for state in states], share / np.array([s.share for s in states])
    )
    targets = common_targets([mix.targets for mix in mixes], n)
    table = features.table
    which = np.flatnonzero((table["inverse"] > 0) | (table["number"] > 0) | (new.form == "exact"))
    parts = [in_common_units(state, features, targets, which) for state in states]
    for name, both in zip(("slow", "fast"), zip(*(part.curvatures for part in parts))):
        table[name][which] = sum(both)
    if not line.count(one):
        line.drop(new)
    e, count = new.experts, new.count
    some = np.zeros((len(which), e.weights.shape[1]), np.float32)
    better = set_diagonal_weights(some, _solve(parts, count, one.experts.exact), count)
    e.weights[which] = some
    if len(e.bets):
        e.bets[which] = line.merged(*zip(*((part.line, part.flat, part.curvatures[0]) for part in parts)))
    vote = progress.vote(n)
    means = {name: sum(v * getattr(mix, name) for v, mix in zip(vote, mixes)) for name in ("share", "steady", "plain")}
    follow = sum(v * part.follow for v, part in zip(vote, parts))
    earned = sum(mix.earned for mix in mixes)
    mix = mixes[0]._replace(**means, earned=earned, follow=follow, trace=_trace(states, new.seen), targets=targets)
    exact, low = e.exact, e.low_rank
    if new.form == "exact":
        exact = start_exact(new.d + 1, one.experts.exact.ladder, len(parts[0].past), new.outputs * count)
        exact.past[:], exact.weights[:] = parts[0].past + parts[1].past, better
    elif new.form == "sketch":
        low = start_low_rank(new.d + 1, new.size, new.outputs * count)
        rows = np.vstack([part.rows for part in parts])
        low.weights[which], low.buffer[: len(rows), which], low.filled[0] = better, rows, len(rows)
    new.experts = e._replace(features=features, mix=mix, exact=exact, low_rank=low)
    new.renewed_at = new.seen if new.form != "diagonal" else 0  # the decay is already applied
    _renew(new)
    return new


def _solve(parts: list[Converted], count: int, exact: Exact) -> Floats:
    """Return the merged weights (features, outputs, experts), first of slow and fast diagonal experts."""
    solved, rungs = [], list(zip(memories_of(exact), exact.ladder))
    for k in range(parts[0].weights.shape[2] // count):
        w = [part.weights[:, :, k * count : (k + 1) * count] for part in parts]
        if k < 2:
            h = np.array([part.prior + part.curvatures[k] for part in parts])
            total = h.sum(axis=0)
            h = np.divide(h, total, out=np.zeros_like(h), where=total > 0)
            solved.append(sum(each[:, None, None] * weights for each, weights in zip(h, w)))
        else:
            flat = [each.reshape(len(each), -1) for each in w]
            found = _solve_exact(parts, flat, *rungs[k - 2]) if rungs else _solve_sketch(parts, flat)
            solved.append(found.reshape(w[0].shape))
    return np.concatenate(solved, axis=2)


def _solve_exact(parts: list[Converted], w: list[Floats], memory: int, factor: float) -> Floats:
    """Return (H_a + H_b)^-1 (H_a w_a + H_b w_b) for exact Hessians with this factor of the prior."""
    hessians = [part.past[memory] + factor * np.diag(part.prior) for part in parts]
    total = hessians[0] + hessians[1]
    unseen = np.diag(total) <= 0
    total[unseen, unseen] = 1.0
    return np.asarray(scipy_linalg.cho_solve(scipy_linalg.cho_factor(total), hessians[0] @ w[0] + hessians[1] @ w[1]))


def _solve_sketch(parts: list[Converted], w: list[Floats]) -> Floats:
    """Do the same as `_solve_exact` for D + B'B, with the rows of both sketches, by the Woodbury formula."""
    rest = [part.prior + np.maximum(part.curvatures[0] - np.square(part.rows).sum(axis=0), 0.0) for part in parts]
    h = sum(d[:, None] * each + part.rows.T @ (part.rows @ each) for part, d, each in zip(parts, rest, w))
    d, c = rest[0] + rest[1], np.vstack([part.rows for part in parts])
    inverse = np.divide(1.0, d, out=np.zeros_like(d), where=d > 0)
    first, scaled = inverse[:, None] * h, c * inverse
    small = np.eye(len(c)) + scaled @ c.T
    return np.asarray(first - scaled.T @ scipy_linalg.cho_solve(scipy_linalg.cho_factor(small), c @ first))


def _trace(states: list[UntunedState], n: int) -> Floats:
    """Return the trace of n rows in windows of `stride_for(n)` rows, as if the states' rows had been interleaved."""
    ends = np.minimum(np.arange(WINDOWS + 1) * stride_for(n), n)
    sums = np.zeros(WINDOWS + 1)
    for state in states:
        mix, rows = state.experts.mix, state.seen
        mine = np.minimum(np.arange(WINDOWS + 1) * int(mix.targets["stride"][0]), rows)
        sums += np.interp(ends * (rows / max(n, 1)), mine, np.append(0.0, np.cumsum(mix.trace)))
    return np.diff(sums)


def _fraction(whole: UntunedState, k: int, i: int) -> UntunedState:
    """Return part i of k of a settled state."""
    part = _copy(whole)
    part.seen, part.look_at = ((n + k - 1 - i) // k for n in (whole.seen, whole.look_at))
    part.aside = whole.aside if i == 0 else []
    part.first = FIRST if part.seen >= FIRST else 0
    part.renewed_at = part.renew_at = part.seen
    features, mix, _, bets, exact, low = part.experts
    bets[:, :2] /= k
    for records, names in (
        (features.table, ("count", "prior", "slow", "fast")),
        (features.totals, ("logarithms", "log_weight", "prior", "bet_squares", "bet_rows")),
        (mix.targets, ("spread", "spread_weight", "loss", "plain_loss", "age", "lead")),
    ):
        for name in names:
            records[name] /= k
    features.totals["rows"] = part.seen
    mix.targets["stride"] = stride_for(part.seen)
    mix.trace[:] = _trace([whole], part.seen) * (part.seen / max(whole.seen, 1))
    for array, times in ((exact.past, 1 / k), (low.sketch, k**-0.5), (low.lam, 1 / k), (mix.earned, 1 / k)):
        array *= times
    _renew(part)
    return part
