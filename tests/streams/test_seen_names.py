"""Hashed features keep the names that they had in the files, for `inspect`."""

import json
import subprocess
import sys

import numpy as np
import pytest

from robustfd import load
from robustfd.cli._files import load_file
from robustfd.streams import StreamError, namer, open_stream
from robustfd.streams import layout as layout_module
from robustfd.streams.layout import SeenNames, names_in, signer, with_names, without_names


def read(path, **options):
    """Return all rows of a file, dense, a function from columns to names, and one to signs."""
    stream = open_stream(path, **options)
    stream.seen_names = SeenNames()
    x = np.vstack([block.X.toarray() for block in stream])
    layout = with_names(stream.layout, stream.seen_names.names)
    return x, namer(json.loads(json.dumps(layout))), signer(json.loads(json.dumps(layout)))


def named(x, name, sign):
    """Return rows as dicts by name, values as they were in the file."""
    return [{name(int(j)): sign(int(j)) * row[j] for j in np.flatnonzero(row)} for row in x]


FILES = {
    "rows.vw": (
        "1 |words hello:2 wörld |n age:3 17\n-1 'tag|words bye |other:0.5 17 x:4\n1 | 5 plain\n", {"hash_bits": 18},
        [
            {"words^hello": 2.0, "words^wörld": 1.0, "n^age": 3.0, "n^17": 1.0},
            {"words^bye": 1.0, "other^17": 0.5, "other^x": 2.0}, {"5": 1.0, "plain": 1.0},
        ],
    ),
    "rows.svm": (
        "1 qid:3 apple:2 7:1.5 # pear:1\n-1 pear:1 fig:3\n", {"hash_bits": 18},
        [{"apple": 2.0, "7": 1.5}, {"pear": 1.0, "fig": 3.0}],
    ),
    "rows.jsonl": (
        '{"y": 1, "a": "x", "b": {"c": 2}, "17": 3}\n{"y": 0, "a": "z", "b": {"c": 1, "d": ["p", "q"]}}\n',
        {"target": "y"},
        [{"a=x": 1.0, "b.c": 2.0, "17": 3.0}, {"a=z": 1.0, "b.c": 1.0, "b.d=p": 1.0, "b.d=q": 1.0}],
    ),
    "rows.csv": (
        "y,city,size,day\n1,Oslo,2,2024-01-01\n0,São Paulo,3,2024-01-02\n1,Oslo,1,2024-01-03\n",
        {"target": "y", "drop": ["day"]},
        [
            {"size": 2.0, "city=Oslo": 1.0},
            {"size": 3.0, "city=São Paulo": 1.0, "city=são": 1.0, "city=paulo": 1.0, "city=são paulo": 0.5},
            {"size": 1.0, "city=Oslo": 1.0},
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_rows_have_the_names_and_values_of_the_file(put, name):
    text, options, expected = FILES[name]
    assert named(*read(put(text, name), **options)) == expected


def test_long_text_is_sampled_and_there_are_not_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr(layout_module, "WHOLE", 1000)
    monkeypatch.setattr(layout_module, "SAMPLE", 200)
    path = tmp_path / "rows.vw"
    path.write_text("".join(f"1 |w usual rare{i}\n" for i in range(2000)))
    stream = open_stream(path, hash_bits=18, block_bytes=4000)
    stream.seen_names = SeenNames()
    list(stream)
    found = {each.name for each in stream.seen_names.names.values()}
    assert "w^usual" in found and 50 < len(found) < 1000
    monkeypatch.setattr(layout_module, "MOST_NAMES", 30)
    stream.seen_names = SeenNames()
    list(stream)
    assert len(stream.seen_names.names) == 30


@pytest.mark.parametrize(
    "names", [[], {"a": ["x", 1]}, {"-1": ["x", 1]}, {"1": "xy"}, {"1": ["x", 0]}, {"1": [2, 1]}, {"1": ["x"]}, 3]
)
def test_names_may_come_from_anybody(names):
    layout = {"kind": "vw", "hash_bits": 18, "names": names}
    if names == []:
        layout["names"] = ["x"]
    with pytest.raises(StreamError, match="not names of features"):
        namer(layout)


def robustfd(*arguments):
    command = [sys.executable, "-m", "robustfd", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True)


def test_inspect_shows_them_with_the_sign_that_they_have(tmp_path):
    path = tmp_path / "rows.vw"
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(40)]
    lines = []
    for _ in range(400):
        some = rng.choice(40, 5, replace=False)
        lines.append(f"{1 if some.min() < 4 else -1} |w {' '.join(words[i] for i in some)}\n")
    path.write_text("".join(lines))
    robustfd("train", path, "-o", tmp_path / "m.rfd")
    weights = json.loads(robustfd("inspect", tmp_path / "m.rfd", "--json", "-k", 4).stdout)["weights"]["1"]
    assert {row["feature"] for row in weights} == {f"w^word{i}" for i in range(4)}
    assert all(row["weight"] > 0 and row["effect"] > 0 for row in weights)
    more = tmp_path / "more.vw"
    more.write_text("1 |w word1 new\n-1 |w word20 other\n")
    robustfd("train", more, "--from", tmp_path / "m.rfd", "-o", tmp_path / "m2.rfd")
    names = {each.name for each in names_in(load_file(tmp_path / "m2.rfd").layout).values()}
    assert {"w^new", "w^other", "w^word20", "w^word39"} <= names


def test_merged_sketches_have_the_names_of_both(tmp_path):
    for name, word in (("a", "one"), ("b", "two")):
        (tmp_path / f"{name}.vw").write_text(f"1 |w {word} both\n-1 |w both\n")
        robustfd("sketch", tmp_path / f"{name}.vw", "--hash-bits", 10, "-o", tmp_path / f"{name}.rfd")
    robustfd("merge", tmp_path / "a.rfd", tmp_path / "b.rfd", "-o", tmp_path / "ab.rfd")
    layout = load_file(tmp_path / "ab.rfd").layout
    assert {each.name for each in names_in(layout).values()} == {"w^one", "w^two", "w^both"}
    assert without_names(layout) == {"kind": "vw", "hash_bits": 10}
    assert load(tmp_path / "ab.rfd").n_samples_seen_ == 4
