"""A slow, literal parser of Vowpal Wabbit's text format.

    [label [importance [base]]] ['tag]|[namespace[:weight]] [feature[:value]] ... |[namespace ...

Blanks are spaces, tabs and carriage returns. The last word before the first bar is a tag if it touches the bar or
starts with a quote. Numbers are those that Python's float accepts, without underscores, "nan" and "inf".
"""

import math
import re
from typing import NamedTuple

from sklearn.utils import murmurhash3_32

NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)


class Row(NamedTuple):
    """One line: the values before the bar, and (namespace, feature, value) of all entries."""

    label: float  # nan if there is none
    weight: float
    tag: str
    entries: list


def number(text):
    """Return a finite number, or raise a ValueError."""
    if not NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        raise ValueError(text)
    return float(text)


def words(text):
    """Return the words between blanks."""
    return [word for word in re.split("[ \t\r]+", text) if word]


def head(text):
    """Return the label, weight and tag from the text before the bar."""
    found, tag = words(text), ""
    if found and (text.endswith(found[-1]) or found[-1].startswith("'")):
        tag = found.pop().removeprefix("'")
    if len(found) > 3:
        raise ValueError("too many numbers")
    label, weight, base = [*map(number, found), *(math.nan, 1.0, 0.0)[len(found) :]]
    if weight < 0 or base != 0:
        raise ValueError("importance below 0, or a base")
    return label, weight, tag


def feature(text, count):
    """Return the name and value of a feature. A feature without a name is named by its index among such features."""
    name, *value = text.split(":")
    if len(value) > 1 or not (name or value) or any(letter < " " for letter in name):
        raise ValueError(text)
    return name or str(count), number(value[0]) if value else 1.0


def parse_line(line):
    """Return the row of a nonempty line, or raise a ValueError if it is malformed."""
    front, *spaces = line.split("|")
    if not spaces:
        raise ValueError("no bar")
    label, weight, tag = head(front)
    entries = []
    for text in spaces:
        name, scale, rest, anonymous = "", 1.0, text, 0
        if text and text[0] not in " \t\r":
            name = words(text)[0]
            rest = text[len(name) :]
            if ":" in name:
                name, value = name.split(":", 1)
                scale = number(value)
            if not name or any(letter < " " for letter in name):
                raise ValueError("no name of a namespace")
        for word in words(rest):
            which, value = feature(word, anonymous)
            anonymous += word.startswith(":")
            if not math.isfinite(value * scale):
                raise ValueError("not finite")
            entries.append((name, which, value * scale))
    return Row(label, weight, tag, entries)


def hashed(space, name, bits):
    """Return the column, below 2^bits, and the sign of a feature."""
    seed = murmurhash3_32(space.encode("latin-1"), positive=True) if space else 0
    if re.fullmatch("[0-9]+", name):
        return (seed + int(name)) % 2**bits, 1.0
    h = murmurhash3_32(name.encode("latin-1"), seed=seed)
    return abs(h) % 2**bits, 1.0 if h >= 0 else -1.0


def read(text, *, bits):
    """Return the rows of a text in bytes, with {column: value} as entries, and the numbers of malformed lines."""
    rows, bad = [], []
    for k, line in enumerate(text.decode("latin-1").split("\n")):
        if not words(line):
            continue
        try:
            row = parse_line(line)
            columns = {}
            for space, name, value in row.entries:
                column, sign = hashed(space, name, bits)
                columns[column] = columns.get(column, 0.0) + sign * value
            if not all(map(math.isfinite, columns.values())):
                raise ValueError("not finite")
        except ValueError:
            bad.append(k + 1)
        else:
            rows.append(row._replace(entries=columns))
    return rows, bad


def plain(text):
    """Return whether all features of valid lines are numbers up to 2^24 without a namespace, and these numbers."""
    found = set()
    for line in text.decode("latin-1").split("\n"):
        if words(line):
            try:
                found |= {(space, name) for space, name, _ in parse_line(line).entries}
            except ValueError:
                continue
    numbers = {int(name) for space, name in found if not space and re.fullmatch("[0-9]+", name)}
    return len(numbers) <= len(found) and all(
        not space and re.fullmatch("[0-9]+", name) and int(name) <= 2**24 for space, name in found
    ), numbers
