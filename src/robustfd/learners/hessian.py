"""The better Hessian of an untuned learner: when to try it, update it, enlarge it and drop it.

The diagonal Hessian is always in use. A better one, exact or with a sketch, stays while it lowers the loss enough.

With many features that are correlated it is H = D + B'B, where B is a Frequent Directions sketch of the rows c x, and D
holds the prior plus the part of the exact diagonal that B misses. H is updated each time the number of rows has grown
by a quarter, and stays fixed in between. With U = (I + B D^-1 B')^-1/2 B D^-1

    H^-1 = D^-1 - U'U,   x'H^-1 x = x'D^-1 x - |U x|^2

The steps are in the core (src/core/hot/hessians.hpp), and weights are w = a + U'b.
"""

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from robustfd._core import GAMMA, Lesson
from robustfd._scipy import scipy_linalg
from robustfd.learners import line
from robustfd.learners.experts import (
    LowRank,
    rungs_of,
    slow_rungs,
    start_exact,
    start_low_rank,
    with_better,
    with_rungs,
)
from robustfd.learners.rows import Floats
from robustfd.linalg.decompose import shrink_stack
from robustfd.linalg.threads import one_blas_thread

if TYPE_CHECKING:
    from robustfd.learners.untuned import UntunedState

Form = Literal["diagonal", "exact", "sketch"]

FIRST = 64  # until this number of rows, all rows are learned again whenever their number doubles
TWO_MEMORIES = 64  # up to this number of features, the exact Hessian has a fast memory as well
ALWAYS_EXACT = 32  # up to this number of features the exact Hessian is never dropped: it costs very little
LADDER = (1.0, 0.03, 0.001)  # factors of the prior in the exact Hessians of the slow memory
LEAST_EARNED, LATE = 0.01, 16  # the mean share below which a rung is dropped; rows a feature before small priors are
OFFER_EXACT = 256  # up to this number of features, an exact Hessian may pay off
LARGEST_EXACT = 512  # up to this number of features, it is tried after a sketch
OFFER_SKETCH = 32  # a sketch is tried if the number of features is at most this many times the entries of a row
SKETCH = 20  # rows of the first sketch
LARGEST_SKETCH = 320
FIRST_LOOK = 1024  # rows after which a better Hessian is evaluated for the first time
AGAIN, SOON = 8, 2  # a dropped Hessian is tried again when the number of rows has grown by these factors
UNPROVEN = -1.0  # in place of the gain of an exact Hessian that was just tried after a sketch
KEEP, GROW = 0.005, 0.02  # the smallest relative gain in loss for which it is kept or enlarged
RENEW = 8  # an exact Hessian of few features is updated after 1/8 more rows, others less often
OFTEN = 256  # the largest number of rows between two updates of a Hessian that forgets


def set_form(state: "UntunedState", form: Form, size: int = 0, rows: int = 0) -> None:
    """Switch to a form of the Hessian. Its experts start from the mixture of the present ones."""
    e, lanes, memories = state.experts, state.outputs * state.count, 2 if state.d <= TWO_MEMORIES else 1
    if state.form == "diagonal":
        e.mix.plain[:] = e.mix.share  # no row updates them while all experts are diagonal
    exact, low = start_exact(0, (), 0, lanes), start_low_rank(state.d + 1, size if form == "sketch" else 0, lanes)
    if form == "exact":
        # The first rows are too few for other priors, and learned often.
        slow = LADDER if state.seen >= FIRST and not state.few else LADDER[:1]
        exact = start_exact(state.d + 1, [*slow, 1.0][: len(slow) + memories - 1], memories, lanes)
    rungs = rungs_of(form, exact)
    if form != "diagonal":
        (exact if form == "exact" else low).weights[:] = _first_weights(state, rungs)
    # Of the rows so far, a new exact Hessian has only the diagonal, and what a sketch knows.
    if form == "exact" and state.form == "sketch":
        shrink(e.low_rank)
        exact.past[0] = e.low_rank.sketch.T @ e.low_rank.sketch
    past = e.features.table["slow"], e.features.table["fast"] * e.features.totals["fade"][0]
    for matrix, diagonal_of_past in zip(exact.past, past):
        np.fill_diagonal(matrix, np.maximum(diagonal_of_past, np.diag(matrix)))
    state.experts = e._replace(mix=with_better(e.mix, rungs), exact=exact, low_rank=low)
    state.form, state.size = form, size
    state.renewed_at = state.renew_at = rows
    if form != "diagonal":
        renew(state, rows)


