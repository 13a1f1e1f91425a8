"""`load`, `info` and `names`: from a data set's name to its rows and labels."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustfd.datasets import _formats
from robustfd.datasets._errors import DatasetError
from robustfd.datasets._places import cache_folder, find, open_copy
from robustfd.datasets.registry import REGISTRY, Dataset, File, Split


def names() -> list[str]:
    """Return the names of all data sets."""
    return list(REGISTRY)


def info(name: str) -> Dataset:
    """Return what is known about a data set: shape, files, addresses, checksums, labels."""
    key = name.lower().replace("_", "-") if isinstance(name, str) else name
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
    """Return rows X and labels y of a data set."""
    dataset = info(name)
    if dataset.format == "scikit-learn":
        return _bundled(dataset)
    parts = [_read(dataset, dataset.splits[key], folder) for key in _splits(dataset, split)]
    if len(parts) == 1:
        return parts[0]
    stack = sp.vstack if sp.issparse(parts[0][0]) else np.vstack
    x = stack([x for x, _ in parts])
    return sp.csr_matrix(x) if sp.issparse(x) else x, np.concatenate([y for _, y in parts])


def _splits(dataset: Dataset, split: str | None) -> list[str]:
    """Return the splits that are meant."""
    if split is None:
        return ["train"]
    if split == "all":
        return list(dataset.splits)
    if split not in dataset.splits:
        choices = ", ".join(map(repr, [*dataset.splits, "all"]))
        raise DatasetError(f"{dataset.name} has no split {split!r}. Those it has: {choices}.")
    return [split]


def _locate(file: File, folder: str | os.PathLike[str] | None) -> Path:
    data = os.environ.get("ROBUSTFD_DATA")
    folders = [Path(folder)] if folder is not None else [*([Path(data)] if data else []), cache_folder()]
    for place in folders:
        if (path := find(file, place)) is not None:
            return path
    raise DatasetError(f"{file.name} is not in {' or '.join(map(str, folders))}.")


def _read(dataset: Dataset, split: Split, folder: str | os.PathLike[str] | None) -> tuple[Any, NDArray[Any]]:
    contents: list[Any] = []
    for file in split.files:
        with open_copy(_locate(file, folder), file) as stream:
            if dataset.format == "libsvm":
                contents.extend(_formats.read_libsvm(stream, dataset.n_features))
            elif dataset.format == "idx":
                contents.append(_formats.read_idx(stream))
            else:
                contents.append(_formats.read_table(stream))
    x, y = contents
    if dataset.format == "idx":
        x = x.astype(np.float64)
    if sp.issparse(y):
        y = y.toarray()
    return x, _labels(dataset, np.ravel(y))


def _labels(dataset: Dataset, published: NDArray[Any]) -> NDArray[Any]:
    """Return the labels as users see them."""
    if dataset.labels is None:
        return published.astype(np.int64)
    y = np.full(len(published), np.nan)
    for label, value in dataset.labels.items():
        y[published == label] = value
    return y


def _bundled(dataset: Dataset) -> tuple[Any, NDArray[Any]]:
    from sklearn.datasets import load_breast_cancer, load_digits

    x, y = (load_digits if dataset.name == "digits" else load_breast_cancer)(return_X_y=True)
    return x, _labels(dataset, y)
