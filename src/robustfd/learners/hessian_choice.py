"""The choice of the better Hessian of an untuned learner: when to try it, update it, enlarge it and drop it.

The diagonal Hessian is always in use. A better one, exact or with a sketch, stays while it lowers the loss enough.
"""

import numpy as np
from numpy.typing import NDArray

from robustfd._core import GAMMA
from robustfd.learners import exact, low_rank, mixture
from robustfd.learners.untuned_state import FIRST, OFFER_EXACT, TWO_MEMORIES, ExpertState, Form
from robustfd.linalg.threads import one_blas_thread

Floats = NDArray[np.float64]

ALWAYS_EXACT = 32  # up to this number of features the exact Hessian is never dropped: it costs very little
OFFER_SKETCH = 32  # a sketch is tried if the number of features is at most this many times the entries of a row
SKETCH = 20  # rows of the first sketch
LARGEST_SKETCH = 320
FIRST_LOOK = 1024  # rows after which a better Hessian is evaluated for the first time
AGAIN = 8  # a dropped Hessian is tried again when the number of rows has grown by this factor
KEEP, GROW = 0.005, 0.02  # the smallest relative gain in loss for which it is kept or enlarged
RENEW = 8  # an exact Hessian of few features is updated after 1/8 more rows, others less often
OFTEN = 256  # the largest number of rows between two updates of a Hessian that forgets


def set_form(state: ExpertState, form: Form, size: int = 0, rows: int = 0) -> None:
    """Switch to a form of the Hessian. Its experts start from the mixture of the diagonal experts."""
    e = state.experts
    state.form, state.size = form, size
    memories = state.memories(form)
    mix = mixture.with_better(e.mix, memories)
    same = state.outputs, state.count
    whole = exact.start(state.d + 1, memories if form == "exact" else 0, *same)
    low = low_rank.start(state.d + 1, size if form == "sketch" else 0, *same)
    better = whole.weights if form == "exact" else low.weights
    if form != "diagonal":
        better[:] = _first_weights(state, memories)
    # Of the rows so far, a new exact Hessian has only the diagonal.
    past = e.features.table["slow"], e.features.table["fast"] * e.features.totals["fade"][0]
    for matrix, diagonal_of_past in zip(whole.past, past):
        np.fill_diagonal(matrix, diagonal_of_past)
    state.experts = e._replace(mix=mix, exact=whole, low_rank=low)
    state.renewed_at = state.renew_at = rows
    if form != "diagonal":
        renew(state, rows)


def _first_weights(state: ExpertState, memories: int) -> Floats:
    """Return the initial weights (features, experts) of a better form: the mean over experts for each scaling."""
    w = state.diagonal_weights()  # (features, outputs, 2 L)
    mix, n = state.experts.mix, memories * state.count
    out = np.zeros((len(w), state.outputs, n))
    for linear in (0.0, 1.0):
        share = mix.plain * (mix.linear[: 2 * state.count] == linear)
        total = share.sum(axis=1, keepdims=True)
        mean = np.einsum("fok,ok->fo", w, np.divide(share, total, out=np.zeros_like(share), where=total > 0))
        out[:, :, mix.linear[:n] == linear] = mean[:, :, None]
    parts = out.reshape(len(w), state.outputs, memories, state.count)
    return parts.transpose(0, 2, 1, 3).reshape(len(w), -1)


def begin_form(state: ExpertState, entries: float) -> None:
    """Choose the better Hessian to try, given the mean number of entries of a row."""
    if state.sketch is not None:
        if state.sketch > 0:
            set_form(state, "sketch", state.sketch)
    elif state.d <= OFFER_EXACT:
        if state.d <= TWO_MEMORIES or state.seen >= FIRST:  # with more features an update is slow
            set_form(state, "exact")
    elif state.d <= OFFER_SKETCH * entries:
        set_form(state, "sketch", SKETCH)


def renew(state: ExpertState, rows: int) -> None:
    """Update the better Hessian after `rows` rows, and schedule its next update."""
    table, e = state.experts.features.table, state.experts
    with one_blas_thread():
        if state.form == "exact":
            state.core.renew_exact(GAMMA ** (rows - state.renewed_at))
        else:
            low_rank.renew(e.low_rank, table["prior"], table["slow"])
    soon = max(2 * (rows - state.renewed_at), FIRST)  # a new Hessian learns from its first rows soon
    state.renewed_at = rows
    more = max(rows // RENEW, 1)
    if state.form == "sketch":
        more = max(rows // 4, 1)
    elif state.d > TWO_MEMORIES:  # an update is slow
        more = max(rows // 2, state.d // 8)
    if state.form == "exact" and len(e.exact.past) > 1:
        soon = min(soon, OFTEN)
    state.renew_at = rows + min(more, soon)


def renew_now(state: ExpertState) -> None:
    """Update the better Hessian now."""
    renew(state, state.seen)


def next_event(state: ExpertState) -> int:
    """Return the number of rows at which the better Hessian is next updated or evaluated."""
    if state.form == "diagonal":
        return max(state.look_at, state.seen + 1) if state.sketch is None and _is_offered(state) else 2**62
    if state.sketch is None:
        return max(min(state.renew_at, state.look_at), state.seen + 1)
    return max(state.renew_at, state.seen + 1)


def _is_offered(state: ExpertState) -> bool:
    return state.d <= OFFER_EXACT or state.size > 0


def handle_events(state: ExpertState) -> None:
    """Update and evaluate the better Hessian if either is due."""
    if state.form != "diagonal" and state.seen >= state.renew_at:
        renew(state, state.seen)
    if state.sketch is None and state.seen >= state.look_at:
        _evaluate(state)


def _evaluate(state: ExpertState) -> None:
    """Keep, enlarge or drop the better Hessian, or try it again."""
    targets = state.experts.mix.targets[0]
    if state.form == "diagonal":
        if _is_offered(state):
            set_form(state, "exact" if state.d <= OFFER_EXACT else "sketch", state.size, state.seen)
            state.look_at = state.seen + FIRST_LOOK
    else:
        gain = 1.0 - targets["loss"] / targets["plain_loss"] if targets["plain_loss"] > 0 else 0.0
        state.look_at = 2 * state.seen
        if gain < KEEP and state.d > ALWAYS_EXACT:
            size = state.size
            set_form(state, "diagonal")
            state.size = size
            state.look_at = AGAIN * state.seen
        elif state.form == "sketch" and gain > state.gain + GROW and state.size < LARGEST_SKETCH:
            state.gain = gain
            grow(state, 2 * state.size)
    reset_gain(state)


def grow(state: ExpertState, size: int) -> None:
    """Enlarge the sketch."""
    state.size = size
    with one_blas_thread():
        low = low_rank.with_size(state.experts.low_rank, size)
    state.experts = state.experts._replace(low_rank=low)
    renew(state, state.seen)


def reset_gain(state: ExpertState) -> None:
    """Reset the sums of losses that compare the Hessians."""
    state.experts.mix.targets["loss"] = state.experts.mix.targets["plain_loss"] = 0.0
