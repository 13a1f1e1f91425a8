"""Reading each file format, plain or compressed. Invalid files raise an error and are not removed."""

import bz2
import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import SGDClassifier

from robustfd import datasets
from tests.datasets.conftest import zipped
from tests.datasets.small import FILE_SETS, files, rows_and_labels, same, shrink_registry

COMPRESS = {"": bytes, ".xz": lzma.compress, ".bz2": bz2.compress, ".gz": gzip.compress}


@pytest.fixture
def put(tmp_path, monkeypatch):
    """Return a function that writes a small version of a data set to a folder and returns the expected rows."""

    def write(name, suffix="", *, split="train", seed=0, change=bytes, **options):
        x, y = rows_and_labels(name, seed=seed)
        contents = files(name, x, y)
        new = shrink_registry(monkeypatch, name, contents, x, split=split, **options)
        monkeypatch.setenv("ROBUSTFD_DATA", str(tmp_path))
        for file, content in zip(new, contents):
            (tmp_path / f"{file.name}{suffix}").write_bytes(change(COMPRESS[suffix](content)))
        return x, y

    return write


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("name", FILE_SETS)
def test_every_data_set_is_read_plain_and_compressed(put, name, suffix):
    expected = put(name, suffix)
    x, y = datasets.load(name)
    assert same((x, y), expected)
    assert x.dtype == np.float64 and sp.issparse(x) == (name != "mnist") and (name == "mnist" or x.format == "csr")
    assert y.dtype == (np.int64 if name in ("news20", "mnist") else np.float64) and y.ndim == 1
    assert name == "mnist" or x.indices.dtype == x.indptr.dtype == np.int32  # SGDClassifier accepts no other dtype


@pytest.mark.parametrize("name", ["a9a", "ijcnn1", "mnist"])
def test_splits_of_the_publisher(put, name):
    train = put(name)
    test = put(name, ".gz", split="test", seed=1)
    assert same(datasets.load(name), train) and same(datasets.load(name, split="train"), train)
    assert same(datasets.load(name, split="test"), test)
    everything = datasets.load(name, split="all")
    assert same(everything, (np.vstack([train[0], test[0]]), np.concatenate([train[1], test[1]])))
    SGDClassifier(max_iter=1, tol=None).fit(*everything)


@pytest.mark.parametrize("name, archive", [("farm-ads", "farm+ads.zip"), ("sido0", "sido0_text.zip")])
def test_zip_archive_is_read_in_place(tmp_path, monkeypatch, name, archive):
    x, y = rows_and_labels(name)
    contents = files(name, x, y)
    new = shrink_registry(monkeypatch, name, contents, x)
    members = {f"some/folder/{file.name}": content for file, content in zip(new, contents)}
    (tmp_path / archive).write_bytes(zipped({"../../evil": b"!", **members, "readme.txt": b"hello"}))
    assert same(datasets.load(name, folder=tmp_path, download=False), (x, y))
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [archive]  # nothing is unpacked


@pytest.mark.parametrize("members", [["farm-ads"], ["a/farm-ads-vect", "b/farm-ads-vect"]])
def test_zip_archive_without_one_file_of_the_name_is_an_error(tmp_path, monkeypatch, members):
    x, y = rows_and_labels("farm-ads")
    shrink_registry(monkeypatch, "farm-ads", files("farm-ads", x, y), x)
    (tmp_path / "farm+ads.zip").write_bytes(zipped(dict.fromkeys(members, b"")))
    with pytest.raises(datasets.DatasetError, match="should have one file named farm-ads-vect"):
        datasets.load("farm-ads", folder=tmp_path)


def test_large_table_is_read_in_blocks(tmp_path, monkeypatch):
    x = np.random.default_rng(0).integers(0, 2, (1300, 5)).astype(float)
    y = np.where(x[:, 0] > 0, 1.0, -1.0)
    new = shrink_registry(monkeypatch, "sido0", contents := files("sido0", x, y), x)
    for file, content in zip(new, contents):
        (tmp_path / file.name).write_bytes(content)
    assert same(datasets.load("sido0", folder=tmp_path), (x, y))


@pytest.mark.parametrize("name", FILE_SETS)
def test_wrong_checksum_is_an_error_and_the_file_stays(put, name, tmp_path):
    put(name, change=lambda content: content.replace(b"\n", b" \n") + b"\n")
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(datasets.DatasetError, match=r"wrong checksum. .*has sha256 \w{64}, expected \w{64}"):
        datasets.load(name)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize("suffix", [".xz", ".bz2", ".gz"])
@pytest.mark.parametrize(
    "change", [lambda content: content[:-9], lambda content: b"<html>" + content], ids=["cut short", "other bytes"]
)
def test_damaged_copy_is_an_error(put, suffix, change):
    put("a9a", suffix, change=change)
    with pytest.raises(datasets.DatasetError, match=f"a9a{suffix} cannot be read, or is damaged"):
        datasets.load("a9a")


SHOULD = "should have 12 x 9 values and 12 labels, got 1 x"
WRONG = {
    ("real-sim", "real-sim"): {
        b"<html>not found</html>\n": "is not valid", b"": "is not valid|should have 12 x 9",
        b"+1 1:1 2:2\n": f"{SHOULD} 9 and 1", b"+3 1:1\n": "The labels must be -1, 1, got 3",
        b"+1 1:1 10:2\n": "is not valid: real-sim, line 1: there is an index above the last",
    },
    ("sido0", "sido0_train.data"): {
        b"1 0\n1\n": "data is not valid", b"1 a\n": "data is not valid", b"\n": "is not valid: it has no numbers",
        b"1 0\n": f"data {SHOULD} 2 and 12",
    },
    ("mnist", "train-labels-idx1-ubyte"): dict.fromkeys(
        [b"", b"\0\0\x0d\x01\0\0\0\1ABCD", b"\0\0\x08\x03\0\0", b"\0\0\x08\x01\0\0\0\x0cAB",
         b"\0\0\x08\x01\0\0\0\0", b"\0\0\x08"], "train-labels-idx1-ubyte is not valid"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name, file, content, message", [(*of, *case) for of in WRONG for case in WRONG[of].items()])
def test_file_without_checksum_must_still_fit(put, tmp_path, name, file, content, message):
    put(name, checksum=False)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(datasets.DatasetError, match=message):
        datasets.load(name)
    assert (tmp_path / file).read_bytes() == content


def test_other_number_of_nonzeros_is_a_warning(put, tmp_path):
    put("rcv1", checksum=False)
    path = tmp_path / "rcv1_train.binary"
    path.write_bytes(path.read_bytes().replace(b"\n", b" 9:1\n", 1))
    with pytest.warns(UserWarning, match="non-zeros, not .*another edition") as caught:
        datasets.load("rcv1")
    assert Path(caught[0].filename) == Path(__file__)


def test_unreadable_file_is_an_error(put, tmp_path):
    put("a9a")
    (tmp_path / "a9a").unlink()
    (tmp_path / "a9a").mkdir()  # a folder does not count as a file
    with pytest.raises(datasets.DatasetError, match="a9a: a9a is not in"):
        datasets.load("a9a", download=False)
