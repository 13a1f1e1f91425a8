"""What is known of each feature without labels, and from it the scale of rows and the diagonal D of the Hessian.

Feature 0 is the intercept; feature j of the rows is j + 1 here. A feature that was seldom zero in the first rows is
centred at its mean over them, for good. With n rows, count and square the number of non-zeros and the sum of their
squares, v = square / count and the density rho = count / n,

    S^2 = v for a centred feature, else g (v/g)^min(1, 2 rho), g the geometric mean of v over all non-zeros
    D = a0 sqrt(max(rho, 1/32)) S^2 + R,   R = sum of c^2 x^2 minus what B holds of it

A row z is multiplied by sqrt(2 / (sum of z^2/S^2 + number of non-zeros)), and has 1/4 for the intercept. For targets,
if most entries of the first rows are of centred features, all rows are multiplied by the same number instead, 1 over
the root of the mean number of non-zeros: then the model is linear (but for rows of which sum z^2/S^2 is more than 10^4
times the number of non-zeros: they are brought back to that). S and D of a feature are renewed at the end of a block in
which it occurred.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustfd.linalg._compile import compiled, entry, loops

Floats = NDArray[np.float64]

PRIOR = 0.125  # a0
INTERCEPT = 0.25  # the value of the intercept in every row
RAREST = 1.0 / 32.0  # densities below count as this
CENTRE = 0.75  # share of the first rows in which a feature is not zero, from which on it is centred
ROUND_OFF = 1e-9  # a difference this small, relative to the mean, is that of a constant column from itself
FAR = 1e4  # the square of how many times as long as usual a row may be
ROWS, LOGARITHMS, NONZEROS, LENGTH = range(4)  # places in Features.totals
# Places in a row of Features.table: non-zeros (rows, if the feature is centred), the sum of their squares (about the
# mean), the mean, whether it is centred, S^2 and D (0 before it was seen), the sum of c^2 x^2 over finished blocks,
# and which of the centred features it is, from 1 on.
COUNT, SQUARE, MEAN, CENTRED, SCALE, METRIC, DIAGONAL, NUMBER = range(8)


class Features(NamedTuple):
    """What is known: a row for each feature, the intercept first, in the places named above."""

    table: Floats  # one line of the cache each
    # Rows, sum of count log v and sum of count over features that are not centred, and what all rows are multiplied by,
    # or 0 if each has a factor of its own.
    totals: Floats


def start(d: int) -> Features:
    """Return what is known of d features and the intercept before the first row."""
    features = Features(np.zeros((d + 1, 8)), np.zeros(4))
    features.table[0, [SCALE, METRIC, CENTRED]] = 1.0, PRIOR, 1.0
    return features


def with_features(features: Features, n: int) -> Features:
    """Return features with more of them, of which nothing is known."""
    return features._replace(table=np.vstack([features.table, np.zeros((n - len(features.table), 8))]))


# ------------------------------------------------------------ statistics


def learn_first(features: Features, x: Any, *, linear: bool) -> NDArray[np.int32]:
    """Set everything anew from the first rows, as raw as they came: scales, and which features are centred, and where.

    Those are returned.
    With `linear` all rows are multiplied by the same number, unless most of their entries are zero.
    """
    n, seen = x.shape[0], np.arange(x.shape[1])
    if sp.issparse(x):  # only features that occurred are touched, so that the width of sparse rows does not matter
        seen, place = np.unique(x.indices, return_inverse=True)
        x = sp.csr_array((x.data, place, x.indptr), shape=(n, len(seen))).toarray()
    seen = seen.astype(np.int64) + 1
    count = np.count_nonzero(x, axis=0).astype(np.float64)
    centred = (count > CENTRE * n) if n > 1 else np.zeros(len(seen), np.bool_)
    mean = np.where(centred, x.mean(axis=0), 0.0)
    square = np.square(_shifted(x, mean)).sum(axis=0)
    square[centred] *= n / max(n - 1, 1)  # of few rows
    whole, rest = n * float(np.count_nonzero(centred)), float(count[~centred].sum())
    features.totals[:] = n, 0.0, 0.0, np.sqrt(n / (whole + rest)) if linear and whole > rest else 0.0
    features.table[seen] = 0.0
    features.table[seen, MEAN], features.table[seen, CENTRED] = mean, centred
    features.table[0, DIAGONAL] = 0.0
    count = np.where(square > 0, np.where(centred, float(n), count), 0.0)
    sums = np.zeros((3, 1 + len(seen)))
    sums[0], sums[1, 1:] = np.append(n, count), square
    renew(features, np.append(0, seen).astype(np.int32), sums, True, np.zeros((0, 0)), np.zeros((0, 0)))
    return number_centred(features, seen[centred])


@entry
@loops
def renew(features: Features, which: Any, sums: Any, new: bool, basis: Any, m: Any) -> bool:
    """Renew S^2 and D of features, and what is in the metric of D: weights, which are times D, and M.

    `sums` (3, features): how many values there were (non-zeros, or all if the feature is centred; one that had none is
    left alone), the sum of their squares, and that of c^2 x^2. Of values that are not `new` the first two are known.
    Return whether all is finite. Without a basis, m has no rows.
    """
    table, totals, r, p, total = features.table, features.totals, len(m), basis.shape[1] - len(m), 0.0
    for k in range(len(which)):
        row = table[which[k]]
        row[DIAGONAL] += sums[2, k]
        for turn in range(2 if new and sums[0, k] > 0 else 0):
            if turn == 1:
                row[COUNT] += sums[0, k]
                row[SQUARE] += sums[1, k]
            if row[CENTRED] == 0.0 and row[SQUARE] > 0:  # what it gave to the mean is taken back, and given anew
                weight = row[COUNT] if turn == 1 else -row[COUNT]
                totals[LOGARITHMS] += weight * math.log(row[SQUARE] / row[COUNT])
                totals[NONZEROS] += weight
    for k in range(len(which)):
        if sums[0, k] == 0.0:
            continue
        row, held = table[which[k]], 0.0
        if r > 0:
            b = basis[which[k], p:]
            for i in range(r):
                held += b[i] * b[i]
        before, count, centred = row[METRIC], max(row[COUNT], 1.0), row[CENTRED] > 0
        density = 1.0 if centred else min(count / max(totals[ROWS], 1.0), 1.0)
        v = row[SQUARE] / count
        if which[k] == 0:
            v = 1.0
        elif not centred:
            v = _interpolated(totals, v, density)
        if v > 0:
            row[SCALE] = v
        row[METRIC] = now = PRIOR * math.sqrt(max(density, RAREST)) * row[SCALE] + max(row[DIAGONAL] - held, 0.0)
        total += now
        if r > 0:
            weights, grown = basis[which[k]], now / before if before > 0 else 1.0
            for i in range(p):
                weights[i] *= grown
                total += abs(weights[i])
            change = (1.0 / now if now > 0 else 0.0) - (1.0 / before if before > 0 else 0.0)
            for i in range(r):
                x, line = change * b[i], m[i]
                for j in range(r):
                    line[j] += x * b[j]
    for i in range(r):
        total += abs(m[i, i])
    return total < np.inf


@loops
def _interpolated(totals: Any, v: float, density: float) -> float:
    """Return g (v/g)^min(1, 2 density), or v as long as there is no g."""
    if totals[NONZEROS] <= 0.0 or v <= 0.0:
        return v
    g = totals[LOGARITHMS] / totals[NONZEROS]
    return math.exp(g + (math.log(v) - g) * min(1.0, 2.0 * density))


# ------------------------------------------------------------------ rows


@entry
@loops
def prepare_dense(features: Features, x: Any, learn: bool, rows: Any, factors: Any, work: Any) -> None:
    """Fill rows (n, d + 1) with those of x, centred and scaled, the intercept first, and the factor of each.

    `work` (3, d) is scratch memory.
    """
    table, totals, (n, d) = features.table, features.totals, x.shape
    mean, inverse, always = work[0], work[1], work[2]  # side by side, for loops in vector registers
    for j in range(d):
        mean[j], always[j], scale = table[j + 1, MEAN], table[j + 1, CENTRED], table[j + 1, SCALE]
        inverse[j] = 1.0 / scale if scale > 0 else 0.0
    for i in range(n):
        source, target = x[i], rows[i, 1:]
        for j in range(d):
            z = source[j] - mean[j]
            target[j] = z if abs(z) > ROUND_OFF * abs(mean[j]) and z * z > 0 else 0.0
        total, count = 0.0, 0.0
        for j in range(d):
            square = target[j] * target[j]
            count += 1.0 if square > 0 else always[j]
            if square > 0 and inverse[j] == 0.0:
                scale = _meet(totals, square, learn, table[j + 1])
                inverse[j] = 1.0 / scale if learn else 0.0
                total += square / scale
            else:
                total += square * inverse[j]
        factors[i] = row_factor(totals[LENGTH], total, count)
        rows[i, 0] = INTERCEPT
        for j in range(d):
            target[j] *= factors[i]


@loops
def row_factor(length: float, total: float, count: float) -> float:
    """Return what a row is multiplied by, `total` its sum of z^2/S^2 and `count` its number of non-zeros."""
    if length > 0:
        return length * math.sqrt(FAR * count / total) if total > FAR * count else length
    return math.sqrt(2.0 / (total + count)) if total + count > 0 else 1.0


@loops
def _meet(totals: Any, square: float, learn: bool, row: Any) -> float:
    """Return S^2 of a feature never seen before, from its first square; for good if it is learnt."""
    scale = _interpolated(totals, square, 0.0)
    if learn:
        density = max(1.0 / max(totals[ROWS], 1.0), RAREST)
        row[SCALE], row[METRIC] = scale, PRIOR * math.sqrt(density) * scale
    return scale


@compiled
def sum_dense(table: Any, rows: Any, factors: Any, weights: Any, out: Any) -> None:
    """Fill out (3, d + 1): how many entries a feature has, or rows if it is centred, and sums as `sum_features`."""
    count, squares, weighted = out[0], out[1], out[2]
    out[:] = 0.0
    for i in range(len(rows)):
        row, scale, weight = rows[i], 1.0 / (factors[i] * factors[i]), weights[i]
        for j in range(len(row)):
            square = row[j] * row[j]
            count[j] += 1.0 if square > 0 else 0.0
            squares[j] += scale * square
            weighted[j] += weight * square
    for j in range(len(count)):
        if table[j, CENTRED] > 0:
            count[j] = len(rows)


def prepare_sparse(features: Features, shifted: Any, x: Any, part: slice, *, learn: bool) -> tuple[Any, ...]:
    """Return values, features and starts of rows in compressed form, and their factors; `part` are the rows wanted.

    `shifted` lists the centred features, which have entries in every row.
    """
    starts = x.indptr[part.start : part.stop + 1].astype(np.int64, copy=False)
    n = len(starts) - 1
    size = int(starts[-1] - starts[0]) + n * (1 + len(shifted))
    values, which, new, factors = np.empty(size), np.empty(size, np.int32), np.empty(n + 1, np.int64), np.empty(n)
    _prepare_sparse(features, shifted, x.data, x.indices, starts, learn, values, which, new, factors)
    return values[: new[n]], which[: new[n]], new, factors


@entry
@loops
def _prepare_sparse(
    features: Features, shifted: Any, data: Any, indices: Any, indptr: Any, learn: bool,
    values: Any, which: Any, starts: Any, factors: Any,
) -> None:  # fmt: skip
    table, totals, many, at = features.table, features.totals, len(shifted), 0
    starts[0] = 0
    for i in range(len(factors)):
        first = at
        values[at], which[at] = INTERCEPT, 0
        for k in range(many):
            values[at + 1 + k], which[at + 1 + k] = 0.0, shifted[k]
        at += 1 + many
        for e in range(indptr[i], indptr[i + 1]):
            row, x = table[indices[e] + 1], data[e]
            if row[CENTRED] > 0:
                values[first + int(row[NUMBER])] += x
            elif x * x > 0:
                values[at], which[at] = x, indices[e] + 1
                at += 1
        total = 0.0
        for e in range(first + 1, at):
            row, z = table[which[e]], values[e]
            if row[CENTRED] > 0:
                z -= row[MEAN]
                values[e] = z = z if abs(z) > ROUND_OFF * abs(row[MEAN]) else 0.0
            if z * z > 0:
                total += z * z / (row[SCALE] if row[SCALE] > 0 else _meet(totals, z * z, learn, row))
        factors[i] = row_factor(totals[LENGTH], total, at - first - 1.0)
        for e in range(first + 1, at):
            values[e] *= factors[i]
        starts[i + 1] = at


def number_centred(features: Features, which: NDArray[np.int64]) -> NDArray[np.int32]:
    """Take down of each centred feature which it is among them, in order, and return them."""
    features.table[which, NUMBER] = np.arange(1, len(which) + 1)
    return which.astype(np.int32)


def _shifted(x: Any, mean: Floats) -> Floats:
    """Return x minus the mean; what is round-off of it, in a column that is constant, is 0."""
    z = x - mean
    if mean.any():
        z[np.abs(z) <= ROUND_OFF * np.abs(mean)] = 0.0
    return np.asarray(z)
