"""Columns of Arrow tables as numbers, codes and labels."""

from functools import lru_cache
from typing import Any

import numpy as np

from robustfd._core import hash_values
from robustfd.streams._layout import DATE, NUMBER, TEXT, TIME
from robustfd.streams.pyarrow_modules import pa, pc, pcsv

_MISSING = pa.array(pcsv.ConvertOptions().null_values)  # text for a missing number: "", "NA", "null", ...


@lru_cache(maxsize=1000)
def kind_of(type_: Any) -> str | None:
    """Return the kind of column for an Arrow type, None if the type is not supported."""
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
    """Return whether a column of an Arrow type can be read as this kind: text as any kind, numbers as text."""
    found = kind_of(type_)
    if found == kind or pa.types.is_null(type_):
        return True
    return found == TEXT or (found == NUMBER and kind == TEXT)


def classify_fields(values: Any) -> tuple[Any, Any, Any]:
    """Return masks of the fields, given as bytes, that are missing, whole numbers, and numbers."""
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
    """Return a column as float64 (or float32) with NaN for missing values, and a mask of values that are no numbers."""
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
    """Return the index of each row's value among the distinct values, -1 for null, and the distinct values."""
    array = _supported(array)
    if kind_of(array.type) == NUMBER:
        array = plain(array).cast(pa.string())
    # The dictionary may be that of a whole file. Work per value must not exceed work per row.
    if not pa.types.is_dictionary(array.type) or len(array.dictionary) > len(array):
        array = plain(array).dictionary_encode()
    values, codes = array.dictionary, array.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    if codes.max(initial=-1) >= len(values) or codes.min(initial=0) < -1:  # pyarrow does not check what it reads
        raise pa.ArrowInvalid(f"a column of categories refers to other values than the {len(values)} it has")
    if values.null_count:
        null = values.is_null().to_numpy(zero_copy_only=False)
        codes = np.where(null[codes] & (codes >= 0), -1, codes)
    return codes, values


def with_empty(codes: Any, values: Any) -> tuple[Any, Any]:
    """Return codes and values with "" in place of null."""
    if (codes >= 0).all():
        return codes, values
    values = pa.concat_arrays([values.cast(pa.large_string()), pa.array([""], pa.large_string())])
    known = pc.index(values, pa.scalar("", pa.large_string())).as_py()  # the first, in case "" was there before
    return np.where(codes < 0, known, codes), values


def as_text(array: Any) -> Any:
    """Return a column as str objects, "" for missing values."""
    if isinstance(array, np.ndarray):
        array = pa.array(array, from_pandas=True)
    return plain(array).cast(pa.large_string()).fill_null("").to_numpy(zero_copy_only=False)


def as_labels(array: Any) -> tuple[Any, Any]:
    """Return a column as labels (str, int64 or float64), and a mask of missing and infinite ones."""
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
    """Return text or bytes converted to a type, null where missing or invalid, and a mask of invalid values."""
    codes, values = as_codes(texts)
    fits, missing = cast_valid(values, pa.string()), pa.array(np.zeros(len(values), bool))
    if type_ != pa.string():
        fits = pc.utf8_trim(fits, characters=" \t")
        missing = is_missing(fits)
        fits = cast_valid(pc.if_else(missing, pa.scalar(None, pa.string()), fits), type_)
    wrong = pc.and_(pc.and_not(fits.is_null(), missing), values.is_valid()).to_numpy(zero_copy_only=False)
    result = fits.take(pa.array(codes, mask=codes < 0))
    return result, (np.append(wrong, False)[codes] if wrong.any() else None)


def hashed(name: str, values: Any, bits: int) -> tuple[Any, Any]:
    """Return the columns, below 2^bits, and the signs that `FeatureHasher` gives to the values of a named column."""
    values = values.cast(pa.large_binary())
    _, offsets, data = values.buffers()
    ends = np.zeros(1, np.int64)
    if len(values):
        ends = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    columns, signs = hash_values(f"{name}=".encode(), b"" if data is None else data, ends, bits)
    return columns, signs


def _supported(array: Any) -> Any:
    """Return a column with text in a type that pyarrow fully supports. String views, as in polars, are not."""
    if pa.types.is_dictionary(array.type) and str(array.type.value_type) == "string_view":
        return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.large_string()))
    return array.cast(pa.large_string()) if str(array.type) == "string_view" else array


def plain(array: Any) -> Any:
    """Return a column without a dictionary."""
    array = _supported(array)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def is_missing(values: Any) -> Any:
    """Return a mask of text that means a missing value."""
    return pc.is_in(values, value_set=_MISSING)


def cast_valid(values: Any, type_: Any) -> Any:
    """Return text converted to a type, null where invalid. Invalid values are found by bisection."""
    try:
        return values.cast(type_)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.nulls(1, type_)
        half = len(values) // 2
        return pa.concat_arrays([cast_valid(part, type_) for part in (values[:half], values[half:])])
