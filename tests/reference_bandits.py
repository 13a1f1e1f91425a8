"""Slow transcriptions of what bandits compute."""

import math
from statistics import NormalDist

import numpy as np

LEVELS = [NormalDist().inv_cdf(0.5 + (i + 0.5) / 40) for i in range(20)]  # quantiles of |N(0, 1)|


def probabilities(margins, variances, epsilon=0.0):
    """RandUCB: for each level the best arm; equally good arms share the level."""
    chances = [0.0] * len(margins)
    for z in LEVELS:
        scores = [m + z * math.sqrt(v) for m, v in zip(margins, variances, strict=True)]
        best = [a for a, score in enumerate(scores) if score == max(scores)]
        for a in best:
            chances[a] += 1 / (20 * len(best))
    return [(1 - epsilon) * chance + epsilon / len(margins) for chance in chances]


def diagonal_variance(state, x):
    """The mean of x'H^-1 x over the experts of a state whose Hessians are all diagonal, times the widening."""
    e = state.experts
    table, totals = e.features.table, e.features.totals[0]
    fade = {0: 1.0, 1: float(totals["fade"])}
    zeta, unseen, fresh, total, entries = [], 0.0, 0.0, 0.0, 0
    for j, value in enumerate(x, 1):
        known = table[j]
        z = value - e.features.centre[0, int(known["number"]) - 1] if known["number"] > 0 else value
        if known["number"] == 0 and value == 0:
            continue
        entries += 1
        if known["inverse"] == 0 and z != 0:
            scaled = z * z / math.exp(totals["logarithms"] / totals["log_weight"]) if totals["log_weight"] > 0 else 1.0
            total, unseen, fresh = total + scaled, unseen + scaled / (totals["prior"] / 8), fresh + scaled
        zeta.append((z * known["inverse"], known))
        total += (z * known["inverse"]) ** 2
    norm, length = math.sqrt(2 / (total + entries)) if entries else 1.0, float(totals["length"])
    if total > 100 * entries:
        length *= math.sqrt(100 * entries / total)
    n = e.mix.steady.shape[1]
    kappa = []
    for k in range(n):
        memory = int(e.mix.fast[k])
        past = "fast" if memory else "slow"
        inside = sum(z * z / (f["prior"] + f[past] * fade[memory]) for z, f in zeta if z != 0) + unseen
        own = 0.25**2 / (table[0]["prior"] + table[0][past] * fade[memory])
        if k >= n - e.bets.shape[2]:  # a flat prior
            inside = sum(z * z / (1 + f["slow"]) for z, f in zeta if z != 0) + fresh
            own = 0.25**2 / (1 + table[0]["slow"])
        factor = length if e.mix.linear[k] > 0 else norm
        kappa.append(factor**2 * inside + own)
    logarithms = [math.log(rate) for rate in e.mix.rate]
    mean = sum(share * each for share, each in zip(e.mix.steady[0], logarithms, strict=True))
    return float(np.dot(e.mix.steady[0], kappa)) * math.exp((mean - sum(logarithms) / n) / 2)
