"""Which combinations of parameters the short run takes.

A test with several `parametrize` decorators runs for their whole product in `make test-all`. `make test` takes a part
of it: every pair of values of two decorators occurs if there are three or more, every value if there are two. The
choice is the same in every run. Combinations with a value that is marked slow are left out before the choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

Combination = tuple[str, ...]  # the ids of the values, one for each decorator


def covered(combination: Combination) -> set[object]:
    """Return what a combination covers: pairs of values if there are three or more, else single values."""
    values = list(enumerate(combination))
    return set(combinations(values, 2)) if len(values) > 2 else set(values)


def few(product: Sequence[Combination]) -> set[Combination]:
    """Return a small part of the combinations that covers what all of them cover, found greedily."""
    left, chosen = {each: covered(each) for each in product}, set()
    missing: set[object] = set().union(*left.values())
    while missing:
        best = max(left, key=lambda each: len(left[each] & missing))  # the first of the best
        missing -= left.pop(best)
        chosen.add(best)
    return chosen


def others(items: Iterable[tuple[str, Combination]]) -> set[tuple[str, Combination]]:
    """Return the (test, combination) pairs that the short run leaves out."""
    by_test: dict[str, list[Combination]] = {}
    for test, combination in items:
        by_test.setdefault(test, []).append(combination)
    left_out = set()
    for test, product in by_test.items():
        if len(product[0]) > 1:
            left_out |= {(test, each) for each in set(product) - few(product)}
    return left_out
