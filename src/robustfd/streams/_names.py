"""What columns are called, by the layout that made them."""

from collections.abc import Callable
from typing import Any

from robustfd.streams._base import MOST_COLUMNS, StreamError
from robustfd.streams._layout import Layout


def namer(layout: dict[str, Any]) -> Callable[[int], str]:
    """Return a function from columns to names, of a layout that may come from anybody."""
    if layout.get("kind") == "table":
        return Layout.from_json(layout).feature_name
    if layout.get("kind") == "interactions":
        from robustfd.streams._crossing import crossing_of, read_layout  # compiled loops, which few need

        base, pairs, bits = read_layout(layout)
        width = layout.get("n_features")
        if type(width) is not int or not 0 < width <= MOST_COLUMNS:
            raise StreamError(f"{layout!r:.100} is no layout of columns.")
        return crossing_of(base, width, namer(base), pairs, bits).feature_name
    if layout.get("hash_bits") is not None:
        return lambda column: f"hash {column}"
    if isinstance(columns := layout.get("columns"), list):  # those chosen of an array
        return lambda column: str(columns[column])
    first = int(layout.get("zero_based") is False)
    return lambda column: str(column + first)
