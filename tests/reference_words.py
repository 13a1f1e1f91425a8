"""The features of a text value, as docs/tables.md describes them, transcribed without regard to speed."""

import re
from itertools import pairwise

SPACE = " \t\n\v\f\r"
MARKS = ".,;:!?()[]{}<>\"'`*~_\xa0¡«»¿" + "".join(map(chr, range(0x2010, 0x2028)))
FOLDED = set(map(chr, [*range(0x180), *range(0x391, 0x3AA), *range(0x400, 0x430)])) - {"İ"}


def lower(word):
    return "".join(letter.lower() if letter in FOLDED else letter for letter in word)


def terms(value):
    words = [lower(word.strip(MARKS) or word) for word in re.split(f"[{SPACE}]+", value.strip(SPACE))]
    if len(words) == 1:
        return {value: 1.0}
    found = {value: 1.0} if len(words) <= 8 else {}
    for word in words:
        found.setdefault(word, 1.0)
    for pair in pairwise(words):
        found.setdefault(" ".join(pair), 0.5)
    return found


def row(features):
    """Return a dict with the terms of its texts as features."""
    result = {}
    for name, value in features.items():
        result |= (
            {f"{name}={term}": number for term, number in terms(value).items()}
            if isinstance(value, str)
            else {name: value}
        )
    return result
