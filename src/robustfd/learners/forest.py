"""Boosted trees over stored rows, grown step by step: what they start from, how far they are, what they return."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._core import (
    BINS,
    INNER,
    NODES,
    UNSPLIT,
    Objective,
    add_paths,
    add_values,
    bin_column,
    divide_amounts,
    grow_trees,
)
from robustfd.learners.rows import Floats

TREES, MOST_TREES = 124, 256  # of one output, and of all outputs together if there are several
ROUNDS = 16  # of several outputs
FIRST_GROUP = 4  # rounds whose values the first sum adds; each sum has twice as many as the one before
PRIOR = 4.0  # rows that the mean of all targets counts for in the mean of a category


class Codes(NamedTuple):
    """The means of the targets by category: those of column c are at start[c] to start[c + 1] - 1, code ascending."""

    start: NDArray[np.int64]
    code: Floats
    mean: Floats  # (codes, outputs)
    rest: Floats  # (outputs,): of all rows, for unknown categories


class Forest(NamedTuple):
    """Trees, as in src/core/forest.hpp; tree t adds to the sum column[t]. The arrays never change."""

    cuts: Floats
    place: NDArray[np.int32]
    limit: NDArray[np.uint8]
    value: Floats
    gain: NDArray[np.float32]
    column: NDArray[np.int32]
    codes: Codes

    def read(self, cells: Floats, category: NDArray[np.bool_]) -> tuple[Floats, NDArray[np.int32]]:
        """Return the sums (n, width) of the trees and the leaves (n, trees) of rows of cells."""
        n, encoded = len(cells), encode(cells, category, self.codes)
        sums, leaves = np.zeros((n, self.column.max() + 1)), np.empty((n, len(self.place)), np.int32)
        add_values(self.cuts, self.place, self.limit, self.value, self.column, encoded, sums, leaves)
        return sums, leaves

    def paths(self, cells: Floats, category: NDArray[np.bool_], factor: Floats, amounts: Floats | None) -> Floats:
        """Return what each column adds to the sums of rows, which count factor (n, width) times.

        The amounts (n, trees), if any, are divided among the columns on the path of each tree.
        """
        encoded = encode(cells, category, self.codes)
        out, trees = np.zeros(encoded.shape), (self.cuts, self.place, self.limit, self.value, self.column)
        add_paths(*trees, encoded, factor, out)
        if amounts is not None:
            divide_amounts(*trees, encoded, amounts, out)
        at = offsets(category, len(self.codes.rest))
        return np.add.reduceat(out, at[:-1], axis=1) if len(at) > 1 else out


class Build(NamedTuple):
    """Trees that are being grown. Columns are binned first, one at a time; then trees grow, one at a time."""

    cells: Floats  # (n, columns), encoded
    bins: NDArray[np.uint8]  # (n, 2 columns)
    owner: NDArray[np.int32]
    y: Floats
    weight: Floats
    margin: Floats
    gradient: Floats  # (outputs, 2 n): gradients and curvatures by turns
    forest: Forest
    done: NDArray[np.int64]  # (2,): columns and trees
    unit: Floats  # (1,): of targets and margins

    def copy(self, *, cells: bool = True) -> "Build":
        """Return an independent copy, or one with the same cells, which growing does not change."""
        forest = self.forest._replace(**_copies(self.forest))
        copies = _copies(self, but=() if cells else ("cells",))
        return self._replace(**copies, forest=forest)

    @property
    def finished(self) -> bool:
        """Whether all trees are grown."""
        return bool(self.done[1] == len(self.forest.place))


def _copies(some: Any, but: tuple[str, ...] = ()) -> dict[str, Any]:
    arrays = {name: each for name, each in some._asdict().items() if isinstance(each, np.ndarray)}
    return {name: each.copy() for name, each in arrays.items() if name not in but}


@cache
def groups(outputs: int) -> tuple[int, NDArray[np.int32]]:
    """Return the number of sums, and the sum to which each tree adds: rounds 1-4, 5-12, 13-28, ... of each output."""
    rounds = TREES if outputs == 1 else max(min(ROUNDS, MOST_TREES // outputs), 1)
    group = np.log2(np.arange(rounds) / FIRST_GROUP + 1).astype(np.int32)
    column = group[:, None] * outputs + np.arange(outputs, dtype=np.int32)
    return int(column.max()) + 1, column.reshape(-1).astype(np.int32)


def offsets(category: NDArray[np.bool_], outputs: int) -> NDArray[np.int64]:
    """Return where the encoded columns of each column begin, and their number: a category has one for each output."""
    return np.append(0, np.cumsum(np.where(category, outputs, 1)))


def encode(cells: Floats, category: NDArray[np.bool_], codes: Codes) -> Floats:
    """Return rows whose categories are replaced by the means of their targets, one column for each output."""
    if not category.any():
        return np.ascontiguousarray(cells)
    at = offsets(category, outputs := len(codes.rest))
    out = np.empty((len(cells), at[-1]))
    out[:, at[:-1][~category]] = cells[:, ~category]
    for c, j in enumerate(np.flatnonzero(category)):
        known = slice(*codes.start[c : c + 2]) if c + 1 < len(codes.start) else slice(0, 0)
        code, mean = np.append(codes.code[known], np.inf), np.vstack([codes.mean[known], codes.rest])
        place = np.searchsorted(code, cells[:, j])
        place[(place == len(code)) | (code[np.minimum(place, len(code) - 1)] != cells[:, j])] = len(code) - 1
        out[:, at[j] : at[j] + outputs] = np.where(np.isnan(cells[:, j, None]), np.nan, mean[place])
    return out


def learn_codes(cells: Floats, category: NDArray[np.bool_], targets: Floats, weight: Floats) -> Codes:
    """Return the means of targets (n, outputs) by category, drawn to the mean of all."""
    total = max(float(weight.sum()), 1e-300)
    rest = (weight[:, None] * targets).sum(axis=0) / total
    start, code, mean = [0], [], []
    for column in cells[:, category].T:
        known = ~np.isnan(column)
        values, place = np.unique(column[known], return_inverse=True)
        count = np.bincount(place, weight[known], len(values))
        sums = np.column_stack([np.bincount(place, weight[known] * t[known], len(values)) for t in targets.T])
        code.append(values)
        mean.append((sums + PRIOR * rest) / (count + PRIOR)[:, None])
        start.append(start[-1] + len(values))
    empty = np.empty((0, targets.shape[1]))
    return Codes(np.array(start), np.concatenate([np.empty(0), *code]), np.concatenate([empty, *mean]), rest)


def start_build(
    cells: Floats,
    category: NDArray[np.bool_],
    y: Floats,
    weight: Floats,
    margin: Floats,
    objective: Objective,
) -> Build:
    """Return the beginning of trees for rows of cells, whose margins so far are those of the linear learner."""
    n, outputs = margin.shape
    weight = weight / max(float(weight.mean()), 1e-300)
    unit = 1.0
    if objective == Objective.softmax:
        targets = (y[:, None] == np.arange(outputs)).astype(np.float64)
    elif objective in (Objective.squared, Objective.pinball):
        off = y[:, None] - margin
        unit = float(np.average(np.abs(off).mean(axis=1), weights=weight))
        unit = unit if 0 < unit < np.inf else 1.0
        y, margin, targets = y / unit, margin / unit, off / unit
        if outputs == 1:  # only differences count
            y, margin = targets[:, 0], np.zeros_like(margin)
    else:
        targets = np.repeat(y[:, None], outputs, axis=1)
    if objective == Objective.counts:
        margin = np.log(np.maximum(margin, 1e-300))
    codes = learn_codes(cells, category, targets, weight)
    encoded = encode(cells, category, codes)
    owner = np.concatenate([np.empty(0), *(np.arange(outputs) if c else [-1] for c in category)])
    width, (_, column) = encoded.shape[1], groups(outputs)
    trees = len(column)
    forest = Forest(
        np.full((width, BINS), np.inf),
        np.zeros((trees, INNER), np.int32),
        np.full((trees, INNER), UNSPLIT, np.uint8),
        np.zeros((trees, NODES)),
        np.zeros((trees, INNER), np.float32),
        column,
        codes,
    )
    return Build(
        cells=encoded,
        bins=np.zeros((n, 2 * width), np.uint8),
        owner=owner.astype(np.int32),
        y=np.ascontiguousarray(y),
        weight=np.ascontiguousarray(weight),
        margin=np.ascontiguousarray(margin).copy(),
        gradient=np.zeros((outputs, 2 * n)),
        forest=forest,
        done=np.zeros(2, np.int64),
        unit=np.array([unit]),
    )


def advance(build: Build, objective: Objective, level: float, seed: int, work: float) -> None:
    """Do about this much work, in place: one unit is a row in the histogram of one column, about a nanosecond."""
    n, width = build.cells.shape
    while build.done[0] < width and work > 0:
        j = int(build.done[0])
        bin_column(build.cells, j, build.forest.cuts, build.bins)
        build.done[0] += 1
        work -= 64.0 * n
    used = min(width, 32)
    cost = n * (2.0 * used + 10.0) + 64.0 * used * min(INNER, n / 8.0)
    trees = min(max(int(np.ceil(work / cost)), 0), len(build.forest.place) - int(build.done[1]))
    if trees and build.done[0] == width:
        first = int(build.done[1])
        b, f = build, build.forest
        grow_trees(
            b.bins, f.cuts, b.owner, b.y, b.weight, b.margin, b.gradient, seed, objective, level,
            f.place, f.limit, f.value, f.gain, first, first + trees,
        )  # fmt: skip
        build.done[1] += trees


def result(build: Build) -> Forest:
    """Return the finished trees, with values in the units of the targets."""
    return build.forest._replace(value=build.forest.value * build.unit[0])


def importances(forest: Forest, owner: NDArray[np.int64]) -> tuple[Floats, dict[tuple[int, int], float]]:
    """Return the gains of splits by column, and by pair: of the columns of a split and of the split above it.

    `owner` is the column of each encoded column.
    """
    alone, pairs = np.zeros(int(owner.max(initial=-1)) + 1), dict[tuple[int, int], float]()
    column, gain = owner[forest.place // 2], forest.gain.astype(np.float64)
    np.add.at(alone, column.reshape(-1), gain.reshape(-1))
    above = column[:, (np.arange(1, INNER) - 1) // 2]
    both = np.stack([np.minimum(above, column[:, 1:]), np.maximum(above, column[:, 1:])])
    for a, b, g in zip(*both.reshape(2, -1).tolist(), gain[:, 1:].reshape(-1).tolist(), strict=True):
        if a != b and g > 0:
            pairs[a, b] = pairs.get((a, b), 0.0) + g
    return alone, pairs
