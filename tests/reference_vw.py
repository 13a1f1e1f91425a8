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


def before_the_tag(text):
    """Return the words before the bar, and the tag."""
    found, tag = words(text), ""
    if found and (text.endswith(found[-1]) or found[-1].startswith("'")):
        tag = found.pop().removeprefix("'")
    return found, tag


def head(text):
    """Return the label, weight and tag from the text before the bar."""
    found, tag = before_the_tag(text)
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
    return Row(label, weight, tag, features(spaces))


def features(spaces):
    """Return (namespace, feature, value) of all entries of namespaces."""
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
    return entries


def hashed(space, name, bits):
    """Return the column, below 2^bits, and the sign of a feature."""
    seed = murmurhash3_32(space.encode("latin-1"), positive=True) if space else 0
    if re.fullmatch("[0-9]+", name):
        return (seed + int(name)) % 2**bits, 1.0
    h = murmurhash3_32(name.encode("latin-1"), seed=seed)
    return abs(h) % 2**bits, 1.0 if h >= 0 else -1.0


def by_column(entries, bits):
    """Return {column: value} of entries, or raise a ValueError if a value is not finite."""
    columns = {}
    for space, name, value in entries:
        column, sign = hashed(space, name, bits)
        columns[column] = columns.get(column, 0.0) + sign * value
    if not all(map(math.isfinite, columns.values())):
        raise ValueError("not finite")
    return columns


def read(text, *, bits):
    """Return the rows of a text in bytes, with {column: value} as entries, and the numbers of malformed lines."""
    rows, bad = [], []
    for k, line in enumerate(text.decode("latin-1").split("\n")):
        if not words(line):
            continue
        try:
            row = parse_line(line)
            columns = by_column(row.entries, bits)
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


# -- logs of bandits


class Decision(NamedTuple):
    """One row of a log: the chosen action (-1 if none), its cost and probability, all actions, the context."""

    chosen: int
    cost: float
    probability: float
    actions: list  # numbers that the line names, or the entries of each line of a block
    entries: dict
    tag: str


def action(word):
    """Return the number, cost and probability of `action[:cost[:probability]]`."""
    which, *numbers = word.split(":")
    if not re.fullmatch("[0-9]{1,9}", which) or len(numbers) > 2:
        raise ValueError(word)
    cost, probability = [*map(number, numbers), *(math.nan, math.nan)[len(numbers) :]]
    if len(numbers) == 2 and not 0 < probability <= 1:
        raise ValueError("no probability")
    return int(which), cost, probability


def read_actions(text, *, bits):
    """Return the rows of lines `action:cost:probability action ... 'tag| features`, and the malformed lines."""
    rows, bad = [], []
    for k, line in enumerate(text.decode("latin-1").split("\n")):
        if not words(line):
            continue
        front, *spaces = line.split("|")
        try:
            if not spaces:
                raise ValueError("no bar")
            found, tag = before_the_tag(front)
            actions = [action(word) for word in found]
            with_cost = [each for each in actions if not math.isnan(each[1])]
            if len(with_cost) > 1:
                raise ValueError("two costs")
            chosen = with_cost[0] if with_cost else (-1, math.nan, math.nan)
            context = by_column(features(spaces), bits)
            rows.append(Decision(*chosen, [which for which, *_ in actions], context, tag))
        except ValueError:
            bad.append(k + 1)
    return rows, bad


def read_blocks(text, *, bits):
    """Return the rows of blocks of lines, and the first malformed line (or the last line) of malformed blocks."""
    rows, bad, block = [], [], []
    for k, line in enumerate([*text.decode("latin-1").split("\n"), ""]):
        if words(line):
            block.append((k + 1, line))
        elif block:
            at = block[-1][0]
            try:
                chosen, actions, context, tag = (-1, math.nan, math.nan), [], {}, ""
                for at, each in block:
                    front, *spaces = each.split("|")
                    if not spaces:
                        raise ValueError("no bar")
                    is_shared = re.match("[ \t\r]*shared(?=[ \t\r|])", each)
                    found, name = before_the_tag(front[is_shared.end() :] if is_shared else front)
                    if is_shared:
                        if found or at != block[0][0]:
                            raise ValueError("words, or not the first line")
                        context, tag = features(spaces), name
                        continue
                    if len(found) > 1:
                        raise ValueError("several actions")
                    for _, cost, probability in map(action, found):
                        if not math.isnan(cost):
                            if chosen[0] >= 0:
                                raise ValueError("two costs")
                            chosen = len(actions), cost, probability
                    actions.append(by_column(features(spaces), 30))
                at = block[-1][0]
                if not actions:
                    raise ValueError("no actions")
                rows.append(Decision(*chosen, actions, by_column(context, bits) if context else {}, tag))
            except ValueError:
                bad.append(at)
            block = []
    return rows, bad
