"""Columns of Arrow tables as numbers, codes, labels and times, with one error if pyarrow is not installed.

Dates and times become the time itself, and its place in the cycles of day, week and year.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from robustfd._core import hash_values
from robustfd.streams.inputs import StreamError
from robustfd.streams.layout import DATE, NUMBER, TEXT, TIME

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pcsv
    import pyarrow.ipc as ipc
    import pyarrow.parquet as pq
except ImportError as error:
    raise ImportError("CSV, Parquet and Arrow need pyarrow: pip install 'robustfd[arrow]'.") from error

__all__ = ["ipc", "pa", "pc", "pcsv", "pq"]  # for the modules that read tables

_DAYS = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000}  # a day in units of time
_TIME_OF_DAY = r"\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?"
_ZONE = r"(Z|[+-]\d{2}:?\d{2})$"
_DATE_TEXT = rf"^\d{{4}}-\d{{2}}-\d{{2}}([ T]{_TIME_OF_DAY}(Z|[+-]\d{{2}}:?\d{{2}})?)?$"
_SAMPLE = 10_000  # rows for the detection of dates in text
_MISSING = pa.array(pcsv.ConvertOptions().null_values)  # text for a missing number: "", "NA", "null", ...


@contextmanager
def named_errors(name: str) -> Iterator[None]:
    """Raise `StreamError` with the name of the file for errors of pyarrow about its content."""
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise StreamError(f"{name} cannot be read: {error}") from error
    except MemoryError as error:  # a damaged file may claim any size
        raise StreamError(f"{name} cannot be read: it claims a size larger than the memory.") from error
    except OSError as error:
        if error.errno is not None:  # an error of the operating system, not of the format
            raise
        raise StreamError(f"{name} is damaged or truncated: {error}") from error


@lru_cache(maxsize=1000)
def kind_of(type_: Any) -> str | None:
    """Return the kind of column for an Arrow type, None if it is not supported. Numbers as categories are text."""
    if pa.types.is_dictionary(type_):
        return TEXT if has_numbers(type_) else kind_of(type_.value_type)
    is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
    if any(test(type_) for test in is_number):
        return NUMBER
    if pa.types.is_date(type_) or pa.types.is_timestamp(type_):
        return DATE
    if pa.types.is_time(type_):
        return TIME
    return TEXT if str(type_) in ("string", "large_string", "string_view") else None


def has_numbers(type_: Any) -> bool:
    """Return whether the values of a column are numbers, also if it is a column of categories."""
    return kind_of(type_.value_type if pa.types.is_dictionary(type_) else type_) == NUMBER


def can_be(kind: str, type_: Any, *, strict: bool = False) -> bool:
    """Return whether a column of an Arrow type can be read as this kind: text as any kind, numbers as text.

    If `strict`, only text can be read as another kind, dates or times. Categories that are numbers can be both.
    """
    found = kind_of(type_)
    if found == kind or pa.types.is_null(type_) or (kind == NUMBER and has_numbers(type_)):
        return True
    return found == TEXT and kind in (DATE, TIME) if strict else found == TEXT or (found == NUMBER and kind == TEXT)


def classify_fields(values: Any) -> tuple[Any, Any, Any]:
    """Return masks of the fields, given as bytes, that are missing, whole numbers, and numbers."""
    masks = (
        pc.is_in(values, value_set=_MISSING.cast(pa.binary())),
        pc.match_substring_regex(values, pattern=r"^[ \t]*[+-]?[0-9]{1,18}[ \t]*$"),
        pc.match_substring_regex(values, pattern=r"^[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*$"),
    )
    missing, whole, number = (mask.to_numpy(zero_copy_only=False) for mask in masks)
    return missing, whole, number


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
    if has_numbers(array.type):
        array = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.string()))
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


def distinct_values(array: Any, *, empty: bool) -> list[str]:
    """Return the distinct values of a text column, with "" for null if `empty`."""
    codes, values = with_empty(*as_codes(array)) if empty else as_codes(array)
    return values.take(pa.array(np.unique(codes[codes >= 0]))).to_pylist()


def one_array(column: Any) -> Any:
    """Return a chunked column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def as_text(array: Any) -> Any:
    """Return a column as str objects, "" for missing values."""
    if isinstance(array, np.ndarray):
        array = pa.array(array, from_pandas=True)
    return plain(array).cast(pa.large_string()).fill_null("").to_numpy(zero_copy_only=False)


def as_labels(array: Any) -> tuple[Any, Any]:
    """Return a column as labels (str, int64 or float64), and a mask of missing and infinite ones."""
    if isinstance(array, np.ndarray):
        return array, ~np.isfinite(array)
    if not has_numbers(array.type):
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


