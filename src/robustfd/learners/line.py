"""Bettors and experts with a flat prior: the array `bets`, their linear models, when they are dropped.

src/core/hot/line.hpp has the algorithm. They are in use from the first row, and dropped for good where they earn
nothing. `bets` has shape (D, 4, outputs bettors): z, g and wealth of bettors, and the weights of as many experts with a
flat prior. It is empty if they are not in use.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from robustfd._core import INTERCEPT, LINE
from robustfd.learners.rows import Floats

if TYPE_CHECKING:
    from robustfd.learners.experts import Mixture
    from robustfd.learners.untuned import UntunedState

KEEP = 0.01  # they stay if their mean share since the last look is at least this
FIRST_LOOK = 512  # rows before the first look; the others follow whenever their number has doubled

# Settings (rate, linear): endowments of bettors, and rates of experts with a flat prior.
OF_TWO = [[0.5, 1, 2, 4, 4, 4, 16, 64], [1, 1, 1, 1, 0, 1, 1, 1]]
OF_NUMBERS = [[0.5, 1, 2, 4, 1, 4, 16, 64], [1] * 8]  # of one number, not of several quantiles
OF_SEVERAL = [[0.5, 16], [1, 1]]  # with more than two classes, to save time


def settings(outputs: int, loss: Any = None) -> Floats:
    """Return rates and whether experts are linear (2, K); `loss` is that of regression."""
    if loss is not None:
        return np.array(OF_NUMBERS if outputs == 1 and not loss.few else [[], []], np.float64)
    return np.array(OF_TWO if outputs == 1 else OF_SEVERAL, np.float64)


def even_shares(diagonal: int, line: int) -> Floats:
    """Return the shares of plain experts at the start."""
    parts = [1.0 - LINE, LINE] if line else [1.0, 0.0]
    return np.repeat([parts[0] / diagonal, parts[1] / max(line, 1)], [diagonal, line])


def shape_of(size: int, outputs: int, line: int) -> tuple[int, int, int]:
    """Return the shape of the array `bets` of D = size features, with K = line."""
    return size if line else 0, 4, outputs * line // 2


def count(state: "UntunedState") -> int:
    """Return the number of bettors and experts with a flat prior of an output."""
    return 2 * state.experts.bets.shape[2] // state.outputs


def slice_of(state: "UntunedState") -> slice:
    """Return the places of these experts among all."""
    n = state.experts.mix.plain.shape[1]
    return slice(n - count(state), n)


def weights(state: "UntunedState", which: Any = slice(None)) -> Floats:
    """Return the weights (features, outputs, K) for scaled features; those of bettors are linear experts'."""
    e, many = state.experts, count(state) // 2
    if not many:
        return np.zeros((len(e.features.table[which]), state.outputs, 0))
    totals, b = e.features.totals[0], _bets(state, which)
    flat = e.bets[which, 3].astype(np.float64).reshape(b.shape)
    factor = np.sqrt(max(totals["bet_rows"], 1.0) / max(totals["bet_squares"], 1.0))
    own = np.arange(len(e.features.table))[which] == 0
    factors = np.where(own, factor / INTERCEPT, factor / (2.0 * totals["length"]))
    return np.concatenate([b * factors[:, None, None], flat], axis=2)


def _bets(state: "UntunedState", which: Any) -> Floats:
    """Return the bets (features, outputs, bettors) on some features."""
    e, many = state.experts, count(state) // 2
    z, g, wealth = e.bets[which, :3].astype(np.float64).reshape(-1, 3, state.outputs, many).transpose(1, 0, 2, 3)
    alpha, prior = e.mix.rate[slice_of(state)][:many], state.share
    return np.asarray((alpha + wealth) * z / (prior + g))


def without(mix: "Mixture", line: slice) -> "Mixture":
    """Return the mixture without some plain experts; the others get their shares."""
    out = {name: np.delete(getattr(mix, name), line) for name in ("rate", "linear", "fast", "earned")}
    for name in ("share", "steady", "plain"):
        some = np.delete(getattr(mix, name), line, axis=1)
        out[name] = some / some.sum(axis=1, keepdims=True)
    return mix._replace(**out)


def drop(state: "UntunedState") -> None:
    """Drop them for good."""
    if count(state):
        e = state.experts
        state.experts = e._replace(
            mix=without(e.mix, slice_of(state)), bets=np.zeros(shape_of(0, state.outputs, 0), np.float32)
        )


def next_look(state: "UntunedState") -> int:
    """Return the number of rows at which they are next looked at."""
    return max(FIRST_LOOK, 1 << state.seen.bit_length())


