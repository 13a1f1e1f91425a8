"""The diagonal Hessian: experts whose cost depends only on the non-zeros of a row.

H_j = P_j + the sum of c^2 f^2 zeta_j^2, over all rows (slow) or over recent rows (fast). Sixteen float32 weights of a
feature fill one cache line.
"""

from typing import Any

from robustfd._compile import loops
from robustfd.online.feature_stats import Features
from robustfd.online.lanes import add_multiple, sum_rows
from robustfd.online.mixture import Mixture
from robustfd.online.scratch import Row, Work, set_kappa

INTERCEPT = 0.25  # the value of the intercept in every row


@loops
def fill_margins(weights: Any, features: Features, mix: Mixture, row: Row, work: Work) -> None:
    """Fill the kappa and the margins of the diagonal experts."""
    width = len(work.sums)
    sum_rows(work.sums, weights, width, work.feature, work.value, row.size, width)
    own, count = features.table[0], mix.plain.shape[1] // 2
    for memory in range(2):
        first = memory * count
        past = own["slow"] if memory == 0 else own["fast"] * features.totals[0]["fade"]
        intercept = INTERCEPT * INTERCEPT / (own["prior"] + past)
        kappa = row.slow if memory == 0 else row.fast
        norm, length = row.norm * row.norm * kappa + intercept, row.length * row.length * kappa + intercept
        set_kappa(mix, work, first, first + count, norm, length)
        for c in range(len(work.margin)):
            start = memory * (width // 2) + c * count
            for k in range(count):
                f = row.length if mix.linear[first + k] > 0 else row.norm
                work.margin[c, first + k] = f * work.sums[start + k] + INTERCEPT * weights[0, start + k]


@loops
def take_steps(weights: Any, features: Features, mix: Mixture, row: Row, work: Work, c2: float) -> None:
    """Take the steps of the diagonal experts, and add the curvature c2 of the row to their Hessians."""
    width, fade, own = len(work.sums), features.totals[0]["fade"], features.table[0]
    half, count = width // 2, mix.plain.shape[1] // 2
    for memory in range(2):
        past = own["slow"] if memory == 0 else own["fast"] * fade
        first, inverse = memory * count, INTERCEPT / (own["prior"] + past)
        for c in range(len(work.margin)):
            start = memory * half + c * count
            for k in range(count):
                step = work.step[c, first + k]
                work.sums[start + k] = (row.length if mix.linear[first + k] > 0 else row.norm) * step
                weights[0, start + k] += inverse * step
    own["slow"] += c2 * INTERCEPT * INTERCEPT
    own["fast"] += c2 * INTERCEPT * INTERCEPT / fade
    f2, faded = c2 * row.curve * row.curve, c2 * row.curve * row.curve / fade
    for e in range(row.size):
        j, zeta = work.feature[e], work.value[e]
        if zeta != 0.0:
            known = features.table[j]
            add_multiple(weights, j * width, work.sums, 0, work.step_slow[e], half)
            add_multiple(weights, j * width + half, work.sums, half, work.step_fast[e], half)
            known["slow"] += f2 * zeta * zeta
            known["fast"] += faded * zeta * zeta
