"""Vowpal Wabbit text, one row per line: `label importance 'tag|namespace feature:value ...`."""

import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from robustfd._core import Problem, murmur3, parse_vw
from robustfd.streams._base import Block, Position, Survey
from robustfd.streams._indexed import IndexedTextStream, Parsed, Settings
from robustfd.streams._inputs import Input
from robustfd.streams._text import Chunk, chunks
from robustfd.streams.limits import DEFAULT_BITS

_NUMBER = rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
# The head of a line: numbers, a tag that touches the bar or starts with a quote, and the bar.
_HEAD = re.compile(rb"[ \t\r]*(?P<numbers>(?:%b[ \t\r]+){0,3})(?P<tag>[^| \t\r]+|'[^| \t\r]*[ \t\r]+|)\|" % _NUMBER)


def first_head(text: bytes) -> tuple[bytes, bytes] | None:
    """Return the numbers and the tag of the first line with a valid head; None if there is none."""
    for line in text.split(b"\n"):
        if found := _HEAD.match(line):
            return found["numbers"], found["tag"]
    return None


class VwStream(IndexedTextStream):
    """Rows of Vowpal Wabbit text as CSR matrices, with importances as weights and tags as ids.

    If all features are numbers in the namespace without a name, they have the same columns as in LIBSVM text. Otherwise
    there are 2^hash_bits columns. A number has the column of the last bits of its sum with the hash of its namespace.
    Any other name has the column and the sign of `FeatureHasher`, with the hash of its namespace as seed. A feature
    without a value has the value 1. Values are multiplied by the weight of the namespace, and features that occur twice
    are added up. Empty lines are ignored.

    A line without a label has the label NaN; with `unlabelled="skip"` it is skipped and counted.
    """

    KIND = "vw"
    MARK = b"|"
    WRONG = {
        Problem.NO_LABEL: "before | there should be a label, its importance (both numbers) and a tag, or nothing",
        Problem.NO_INDEX: "a feature should be name:value or name, and a number without a namespace if names are not "
        "hashed (hash_bits)",
        Problem.BELOW_FIRST: "there is a feature 0, but numbers start at 1 unless zero_based is true",
        Problem.BEYOND_LAST: "there is a number above the last feature ({n_features} features)",
        Problem.NO_VALUE: "the value of a feature, or the weight of a namespace, should be a number",
        Problem.NOT_FINITE: "a number is not finite",
        Problem.TOO_LARGE: "there is a number above 2^31 - 1; use hash_bits to hash numbers",
        Problem.NO_BAR: "there is no | before the features",
        Problem.BAD_WEIGHT: "the importance, the second number, is below 0",
        Problem.HAS_BASE: "the third number, the base prediction, must be 0",
        Problem.NO_SPACE: "| should be followed by a blank, or by the name of a namespace",
        Problem.UNLABELLED: "it has no label (the word next to | is a tag)",
    }

    HARMLESS = (Problem.UNLABELLED,)

    def __init__(self, inputs: Sequence[Input], *, unlabelled: Literal["keep", "skip"] = "keep", **options: Any):
        self._labels_needed = unlabelled == "skip"
        self._tagged: bool | None = None
        super().__init__(inputs, **options)

    def _find_width(self, zero_based: bool | None) -> None:
        """Find the largest number. If a feature is not a number, all features are hashed."""
        drop, self._drop = self._drop, True
        super()._find_width(zero_based)
        self._drop = drop
        if self._surveyed is None:
            self._hash_bits, self._first, self._width = DEFAULT_BITS, 0, 2**DEFAULT_BITS

    def _survey_indices(self) -> tuple[Survey | None, int, int]:
        survey, least, largest = Survey(), 1, 0
        for chunk in chunks(self.inputs, Position(), self.block_bytes):
            block, parsed = self._parse(chunk)
            if parsed.dropped:
                return None, 0, 0
            survey.add(block)
            if block.X.nnz:
                least, largest = min(least, block.X.indices.min()), max(largest, block.X.indices.max())
        return survey, int(least), int(largest)

    def _parsed(self, chunk: Chunk, settings: Settings) -> Parsed:
        return Parsed(*parse_vw(chunk.text, *settings, [_group(name) for name in self.groups]))

    def _block(self, parsed: Parsed, chunk: Chunk) -> Block:
        tag = None
        if self.wants_ids and self._tagged:
            places = parsed.tags.tolist()
            tags = [bytes(chunk.text[begin:end]).decode("utf-8", "backslashreplace") for begin, end in places]
            tag = np.array(tags, dtype=object)
        y = parsed.labels if self._labelled else None
        return Block(self._matrix(parsed.rows), y, parsed.weights, tag, tuple(map(self._matrix, parsed.parts)))

    def _has_labels(self, chunk: Chunk) -> bool:
        """Return whether lines need a label. The first line decides whether blocks have labels and tags."""
        if self._tagged is None:
            beginning = chunk.first == chunk.file == 0 or not self.can_be_reread
            head = first_head(bytes(chunk.text) if beginning else self.inputs[0].head(1 << 16))
            if head is not None:
                self._labelled, self._tagged = self._labels_needed or head[0] != b"", head[1] != b""
        return self._labels_needed


def _group(name: str) -> tuple[int, int]:
    """Return the first letter and the hash of a namespace; a single letter stands for all that start with it."""
    encoded = name.encode()
    if len(encoded) < 2:
        return encoded[0] if encoded else 32, -1
    return encoded[0], murmur3(encoded)
