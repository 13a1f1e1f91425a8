"""Contents of the registry, lookup by name, and the folders that are searched."""

import sys
from pathlib import Path

import numpy as np
import pytest

from robustfd import datasets
from tests.datasets.small import files, rows_and_labels, same, shrink_registry

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
        assert bool(file.addresses) == (name != "rcv1-subsets")  # made by hand, see docs/datasets.md
        assert all(address.startswith("https://") for address in file.addresses)
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
    with pytest.raises(datasets.DatasetError, match="a9a, gisette, sido0, .*breast-cancer") as caught:
        datasets.load(name)
    assert isinstance(caught.value, OSError) and isinstance(caught.value, ValueError)


@pytest.mark.parametrize("name, split", [("mushrooms", "test"), ("digits", "test"), ("a9a", "validation")])
def test_unknown_split_is_an_error_that_lists_the_splits(name, split):
    with pytest.raises(datasets.DatasetError, match=f"{name} has no split '{split}'.*'train'.*'all'"):
        datasets.load(name, split=split)


@pytest.mark.parametrize("name, n, d, classes", [("digits", 1797, 64, range(10)), ("breast_cancer", 569, 30, (-1, 1))])
@pytest.mark.parametrize("split", [None, "train", "all"])
def test_two_data_sets_need_nothing(name, n, d, classes, split, cache):
    x, y = datasets.load(name, split=split, download=False)
    assert x.shape == (n, d) and x.dtype == np.float64 and sorted(set(y)) == list(classes)
    assert not cache.exists()


# ------------------------------------------------------------------ folders


@pytest.fixture
def two(monkeypatch):
    """Return two versions of real-sim, as files and as rows. The registry has no checksum and matches both."""
    versions = []
    for seed in (0, 1):
        x, y = rows_and_labels("real-sim", seed=seed)
        x[:, :-1] += 10  # no zeros, so both have the same number of non-zeros
        versions.append((files("real-sim", x, y)[0], (x, y)))
    shrink_registry(monkeypatch, "real-sim", [b""], versions[0][1][0], checksum=False)
    return versions


def test_the_variable_goes_before_the_cache(two, cache, tmp_path, monkeypatch):
    cache.mkdir(parents=True)
    (cache / "real-sim").write_bytes(two[0][0])
    assert same(datasets.load("real-sim"), two[0][1])
    monkeypatch.setenv("ROBUSTFD_DATA", str(tmp_path))
    assert same(datasets.load("real-sim"), two[0][1])  # the folder is still empty
    (tmp_path / "real-sim").write_bytes(two[1][0])
    assert same(datasets.load("real-sim"), two[1][1])
    assert {path.name for path in tmp_path.iterdir()} == {"home", "real-sim"}  # nothing else is written there


def test_folder_goes_instead_of_both(two, tmp_path, monkeypatch):
    (tmp_path / "real-sim").write_bytes(two[0][0])
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("ROBUSTFD_DATA", str(tmp_path))
    with pytest.raises(datasets.DatasetError, match="real-sim is not in .*other"):
        datasets.load("real-sim", folder=tmp_path / "other", download=False)
    (tmp_path / "other" / "real-sim").write_bytes(two[1][0])
    assert same(datasets.load("real-sim", folder=str(tmp_path / "other")), two[1][1])


def test_without_download_the_error_says_which_file_to_put_where(tmp_path, monkeypatch, cache):
    monkeypatch.setenv("ROBUSTFD_DATA", str(tmp_path / "mine"))
    with pytest.raises(datasets.DatasetError) as caught:
        datasets.load("sido0", download=False)
    for part in ("sido0_train.data", "sido0_train.data.xz", "sido0_text.zip", str(tmp_path / "mine"), str(cache),
                 "ROBUSTFD_DATA", "https://www.causality.inf.ethz.ch/data/sido0_text.zip"):  # fmt: skip
        assert part in str(caught.value)
    assert not cache.exists()


@pytest.mark.parametrize(
    "platform, variable, end",
    [
        ("linux", "XDG_CACHE_HOME", "cache/robustfd/datasets"),
        ("linux", None, "home/.cache/robustfd/datasets"),
        ("linux", "relative", "home/.cache/robustfd/datasets"),
        ("darwin", None, "home/Library/Caches/robustfd/datasets"),
        ("win32", "LOCALAPPDATA", "cache/robustfd/Cache/datasets"),
        ("win32", None, "home/AppData/Local/robustfd/Cache/datasets"),
    ],
)
def test_cache_is_where_the_platform_has_it(platform, variable, end, tmp_path, monkeypatch):
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    if variable == "relative":
        monkeypatch.setenv("XDG_CACHE_HOME", "here")
    elif variable:
        monkeypatch.setenv(variable, str(tmp_path / "cache"))
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    monkeypatch.setattr(sys, "platform", platform)
    assert datasets.cache_folder() == tmp_path / end


def test_no_home_is_an_error(monkeypatch):
    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", home)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(datasets.DatasetError, match="no place for a cache.*folder="):
        datasets.load("a9a", download=False)
