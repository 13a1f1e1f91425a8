"""Merging, splitting and snapshots of trees and of what goes with them."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._container import Document, Tensors
from robustfd._core import BINS, BLENDED, INNER, NODES
from robustfd.learners import forest, untuned_merging
from robustfd.learners.expansion import MEMBERS, Expansion, Store
from robustfd.learners.forest import Build, Codes, Forest
from robustfd.learners.rows import LARGEST, Floats, sort_keys
from robustfd.learners.snapshot import Parts
from robustfd.learners.untuned import UntunedState

COUNTS = ("seen", "count", "grow_at", "look_at", "generation")


def split(whole: Expansion, k: int, which: Sequence[int]) -> list[Expansion]:
    """Return some of k parts, each with a k-th of the stored rows, and with the same trees."""
    states = [untuned_merging.split(state, k, which) for state in whole.states]
    parts = []
    for place, i in enumerate(which):
        part = copy.copy(whole)
        part.states = [each[place] for each in states]
        part.share, part.steady, part.labels = whole.share.copy(), whole.steady.copy(), whole.labels.copy()
        part.totals = whole.totals / k
        part.build = None
        part.put(Store(*(each[i::k] for each in whole.stored())))
        part.seen = (whole.seen + k - 1 - i) // k
        share = k if whole.forests else 1  # of the rows at which trees are due
        part.grow_at = max(part.seen + 1, -(-whole.grow_at // share)) if whole.build is None else part.seen + 1
        part.look_at = max(part.seen + 1, -(-whole.look_at // share))
        parts.append(part)
    return parts


class Merged(NamedTuple):
    """What both parts become: features and columns move to these places, and rows are those of cells, if known."""

    base: UntunedState
    places: Sequence[NDArray[np.int64]]
    columns: Sequence[NDArray[np.int64]]
    category: NDArray[np.bool_]
    rows_of: Callable[[Floats], Any] | None


def merge(one: Expansion, two: Expansion, after: Merged) -> Expansion:
    """Return the merged expansion.

    If parts of one model still have the same trees, their learners merge. Otherwise the part that has seen more rows
    learns the stored rows of the other, as if the stream went on with them, and new trees grow from the rows of both.
    """
    parts = one, two
    k = max((0, 1), key=lambda i: (bool(parts[i].states), parts[i].seen, parts[i].store.y[: parts[i].count].tobytes()))
    lead, rest = parts[k], parts[1 - k]
    rows, others = (_moved(parts[i].stored(), after.columns[i], after.category) for i in (k, 1 - k))
    new = copy.copy(lead)
    new.category, new.build, new.generation = after.category, None, max(one.generation, two.generation)
    new.share, new.steady, new.labels = lead.share.copy(), lead.steady.copy(), lead.labels.copy()
    new.totals = lead.totals.copy()
    new.states = _placed(lead, k, after)
    same = bool(rest.states) and _same_trees(lead, rest)
    if same:
        _merge_learners(new, lead, rest, _placed(rest, 1 - k, after))
    elif lead.states and after.rows_of is not None:
        new.states = [copy.deepcopy(untuned_merging.whole(state)) for state in new.states]
        new.put(rows._replace(margin=after.base.margins(after.rows_of(rows.cells))))
        new.learn_stored(after.base, after.rows_of(others.cells), others)
    new.put(_shuffled(Store(*(np.concatenate(each) for each in zip(rows, others, strict=True)))))
    new.seen, new.build = one.seen + two.seen, None
    new.grow_at, new.look_at = max(new.grow_at, new.seen + 1), max(new.look_at, new.seen + 1)
    if new.states and not same:
        _renew_trees(new, after.base, moved=not np.array_equal(after.columns[k], np.arange(len(after.category))))
    return new


def _placed(part: Expansion, k: int, after: Merged) -> list[UntunedState]:
    """Return the learners of part k with their features at their new places."""
    states = []
    for state, front in zip(part.states, part.fronts):
        at, d = np.concatenate([np.arange(front), after.places[k] + front]), after.base.d + front
        same = np.array_equal(at, np.arange(len(at))) and state.d >= d
        states.append(state if same else untuned_merging.with_features_at(state, at, d))
    return states


def _merge_learners(new: Expansion, lead: Expansion, rest: Expansion, others: list[UntunedState]) -> None:
    """Merge the learners of parts with the same trees."""
    new.states = [untuned_merging.merge(*pair) for pair in zip(new.states, others, strict=True)]
    new.totals = lead.totals + rest.totals
    for name in ("share", "steady", "labels"):
        pair = [getattr(part, name) for part in (lead, rest)]
        setattr(new, name, np.average(pair, axis=0, weights=[lead.seen, rest.seen]))
    new.grow_at, new.look_at = lead.grow_at + rest.grow_at, max(lead.look_at, rest.look_at)


def _renew_trees(new: Expansion, base: UntunedState, *, moved: bool) -> None:
    """Grow trees from the stored rows. If columns have moved, those of the leaves do not fit any more."""
    if not moved:
        new.complete(base)
    elif new.count:
        for share in (new.share, new.steady):
            share[1], share[2:] = share[1:].sum(), 0.0  # the leaves are new
        new.use_trees(base, new.grown())
    else:
        new.forget_trees()


def _shuffled(rows: Store) -> Store:
    """Return rows in an order that depends only on their contents."""
    keys = sort_keys(np.nan_to_num(rows.cells), rows.y, rows.weight)
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return Store(*(each[order] for each in rows))


def with_more_prior(e: Expansion, share: float) -> Expansion:
    """Return the expansion merged with an empty one that has this share of the prior."""
    new = copy.copy(e)
    new.states = [untuned_merging.with_more_prior(state, share) for state in e.states]
    return new


def _moved(rows: Store, there: NDArray[np.int64], category: NDArray[np.bool_]) -> Store:
    """Return rows whose columns are at other places."""
    cells = np.tile(np.where(category, np.nan, 0.0), (len(rows.y), 1))
    cells[:, there[there >= 0]] = rows.cells[:, np.flatnonzero(there >= 0)]
    return rows._replace(cells=cells)


def _same_trees(one: Expansion, two: Expansion) -> bool:
    """Return whether two parts have the same trees over the same columns."""
    if not np.array_equal(one.category, two.category):
        return False
    pairs = zip(one.forests, two.forests, strict=True)
    return all(a is b or (np.array_equal(a.cuts, b.cuts) and np.array_equal(a.value, b.value)) for a, b in pairs)


# -- snapshots (docs/snapshot-format.md); unpacking checks every number that the core uses as an index


def pack(e: Expansion) -> tuple[Document, Tensors]:
    """Return the numbers and arrays from which `unpack` restores an expansion."""
    numbers: Document = {name: getattr(e, name) for name in COUNTS}
    rows = e.stored()
    arrays = {"category": e.category.astype(np.uint8), "share": e.share, "steady": e.steady}
    arrays |= {"labels": e.labels, "totals": e.totals}
    arrays |= {f"rows.{name}": array for name, array in rows._asdict().items()}
    same = len(e.forests) == 2 and e.forests[0] is e.forests[1]
    for k, trees in enumerate(e.forests[:1] if same else e.forests):
        arrays |= _packed(trees, f"trees.{k}.")
    numbers["states"] = []
    for k, state in enumerate(e.states):
        own, more = state.pack()
        numbers["states"].append(own)
        arrays |= {f"states.{k}.{name}": array for name, array in more.items()}
    if e.build is not None:
        arrays |= _packed(e.build, "build.")
    return numbers, arrays


def _packed(some: Any, prefix: str) -> dict[str, Any]:
    """Return the arrays of a named tuple, and of those inside it, by name. NaN stands for infinity."""
    found: dict[str, Any] = {}
    for name, value in some._asdict().items():
        if isinstance(value, tuple):
            found |= _packed(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = np.where(np.isinf(value), np.nan, value) if name == "cuts" else value
    return found


def unpack(
    parts: Parts, make: Callable[[NDArray[np.bool_]], Expansion], unpack_state: Callable[[Parts, int], UntunedState]
) -> Expansion:
    """Return the expansion in a file; raise an error if its parts are inconsistent.

    `make` returns a new one for columns, and `unpack_state` a learner with so many columns in front.
    """
    columns = parts.shape("category", 1)[0]
    e = make(parts.array("category", columns, dtype=np.uint8, most=1).astype(bool))
    counts = {name: parts.count(name) for name in COUNTS}
    n = parts.shape("rows.y", 1)[0]
    if counts["count"] != n or n > min(e.capacity, counts["seen"]):
        raise ValueError(f"{n} stored rows of {counts['seen']}")
    for name, size in (("share", MEMBERS), ("steady", MEMBERS), ("labels", 2), ("totals", BLENDED)):
        setattr(e, name, parts.array(name, size, least=0.0))
    cells = parts.array("rows.cells", n, columns, missing=True, least=-LARGEST, most=LARGEST)
    y, weight = parts.array("rows.y", n), parts.array("rows.weight", n, least=0.0)
    if e.loss is None and not np.isin(y, np.arange(max(e.outputs, 2))).all():
        raise ValueError("a stored row has an unknown class")
    e.put(Store(cells, y, weight, parts.array("rows.margin", n, e.outputs)))
    vars(e).update(counts)
    width = int(forest.offsets(e.category, e.outputs)[-1])
    e.forests = [_unpack_trees(parts, f"trees.{k}.", e, width) for k in (0, 1) if parts.has(f"trees.{k}.place")]
    states = parts.text("states")
    if not isinstance(states, list) or len(states) != 2 * bool(e.forests):
        raise ValueError("the number of learners does not fit the trees")
    e.forests = (2 * e.forests)[:2] if len(e.forests) < 2 else e.forests
    e.states = [unpack_state(parts.inside(f"states.{k}.", own), e.fronts[k]) for k, own in enumerate(states)]
    if parts.has("build.y"):
        e.build = _unpack_build(parts, e, width)
    parts.close()
    return e


def _unpack_trees(parts: Parts, prefix: str, e: Expansion, width: int) -> Forest:
    """Return the trees in a file."""
    _, column = forest.groups(e.outputs)
    trees, own = len(column), parts.array(f"{prefix}column", len(column), dtype=np.int32)
    if not np.array_equal(own, column):
        raise ValueError("the trees belong to other sums")
    columns = parts.shape(f"{prefix}cuts", 2)[0]
    if columns > width:
        raise ValueError(f"trees of {columns} columns, of {width}")
    cuts = parts.array(f"{prefix}cuts", columns, BINS, missing=True)
    return Forest(
        cuts=np.where(np.isnan(cuts), np.inf, cuts),
        place=parts.array(f"{prefix}place", trees, INNER, dtype=np.int32, least=0, most=max(2 * columns - 1, 0)),
        limit=parts.array(f"{prefix}limit", trees, INNER, dtype=np.uint8),
        value=parts.array(f"{prefix}value", trees, NODES),
        gain=parts.array(f"{prefix}gain", trees, INNER, dtype=np.float32, least=0.0),
        column=column,
        codes=_unpack_codes(parts, f"{prefix}codes.", e),
    )


def _unpack_codes(parts: Parts, prefix: str, e: Expansion) -> Codes:
    """Return the means of categories in a file."""
    n, known = parts.shape(f"{prefix}code", 1)[0], parts.shape(f"{prefix}start", 1)[0]
    start = parts.array(f"{prefix}start", known, dtype=np.int64, least=0, most=n)
    if not 1 <= known <= 1 + int(e.category.sum()) or start[0] != 0 or start[-1] != n or np.any(np.diff(start) < 0):
        raise ValueError("the categories are inconsistent")
    code, mean = parts.array(f"{prefix}code", n), parts.array(f"{prefix}mean", n, e.outputs)
    return Codes(start, code, mean, parts.array(f"{prefix}rest", e.outputs))


def _unpack_build(parts: Parts, e: Expansion, most: int) -> Build:
    """Return the trees that were being grown when the file was written."""
    n = parts.shape("build.y", 1)[0]
    done = parts.array("build.done", 2, dtype=np.int64, least=0)
    y = parts.array("build.y", n)
    trees = _unpack_trees(parts, "build.forest.", e, most)
    width = len(trees.cuts)
    if done[0] > width or done[1] > len(trees.place) or n < 1:
        raise ValueError("the trees are inconsistent")
    if e.loss is None and not np.isin(y, np.arange(max(e.outputs, 2))).all():
        raise ValueError("a stored row has an unknown class")
    return Build(
        cells=parts.array("build.cells", n, width, missing=True, least=-LARGEST, most=LARGEST),
        bins=parts.array("build.bins", n, 2 * width, dtype=np.uint8),
        owner=parts.array("build.owner", width, dtype=np.int32, least=-1, most=e.outputs - 1),
        y=y,
        weight=parts.array("build.weight", n, least=0.0),
        margin=parts.array("build.margin", n, e.outputs),
        gradient=parts.array("build.gradient", e.outputs, 2 * n),
        forest=trees,
        done=done,
        unit=parts.array("build.unit", 1, least=0.0),
    )
