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

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustfd.linalg._compile import compiled, loops

Floats = NDArray[np.float64]

PRIOR = 0.125  # a0
INTERCEPT = 0.25  # the value of the intercept in every row
RAREST = 1.0 / 32.0  # densities below count as this
CENTRE = 0.75  # share of the first rows in which a feature is not zero, from which on it is centred
ROUND_OFF = 1e-9  # a difference this small, relative to the mean, is that of a constant column from itself
FAR = 1e4  # the square of how many times as long as usual a row may be
ROWS, LOGARITHMS, NONZEROS, LENGTH = range(4)  # places in Features.totals
# Places in a row of Features.table: non-zeros (rows, if the feature is centred), the sum of their squares (about the
# mean), the mean, whether it is centred, S^2 and D (0 before it was seen), the sum of c^2 x^2 over finished blocks.
COUNT, SQUARE, MEAN, CENTRED, SCALE, METRIC, DIAGONAL = range(7)


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


def learn_first(features: Features, x: Any, *, linear: bool) -> None:
    """Set everything anew from the first rows, as raw as they came: which features are centred, where, and scales.

    With `linear` all rows are multiplied by the same number, unless most of their entries are zero.
    """
    n, sparse = x.shape[0], sp.issparse(x)
    # Only features that occurred are touched, so that the width of sparse rows does not matter.
    seen = np.unique(x.indices).astype(np.int64) if sparse else np.arange(x.shape[1])
    x = x[:, seen].toarray() if sparse else x
    seen = seen + 1
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
    some = square > 0
    count_values(features, seen[some], np.where(centred, float(n), count)[some], square[some])
    renew(features, np.append(0, seen), np.zeros(1 + len(seen)))


@compiled
def count_values(features: Features, which: Any, counts: Any, squares: Any) -> None:
    """Count values of some features: how many (non-zeros, or all if it is centred) and the sums of their squares."""
    totals = features.totals
    for k in range(len(which)):
        row = features.table[which[k]]
        for sign in (-1.0, 1.0):  # what it gave to the mean of logarithms is taken back, and given anew
            if row[CENTRED] == 0.0 and row[SQUARE] > 0:
                totals[LOGARITHMS] += sign * row[COUNT] * np.log(row[SQUARE] / row[COUNT])
                totals[NONZEROS] += sign * row[COUNT]
            if sign < 0:
                row[COUNT] += counts[k]
                row[SQUARE] += squares[k]


@compiled
def renew(features: Features, which: Any, held: Any) -> Any:
    """Renew S^2 and D of features of whose squares B holds so much; return D as it was, and as it is."""
    totals, before, now = features.totals, np.empty(len(which)), np.empty(len(which))
    for k in range(len(which)):
        row = features.table[which[k]]
        before[k], count, centred = row[METRIC], max(row[COUNT], 1.0), row[CENTRED] > 0
        density = 1.0 if centred else min(count / max(totals[ROWS], 1.0), 1.0)
        v = row[SQUARE] / count
        if which[k] == 0:
            v = 1.0
        elif not centred:
            v = _interpolated(totals, v, density)
        if v > 0:
            row[SCALE] = v
        row[METRIC] = now[k] = PRIOR * np.sqrt(max(density, RAREST)) * row[SCALE] + max(row[DIAGONAL] - held[k], 0.0)
    return before, now


@loops
def _interpolated(totals: Any, v: float, density: float) -> float:
    """Return g (v/g)^min(1, 2 density), or v as long as there is no g."""
    if totals[NONZEROS] <= 0.0 or v <= 0.0:
        return v
    g = totals[LOGARITHMS] / totals[NONZEROS]
    return np.exp(g + (np.log(v) - g) * min(1.0, 2.0 * density))


# ------------------------------------------------------------------ rows