def hashed(name: str, values: Any, bits: int) -> tuple[Any, Any, Any]:
    """Return the terms of the values of a named column: the first of each value, and their hashes and numbers.

    A term t is the feature "name=t" of scikit-learn's `FeatureHasher`, in a column below 2^bits.
    """
    values = values.cast(pa.large_binary())
    _, offsets, data = values.buffers()
    ends = np.zeros(1, np.int64)
    if len(values):
        ends = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    starts, columns, numbers = hash_values(f"{name}=".encode(), b"" if data is None else data, ends, bits)
    return starts, columns, numbers


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


def as_times(array: Any, kind: str) -> tuple[Any, Any]:
    """Return a column of dates or times as columns of numbers, NaN where missing, and a mask of invalid values.

    A date becomes the days since 1970, and sine and cosine of the time of day, the day of the week and the day of the
    year. A time becomes the days since midnight, and their sine and cosine. Times with a zone are converted to UTC.
    """
    instants, day, wrong = _instants(array, kind)
    missing = instants.is_null().to_numpy(zero_copy_only=False)
    stamps = instants.fill_null(0).to_numpy(zero_copy_only=False)
    days, rest = np.divmod(stamps, day)
    cycles = [rest / day]
    if kind == DATE:
        dates = days.astype("datetime64[D]")
        years = dates.astype("datetime64[Y]")
        first, next_first = (each.astype("datetime64[D]") for each in (years, years + np.timedelta64(1, "Y")))
        day_of_year, length = (dates - first).astype(np.int64), (next_first - first).astype(np.int64)
        cycles += [(days + 3) % 7 / 7, day_of_year / length]  # 1 January 1970 was a Thursday, and weeks begin on Monday
    angles = 2 * np.pi * np.array(cycles)
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=1).reshape(2 * len(cycles), len(stamps))
    numbers = np.vstack([stamps / day, waves])
    numbers[:, missing] = np.nan
    return numbers.T, wrong


def seen_type(array: Any) -> Any:
    """Return the type of a column: dates or times if it is text and its first values are all dates or times."""
    if kind_of(array.type) != TEXT:
        return array.type
    _, values = as_codes(array[:_SAMPLE])
    values = values.cast(pa.string())
    values = values.filter(pc.and_not(values.is_valid(), is_missing(values).fill_null(True)))
    if not len(values):
        return array.type
    forms = (pa.timestamp("us"), DATE, _DATE_TEXT), (pa.time64("us"), TIME, rf"^{_TIME_OF_DAY}$")
    for type_, kind, pattern in forms:
        if pc.all(pc.match_substring_regex(values, pattern=pattern)).as_py() and _instants(values, kind)[2] is None:
            return type_
    return array.type


def _instants(array: Any, kind: str) -> tuple[Any, int, Any]:
    """Return a column as units of time since 1970 or midnight, null where missing, the units in a day, invalid values.

    Units longer than a microsecond stay, as the years of some dates in seconds do not fit into microseconds.
    """
    array, unit = plain(array), "us"
    if kind_of(array.type) == TEXT:
        found, wrong = _of_text(array, kind)
        return found, _DAYS[unit], wrong
    if pa.types.is_date32(array.type):
        return array.cast(pa.int32()).cast(pa.int64()), 1, None
    if pa.types.is_date64(array.type):
        unit = "ms"
    elif pa.types.is_timestamp(array.type) and array.type.unit != "ns":
        unit = array.type.unit
    elif pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp(unit, array.type.tz), safe=False)
    elif not pa.types.is_null(array.type):
        array = array.cast(pa.time64(unit), safe=False)
    return array.cast(pa.int64()), _DAYS[unit], None


def _of_text(array: Any, kind: str) -> tuple[Any, Any]:
    """Return microseconds and invalid values of text, where each distinct value is parsed once."""
    codes, values = as_codes(array)
    values = pc.utf8_trim(values.cast(pa.string()), characters=" \t")
    missing = is_missing(values)
    texts = pc.if_else(missing, pa.scalar(None, pa.string()), values)
    texts = pc.replace_substring_regex(texts, pattern=r"(\.\d{6})\d+", replacement=r"\1")
    if kind == TIME:
        texts = pc.binary_join_element_wise("1970-01-01 ", texts, "")
    zoned = pc.match_substring_regex(texts, pattern=rf":\d{{2}}(\.\d+)?{_ZONE}")
    found = pa.nulls(len(texts), pa.int64())
    for type_, mask in ((pa.timestamp("us"), pc.invert(zoned)), (pa.timestamp("us", "UTC"), zoned)):
        part = cast_valid(pc.if_else(mask, texts, pa.scalar(None, pa.string())), type_)
        found = pc.coalesce(found, part.cast(pa.int64()))
    wrong = pc.and_(found.is_null(), texts.is_valid()).to_numpy(zero_copy_only=False)
    result = found.take(pa.array(codes, mask=codes < 0))
    return result, (np.append(wrong, False)[codes] if wrong.any() else None)
