"""Columns of Arrow tables to numbers, codes and labels."""

from functools import lru_cache
from typing import Any

import numpy as np

from robustfd._compile import compiled
from robustfd.streams._hash import column_and_sign
from robustfd.streams._layout import DATE, NUMBER, TEXT, TIME
from robustfd.streams.pyarrow_modules import pa, pc, pcsv

_MISSING = pa.array(
    pcsv.ConvertOptions().null_values
)  # what stands for a number that is missing: "", "NA", "null", ...


@lru_cache(maxsize=1000)
def kind_of(type_: Any) -> str | None:
    """Return what columns of a type of Arrow are in a layout, None if they are nothing that it knows."""
    if pa.types.is_dictionary(type_):
        return kind_of(type_.value_type)
    is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
    if any(test(type_) for test in is_number):
        return NUMBER
    if pa.types.is_date(type_) or pa.types.is_timestamp(type_):
        return DATE
    if pa.types.is_time(type_):
        return TIME
    return TEXT if str(type_) in ("string", "large_string", "string_view") else None


def can_be(kind: str, type_: Any) -> bool:
    """Return whether a column of a type of Arrow can be read as this kind: text as anything, numbers as text."""
    found = kind_of(type_)
    if found == kind or pa.types.is_null(type_):
        return True
    return found == TEXT or (found == NUMBER and kind == TEXT)


def looks(values: Any) -> tuple[Any, Any, Any]:
    """Return masks of fields, as bytes, that are missing, that are whole numbers, and that are numbers."""
    masks = (
        pc.is_in(values, value_set=_MISSING.cast(pa.binary())),
        pc.match_substring_regex(values, pattern=r"^[ \t]*[+-]?[0-9]{1,18}[ \t]*$"),
        pc.match_substring_regex(values, pattern=r"^[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*$"),
    )
    missing, whole, number = (mask.to_numpy(zero_copy_only=False) for mask in masks)
    return missing, whole, number


def is_single(array: Any) -> bool:
    """Return whether a column is float32."""
    return not isinstance(array, np.ndarray) and array.type == pa.float32()


def as_floats(array: Any) -> tuple[Any, Any]:
    """Return a column as float64 (float32 as it is), NaN where it is missing, and a mask of what is no number."""
    if isinstance(array, np.ndarray):
        return array, None
    if array.type == pa.float64():
        return array.to_numpy(zero_copy_only=False), None
    array, wrong = plain(array), None
    if kind_of(array.type) == TEXT:
        array, wrong = converted(array, pa.float64())
    elif array.type != pa.float32():
        array = array.cast(pa.float64(), safe=False)
    return array.to_numpy(zero_copy_only=False), wrong


def as_codes(array: Any) -> tuple[Any, Any]:
    """Return where the value of each row of a column of text is among the distinct ones, -1 for null, and these."""
    array = _known(array)
    if kind_of(array.type) == NUMBER:
        array = plain(array).cast(pa.string())
    # A dictionary may be that of a whole file: what is done for each value must not take longer than the rows do.
    if not pa.types.is_dictionary(array.type) or len(array.dictionary) > len(array):
        array = plain(array).dictionary_encode()
    values, codes = array.dictionary, array.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    if values.null_count:
        null = values.is_null().to_numpy(zero_copy_only=False)
        codes = np.where(null[codes] & (codes >= 0), -1, codes)
    return codes, values


def with_empty(codes: Any, values: Any) -> tuple[Any, Any]:
    """Return codes and values with the value "" instead of null."""
    if (codes >= 0).all():
        return codes, values
    values = pa.concat_arrays([values.cast(pa.large_string()), pa.array([""], pa.large_string())])
    known = pc.index(
        values, pa.scalar("", pa.large_string())
    ).as_py()  # the first: the empty value itself, if it is there
    return np.where(codes < 0, known, codes), values


def as_text(array: Any) -> Any:
    """Return a column as str objects, "" where it is missing."""
    if isinstance(array, np.ndarray):
        array = pa.array(array, from_pandas=True)
    return plain(array).cast(pa.large_string()).fill_null("").to_numpy(zero_copy_only=False)


