"""Numbers in README and on the site are those of benchmarks/results."""

import json

import pytest

from benchmarks import quotes


@pytest.fixture
def results(tmp_path, monkeypatch):
    values = [("here", 0.718), ("  faster by", 14.07), ("there", 1234.5), ("  faster by", 2.5)]
    rows = [{"what": what, "value": value} for what, value in values]
    (tmp_path / "speed.json").write_text(json.dumps({"rows": rows}))
    (tmp_path / "table.md").write_text(
        "3 sets: +2.10 in all\n\n| data | here | best | best | k = 2 |\n|---|---|---|---|---|\n| a | 1 | 2 | 3 | 4 |\n"
    )
    monkeypatch.setattr(quotes, "FOLDERS", (tmp_path,))
    return tmp_path


@pytest.mark.parametrize("place, expected", [
    ("{speed.json | here | .2f}", "0.72"),
    ("{speed.json | faster by | .0f}", "14"),
    ("{speed.json | there > faster by | .1f}", "2.5"),
    ("{speed.json | there | ~2,}", "1,200"),
    ("{speed.json | here | % ~1}", "70"),
    ("{table.md | a > here}", "1"),
    ("{table.md | a > best 2}", "3"),
    ("{table.md | a > k = 2}", "4"),
    (r"{table.md | /\+([\d.]+) in all/ | .1f}", "2.1"),
])  # fmt: skip
def test_places_of_numbers(results, place, expected):
    assert quotes.filled(f"It takes {place} s.") == f"It takes {expected} s."
    assert quotes.pattern(f"It takes {place} s.").fullmatch("It takes 99.9 s.")


@pytest.mark.parametrize(
    "place", ["{speed.json | nowhere}", "{table.md | a > worst}", "{table.md | /(x)y/}", "{no.md | a}"]
)
def test_a_number_that_is_not_in_its_file_is_an_error(results, place):
    with pytest.raises(quotes.QuoteError):
        quotes.filled(place)


def test_numbers_are_written_and_missing_lines_are_reported(results):
    text = "# Page\n\nIt takes 3 s.\nIt is quick.\n"
    lines = ["It takes {speed.json | here | .1f} s.", "It took {speed.json | here} s.", "It is {no.json | a}quick."]
    new, missing = quotes.updated(text.replace("is quick", "is 9quick"), lines)
    assert new == "# Page\n\nIt takes 0.7 s.\nIt is 9quick.\n"
    assert missing == ["there is no line such as It took {speed.json | here} s.", "there is no no.json"]


def test_lines_with_numbers_that_are_not_listed_are_found():
    text = "It takes 3 s.\nIt has `m=3` and [a link](page3.md).\n```\n3\n```\n    robustfd 3\nTwice 4 is 8.\n"
    assert quotes.unlisted(text, ["It takes {speed.json | here} s."]) == ["Twice 4 is 8."]


@pytest.mark.parametrize("line, measured", [
    ("It has 3 % errors.", True), ("R² is 0.02 lower.", True), ("It is 14 times faster, in 2 ms.", True),
    ("With 2000 rows and 3 parts, see `x=0.5` and $1.5 m$.", False),
])  # fmt: skip
def test_numbers_that_look_measured_are_found_in_pages(line, measured):
    assert bool(quotes.unlisted(line, [], quotes.LOOKS_MEASURED)) is measured


def test_pages_that_need_no_file_exist():
    pages = {path.stem for path in (quotes.ROOT / "docs").glob("*.md")}
    assert pages >= set(quotes.DEFINED) and "docs/decisions.md" in quotes.documents()


def test_all_numbers_of_the_repository_are_those_of_their_files(capsys):
    assert quotes.main(["--check"]) == 0, capsys.readouterr().out