def _first_weights(state: "UntunedState", rungs: list[int]) -> Floats:
    """Return the initial weights (features, experts) of a better form: the mean over experts for each scaling."""
    w, mix = state.all_weights(), state.experts.mix  # (features, outputs, experts)
    out = np.zeros((len(w), len(rungs), state.outputs, state.count))
    of_rungs = mix.linear[: 2 * state.count].reshape(2, -1)[rungs]
    for linear in (0.0, 1.0):
        share = mix.share * (mix.linear == linear)
        total = share.sum(axis=1, keepdims=True)
        mean = np.einsum("fok,ok->fo", w, np.divide(share, total, out=np.zeros_like(share), where=total > 0))
        out += mean[:, None, :, None] * (of_rungs == linear)[:, None]
    return out.reshape(len(w), -1)


def begin_form(state: "UntunedState", entries: float) -> None:
    """Choose the better Hessian to try, given the mean number of entries of a row."""
    if state.sketch is not None:
        if state.sketch > 0:
            set_form(state, "sketch", state.sketch)
    elif state.d <= OFFER_EXACT:
        if state.d <= TWO_MEMORIES or state.seen >= FIRST:  # with more features an update is slow
            set_form(state, "exact")
    elif state.d <= OFFER_SKETCH * entries:
        set_form(state, "sketch", SKETCH)


def renew(state: "UntunedState", rows: int) -> None:
    """Update the better Hessian after `rows` rows, and schedule its next update."""
    e = state.experts
    if state.form == "exact":
        state.core.renew_exact(GAMMA ** (rows - state.renewed_at))
    else:
        with one_blas_thread():
            renew_low_rank(e.low_rank, e.features.table["prior"], e.features.table["slow"])
    _schedule(state, rows)