def look(state: "UntunedState") -> None:
    """Drop them if a look is due and they earned too little since the last one."""
    if count(state) and state.seen >= FIRST_LOOK and state.seen & (state.seen - 1) == 0:
        earned = state.experts.mix.earned
        if earned[slice_of(state)].sum() < KEEP * earned.sum():
            drop(state)
        if state.form == "diagonal" or state.sketch is not None:  # otherwise a look at the Hessian does this
            state.experts.mix.earned[:] = 0.0


def with_outputs(state: "UntunedState", outputs: int) -> tuple[Any, Floats]:
    """Return the array `bets` for more outputs, and the shares (known outputs, K) of these experts.

    A single output, the margin of the second class, becomes two of half its size with opposite signs. Their experts
    are the means of the former ones, weighted by shares; the wealth follows from the mean bets.
    """
    e, known = state.experts, state.outputs
    share = e.mix.share[:, slice_of(state)]
    rates = settings(outputs)[0, : settings(outputs).shape[1] if count(state) else 0]
    many, size = len(rates) // 2, len(e.bets)
    bets = np.zeros((size, 4, outputs, many))
    if not many or known > 1:
        bets[:, :, :known] = e.bets.reshape(size, 4, known, many)
        return bets.reshape(size, 4, -1).astype(np.float32), share
    total = share.reshape(2, -1).sum(axis=1)
    of_bets, of_flat = share.reshape(2, -1) / np.maximum(total, 1e-300)[:, None]
    z, g = (e.bets[:, k] @ of_bets for k in (0, 1))
    prior = state.share
    bet = _bets(state, slice(None))[:, 0] @ of_bets / 2.0
    wealth = np.divide(bet * (prior + g), z, out=np.zeros(size), where=np.abs(z) > 1e-30)[:, None] - rates[:many]
    wealth = np.clip(wealth, -rates[:many], 1e6) * (z != 0)[:, None]
    for c, sign in enumerate((-1.0, 1.0)):
        bets[:, 0, c], bets[:, 1, c], bets[:, 2, c] = sign * z[:, None], g[:, None], wealth
        bets[:, 3, c] = (sign * e.bets[:, 3] @ of_flat / 2.0)[:, None]
    return bets.reshape(size, 4, -1).astype(np.float32), np.repeat(total / many, many)[None]


# -- merging


def converted(state: "UntunedState", which: Any, away: Floats, weights: Floats, unit: float, offset: float) -> Floats:
    """Return z, g and wealth of bettors and flat weights (4, features, outputs bettors) in common units.

    `away` is how far the centres of features move, in their units; `weights` are all weights in the common units. Bets
    do not depend on the unit of a feature. The bet on the intercept follows the centres, as in the core. Margins are
    multiplied by `unit`, and then `offset` is added.
    """
    e, many = state.experts, count(state) // 2
    z, g, wealth = e.bets[which, :3].transpose(1, 0, 2).astype(np.float64) if many else np.zeros((3, len(which), 0))
    if many:
        alpha, totals = np.tile(e.mix.rate[slice_of(state)][:many], state.outputs), e.features.totals[0]
        wealth = (alpha + wealth) * unit - alpha
        more = away @ _bets(state, which).reshape(len(which), -1) * (unit / 2.0)
        more += offset * np.sqrt(max(totals["bet_squares"], 1.0) / max(totals["bet_rows"], 1.0))
        z[0] = np.clip(z[0] + more * (state.share + g[0]) / np.maximum(alpha + wealth[0], 1e-6), -g[0], g[0])
    return np.stack([z, g, wealth, weights[:, :, many:].reshape(len(which), -1)])


def merged(parts: Any, prior: Any, slow: Any) -> Floats:
    """Return the array `bets` of some features: z and g are sums, wealth is a mean, flat weights are as diagonal ones.

    `parts` are those of `converted`, `prior` their flat priors, 0 for features that have not occurred, and `slow` the
    curvatures. Wealth is weighted like the weights: by the prior and what the sums hold.
    """
    z, g, wealth, flat = np.array(parts).transpose(1, 0, 2, 3)
    prior, slow = (np.array(each)[:, :, None] for each in (prior, slow))
    means = []
    for values, weight in ((wealth, prior + g), (flat, prior + slow)):
        total = weight.sum(axis=0)
        means.append((values * np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)).sum(axis=0))
    return np.stack([z.sum(axis=0), g.sum(axis=0), *means], axis=1)
