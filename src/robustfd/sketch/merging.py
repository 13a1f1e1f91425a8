"""Merge many sketches or models."""

import copy
from collections.abc import Iterable
from typing import Any, TypeVar

Sketch = TypeVar("Sketch", bound=Any)  # any object with a method `merge`: sketches, learners and estimators


def merge(sketches: Iterable[Sketch]) -> Sketch:
    """Return a new sketch or model of the rows of all given ones, merged as a balanced tree.

    The certificates hold for any order of merging. A balanced tree keeps the number of shrink steps per row small. The
    arguments are not changed.

    Parameters
    ----------
    sketches : iterable of sketches, learners or estimators
        All of the same class and with the same parameters.

    Returns
    -------
    merged : a new object of that class

    See Also
    --------
    RobustFrequentDirections.merge : Merge one sketch into another, in place.
    RobustFrequentDirections.split : Create sketches for parts of the rows.

    Examples
    --------
    >>> import numpy as np, robustfd
    >>> A = np.random.default_rng(0).standard_normal((600, 20))
    >>> parts = [robustfd.RobustFrequentDirections(8).fit(part) for part in np.array_split(A, 4)]
    >>> whole = robustfd.merge(parts)
    >>> whole.n_samples_seen_
    600
    """
    if hasattr(sketches, "merge"):
        raise TypeError(f"merge takes a list of sketches or models, got a single one: {sketches!r:.60}.")
    level = [copy.copy(sketch) for sketch in sketches]
    if not level:
        raise ValueError("merge needs at least one sketch or model, got none.")
    for sketch in level:
        if not hasattr(sketch, "merge"):
            raise TypeError(f"merge takes sketches or models, got {sketch!r}.")
    while len(level) > 1:
        # An odd one passes to the next level unchanged.
        pairs = [one.merge(two) for one, two in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[2 * len(pairs) :]
    return level[0]
