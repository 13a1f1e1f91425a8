"""What is known of each feature without labels, and from it the scale of rows and the diagonal D of the Hessian.

Feature 0 is the intercept; feature j of the rows is j + 1 here. A feature that was seldom zero in the first rows is
centred at its mean over them, for good. With n rows, count and square the number of non-zeros and the sum of their
squares, v = square / count and the density rho = count / n,

    S^2 = v for a centred feature, else g (v/g)^min(1, 2 rho), g the geometric mean of v over all non-zeros
    D = a0 sqrt(max(rho, 1/32)) S^2 + R,   R = sum of c^2 x^2 minus what B holds of it

A row z is multiplied by sqrt(2 / (sum of z^2/S^2 + number of non-zeros)), and has 1/4 for the intercept. S and D of a
feature are renewed at the end of a block in which it occurred.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PRIOR = 0.125  # a0
INTERCEPT = 0.25  # the value of the intercept in every row
RAREST = 1.0 / 32.0  # densities below count as this
CENTRE = 0.75  # share of the first rows in which a feature is not zero, from which on it is centred
ROUND_OFF = 1e-9  # a difference this small, relative to the mean, is that of a constant column from itself
ROWS, LOGARITHMS, NONZEROS = range(3)  # places in Features.totals
# Places in a row of Features.table: non-zeros (rows, if the feature is centred), the sum of their squares (about the
# mean), the mean, whether it is centred, S^2 and D (0 before it was seen), the sum of c^2 x^2 over finished blocks.
COUNT, SQUARE, MEAN, CENTRED, SCALE, METRIC, DIAGONAL = range(7)


class Features(NamedTuple):
    """What is known: a row for each feature, the intercept first, in the places named above."""

    table: Floats  # one line of the cache each
    totals: Floats  # rows, sum of count log v and sum of count over features that are not centred


def start(d: int) -> Features:
    """Return what is known of d features and the intercept before the first row."""
    features = Features(np.zeros((d + 1, 8)), np.zeros(3))
    features.table[0, [SCALE, METRIC, CENTRED]] = 1.0, PRIOR, 1.0
    return features


def with_features(features: Features, n: int) -> Features:
    """Return features with more of them, of which nothing is known."""
    return features._replace(table=np.vstack([features.table, np.zeros((n - len(features.table), 8))]))


# ------------------------------------------------------------ statistics


def learn_first(features: Features, x: Any) -> None:
    """Set everything anew from the first rows, as raw as they came: which features are centred, where, and scales."""
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
    features.totals[:] = n, 0.0, 0.0
    features.table[seen] = 0.0
    features.table[seen, MEAN], features.table[seen, CENTRED] = mean, centred
    features.table[0, DIAGONAL] = 0.0
    some = square > 0
    count_values(features, seen[some], np.where(centred, float(n), count)[some], square[some])
    renew(features, np.append(0, seen), np.zeros(1 + len(seen)))


def count_values(features: Features, which: Any, count: Floats, square: Floats) -> None:
    """Count values of some features: how many (non-zeros, or all if it is centred) and the sums of their squares."""
    table, totals = features.table, features.totals
    plain = which[table[which, CENTRED] == 0]
    for sign in (-1.0, 1.0):
        n, s = table[plain, COUNT], table[plain, SQUARE]
        live = s > 0
        totals[LOGARITHMS] += sign * (n[live] @ np.log(s[live] / n[live]))
        totals[NONZEROS] += sign * n[live].sum()
        if sign < 0:
            table[which, COUNT] += count
            table[which, SQUARE] += square


def renew(features: Features, which: Any, held: Floats) -> tuple[Floats, Floats]:
    """Renew S^2 and D of features of whose squares B holds so much; return D as it was, and as it is."""
    part = features.table[which]
    before = part[:, METRIC].copy()
    count = np.maximum(part[:, COUNT], 1.0)
    density = np.minimum(count / max(features.totals[ROWS], 1.0), 1.0)
    density[part[:, CENTRED] > 0] = 1.0
    v = part[:, SQUARE] / count
    v = np.where(part[:, CENTRED] > 0, v, _interpolated(features, v, density))
    v[which == 0] = 1.0
    scale = np.where(v > 0, v, part[:, SCALE])
    now = PRIOR * np.sqrt(np.maximum(density, RAREST)) * scale + np.maximum(part[:, DIAGONAL] - held, 0.0)
    features.table[which, SCALE], features.table[which, METRIC] = scale, now
    return before, now


def _interpolated(features: Features, v: Floats, density: Any) -> Floats:
    """Return g (v/g)^min(1, 2 density), or v as long as there is no g."""
    if features.totals[NONZEROS] <= 0.0:
        return v
    g = features.totals[LOGARITHMS] / features.totals[NONZEROS]
    log_v = np.log(np.where(v > 0, v, 1.0))
    return np.where(v > 0, np.exp(g + (log_v - g) * np.minimum(1.0, 2.0 * density)), v)


# ------------------------------------------------------------------ rows


def prepare_dense(features: Features, x: Floats, *, learn: bool) -> tuple[Floats, Floats]:
    """Return rows (n, d + 1), centred and scaled, the intercept first, and the factor of each."""
    table = features.table[1:]
    z = _shifted(x, table[:, MEAN])
    squares = z * z
    live = squares > 0
    scale = table[:, SCALE]
    new = np.flatnonzero((scale == 0) & live.any(axis=0))
    if len(new):
        first = live[:, new].argmax(axis=0)
        found = meet(features, new + 1, squares[first, new], learn=learn)
        scale = scale.copy()
        scale[new] = found
        if not learn and features.totals[NONZEROS] <= 0.0:  # each is its own scale
            squares[:, new], scale[new] = live[:, new], 1.0
    total = (squares / np.where(scale > 0, scale, 1.0)).sum(axis=1)
    total += np.count_nonzero(live | (table[:, CENTRED] > 0), axis=1)
    factors = np.sqrt(2.0 / np.where(total > 0, total, 2.0))
    rows = np.empty((len(x), len(features.table)))
    rows[:, 0] = INTERCEPT
    np.multiply(np.where(live, z, 0.0), factors[:, None], out=rows[:, 1:])
    return rows, factors


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
        scale[unseen] = meet(features, new, squares[unseen][first], learn=learn)[back]
        if not learn and features.totals[NONZEROS] <= 0.0:  # each is its own scale
            scale[unseen] = squares[unseen]
    total = np.add.reduceat(squares / np.where(scale > 0, scale, 1.0), indptr[:-1]) if n else np.zeros(0)
    total += count - 1
    factors = np.sqrt(2.0 / np.where(total > 0, total, 2.0))
    values *= np.repeat(factors, count)
    values[indptr[:-1]] = INTERCEPT
    return values, indices, indptr, factors


def meet(features: Features, new: Any, squares: Floats, *, learn: bool) -> Floats:
    """Return S^2 of features never seen before, from their first squares; for good if they are learnt."""
    scale = _interpolated(features, squares, 0.0)
    if learn:
        density = max(1.0 / max(features.totals[ROWS], 1.0), RAREST)
        features.table[new, SCALE], features.table[new, METRIC] = scale, PRIOR * np.sqrt(density) * scale
    return scale


def _shifted(x: Any, mean: Floats) -> Floats:
    """Return x minus the mean; what is round-off of it, in a column that is constant, is 0."""
    z = x - mean
    if mean.any():
        z[np.abs(z) <= ROUND_OFF * np.abs(mean)] = 0.0
    return np.asarray(z)
