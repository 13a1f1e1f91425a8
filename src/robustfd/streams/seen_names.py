"""The original names of hashed features: for each hash the first name that was seen."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from robustfd._core import hash_name, murmur3

MOST_NAMES = 1 << 16
WHOLE = 4 << 20  # bytes of text that are searched completely
SAMPLE = 1 << 13  # bytes searched of each later chunk: important features are not rare
LONGEST_INDEX = 18  # digits that fit into 64 bits

Feature = tuple[bytes, bytes]  # its namespace, which may have no name, and its name


class SeenName(NamedTuple):
    """The name of a hashed feature, and the sign that hashing gives to its values."""

    name: str
    sign: int


class SeenNames:
    """Names of features by the number that they were hashed to.

    The names are for display only. Two features may share a number, rare features of long text may have no name here,
    and at most `MOST_NAMES` names are kept.
    """

    def __init__(self) -> None:
        self.names: dict[int, SeenName] = {}
        self._known: set[Any] = set()
        self._bytes = 0

    @property
    def full(self) -> bool:
        """Whether no more names are recorded."""
        return len(self.names) >= MOST_NAMES

    def add_values(self, column: str, values: Any, numbers: Any, signs: Any) -> None:
        """Record the values of a table column, an Arrow array, with their hashes and signs."""
        if self.full:
            return
        fresh = np.fromiter((number not in self.names for number in numbers.tolist()), bool, len(numbers))
        places = np.flatnonzero(fresh)[: MOST_NAMES - len(self.names)]
        for place, number, sign in zip(places.tolist(), numbers[places].tolist(), signs[places].tolist()):
            self.names.setdefault(number, SeenName(f"{column}={values[place].as_py()}", int(sign)))

    def add_dicts(self, rows: Iterable[dict[str, Any]], bits: int) -> None:
        """Record the names of the features of rows."""
        for row in rows:
            if self.full:
                return
            for name in row.keys() - self._known:
                self._add(name, hash_name(name.encode("utf-8", "surrogatepass"), bits), name)

    def add_text(self, text: Any, mark: bytes, bits: int) -> None:
        """Record the names in lines of Vowpal Wabbit's text if the mark is |, else in lines of LIBSVM's."""
        if self.full:
            return
        size = len(text) if self._bytes < WHOLE else SAMPLE
        self._bytes += size
        lines = bytes(text[:size]).split(b"\n")
        found = set(_features_of_vw(lines[:-1]) if mark == b"|" else _features_of_libsvm(lines[:-1]))
        for space, name in found - self._known:
            shown = (space + b"^" + name if space else name).decode("utf-8", "backslashreplace")
            self._add((space, name), column_of(space, name, bits), shown)

    def _add(self, key: Any, found: tuple[int, int] | None, shown: str) -> None:
        self._known.add(key)
        if found is not None and not self.full:
            self.names.setdefault(found[0], SeenName(shown, found[1]))


def column_of(space: bytes, name: bytes, bits: int) -> tuple[int, int] | None:
    """Return the number and the sign of a feature in text, as the core reads it; None without a name."""
    seed = murmur3(space) if space else 0
    if not name.isdigit():
        return hash_name(name, bits, seed) if name else None
    return ((seed + int(name)) & (2**bits - 1), 1) if len(name) <= LONGEST_INDEX else None


def _features_of_vw(lines: list[bytes]) -> Iterator[Feature]:
    for line in lines:
        for part in line.split(b"|")[1:]:
            tokens = part.split()
            space = tokens.pop(0).split(b":", 1)[0] if tokens and part[:1] not in b" \t" else b""
            for token in tokens:
                yield space, token.split(b":", 1)[0]


def _features_of_libsvm(lines: list[bytes]) -> Iterator[Feature]:
    for line in lines:
        tokens = line.split(b"#", 1)[0].split()
        for k, token in enumerate(tokens):
            name, colon, _ = token.partition(b":")
            if name != b"qid" and (colon or k):  # the first token is the label
                yield b"", name
