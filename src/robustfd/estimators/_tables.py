"""Encoding of tables with columns of text, dates or times as numeric rows."""

from typing import Any

from robustfd.streams import is_table


def needs_encoding(x: Any) -> bool:
    """Return whether x is a table with non-numeric columns, or one that numpy cannot read."""
    if not is_table(x):
        return False
    if hasattr(x, "schema") and not hasattr(x, "dtypes"):  # pyarrow
        return True
    return not all(_is_number(dtype) for dtype in x.dtypes)


def _is_number(dtype: Any) -> bool:
    """Return whether a pandas or polars column is numeric or boolean."""
    if hasattr(dtype, "is_numeric"):  # polars
        return bool(dtype.is_numeric()) or str(dtype) == "Boolean"
    return getattr(dtype, "kind", "O") in "biuf"


def learn_encoder(x: Any) -> Any:
    """Return an encoder for this table and later ones with the same columns."""
    try:
        from robustfd.streams import TableEncoder
    except ImportError as error:
        raise ImportError(
            "A table with columns of text, dates or times needs pyarrow: pip install 'robustfd[arrow]'."
        ) from error
    return TableEncoder.learn(x)


def load_encoder(layout: Any) -> Any:
    """Return the encoder for a saved layout."""
    from robustfd.streams import TableEncoder

    return TableEncoder(layout)


__all__ = ["is_table", "learn_encoder", "load_encoder", "needs_encoding"]