def as_labels(array: Any) -> tuple[Any, Any]:
    """Return a column as labels, str objects, int64 or float64, and a mask of rows that have none that is finite."""
    if isinstance(array, np.ndarray):
        return array, ~np.isfinite(array)
    if kind_of(array.type) == TEXT:
        codes, values = as_codes(array)
        return np.array([*values.to_pylist(), None], dtype=object)[codes], codes < 0
    array = plain(array)
    if pa.types.is_integer(array.type) or pa.types.is_boolean(array.type):
        null = array.is_null().to_numpy(zero_copy_only=False)
        return array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), null
    values = array.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return values, ~np.isfinite(values)


def converted(texts: Any, type_: Any) -> tuple[Any, Any]:
    """Return text, or bytes, as this type, null where it is missing or does not fit, and a mask of what does not."""
    codes, values = as_codes(texts)
    fits, missing = cast_where_it_fits(values, pa.string()), pa.array(np.zeros(len(values), bool))
    if type_ != pa.string():
        fits = pc.utf8_trim(fits, characters=" \t")
        missing = is_missing(fits)
        fits = cast_where_it_fits(pc.if_else(missing, pa.scalar(None, pa.string()), fits), type_)
    wrong = pc.and_(pc.and_not(fits.is_null(), missing), values.is_valid()).to_numpy(zero_copy_only=False)
    result = fits.take(pa.array(codes, mask=codes < 0))
    return result, (np.append(wrong, False)[codes] if wrong.any() else None)


def hashed(name: str, values: Any, bits: int) -> tuple[Any, Any]:
    """Return the columns, below 2^bits, and the signs that `FeatureHasher` gives to values of a column of this name."""
    values = values.cast(pa.large_binary())
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1] if len(values) else _NONE
    text = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    prefix = np.frombuffer(f"{name}=".encode(), np.uint8)
    columns, signs = np.empty(len(values), np.int64), np.empty(len(values))
    _hash_all(prefix, text, ends, bits, columns, signs)
    return columns, signs


_NONE = np.zeros(1, np.int64)


def _known(array: Any) -> Any:
    """Return a column with text in a form that pyarrow can do everything with; views, as of polars, are not."""
    if pa.types.is_dictionary(array.type) and str(array.type.value_type) == "string_view":
        return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.large_string()))
    return array.cast(pa.large_string()) if str(array.type) == "string_view" else array


def plain(array: Any) -> Any:
    """Return a column without a dictionary."""
    array = _known(array)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def is_missing(values: Any) -> Any:
    """Return a mask of text that stands for a value that is missing."""
    return pc.is_in(values, value_set=_MISSING)


def cast_where_it_fits(values: Any, type_: Any) -> Any:
    """Return text as this type, null where it does not fit: found by halving."""
    try:
        return values.cast(type_)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.nulls(1, type_)
        half = len(values) // 2
        return pa.concat_arrays([cast_where_it_fits(part, type_) for part in (values[:half], values[half:])])


@compiled
def _hash_all(prefix: Any, text: Any, ends: Any, bits: int, columns: Any, signs: Any) -> None:
    """Put the columns and signs of the names that are the prefix and text[ends[k]:ends[k + 1]]."""
    p, longest = len(prefix), 0
    for k in range(len(columns)):
        longest = max(longest, ends[k + 1] - ends[k])
    name = np.empty(p + longest, np.uint8)
    name[:p] = prefix
    for k in range(len(columns)):
        size = ends[k + 1] - ends[k]
        name[p : p + size] = text[ends[k] : ends[k + 1]]
        columns[k], signs[k] = column_and_sign(name, 0, p + size, bits)


@compiled
def sparse_rows(
    numbers: Any, codes: Any, bases: Any, columns: Any, signs: Any, starts: Any, places: Any, values: Any
) -> int:
    """Put rows of numbers and of text behind each other, in the order of columns, and return the end.

    Codes of the column t of text are places in columns and signs from bases[t] on, or -1. What meets in a column is
    added up.
    """
    k = 0
    for i in range(numbers.shape[0]):
        for j in range(numbers.shape[1]):
            if numbers[i, j] != 0:
                places[k], values[k] = j, numbers[i, j]
                k += 1
        first = k
        for t in range(codes.shape[0]):
            if codes[t, i] < 0:
                continue
            column, sign, at = columns[bases[t] + codes[t, i]], signs[bases[t] + codes[t, i]], k
            while at > first and places[at - 1] > column:
                at -= 1
            if at > first and places[at - 1] == column:
                values[at - 1] += sign
                continue
            for later in range(k, at, -1):
                places[later], values[later] = places[later - 1], values[later - 1]
            places[at], values[at] = column, sign
            k += 1
        starts[i + 1] = k
    return k
