"""Tables in memory (pandas, polars, pyarrow, lists of dicts) as rows, in the same way as tables in files."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Self

from robustfd._validation import check_choice
from robustfd.streams.base import Block, about_row, is_pandas, is_table
from robustfd.streams.columns import distinct_values, has_numbers, kind_of, named_errors, one_array, pa, seen_type
from robustfd.streams.inputs import Position, StreamError
from robustfd.streams.layout import MOST_NAMES, Layout, SeenNames, chosen, listed, names_in, with_names
from robustfd.streams.table import Converter, Piece, require_few, require_kinds

_NAME = "The table"


class TableEncoder:
    """Encoder of tables as rows of numbers, with the same features as the table in a CSV, Parquet or Arrow file.

    A column of numbers or booleans is one feature. Text and categories are hashed or one-hot encoded, as in
    `open_stream`; hashed text of several words becomes words and pairs of words. Dates and timestamps become the days
    since 1970, and sine and cosine of the time of day, the day of the week and the day of the year. Times of day become
    the days since midnight, and their sine and cosine. Text whose first values are all ISO 8601 dates or times is read
    as such.

    An encoder is immutable. Its `layout` is a JSON document that defines it completely: store it in the notes of a
    snapshot, and `TableEncoder(layout)` and `open_stream(files, layout=layout)` make the same columns.

    Parameters
    ----------
    layout : dict
        The `layout` of another encoder, or of a stream of tables.
    missing : {"nan", "zero", "error"}, default="nan"
        How to encode missing numbers, dates and times: NaN, 0, or raise an error. With "nan", missing text is the
        category "", like empty text; otherwise it has no entry.
    unseen : {"drop", "error"}, default="drop"
        How to treat text values without a column: ignore them, or raise an error.

    See Also
    --------
    robustfd.streams.open_stream : Read tables from files.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from robustfd.streams import TableEncoder
    >>> table = pa.table({"size": [1.5, None], "colour": ["red", "blue"], "y": [0, 1]})
    >>> encoder = TableEncoder.learn(table, target="y", categories="onehot")
    >>> [encoder.feature_name(k) for k in range(encoder.n_features)]
    ['size', 'colour=blue', 'colour=red']
    >>> X, y = encoder.encode(table)
    >>> X.toarray()
    array([[1.5, 0. , 1. ],
           [nan, 1. , 0. ]])
    """

    def __init__(
        self,
        layout: dict[str, Any],
        *,
        missing: Literal["nan", "zero", "error"] = "nan",
        unseen: Literal["drop", "error"] = "drop",
    ):
        check_choice("missing", missing, ("nan", "zero", "error"))
        check_choice("unseen", unseen, ("drop", "error"))
        self._layout, self._names = Layout.from_json(layout), names_in(layout)
        self._converter = Converter(self._layout, missing=missing, drop=unseen == "drop")

    @classmethod
    def learn(
        cls,
        table: Any,
        *,
        target: str | int | None = None,
        weight: str | int | None = None,
        id: str | int | None = None,
        columns: Iterable[str | int] | None = None,
        drop: Iterable[str | int] = (),
        categories: Literal["hash", "onehot"] = "hash",
        hash_bits: int | None = None,
    ) -> "TableEncoder":
        """Return the encoder for a table and for later tables with columns of the same names and kinds.

        `target`, `weight` and `id` select columns, by name or number, that are not features. `drop` has columns to
        ignore, or `columns` those to use. With `categories="onehot"` each text value in this table has a column.
        """
        check_choice("categories", categories, ("hash", "onehot"))
        found = _as_arrow(table)
        if not found.num_columns or not found.num_rows:
            raise StreamError(
                f"{_NAME} has {found.num_rows} rows and {found.num_columns} columns; the first table needs both."
            )
        types = [seen_type(one_array(column)) for column in found.columns]
        kinds = [kind_of(type_) for type_ in types]
        keep = None if columns is None else list(columns)
        roles = {"target": target, "weight": weight, "id": id}
        layout = chosen(found.column_names, kinds, keep, hash_bits, roles, list(drop))
        require_kinds(_NAME, layout, dict(zip(found.column_names, types)))
        if categories == "onehot" and layout.texts:
            texts = [one_array(found.column(column.name)) for column in layout.texts]
            values = [sorted(distinct_values(text, empty=True)) for text in texts]
            require_few(_NAME, values)
            layout = layout.with_values(values)
        return cls(layout.to_json())

    @property
    def layout(self) -> dict[str, Any]:
        """How the columns of the table become columns of X, as a JSON document."""
        return with_names(self._layout.to_json(), dict(sorted(self._names.items())))

    @property
    def n_features(self) -> int:
        """The number of columns of X."""
        return self._layout.n_features

    @property
    def column_names(self) -> list[str]:
        """The names of the table columns that are features."""
        return [column.name for column in self._layout.columns]

    def feature_name(self, column: int) -> str:
        """Return the name of a column of X."""
        return self._layout.feature_name(column, self._names)

    def __deepcopy__(self, memo: Any) -> Self:
        """Return the encoder itself, as it never changes."""
        return self

    def encode(self, table: Any) -> Block:
        """Return the rows of a table, or of a list of dicts, as a pair (X, y); y is None if it has no target.

        X is an array if all features are numbers, else a CSR matrix. Weights and ids are the attributes `weight` and
        `id` of the pair. Raise `StreamError`, a ValueError, about an invalid column or row.
        """
        return self._encode(table, self._converter)

    def encode_named(self, table: Any, *, parts: bool = False, codes: bool = False) -> tuple[Block, "TableEncoder"]:
        """Return the rows of a table, and an encoder that also has the names of their hashed features.

        With `parts`, the attribute `parts` of the rows has the entries of each column of text. With `codes`, sparse
        rows carry the codes of their text.
        """
        converter, after = copy.copy(self._converter), copy.copy(self)
        converter.wants_codes = codes
        converter.groups = tuple(column.name for column in self._layout.texts if parts)
        if self._layout.hash_bits is not None:
            converter.seen_names = SeenNames(self._names)
            after._names = converter.seen_names.names
        return self._encode(table, converter), after

    def with_names_of(self, other: "TableEncoder") -> "TableEncoder":
        """Return the encoder with the names of values that another one has seen too."""
        after = copy.copy(self)
        after._names = dict(list((other._names | self._names).items())[:MOST_NAMES])
        return after

    def _encode(self, table: Any, converter: Converter) -> Block:
        """Return the rows of a table."""
        if isinstance(table, Sequence) and all(isinstance(row, Mapping) for row in table):
            found = self._of_dicts(table)
        else:
            found = _as_arrow(table)
        arrays = self._checked(found)
        roles = {role: arrays[name] for role, name in self._layout.roles.items() if name in arrays}
        features = [arrays[name] for name in self.column_names]
        with named_errors(_NAME):
            piece = Piece(features, roles, Position(), partial(about_row, _NAME, 0), [])
            block, bad, _ = converter.block(piece)
        if bad:
            raise StreamError(min(bad)[1])
        return block

    def _of_dicts(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        """Return rows as a table with all feature columns; absent values are missing."""
        others = {name: None for row in rows for name in row}
        names, texts = dict.fromkeys(self.column_names) | others, {column.name for column in self._layout.texts}
        columns = []
        for name in names:
            with named_errors(f"The column {name!r}"):
                array = pa.array([row.get(name) for row in rows], from_pandas=True)
                columns.append(array.dictionary_encode() if name in texts and has_numbers(array.type) else array)
        return pa.table(columns, names=[str(name) for name in names])

    def _checked(self, table: Any) -> dict[str, Any]:
        """Return columns by name; raise unless they have the learned names and kinds."""
        layout, names = self._layout, table.column_names
        known = {*self.column_names, *layout.roles.values(), *layout.drop}
        without = [name for name in self.column_names if name not in set(names)]
        if without:
            raise StreamError(f"{_NAME} has no column {listed(without)}; its columns are {listed(names)}.")
        new = [] if layout.chosen else [name for name in names if name not in known]
        if new:
            raise StreamError(f"{_NAME} has an unexpected column {listed(new)}; expected are {listed(sorted(known))}.")
        require_kinds(_NAME, layout, dict(zip(names, table.schema.types)), strict=True)
        return {name: one_array(table.column(name)) for name in names if name in known}


def _as_arrow(table: Any) -> Any:
    """Return a pyarrow table."""
    if not is_table(table):
        raise TypeError(f"table must be a DataFrame (pandas, polars) or a pyarrow table, got {type(table).__name__}.")
    try:
        found = pa.Table.from_pandas(table, preserve_index=False) if is_pandas(table) else pa.table(table)
    except (pa.ArrowException, ValueError, TypeError) as error:  # a column of mixed types, or repeated names
        raise StreamError(f"{_NAME} has columns that cannot be read: {error}") from error
    return found
