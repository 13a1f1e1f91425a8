"""The public functions `load`, `info` and `names`."""

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
    """Return the names of all data sets, those of the paper first.

    See Also
    --------
    info : Return the description of a data set.
    load : Return the rows and labels of a data set.

    Examples
    --------
    >>> from robustfd import datasets
    >>> datasets.names()[:3]
    ['a9a', 'gisette', 'sido0']
    """
    return list(REGISTRY)


def info(name: str) -> Dataset:
    """Return the description of a data set: shape, files, addresses, checksums and labels.

    Parameters
    ----------
    name : str
        One of `names()`.

    Returns
    -------
    Dataset
        The entry in the registry.

    See Also
    --------
    load : Return the rows and labels of a data set.

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
        raise DatasetError(f"There is no data set {name!r}. The known ones are: {', '.join(names())}.")
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

    The function looks for the files in the folder named by the environment variable ROBUSTFD_DATA, then in the cache
    (`cache_folder`). It downloads missing files into the cache. It can read files that end in .xz, .bz2 or .gz.

    Parameters
    ----------
    name : str
        One of `names()`.
    split : {"train", "test", "all"} or None, default=None
        Which of the published files to read. None means "train", which the paper uses. a9a, ijcnn1 and mnist also have
        "test". "all" means all rows, those of "train" first.
    folder : path or None, default=None
        A folder to search and to download to, instead of the two above.
    download : bool, default=True
        Whether to download missing files.
    progress : bool, default=True
        Whether to show the progress of downloads on a terminal.

    Returns
    -------
    X : CSR matrix or ndarray of float64
        The rows: dense for mnist (0 to 255), digits and breast-cancer, and sparse otherwise, with 32-bit indices if
        they fit.
    y : ndarray
        The labels: -1.0 and +1.0 for two classes, integers for more.

    Raises
    ------
    DatasetError
        If the name or split is unknown, a file is missing and cannot be downloaded (the message states which file to
        put where), a checksum is wrong, or the content has the wrong shape.

    See Also
    --------
    info : Return the description of a data set.

    Notes
    -----
    The checksum (sha256 of the uncompressed content) is verified each time a file is read. If the registry has none,
    the checksum of the first download is stored next to the file, in a file that ends in .sha256, and later reads must
    match it. The numbers of rows and columns are always checked, and an unexpected number of non-zeros gives a warning.
    An invalid download is removed. A file that existed before the call is never removed.

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
    """Return the names of the selected splits."""
    if split == "all":
        return list(dataset.splits)
    if split is None or split in dataset.splits:
        return [split or "train"]
    choices = ", ".join(map(repr, [*dataset.splits, "all"]))
    raise DatasetError(f"{dataset.name} has no split {split!r}. Its splits are: {choices}.")


def _obtain(dataset: Dataset, file: File, places: list[Path], *, download: bool, progress: bool) -> tuple[Path, bool]:
    """Return the path of a file, and whether this call downloaded it."""
    if (path := find(file, places)) is not None:
        return path, False
    if download:
        return fetch(dataset.name, file, places, progress=progress)
    looked = " or ".join(map(str, places))
    raise DatasetError(f"{dataset.name}: {file.name} is not in {looked}. {how_to_get(file, places)}")
