"""What columns are called, by the layout that made them."""

from typing import Any


def name_of(layout: dict[str, Any], column: int) -> str:
    """Return what a column is called in a layout."""
    if layout.get("hash_bits") is not None:
        return f"hash {column}"
    return str(column + (not layout.get("zero_based")))
