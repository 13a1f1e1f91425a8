"""The experts of the untuned learner, and the compiled loops over rows.

An expert is a linear model. Experts differ in

- learning rate,
- memory: the Hessian sums the curvature of all rows (slow) or of recent rows (fast),
- scaling: each row is divided by its own length, or all rows are multiplied by the same number (linear),
- form of the Hessian: diagonal (diagonal.py), exact (exact.py) or diagonal plus sketch (low_rank.py).

For each row, every expert computes its margin, the mixture of the experts predicts (mixture.py), and every expert takes
its step. Then the statistics of the features of the row are updated (feature_stats.py). Rows are processed one at a
time, so the result does not depend on the batch size.

The argument `whole` is the exact Hessian and `low` the one with a sketch. It is None if this form cannot come into use;
`numbers` is None for classification. numba then skips the code for it, which would take seconds to compile. Loops that
Python calls receive records as pointers (`Layout` in _compile).
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._compile import Layout, entry, loops, open_record
from robustfd.linalg.lapack import fetch_row
from robustfd.online import diagonal, exact, feature_stats, low_rank, mixture
from robustfd.online.class_steps import learn_classes
from robustfd.online.diagonal import INTERCEPT
from robustfd.online.exact import Exact
from robustfd.online.feature_stats import (
    MOVE,
    ROUND_OFF,
    WINDOW,
    Features,
    init_feature,
    is_regular,
    record_value,
    renew_scale,
)
from robustfd.online.low_rank import LowRank
from robustfd.online.mixture import Mixture, record_shares
from robustfd.online.number_steps import learn_number
from robustfd.online.rows import Batch, CsrRows
from robustfd.online.scratch import Row, Work, predict, work_for

Floats = NDArray[np.float64]

GAMMA = 0.999  # decay of the fast memory per row
LONGEST = 1e100  # values in units of their feature are clipped here, so that their squares do not overflow
HEAVIEST = 1e12  # larger sample weights are clipped to this
FADED = 1e-200  # a fade below this is multiplied in and reset to 1
FAR = 100.0  # largest mean square of a row for linear experts; longer rows are shortened to it
HUGE = 1e30  # rows with a larger sum of squares are shortened to it, since weights are float32


class Diagonal(NamedTuple):
    """The diagonal experts, and the statistics and mixture of all experts."""

    features: Features
    mix: Mixture
    weights: NDArray[np.float32]  # (d + 1, memories outputs L)


class Shared(NamedTuple):
    """The fields of `Diagonal` together with scratch memory, for compiled loops."""

    features: Features
    mix: Mixture
    weights: NDArray[np.float32]
    work: Work


class Experts(NamedTuple):
    """The state of all experts, with empty arrays for forms of the Hessian that are not in use."""

    features: Features
    mix: Mixture
    weights: NDArray[np.float32]
    exact: Exact
    low_rank: LowRank


_FEATURES = feature_stats.start(1, prior=1.0, by_density=True)
_MIXTURE = mixture.start(1, np.ones((2, 8)), np.ones((2, 8)), loss=None)
DIAGONAL = Layout(Diagonal(_FEATURES, _MIXTURE, feature_stats.aligned(2, np.float32, 16)))
WORK = Layout(work_for(_MIXTURE, 1, 16, 1))
EXACT, LOW_RANK = Layout(exact.start(0, 0, 1, 1)), Layout(low_rank.start(0, 0, 1, 1))


@loops
def list_dense(features: Features, x: Any, work: Work) -> int:
    """List the centred features and then the other non-zeros of a dense row in `work`; return their number."""
    many = len(features.centred)
    for k in range(many):
        j = features.centred[k]
        work.feature[k], work.raw[k] = j, x[j - 1]
    n = many
    if many < len(x):
        for j in range(len(x)):
            if x[j] != 0.0 and features.table[j + 1]["number"] == 0:
                work.feature[n], work.raw[n] = j + 1, x[j]
                n += 1
    return n


@loops
def list_sparse(features: Features, rows: CsrRows, i: int, work: Work) -> int:
    """Do the same as `list_dense` for row i of sparse rows."""
    many = len(features.centred)
    for k in range(many):
        work.feature[k], work.raw[k] = features.centred[k], 0.0
    n = many
    for e in range(rows.indptr[i], rows.indptr[i + 1]):
        j, x = np.int64(rows.indices[e]) + 1, rows.data[e]
        number = features.table[j]["number"]
        if number > 0:
            work.raw[number - 1] += x
        elif x != 0.0:
            work.feature[n], work.raw[n] = j, x
            n += 1
    return n


@loops
def scale_row(shared: Shared, n: int, learn: bool) -> Row:
    """Fill work.value with zeta and return the scaled row; with `learn`, initialize features that are new."""
    features, work, totals = shared.features, shared.work, shared.features.totals[0]
    total, slow, fast = 0.0, 0.0, 0.0
    fade, logarithms, met = totals["fade"], 0.0, 0.0
    for e in range(n):
        j = work.feature[e]
        row, z = features.table[j], work.raw[e]
        number = row["number"]
        if number > 0:
            centre = features.centre[0, number - 1]
            z -= centre
            if abs(z) <= ROUND_OFF * abs(centre):
                z = 0.0
        if z != z:  # a missing value counts as the mean, or as 0 if the feature is not centred
            z = 0.0
        fetch_row(shared.weights, j)
        if row["inverse"] == 0.0 and z * z > 0.0:
            if learn:
                init_feature(row, totals, z * z)
                logarithms += math.log(z * z)
                met += 1.0
            elif totals["log_weight"] > 0:  # the square that `learn` would lead to
                total += z * z / math.exp(totals["logarithms"] / totals["log_weight"])
            else:
                total += 1.0
        zeta = min(max(z * row["inverse"], -LONGEST), LONGEST)
        work.value[e] = work.step_slow[e] = work.step_fast[e] = 0.0
        if zeta * zeta > 0.0:
            total += zeta * zeta
            work.value[e] = zeta
            work.step_slow[e] = zeta / (row["prior"] + row["slow"])
            work.step_fast[e] = zeta / (row["prior"] + row["fast"] * fade)
            slow += zeta * work.step_slow[e]
            fast += zeta * work.step_fast[e]
    totals["logarithms"] += logarithms
    totals["log_weight"] += met
    if total > HUGE:
        shorter = math.sqrt(HUGE / total)
        for e in range(n):
            work.value[e] *= shorter
            work.step_slow[e] *= shorter
            work.step_fast[e] *= shorter
        total, slow, fast = HUGE, slow * shorter * shorter, fast * shorter * shorter
    length = totals["length"]
    if total > FAR * n:
        length *= math.sqrt(FAR * n / total)
    norm = math.sqrt(2.0 / (total + n)) if n > 0 else 1.0
    return Row(n, norm, length, length if shared.mix.targets[0]["numbers"] else norm, slow, fast)


@loops
def predict_row(shared: Shared, whole: Any, low: Any, n: int, learn: bool) -> Row:
    """Fill `work` with the kappa and margins of all experts and with the prediction; return the scaled row."""
    row, work = scale_row(shared, n, learn), shared.work
    diagonal.fill_margins(shared.weights, shared.features, shared.mix, row, work)
    if whole is not None and len(whole.block) > 0:
        exact.fill_margins(whole, shared.mix, row, work)
    if low is not None and len(low.diagonal) > 0:
        low_rank.fill_margins(low, shared.features, shared.mix, row, work)
    predict(shared.mix, work)
    return row


@loops
def learn_row(
    shared: Shared, numbers: Any, whole: Any, low: Any, row: Row, y: float, weight: float, update_stats: bool
) -> None:
    """Take the steps of a row after `predict_row`; with `update_stats`, also update the statistics of its features."""
    features, mix, work, totals = shared.features, shared.mix, shared.work, shared.features.totals[0]
    weight = min(weight, HEAVIEST)
    if totals["rows"] == 0.0:
        totals["weight"] = weight
    if update_stats:
        record_shares(mix, int(totals["rows"]))
    if numbers is not None:
        c2 = learn_number(mix, work, y, weight, weight / totals["weight"])
    else:
        c2 = learn_classes(mix, work, y, weight, weight / totals["weight"])
    diagonal.take_steps(shared.weights, features, mix, row, work, c2)
    if whole is not None and len(whole.block) > 0:
        exact.take_steps(whole, mix, row, work, c2)
    if low is not None and len(low.diagonal) > 0:
        low_rank.take_steps(low, mix, row, work, c2, int(totals["rows"]))
    totals["fade"] *= GAMMA
    if totals["fade"] < FADED:
        for j in range(len(features.table)):
            features.table[j]["fast"] *= totals["fade"]
        totals["fade"] = 1.0
    if update_stats:
        totals["rows"] += 1.0
        totals["norm"] += (row.norm - totals["norm"]) / min(totals["rows"], WINDOW)
        totals["weight"] += (weight - totals["weight"]) / min(totals["rows"], WINDOW)
        record_row(shared, whole, low, row.size)


@loops
def record_row(shared: Shared, whole: Any, low: Any, n: int) -> None:
    """Update the statistics of the features of a row; the result does not depend on the order of its entries."""
    features, work, totals = shared.features, shared.work, shared.features.totals[0]
    logarithms, more = 0.0, 0.0
    for e in range(n):
        j = work.feature[e]
        row = features.table[j]
        if row["inverse"] == 0.0 or work.raw[e] != work.raw[e]:
            continue
        due, number = record_value(features, row, work.raw[e]), row["number"]
        if number > 0:
            away = (features.centre[1, number - 1] - features.centre[0, number - 1]) * row["inverse"]
            if due or abs(away) > MOVE:
                move_centre(shared, whole, low, j, away)
                features.centre[0, number - 1] = features.centre[1, number - 1]
        if due:
            change = renew_scale(row, totals)
            if change != 1.0:
                rescale(shared, whole, low, j, change)
            if number == 0 and is_regular(row["count"]):
                logarithms += 0.75 * row["count"] * math.log(row["square"])
                more += 0.75 * row["count"]
    totals["logarithms"] += logarithms
    totals["log_weight"] += more


@loops
def move_centre(shared: Shared, whole: Any, low: Any, j: int, away: float) -> None:
    """Correct the intercepts for a move of the centre of feature j by `away`, in units of the feature."""
    weights, mix, totals = shared.weights, shared.mix, shared.features.totals[0]
    count, outputs, half = mix.plain.shape[1] // 2, len(mix.share), weights.shape[1] // 2
    norm, length = totals["norm"] * away / INTERCEPT, totals["length"] * away / INTERCEPT
    for memory in range(2):
        for c in range(outputs):
            for k in range(count):
                i = memory * half + c * count + k
                weights[0, i] += (length if mix.linear[memory * count + k] > 0 else norm) * weights[j, i]
    if whole is not None and len(whole.block) > 0:
        exact.move_centre(whole, mix, j, norm, length)
    if low is not None and len(low.diagonal) > 0:
        low_rank.move_centre(low, mix, j, norm, length)


@loops
def rescale(shared: Shared, whole: Any, low: Any, j: int, change: float) -> None:
    """Multiply the weights of feature j by `change`, since its scaled values become smaller by this factor."""
    for k in range(shared.weights.shape[1]):
        shared.weights[j, k] *= change
    if whole is not None and len(whole.block) > 0:
        exact.rescale(whole, j, change)
    if low is not None and len(low.diagonal) > 0:
        low_rank.rescale(low, j, change)


@loops
def write_output(mix: Mixture, work: Work, out: Any) -> None:
    """Fill `out` with the prediction; numbers are in the original units of the targets."""
    targets = mix.targets[0]
    for c in range(len(out)):
        if targets["counts"]:
            out[c] = targets["unit"] * math.exp(work.output[c])
        else:
            out[c] = targets["offset"] + targets["unit"] * work.output[c]


@loops
def is_full(low: Any) -> bool:
    """Return whether the sketch must shrink before the next row."""
    if low is not None:
        return len(low.diagonal) > 0 and low.filled[0] == len(low.buffer)
    return False


@loops
def open_shared(shared: Any, work: Any) -> Shared:
    """Return the diagonal experts and scratch memory from their pointers."""
    experts = open_record(shared, DIAGONAL)
    return Shared(experts.features, experts.mix, experts.weights, open_record(work, WORK))


@entry
@loops
def learn_dense(
    shared: Any, numbers: Any, whole: Any, low: Any, work: Any, x: Any, batch: Batch, update_stats: bool
) -> int:
    """Learn from rows and fill their margins (n, outputs) before each step; return how many fit into the sketch.

    Without `update_stats` the statistics of features do not change.
    """
    experts, inverse, sketched = open_shared(shared, work), open_record(whole, EXACT), open_record(low, LOW_RANK)
    for i in range(len(batch.y)):
        if is_full(sketched):
            return i
        row = predict_row(experts, inverse, sketched, list_dense(experts.features, x[i], experts.work), True)
        write_output(experts.mix, experts.work, batch.margins[i])
        learn_row(experts, numbers, inverse, sketched, row, batch.y[i], batch.weight[i], update_stats)
    return len(batch.y)


@entry
@loops
def learn_sparse(
    shared: Any, numbers: Any, whole: Any, low: Any, work: Any, rows: CsrRows, batch: Batch, update_stats: bool
) -> int:
    """Do the same as `learn_dense` for sparse rows."""
    experts, inverse, sketched = open_shared(shared, work), open_record(whole, EXACT), open_record(low, LOW_RANK)
    for i in range(len(batch.y)):
        if is_full(sketched):
            return i
        row = predict_row(experts, inverse, sketched, list_sparse(experts.features, rows, i, experts.work), True)
        write_output(experts.mix, experts.work, batch.margins[i])
        learn_row(experts, numbers, inverse, sketched, row, batch.y[i], batch.weight[i], update_stats)
    return len(batch.y)


@loops
def explain_row(shared: Shared, effects: Any, n: int, which: Any, parts: Any) -> None:
    """Fill `which` (n,) with the features of a row and `parts` (n, outputs) with their contributions to the prediction.

    `effects` has shape (3, features, outputs). It holds the contribution of zeta = 1 in rows that are divided by their
    own length, the same in rows with a common factor, and the constant that refers a centred feature to 0.
    """
    row = scale_row(shared, n, False)
    for e in range(n):
        j, zeta = shared.work.feature[e], shared.work.value[e]
        which[e] = j - 1
        for c in range(parts.shape[1]):
            parts[e, c] = zeta * (row.norm * effects[0, j, c] + row.length * effects[1, j, c]) + effects[2, j, c]


@entry
@loops
def explain_dense(shared: Any, effects: Any, work: Any, x: Any, indptr: Any, which: Any, parts: Any) -> None:
    """Explain all rows with `explain_row`; the result for row i is at indptr[i] to indptr[i + 1] - 1."""
    experts = open_shared(shared, work)
    for i in range(len(x)):
        n, begin = list_dense(experts.features, x[i], experts.work), indptr[i]
        explain_row(experts, effects, n, which[begin:], parts[begin:])
        indptr[i + 1] = begin + n


@entry
@loops
def explain_sparse(shared: Any, effects: Any, work: Any, rows: CsrRows, indptr: Any, which: Any, parts: Any) -> None:
    """Do the same as `explain_dense` for sparse rows."""
    experts = open_shared(shared, work)
    for i in range(len(indptr) - 1):
        n, begin = list_sparse(experts.features, rows, i, experts.work), indptr[i]
        explain_row(experts, effects, n, which[begin:], parts[begin:])
        indptr[i + 1] = begin + n


@entry
@loops
def read_dense(shared: Any, whole: Any, low: Any, work: Any, x: Any, out: Any) -> None:
    """Fill `out` (n, outputs) with predictions for dense rows."""
    experts, inverse, sketched = open_shared(shared, work), open_record(whole, EXACT), open_record(low, LOW_RANK)
    for i in range(len(out)):
        predict_row(experts, inverse, sketched, list_dense(experts.features, x[i], experts.work), False)
        write_output(experts.mix, experts.work, out[i])


@entry
@loops
def read_sparse(shared: Any, whole: Any, low: Any, work: Any, rows: CsrRows, out: Any) -> None:
    """Fill `out` (n, outputs) with predictions for sparse rows."""
    experts, inverse, sketched = open_shared(shared, work), open_record(whole, EXACT), open_record(low, LOW_RANK)
    for i in range(len(out)):
        predict_row(experts, inverse, sketched, list_sparse(experts.features, rows, i, experts.work), False)
        write_output(experts.mix, experts.work, out[i])
