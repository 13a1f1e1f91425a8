"""Names of columns, from their layout."""

from collections.abc import Callable, Mapping
from typing import Any

from robustfd.streams._crossing import crossing_of, read_layout
from robustfd.streams._errors import StreamError
from robustfd.streams._layout import Layout, hashed_name
from robustfd.streams.limits import MOST_COLUMNS
from robustfd.streams.seen_names import SeenName


def with_names(layout: dict[str, Any], seen: Mapping[int, SeenName]) -> dict[str, Any]:
    """Return the layout with more names of hashed features; names that it already has stay."""
    names = {str(number): list(each) for number, each in (dict(seen) | names_in(layout)).items()}
    return layout | ({"names": names} if names else {})


def without_names(layout: dict[str, Any]) -> dict[str, Any]:
    """Return the layout without names of hashed features. If the rest is equal, so are the columns."""
    return {key: value for key, value in layout.items() if key != "names"}


def names_in(layout: dict[str, Any]) -> dict[int, SeenName]:
    """Return the names of hashed features, by number, in an untrusted layout."""
    names = layout.get("names", {})
    try:
        found = {int(number): SeenName(*each) for number, each in names.items()}
    except (AttributeError, TypeError, ValueError):
        found = {-1: SeenName("", 0)}
    if not all(number >= 0 and isinstance(name, str) and sign in (-1, 1) for number, (name, sign) in found.items()):
        raise StreamError(f"{names!r:.100} are not names of features.")
    return found


def signer(layout: dict[str, Any]) -> Callable[[int], int]:
    """Return a function from columns to the signs that hashing gave to their values, 1 by default."""
    seen = names_in(layout)
    base = layout["of"] if layout.get("kind") == "interactions" else layout
    first = len(Layout.from_json(base).numbers) if base.get("kind") == "table" else 0
    return lambda column: seen[column - first].sign if column - first in seen else 1


def namer(layout: dict[str, Any]) -> Callable[[int], str]:
    """Return a function from column numbers to names, for an untrusted layout."""
    seen = names_in(layout)
    if layout.get("kind") == "table":
        table = Layout.from_json(layout)
        return lambda column: table.feature_name(column, seen)
    if layout.get("kind") == "interactions":
        base, pairs, bits = read_layout(layout)
        width = layout.get("n_features")
        if type(width) is not int or not 0 < width <= MOST_COLUMNS:
            raise StreamError(f"{layout!r:.100} is not a layout of columns.")
        return crossing_of(base, width, namer(with_names(base, seen)), pairs, bits).feature_name
    if layout.get("hash_bits") is not None:
        return lambda column: hashed_name(column, seen)
    if isinstance(columns := layout.get("columns"), list):  # the selected columns of an array
        return lambda column: str(columns[column])
    first = int(layout.get("zero_based") is False)
    return lambda column: str(column + first)