@compiled
def prepare_dense(features: Features, x: Any, learn: bool) -> Any:
    """Return rows (n, d + 1), centred and scaled, the intercept first, and the factor of each."""
    table, totals, (n, d) = features.table, features.totals, x.shape
    rows, factors = np.empty((n, d + 1)), np.empty(n)
    mean, inverse, always = np.empty(d), np.empty(d), np.empty(d)  # side by side, for loops in vector registers
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
    return rows, factors


@loops
def row_factor(length: float, total: float, count: float) -> float:
    """Return what a row is multiplied by, `total` its sum of z^2/S^2 and `count` its number of non-zeros."""
    if length > 0:
        return length * np.sqrt(FAR * count / total) if total > FAR * count else length
    return np.sqrt(2.0 / (total + count)) if total + count > 0 else 1.0


@loops
def _meet(totals: Any, square: float, learn: bool, row: Any) -> float:
    """Return S^2 of a feature never seen before, from its first square; for good if it is learnt."""
    scale = _interpolated(totals, square, 0.0)
    if learn:
        density = max(1.0 / max(totals[ROWS], 1.0), RAREST)
        row[SCALE], row[METRIC] = scale, PRIOR * np.sqrt(density) * scale
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


def prepare_sparse(features: Features, shifted: Any, x: Any, *, learn: bool) -> tuple[Any, Any, Any, Floats]:
    """Return values, features and starts of rows in compressed form, and their factors.

    `shifted` lists the centred features, which have entries in every row.
    """
    table, n = features.table, x.shape[0]
    length = np.diff(x.indptr)
    row, where, z = np.repeat(np.arange(n), length), x.indices + np.int32(1), x.data
    keep = z * z > 0
    if len(shifted):
        keep &= table[where, CENTRED] == 0
        dense = _shifted(x[:, shifted - 1].toarray(), table[shifted, MEAN])
    if not keep.all():
        row, where, z = row[keep], where[keep], z[keep]
    many = 1 + len(shifted)
    count = np.bincount(row, minlength=n) + many
    indptr = np.append(0, np.cumsum(count))
    place = np.arange(len(row)) + many * (row + 1)
    values, indices = np.empty(indptr[-1]), np.empty(indptr[-1], np.int32)
    values[place], indices[place] = z, where
    values[indptr[:-1]], indices[indptr[:-1]] = INTERCEPT, 0
    if len(shifted):
        at = indptr[:-1, None] + np.arange(1, many)
        values[at], indices[at] = dense, shifted

    squares = values * values
    squares[indptr[:-1]] = 0.0
    scale = table[indices, SCALE]
    unseen = (scale == 0) & (squares > 0)
    if unseen.any():
        new, first, back = np.unique(indices[unseen], return_index=True, return_inverse=True)
        scale[unseen] = meet(features, new, squares[unseen][first], learn)[back]
        if not learn and features.totals[NONZEROS] <= 0.0:  # each is its own scale
            scale[unseen] = squares[unseen]
    total = np.add.reduceat(squares / np.where(scale > 0, scale, 1.0), indptr[:-1]) if n else np.zeros(0)
    factors = row_factors(features.totals[LENGTH], total, count - 1.0)
    values *= np.repeat(factors, count)
    values[indptr[:-1]] = INTERCEPT
    return values, indices, indptr, factors


@compiled
def row_factors(length: float, total: Any, count: Any) -> Any:
    """Return the factors of rows."""
    out = np.empty(len(total))
    for i in range(len(out)):
        out[i] = row_factor(length, total[i], count[i])
    return out


@compiled
def meet(features: Features, new: Any, squares: Any, learn: bool) -> Any:
    """Return S^2 of features never seen before, from their first squares; for good if they are learnt."""
    out = np.empty(len(new))
    for k in range(len(new)):
        out[k] = _meet(features.totals, squares[k], learn, features.table[new[k]])
    return out


def _shifted(x: Any, mean: Floats) -> Floats:
    """Return x minus the mean; what is round-off of it, in a column that is constant, is 0."""
    z = x - mean
    if mean.any():
        z[np.abs(z) <= ROUND_OFF * np.abs(mean)] = 0.0
    return np.asarray(z)
