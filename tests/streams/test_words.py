"""Free text becomes words and pairs of words; codes and categories stay whole. All sources agree."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.feature_extraction import FeatureHasher

import robustfd
from robustfd import _core
from robustfd.streams import TableEncoder, open_stream
from tests.reference_words import FOLDED, MARKS, SPACE, row, terms
from tests.streams.reading import read

SUFFIX = ".csv"  # of the files that `put` writes

REVIEWS = ["good fun", "good film fun", "Good, good “fun”!", "A-12/b", "", "New York", " Trimmed ", "not :) a 5% joke",
           "one two three four five six seven eight", "1 2 3 4 5 6 7 8 9", "été à Łódź ЁЛКА ΣΟΦΙΑ",
           "x\ty\u00a0z"]  # fmt: skip
letters = st.text(st.sampled_from([*"aBñÑЖ5%#-", *MARKS[:6], "“", "\xa0", *SPACE, "\ud800", "漢", "😀"]), max_size=40)


@given(st.one_of(st.text(), letters))
@example(" ")
@example(". .")
def test_terms_are_those_of_the_transcription(value):
    assert dict(_core.text_terms(value)) == terms(value)
    assert len(_core.text_terms(value)) == len(terms(value))


@pytest.mark.parametrize("value", REVIEWS)
def test_terms_of_examples(value):
    assert dict(_core.text_terms(value)) == terms(value)


def test_letters_are_folded_as_python_does():
    every = [chr(c) for c in range(33, 0x3000) if chr(c) not in MARKS + SPACE]
    for letter in every:
        assert _core.text_terms(f"{letter} .")[1][0] == (letter.lower() if letter in FOLDED else letter)


def test_texts_share_words_and_codes_share_nothing():
    one, other = (set(dict(_core.text_terms(each))) for each in ("Good fun.", "good FILM fun"))
    assert one & other == {"good", "fun"}
    assert dict(_core.text_terms("A-12/b.")) == {"A-12/b.": 1.0}
    assert dict(_core.text_terms("New York")) == {"New York": 1.0, "new": 1.0, "york": 1.0, "new york": 0.5}


@pytest.mark.parametrize("block_bytes", [64, 1 << 20])
def test_all_sources_have_the_same_features(put, block_bytes):
    rows = [{"text": text, "size": float(k)} for k, text in enumerate(REVIEWS, 1)]
    want = FeatureHasher(2**18).transform(map(row, rows)).toarray()
    frame, labelled = pd.DataFrame(rows), [json.dumps(each) for each in rows]
    tables = {"rows.csv": frame.to_csv(index=False), "rows.jsonl": "\n".join(labelled) + "\n"}
    for name, text in tables.items():
        x = read(
            put(text, name), hash_bits=18, block_bytes=block_bytes, **({"missing": "nan"} if name[5] == "c" else {})
        )[0]
        if name == "rows.csv":
            np.testing.assert_array_equal(x[:, 0], frame["size"])
            x = x[:, 1:] + FeatureHasher(2**18).transform([{"size": size} for size in frame["size"]]).toarray()
        np.testing.assert_array_equal(x, want)
    np.testing.assert_array_equal(read(rows, hash_bits=18, block_bytes=block_bytes)[0], want)
    encoded = TableEncoder.learn(frame).encode(frame).X.toarray()
    np.testing.assert_array_equal(encoded, read(put(tables["rows.csv"]), missing="nan")[0])


def test_products_with_a_text_are_products_with_its_words(put):
    path = put("text,size,y\ngood fun,2,0\nbad,3,1\n")
    stream = open_stream(path, target="y", interactions=["text:size"])
    x = next(iter(stream)).X
    assert [x[k].nnz for k in (0, 1)] == [3 + 1 + 3, 1 + 1 + 1]


def test_one_column_per_value_if_asked_for(put):
    stream = open_stream(put("city\nNew York\nNew Jersey\n"), categories="onehot")
    assert [stream.feature_name(k) for k in range(stream.n_features)] == ["city=New Jersey", "city=New York"]


@pytest.mark.parametrize("make", [robustfd.SketchedNewtonRegressor, robustfd.RFDSONRegressor])
def test_a_dict_with_text_is_a_dict_of_its_words(make):
    rng = np.random.default_rng(0)
    words = np.array(["good", "bad", "Film!", "fun.", ":)", "été"])
    rows = [
        {"t": " ".join(rng.choice(words, rng.integers(1, 12))), "u": "code", "x": rng.standard_normal()}
        for _ in range(300)
    ]
    y = [float("good" in each["t"]) + each["x"] for each in rows]
    texts, features = make(), make()
    for each, target in zip(rows, y, strict=True):
        assert texts.predict_one(each) == features.predict_one(row(each))
        texts.learn_one(each, target)
        features.learn_one(row(each), target)
    assert texts.vocabulary_ == features.vocabulary_
    assert texts.predict_one({"t": "an unknown good thing", "x": 1.0}) == features.predict_one(
        {"t=good": 1.0, "x": 1.0}
    )
    with pytest.raises(ValueError, match="'t=good' twice"):
        texts.learn_one({"t": "good film", "t=good": 1.0}, 0.0)


def test_a_table_is_learned_by_its_words():
    rng = np.random.default_rng(0)
    good, bad, other = ["good", "great", "fine"], ["bad", "awful", "dull"], [f"word{k}" for k in range(200)]
    label = rng.random(2000) < 0.5
    texts = [" ".join(rng.permutation([rng.choice(good if y else bad), *rng.choice(other, 10)])) for y in label]
    frame = pd.DataFrame({"review": texts, "noise": rng.standard_normal(2000) * 1e6})
    model = robustfd.SketchedNewtonClassifier().partial_fit(frame[:1500], label[:1500], classes=[False, True])
    assert model.score(frame[1500:], label[1500:]) > 0.95
    assert model.predict_one({"review": "a Great one!", "noise": 0.0})


def test_a_column_without_values_before_others(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b,c,y\n,x y,1,1\n,z,2,0\n")
    for missing in ("nan", "zero"):
        layout = open_stream(tmp_path / "rows.csv", target="y", missing=missing).layout
        layout["columns"] = [{**each, "kind": "text"} if each["name"] == "a" else each for each in layout["columns"]]
        (block,) = open_stream(tmp_path / "rows.csv", layout=layout, missing=missing)
        assert block.X.shape[0] == 2 and block.X.nnz > 5
