"""Tables with columns of text, dates and the like, which an encoder turns into rows of numbers."""

from typing import Any

from robustfd.streams import is_table


def needs_encoding(x: Any) -> bool:
    """Return whether x is a table that has other columns than numbers, or one that numpy cannot read."""
    if not is_table(x):
        return False
    if hasattr(x, "schema") and not hasattr(x, "dtypes"):  # of pyarrow
        return True
    return not all(_is_number(dtype) for dtype in x.dtypes)


def _is_number(dtype: Any) -> bool:
    """Return whether a column of pandas or polars holds numbers, or true and false."""
    if hasattr(dtype, "is_numeric"):  # polars
        return bool(dtype.is_numeric()) or str(dtype) == "Boolean"
    return getattr(dtype, "kind", "O") in "biuf"


def learn_encoder(x: Any) -> Any:
    """Return the encoder of a table and of those that come after it."""
    try:
        from robustfd.streams import TableEncoder
    except ImportError as error:
        raise ImportError(
            "A table with columns of text, dates or the like needs pyarrow: pip install 'robustfd[arrow]'."
        ) from error
    return TableEncoder.learn(x)


def load_encoder(layout: Any) -> Any:
    """Return the encoder with the layout that was saved."""
    from robustfd.streams import TableEncoder

    return TableEncoder(layout)


__all__ = ["is_table", "learn_encoder", "load_encoder", "needs_encoding"]