def _schedule(state: "UntunedState", rows: int) -> None:
    """Set when to update the better Hessian after an update at `rows` rows."""
    soon = max(2 * (rows - state.renewed_at), FIRST)  # a new Hessian learns from its first rows soon
    state.renewed_at = rows
    more = max(rows // RENEW, 1)
    if state.form == "sketch":
        more = max(rows // 4, 1)
    elif state.d > TWO_MEMORIES:  # an update is slow
        more = max(rows // 2, state.d // 8)
    if state.form == "exact" and len(state.experts.exact.past) > 1:
        soon = min(soon, OFTEN)
    state.renew_at = rows + min(more, soon)


def renewals(state: "UntunedState", n: int) -> NDArray[np.int64]:
    """Return the numbers of rows, up to n, at which an exact Hessian is updated from now on, and count them as done."""
    found = []
    while (rows := max(state.renew_at, state.renewed_at + 1)) <= n:
        found.append(rows)
        _schedule(state, rows)
    return np.array(found, np.int64)


def next_event(state: "UntunedState") -> int:
    """Return the number of rows at which the better Hessian is next updated or evaluated."""
    events = [] if state.form == "diagonal" else [state.renew_at]
    if state.lesson != Lesson.known:  # known rows evaluate nothing
        if state.sketch is None and (events or _is_offered(state)):
            events.append(state.look_at)
        if line.count(state):
            events.append(line.next_look(state))
    return max(min(events, default=2**62), state.seen + 1)


def _is_offered(state: "UntunedState") -> bool:
    return state.d <= OFFER_EXACT or state.size > 0


def handle_events(state: "UntunedState") -> None:
    """Update and evaluate the better Hessian if either is due."""
    if state.form != "diagonal" and state.seen >= state.renew_at:
        renew(state, state.seen)
    if state.lesson == Lesson.known:  # the experts may remember the rows
        return
    line.look(state)
    if state.sketch is None and state.seen >= state.look_at:
        _evaluate(state)


def _evaluate(state: "UntunedState") -> None:
    """Keep, enlarge or drop the better Hessian, or try it again."""
    targets = state.experts.mix.targets[0]
    if state.form == "diagonal":
        if _is_offered(state):
            if OFFER_EXACT < state.d <= LARGEST_EXACT:
                replace_sketch(state)
            else:
                set_form(state, "exact" if state.d <= OFFER_EXACT else "sketch", state.size, state.seen)
            state.look_at = state.seen + FIRST_LOOK
    else:
        if state.form == "exact":
            _drop_rungs(state)
        gain = 1.0 - targets["loss"] / targets["plain_loss"] if targets["plain_loss"] > 0 else 0.0
        state.look_at = 2 * state.seen
        if state.gain == UNPROVEN:  # of the rows since it replaced the sketch, the first half says little
            state.gain = 0.0
        elif gain < KEEP and state.d > ALWAYS_EXACT:
            # A small sketch misses directions of small variance, in which an exact Hessian may pay off.
            soon = state.form == "sketch" and state.d <= LARGEST_EXACT
            drop(state)
            state.look_at = (SOON if soon else AGAIN) * state.seen
        elif state.form == "sketch" and state.d <= LARGEST_EXACT:
            replace_sketch(state)
        elif state.form == "sketch" and gain > state.gain + GROW and state.size < LARGEST_SKETCH:
            state.gain = gain
            grow(state, 2 * state.size)
    reset_gain(state)


def replace_sketch(state: "UntunedState") -> None:
    """Try an exact Hessian in place of a sketch, or after one."""
    set_form(state, "exact", state.size, state.seen)
    # The weights are not those that this Hessian would have learned from past rows: it starts without these.
    ends = LADDER[:1] if state.few else (LADDER[0], LADDER[-1])  # rows are slow
    state.experts = with_rungs(state.experts, ends, fast=False)
    state.experts.exact.past[:] = 0.0
    state.gain = UNPROVEN
    renew(state, state.seen)


def _drop_rungs(state: "UntunedState") -> None:
    """Drop rungs of the slow memory that had little of the shares since the last look.

    With few rows for their number of features, small priors earn their shares late. So a prior that is smaller than
    the best one is dropped only after 16 rows a feature.
    """
    e = state.experts
    slow, n = slow_rungs(e.exact), e.mix.plain.shape[1]
    earned = e.mix.earned[n:].reshape(-1, state.count).sum(axis=1)[: len(slow)] / max(e.mix.earned.sum(), 1e-300)
    best, late = slow[int(np.argmax(earned))], state.seen >= LATE * state.d
    keep = [f for f, u in zip(slow, earned, strict=True) if f == best or u >= LEAST_EARNED or not (late or f > best)]
    if len(keep) < len(slow):
        state.experts = with_rungs(e, keep, fast=len(e.exact.past) > 1)


def drop(state: "UntunedState") -> None:
    """Drop the better Hessian, but remember the size of its sketch."""
    size = state.size
    set_form(state, "diagonal")
    state.size = size


def grow(state: "UntunedState", size: int) -> None:
    """Enlarge the sketch."""
    old = state.experts.low_rank
    with one_blas_thread():
        fold(old)
        shrink(old)
    low, rows = start_low_rank(len(old.diagonal), size, old.weights.shape[1]), len(old.lam)
    low.sketch[:rows], low.lam[:rows] = old.sketch, old.lam
    state.experts = state.experts._replace(low_rank=low._replace(diagonal=old.diagonal, weights=old.weights))
    state.size = size
    renew(state, state.seen)


def reset_gain(state: "UntunedState") -> None:
    """Reset the sums of losses and shares that compare the Hessians."""
    mix = state.experts.mix
    mix.targets["loss"] = mix.targets["plain_loss"] = 0.0
    mix.earned[:] = 0.0


# -- the Hessian with a sketch


def fold(low: LowRank) -> None:
    """Add U'b to a and reset b to 0."""
    low.weights[:] += low.u @ low.along
    low.along[:] = 0.0


def shrink(low: LowRank) -> None:
    """Shrink the rows of the buffer into the sketch."""
    n, m = int(low.filled[0]), len(low.lam) + 1
    if n:
        have = int(np.count_nonzero(low.lam))
        # Features rescaled since the last shrink leave the rows of B not quite orthogonal, so B counts as plain rows.
        rows = np.vstack([low.sketch[:have], low.buffer[:n]])
        shrunk = shrink_stack(rows[:0], low.lam[:0], rows, m, m)
        low.sketch[:], low.lam[:] = 0.0, 0.0
        low.sketch[: len(shrunk.lam)], low.lam[: len(shrunk.lam)] = shrunk.rows, shrunk.lam
        low.buffer[:n] = 0.0
        low.filled[0] = 0


def renew_low_rank(low: LowRank, prior: Floats, squares: Floats) -> None:
    """Update H; `squares` is the exact diagonal of the sum of c^2 x x'."""
    fold(low)
    shrink(low)
    have = int(np.count_nonzero(low.lam))
    b = low.sketch[:have]
    low.diagonal[:] = prior + np.maximum(squares - np.einsum("ij,ij->j", b, b), 0.0)
    inverse = np.divide(1.0, low.diagonal, out=np.zeros_like(low.diagonal), where=low.diagonal > 0)
    scaled = b * inverse
    gram = scaled @ b.T
    values, vectors = scipy_linalg.eigh(gram, check_finite=False) if len(b) else (np.empty(0), gram)  # scipy < 1.14
    low.u[:] = 0.0
    low.u[:, :have] = scaled.T @ (vectors / np.sqrt(1.0 + np.maximum(values, 0.0)))
