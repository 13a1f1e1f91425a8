"""The numbers that README and the site quote from result files: `make numbers` writes them, `make check` compares them.

quoted.md repeats, under the name of each document, its lines with such numbers, with a place in braces instead of each:

    {wide.json | robustfd, 8000 x 4000, m = 100 | .2f}     a row of a JSON file, and a format
    {sparse.json | TruncatedSVD(50), randomised > robustfd is faster by | .1f}     the first such row after another
    {untuned.md | a9a > accuracy here}   a cell of a table: its line and its column; "best VW 2" is the second
    {many.md | /\\+([\\d.]+) in the mean/ | .1f}               the group of a regular expression

Formats are those of Python. "~2" means two significant digits, "~2," with a comma at thousands, "% .1f" per cent. Lines
of README with digits have to be in quoted.md, too, and so do lines of pages for users that look measured, so that no
number is without its file. There, braces are numbers that were measured, and all other digits are settings.
"""

import json
import re
import sys
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = (ROOT / "benchmarks" / "results", ROOT / "docs" / "reproduction")
# Pages whose numbers are definitions, constants of a method, or sizes of formats and data sets.
DEFINED = ("changelog", "datasets", "mathematics", "numerics", "online-mathematics", "paper", "snapshot-format")
LOOKS_MEASURED = r"\d ?%|\d\.\d|\d (?:times|points|seconds|milliseconds|microseconds|s|ms|MB|GB)\b"
PLACE = re.compile(r"\{([\w./-]+\.(?:json|md)) \| ([^{}|]+?)(?: \| ([^{}|]*))?\}")
NUMBER = r"(?:\d{4}-\d\d-\d\d|[-+−]?\d(?:[\d,.]*\d)?)"


class QuoteError(Exception):
    """Raised if a line or a number is missing."""


def main(arguments: list[str]) -> int:
    """Write all quoted numbers into their documents or, with --check, print those that differ."""
    wrong = []
    for name, lines in templates().items():
        before = (ROOT / name).read_text("utf-8")
        after, missing = updated(before, lines)
        wrong += [f"{name}: {problem}" for problem in missing]
        if "--check" not in arguments:
            (ROOT / name).write_text(after, "utf-8")
            continue
        pairs = zip(before.splitlines(), after.splitlines(), strict=True)
        wrong += [f"{name} says: {old}\n  the results say: {new}" for old, new in pairs if old != new]
    for name, digits in documents().items():
        lost = unlisted((ROOT / name).read_text("utf-8"), templates().get(name, []), digits)
        wrong += [f"{name} has numbers without a file: {line}" for line in lost]
    print("\n".join(wrong) or "all quoted numbers are those of benchmarks/results")
    if wrong:
        print("benchmarks/quotes.py says how numbers are quoted; `make numbers` writes them.")
    return bool(wrong)


def templates(path: Path = ROOT / "benchmarks" / "quoted.md") -> dict[str, list[str]]:
    """Return the listed lines of each document."""
    found: dict[str, list[str]] = {}
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("## "):
            lines = found.setdefault(line[3:].strip(), [])
        elif line.strip() and found:
            lines.append(line)
    return found


def updated(text: str, lines: list[str]) -> tuple[str, list[str]]:
    """Return a document with the numbers of the result files, and what is missing in it or in them."""
    document, missing = text.split("\n"), []
    for line in lines:
        places = [i for i, each in enumerate(document) if pattern(line).fullmatch(each)]
        if len(places) != 1:
            missing.append(f"there is no line such as {line}")
            continue
        try:
            document[places[0]] = filled(line)
        except QuoteError as error:
            missing.append(str(error))
    return "\n".join(document), missing


def documents() -> dict[str, str]:
    """Return all documents that must not have numbers without a file, and what such a number looks like."""
    pages = [path for path in sorted((ROOT / "docs").glob("*.md")) if path.stem not in DEFINED]
    return {"README.md": r"\d"} | {f"docs/{path.name}": LOOKS_MEASURED for path in pages}


def unlisted(text: str, lines: list[str], digits: str = r"\d") -> list[str]:
    """Return the lines with digits, outside code, formulas and addresses, that are not listed."""
    known, out, code = [pattern(line) for line in lines], [], False
    for line in text.split("\n"):
        code ^= line.startswith("```")
        words = re.sub(r"`[^`]*`|\]\([^)]*\)|\$[^$]*\$", "", line)
        if not code and not line.startswith("    ") and re.search(digits, words):
            out += [line] * (not any(each.fullmatch(line) for each in known))
    return out


@lru_cache
def pattern(line: str) -> re.Pattern[str]:
    """Return a regular expression for a line with any numbers in its places."""
    parts = PLACE.split(line)
    return re.compile(NUMBER.join(re.escape(part) for part in parts[::4]))


def filled(line: str) -> str:
    """Return a line with its numbers."""
    return PLACE.sub(lambda place: shown(value(place[1], place[2]), place[3]), line)


def shown(number: str | float, form: str | None) -> str:
    """Return a number in a format; as it is in the file if there is none."""
    if not form:
        return str(number)
    amount = float(str(number).replace(",", "").rstrip(" %"))
    if form.startswith("% "):
        amount, form = 100 * amount, form[2:]
    if not form.startswith("~"):
        return f"{amount:{form}}"
    rounded = float(f"{amount:.{form[1:].rstrip(',')}g}")
    return f"{rounded:,.0f}" if form.endswith(",") else f"{rounded:.12f}".rstrip("0").rstrip(".")


def value(file: str, key: str) -> str | float:
    """Return the number at a place of a result file."""
    path = next((folder / file for folder in FOLDERS if (folder / file).exists()), None)
    if path is None:
        raise QuoteError(f"there is no {file}")
    text = path.read_text("utf-8")
    if key.startswith("/"):
        found = re.search(key.strip("/"), text)
        if found is None:
            raise QuoteError(f"{file} has no {key}")
        return found[1]
    steps = [step.strip() for step in key.split(" > ")]
    found_value = _in_rows(json.loads(text)["rows"], steps) if file.endswith(".json") else _in_tables(text, steps)
    if found_value is None:
        raise QuoteError(f"{file} has no {key}")
    return found_value


def _in_rows(rows: list[dict[str, float | str]], steps: list[str]) -> float | None:
    """Return the value of the row of the last step, after those of the others."""
    for row in rows:
        if str(row["what"]).strip() == steps[0]:
            steps = steps[1:]
            if not steps:
                number = float(row["value"])
                return int(number) if number.is_integer() else number
    return None


def _in_tables(text: str, steps: list[str]) -> str | None:
    """Return the cell of a line and a column, of the first table that has both."""
    line, column = steps
    name, _, count = column.rpartition(" ")
    name, place = (name, int(count) - 1) if count.isdigit() and not name.endswith("=") and name else (column, 0)
    header: list[str] = []
    for each in text.splitlines():
        cells = [cell.strip() for cell in each.strip().strip("|").split("|")]
        if not each.startswith("|"):
            header = []
        elif not header:
            header = cells
        elif cells[0].rstrip("*") == line and header.count(name) > place:  # * marks sets that chose a constant
            return cells[[i for i, title in enumerate(header) if title == name][place]]
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
