"""`load`, `info` and `names`: from a data set's name to its rows and labels."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustfd.datasets._errors import DatasetError
from robustfd.datasets._fetch import fetch
from robustfd.datasets._places import find, folders, how_to_get
from robustfd.datasets._rows import bundled, read_rows
from robustfd.datasets.registry import REGISTRY, Dataset, File


def names() -> list[str]:
    """Return the names of all data sets, those of the paper first."""
    return list(REGISTRY)


def info(name: str) -> Dataset:
    """Return what is known about a data set: its shape, files, addresses, checksums and labels.

    Examples
    --------
    >>> from robustfd import datasets
    >>> datasets.info("a9a").shape
    (32561, 123)
    >>> datasets.info("a9a").splits["test"].files[0].addresses
    ('https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/a9a.t',)
    """
    key = name.lower().replace("_", "-") if isinstance(name, str) else ""
    if key not in REGISTRY:
        raise DatasetError(f"There is no data set {name!r}. Those known: {', '.join(names())}.")
    return REGISTRY[key]


def load(
    name: str,
    *,
    split: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    download: bool = True,
    progress: bool = True,
) -> tuple[Any, NDArray[Any]]:
    """Return the rows and labels of a data set.

    Its files are looked for in the folder that the environment variable ROBUSTFD_DATA names, then in the cache
    (`cache_folder`); what is in neither is downloaded into the cache. Copies that end in .xz, .bz2 or .gz are read as
    they are.

    Parameters
    ----------
    name : str
        One of `names()`.
    split : {"train", "test", "all"} or None, default=None
        Which of the publisher's files. None is "train", the one that the paper uses; "test" is there for a9a, ijcnn1
        and mnist; "all" is every row, those of "train" first.
    folder : path or None, default=None
        A folder to look into and to download to, instead of the two above.
    download : bool, default=True
        Whether to download what is not there.
    progress : bool, default=True
        Whether to show, at a terminal, how far a download is.

    Returns
    -------
    X : CSR matrix or ndarray of float64
        The rows: sparse, with 32-bit indices where they fit, but dense for mnist (0 to 255), digits and breast-cancer.
    y : ndarray
        The labels: -1.0 and +1.0 for two classes, integers for more.

    Raises
    ------
    DatasetError
        For a name or split that is not known, a file that is not there and cannot be downloaded (the message says
        which file to put where), a wrong checksum, or content that does not have the right shape.

    Notes
    -----
    The checksum (sha256, of the plain content) is checked each time a file is read. Where the registry has none, that
    of the first download is kept beside it, in a file that ends in .sha256, and later reads must agree with it. Numbers
    of rows and columns are checked in any case, and another number of non-zeros gives a warning. A download that
    turns out wrong is removed. A file that was there before the call never is.

    Examples
    --------
    >>> from robustfd import datasets
    >>> X, y = datasets.load("breast-cancer")
    >>> X.shape, y[:3]
    ((569, 30), array([-1., -1., -1.]))
    """
    dataset = info(name)
    splits = _splits(dataset, split)
    if dataset.format == "scikit-learn":
        return bundled(dataset)
    places = folders(folder)
    parts = []
    for key in splits:
        files = dataset.splits[key].files
        copies = [_obtain(dataset, file, places, download=download, progress=progress) for file in files]
        parts.append(read_rows(dataset, key, copies, progress=progress))
    if len(parts) == 1:
        return parts[0]
    rows = [x for x, _ in parts]
    x = sp.csr_matrix(sp.vstack(rows)) if sp.issparse(rows[0]) else np.vstack(rows)
    return x, np.concatenate([y for _, y in parts])


def _splits(dataset: Dataset, split: str | None) -> list[str]:
    """Return the names of the splits that are meant."""
    if split == "all":
        return list(dataset.splits)
    if split is None or split in dataset.splits:
        return [split or "train"]
    choices = ", ".join(map(repr, [*dataset.splits, "all"]))
    raise DatasetError(f"{dataset.name} has no split {split!r}. Those it has: {choices}.")


def _obtain(dataset: Dataset, file: File, places: list[Path], *, download: bool, progress: bool) -> tuple[Path, bool]:
    """Return a copy of a file, and whether it was downloaded now."""
    if (path := find(file, places)) is not None:
        return path, False
    if download:
        return fetch(dataset.name, file, places, progress=progress)
    looked = " or ".join(map(str, places))
    raise DatasetError(f"{dataset.name}: {file.name} is not in {looked}. {how_to_get(file, places)}")
