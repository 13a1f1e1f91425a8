"""Contents of the registry, and lookup by name."""

import numpy as np
import pytest

from robustfd import datasets

PAPER = {"a9a": (32561, 123), "gisette": (6000, 5000), "sido0": (12678, 4932), "farm-ads": (4143, 54877),
         "rcv1": (20242, 47236), "real-sim": (72309, 20958)}  # fmt: skip


def test_has_the_six_data_sets_of_the_paper():
    assert {name: datasets.info(name).shape for name in datasets.names() if datasets.info(name).in_paper} == PAPER


@pytest.mark.parametrize("name", datasets.names())
def test_entry_is_complete(name):
    dataset = datasets.info(name)
    assert dataset.name == name and dataset.home.startswith("http")
    assert dataset.labels is None or set(dataset.labels.values()) == {-1.0, 1.0}
    files = [file for split in dataset.splits.values() for file in split.files]
    assert bool(files) == (dataset.format != "scikit-learn")
    for file in files:
        assert file.addresses and all(address.startswith("https://") for address in file.addresses)
        assert file.sha256 is None or (len(file.sha256) == 64 and file.size)
    assert len({file.name for file in files}) == len(files)


def test_only_four_data_sets_have_no_checksum():
    without = {n for n in datasets.names() for s in datasets.info(n).splits.values() for f in s.files if not f.sha256}
    assert without == {"gisette", "sido0", "rcv1", "real-sim"}


@pytest.mark.parametrize("spelling", ["farm-ads", "farm_ads", "Farm-Ads"])
def test_spelling_of_a_name_is_forgiven(spelling):
    assert datasets.info(spelling).name == "farm-ads"


@pytest.mark.parametrize("name", ["a9", "", None, 3, ["a9a"]])
def test_unknown_name_is_an_error_that_lists_the_names(name):
    with pytest.raises(datasets.DatasetError, match="a9a, gisette, sido0, .*breast-cancer"):
        datasets.load(name)


@pytest.mark.parametrize("name, split", [("mushrooms", "test"), ("digits", "test"), ("a9a", "validation")])
def test_unknown_split_is_an_error_that_lists_the_splits(name, split):
    with pytest.raises(datasets.DatasetError, match=f"{name} has no split '{split}'.*'train'.*'all'"):
        datasets.load(name, split=split)


def test_error_is_an_os_error_and_a_value_error():
    assert issubclass(datasets.DatasetError, OSError) and issubclass(datasets.DatasetError, ValueError)


@pytest.mark.parametrize("name, n, d, classes", [("digits", 1797, 64, range(10)), ("breast_cancer", 569, 30, (-1, 1))])
@pytest.mark.parametrize("split", [None, "train", "all"])
def test_two_data_sets_need_nothing(name, n, d, classes, split, cache):
    x, y = datasets.load(name, split=split, download=False)
    assert x.shape == (n, d) and x.dtype == np.float64 and sorted(set(y)) == list(classes)
    assert not cache.exists()
