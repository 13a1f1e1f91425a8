"""Classes and features that appear after the first rows of an untuned learner."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfd.learners import exact, feature_stats, hessian_choice, low_rank, mixture
from robustfd.learners.untuned_state import OFFER_EXACT, TWO_MEMORIES, Experts, ExpertState

Floats = NDArray[np.float64]

SPARE = 64  # spare features to allocate when features appear one at a time


def add_outputs(state: ExpertState, outputs: int) -> None:
    """Add new classes. The others keep their weights; the single output of two classes becomes two outputs."""
    old, form, memories = state.experts, state.form, state.memories(state.form)
    if form == "sketch":
        low_rank.fold(old.low_rank)
    weights, share = state.all_weights(), old.mix.share
    if state.outputs == 1:
        weights, share = _merge_pairs(weights, share)
    state.outputs = outputs
    new = state.fresh_experts(old.features, old.mix)
    state.count = new.mix.plain.shape[1] // 2
    better = state.set_diagonal_weights(new.weights, _with_outputs(weights, outputs))
    known = 2 if len(share) == 1 else len(share)
    plain = share[:, : 2 * state.count]
    new.mix.plain[:known] = plain / plain.sum(axis=1, keepdims=True)
    mix = mixture.with_better(new.mix, memories)
    mix.share[:known] = share
    mix.follow[:known] = old.mix.follow
    if len(share) == 1:
        mix.follow[0, 0] *= -0.5
        mix.follow[1, 0] *= 0.5
    whole, low = new.exact, new.low_rank
    if form == "exact":
        whole = old.exact._replace(weights=better)
    elif form == "sketch":
        low = old.low_rank._replace(weights=better, along=np.zeros((len(old.low_rank.lam), better.shape[1])))
    state.experts = new._replace(mix=mix, exact=whole, low_rank=low)


def widen(state: ExpertState, d: int, *, growing: bool = True) -> None:
    """Allocate memory for d features, or for more if their number keeps growing."""
    if d <= state.d:
        return
    if growing:
        d = max(d, 2 * state.d)
    elif d > OFFER_EXACT:  # only a few appear, one at a time
        d += SPARE
    widen_to(state, d)


def widen_to(state: ExpertState, d: int) -> None:
    """Allocate memory for exactly d features."""
    e, more = state.experts, d - state.d
    weights = np.zeros((d + 1, e.weights.shape[1]), np.float32)
    weights[: state.d + 1] = e.weights
    whole, low = e.exact, e.low_rank
    if state.form == "exact" and d > OFFER_EXACT:
        hessian_choice.set_form(state, "diagonal")
        whole, e = state.experts.exact, state.experts
    elif state.form == "exact":
        if state.d <= TWO_MEMORIES < d:
            e = _with_one_memory(state)
        whole = exact.with_features(e.exact, more)
    elif state.form == "sketch":
        low = low_rank.with_features(low, more)
    features = feature_stats.with_features(e.features, d)
    state.experts = e._replace(features=features, weights=weights, exact=whole, low_rank=low)
    state.d = d


def _with_one_memory(state: ExpertState) -> Experts:
    """Return the experts without those whose exact Hessian forgets; the other exact experts get their shares."""
    e, n = state.experts, 2 * state.count
    some = slice(0, n + state.count)
    mix = mixture.with_better(e.mix, 1)
    mix.share[:] = e.mix.share[:, some]
    mix.share[:, n:] += e.mix.share[:, some.stop :]
    past, inverse = (each[:1] for each in (e.exact.past, e.exact.inverse))
    whole = e.exact._replace(past=past, inverse=inverse, weights=e.exact.weights[:, : state.outputs * state.count])
    return e._replace(mix=mix, exact=whole)


def _merge_pairs(weights: Floats, share: Floats) -> tuple[Floats, Floats]:
    """Return weights (features, outputs, experts) and shares (outputs, experts) of half as many experts.

    Pairs of adjacent experts become one, with their mean weighted by shares. So the mixture stays the same.
    """
    both = share.reshape(len(share), -1, 2)
    total = both.sum(axis=2)
    part = np.divide(both, total[:, :, None], out=np.full_like(both, 0.5), where=total[:, :, None] > 0)
    return np.einsum("fokp,okp->fok", weights.reshape(len(weights), len(share), -1, 2), part), total


def _with_outputs(weights: Any, outputs: int) -> Any:
    """Return weights (features, outputs, experts) with more outputs, which are 0 for new classes.

    A single output, the margin of the second class, becomes two outputs of half its size with opposite signs. So the
    softmax gives the same probabilities.
    """
    known = np.concatenate([-weights, weights], axis=1) / 2 if weights.shape[1] == 1 else weights
    out = np.zeros((len(known), outputs, known.shape[2]), known.dtype)
    out[:, : known.shape[1]] = known
    return out
