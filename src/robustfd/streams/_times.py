"""Dates and times as numbers: the time itself, and its place in the cycles of day, week and year."""

from typing import Any

import numpy as np

from robustfd.streams._columns import as_codes, cast_valid, is_missing, kind_of, plain
from robustfd.streams._layout import DATE, TEXT, TIME
from robustfd.streams.pyarrow_modules import pa, pc

_DAY = 86_400_000_000  # microseconds
_TIME_OF_DAY = r"\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?"
_ZONE = r"(Z|[+-]\d{2}:?\d{2})$"
_DATE_TEXT = rf"^\d{{4}}-\d{{2}}-\d{{2}}([ T]{_TIME_OF_DAY}(Z|[+-]\d{{2}}:?\d{{2}})?)?$"
_SAMPLE = 10_000  # rows for the detection of dates in text


def parts(array: Any, kind: str) -> tuple[Any, Any]:
    """Return a column of dates or times as columns of numbers, NaN where missing, and a mask of invalid values.

    A date becomes the days since 1970, and sine and cosine of the time of day, the day of the week and the day of the
    year. A time becomes the days since midnight, and their sine and cosine. Times with a zone are converted to UTC.
    """
    instants, wrong = _microseconds(array, kind)
    missing = instants.is_null().to_numpy(zero_copy_only=False)
    stamps = instants.fill_null(0).to_numpy(zero_copy_only=False)
    days, rest = np.divmod(stamps, _DAY)
    cycles = [rest / _DAY]
    if kind == DATE:
        dates = days.astype("datetime64[D]")
        years = dates.astype("datetime64[Y]")
        first, next_first = years.astype("datetime64[D]"), (years + 1).astype("datetime64[D]")
        day_of_year, length = (dates - first).astype(np.int64), (next_first - first).astype(np.int64)
        cycles += [(days + 3) % 7 / 7, day_of_year / length]  # 1 January 1970 was a Thursday, and weeks begin on Monday
    angles = 2 * np.pi * np.array(cycles)
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=1).reshape(2 * len(cycles), len(stamps))
    numbers = np.vstack([stamps / _DAY, waves])
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
    for type_, kind, pattern in (
        (pa.timestamp("us"), DATE, _DATE_TEXT),
        (pa.time64("us"), TIME, rf"^{_TIME_OF_DAY}$"),
    ):
        if pc.all(pc.match_substring_regex(values, pattern=pattern)).as_py() and _microseconds(values, kind)[1] is None:
            return type_
    return array.type


def _microseconds(array: Any, kind: str) -> tuple[Any, Any]:
    """Return a column as microseconds since 1970 or midnight, null where missing, and a mask of invalid values."""
    array = plain(array)
    if kind_of(array.type) == TEXT:
        return _of_text(array, kind)
    if pa.types.is_null(array.type):
        return array.cast(pa.int64()), None
    if kind == TIME:
        return array.cast(pa.time64("us"), safe=False).cast(pa.int64()), None
    zone = array.type.tz if pa.types.is_timestamp(array.type) else None
    return array.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64()), None


def _of_text(array: Any, kind: str) -> tuple[Any, Any]:
    """Return the same for text, where each distinct value is parsed once."""
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
