"""Damaged files that are kept: some of each kind that `fuzz/files.py` makes, and all that ever found a bug.

`tests/data/fuzz/index.json` says how each is read and what came of it. The name of a file has the seed and the number
of its case, or says what was wrong once.
"""

import json
from pathlib import Path

import pytest

from tests.fuzzing import Case, judge

FOLDER = Path(__file__).parent / "data" / "fuzz"
CASES = json.loads((FOLDER / "index.json").read_text())


@pytest.mark.parametrize("file", CASES)
def test_it_is_refused_or_read_as_it_was(file, tmp_path):
    about = CASES[file]
    if about["reader"] in ("csv", "parquet", "arrow"):
        pytest.importorskip("pyarrow")
    case = Case(about["reader"], about["name"], (FOLDER / file).read_bytes(), about["options"])
    assert judge(case, tmp_path) == about["outcome"]


def test_every_file_is_in_the_index():
    assert {path.name for path in FOLDER.iterdir()} == {*CASES, "index.json"}
