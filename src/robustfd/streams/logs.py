"""Logs of contextual bandits in Vowpal Wabbit text: a line for each row, or a block of lines, one for each arm."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from robustfd._core import Problem, parse_log
from robustfd.learners.rows import CsrRows
from robustfd.streams.base import Block, Options
from robustfd.streams.decisions import Decisions
from robustfd.streams.inputs import Chunk, Input, StreamError
from robustfd.streams.layout import Feature, is_flag, read_layout
from robustfd.streams.text import Settings, VwStream

_WORDS = {
    Problem.BAD_ACTION: "there should be an action, a whole number, or action:cost:probability, got {}",
    Problem.NO_LABEL: "there should be nothing between shared and the bar but a tag, got {}",
    Problem.TWO_COSTS: "only one action can have a cost, the one that was chosen, got a second one in {}",
    Problem.BAD_PROBABILITY: "the probability of an action must be in (0, 1], got {}",
    Problem.UNLABELLED: "no action has a cost",
    Problem.NO_ACTIONS: "after the shared features there should be a line for each action",
    Problem.LATE_SHARED: "the shared features must be in the first line of a block; blocks end with an empty line",
}


class ParsedLog(NamedTuple):
    """The rows of a chunk, as the core parses them; as in `text.Parsed`, and with decisions."""

    rows: tuple[Any, Any, Any]
    labels: Any  # costs
    bad: list[tuple[int, int, Problem]]
    dropped: int
    weights: Any
    tags: Any
    features: Sequence[tuple[Any, Any, Any]]  # of the actions, if these have lines of their own
    chosen: Any
    probabilities: Any
    actions: Any
    starts: Any
    parts: tuple[Any, ...] = ()


class _LogStream(VwStream):
    """Rows of contexts, with the rewards -cost of the chosen arms as labels."""

    WRONG = VwStream.WRONG | _WORDS
    _OF_BLOCKS: bool

    def _parsed(self, chunk: Chunk, settings: Settings) -> Any:
        found = ParsedLog(*parse_log(chunk.text, *settings, self._OF_BLOCKS))
        return found._replace(labels=0.0 - found.labels)

    def _has_labels(self, chunk: Chunk) -> bool:
        self._labelled = True
        return self._labels_needed

    def _block(self, chunk: Chunk, parsed: Any) -> Block:
        if self._tagged is None:
            self._tagged = bool(parsed.tags.any())
        block = super()._block(chunk, parsed)
        block.decisions = self._decisions(chunk, parsed)
        return block

    def _decisions(self, chunk: Chunk, parsed: ParsedLog) -> Decisions:
        raise NotImplementedError

    def _reason(self, problem: Problem, line: bytes) -> str:
        line = line.split(b"\n", 1)[0]
        words = line.split(b"|", 1)[0].split()
        if problem == Problem.BAD_PROBABILITY:
            words = [word.rsplit(b":", 1)[1] for word in words if word.count(b":") == 2]
        elif problem == Problem.TWO_COSTS:
            words = [word for word in words if b":" in word][-1:]
        elif problem == Problem.BAD_ACTION:
            words = [word for word in words if not re.fullmatch(rb"\d{1,9}", word)]
        elif problem == Problem.NO_LABEL:
            words = words[1:]
        value = words[0].decode("utf-8", "backslashreplace") if words else "nothing"
        return self.WRONG[problem].replace("{}", value.replace("{", "").replace("}", ""))


class ActionStream(_LogStream):
    """Rows `action:cost:probability action ... 'tag| features`. One action has a cost: the one that was chosen.

    If a line names other actions, it could have been one of these; otherwise it could have been any action. The
    features are those of `VwStream`.
    """

    KIND = "cb"
    _OF_BLOCKS = False

    def _decisions(self, chunk: Chunk, parsed: ParsedLog) -> Decisions:
        arms, starts = parsed.actions, parsed.starts
        lengths = np.diff(starts)
        alone = (lengths == 1) & (parsed.chosen >= 0)
        if not (lengths > alone).any():
            return Decisions(parsed.chosen, parsed.probabilities)
        starts = np.append(0, np.cumsum(np.where(alone, 0, lengths)))
        return Decisions(parsed.chosen, parsed.probabilities, arms[~np.repeat(alone, lengths)], starts)


class BlockStream(_LogStream):
    """Blocks of lines, each a row: `shared | features` of the context, and a line `| features` for each arm.

    The line of the chosen arm starts with `0:cost:probability`. An empty line ends a block. The features of the context
    are those of `VwStream`, and those of arms are hashed.

    If every arm has a single feature without a value, that is its name: arms have names. A name that is a number
    without a namespace is an integer. Otherwise arms are known by their features. Text that can be read only once, or
    with a given number of columns, has arms with features.
    """

    KIND = "adf"
    _OF_BLOCKS = True

    def __init__(self, inputs: Sequence[Input], options: Options, layout: dict[str, Any] | None, **common: Any):
        self._named = layout is not None and bool(read_layout(layout, self.KIND, named=is_flag)["named"])
        super().__init__(inputs, options, layout, **common)

    def _find_width(self, zero_based: bool | None, *, only_numbers: bool = True) -> None:
        self._named = True
        super()._find_width(zero_based, only_numbers=only_numbers)
        if self._surveyed is None:  # names were found before the end
            self._named = all((self._parsed(c, self._settings(c)).actions >= 0).all() for c in self._chunks())

    @staticmethod
    def _cut(text: bytearray, size: int) -> int:
        ends = (text.rfind(b"\n\n", 0, size) + 2, text.rfind(b"\n\r\n", 0, size) + 3)
        return max(end if end > least else 0 for end, least in zip(ends, (1, 2)))  # 0 if there is no empty line

    @property
    def layout(self) -> dict[str, Any]:
        """The number of columns, how an index becomes a column, and whether arms have names."""
        return super().layout | {"named": self._named}

    def _decisions(self, chunk: Chunk, parsed: ParsedLog) -> Decisions:
        if self._finding:
            self._named &= bool((parsed.actions >= 0).all())
        elif self._named:
            if (parsed.actions < 0).any():
                raise StreamError(
                    f"{self.inputs[chunk.file].name}, lines {chunk.first + 1} to {chunk.end.line}: an arm has no "
                    "feature, several, or one with a value. Arms had a name each, a single feature, in the rows "
                    "before."
                )
            arms = _names(chunk.text, parsed.actions, parsed.features[0][1])
            chosen = arms[parsed.starts[:-1] + parsed.chosen]
            chosen[parsed.chosen < 0] = None
            return Decisions(chosen, parsed.probabilities, arms, parsed.starts)
        values, columns, ends = parsed.features[0]
        features: Any = CsrRows(values, columns, ends.astype(np.int64), 2**30)
        if not self.plain_rows and not self._finding:
            from scipy.sparse import csr_array

            features = csr_array(features[:3], shape=features.shape)
        return Decisions(parsed.chosen, parsed.probabilities, features, parsed.starts)

    @staticmethod
    def _features_of(lines: list[bytes]) -> Iterator[Feature]:
        return VwStream._features_of([line for line in lines if line.lstrip().startswith(b"shared")])


def _names(text: Any, places: Any, columns: Any) -> Any:
    """Return the names of arms, each the only feature of a line at a place; equal columns have equal names."""
    _, first, codes = np.unique(columns, return_index=True, return_inverse=True)
    return np.array([*(_name(text, place) for place in places[first].tolist()), None], dtype=object)[codes]


def _name(text: Any, place: int) -> Any:
    before = bytes(text[max(place - 1000, 0) : place]).rsplit(b"|", 1)[-1].strip()
    name = re.match(rb"[^\s|]*", bytes(text[place : place + 1000]))
    assert name is not None
    if not before and name[0].isdigit():
        return int(name[0])
    return (before + b"^" * bool(before) + name[0]).decode("utf-8", "backslashreplace")
