"""The public functions `load`, `info` and `names`, and the parsers of the published file formats."""

import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustfd.datasets._files import fetch, find, folders, how_to_get, read
from robustfd.datasets.registry import REGISTRY, Dataset, DatasetError, File
from robustfd.streams import open_stream

LINES_AT_ONCE = 512


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
    chosen = _splits(dataset, split)
    if dataset.format == "scikit-learn":
        from sklearn.datasets import load_breast_cancer, load_digits

        x, y = (load_digits if dataset.name == "digits" else load_breast_cancer)(return_X_y=True)
        return x, _labels(dataset, y)
    places = folders(folder)
    parts = []
    for key in chosen:
        one = dataset.splits[key]
        missing = [file for file in one.files if find(file, places) is None]
        if missing and not download:
            raise DatasetError(f"{_absent(dataset, missing[0], places)}. {how_to_get(missing[0], places)}")
        get = partial(_download, missing=missing, progress=progress) if missing else _read
        parts.append(get(dataset, key, places))
        if one.n_nonzeros is not None and (found := parts[-1][0].nnz) != one.n_nonzeros:
            edition = f"{one.files[0].name} has {found} non-zeros, not {one.n_nonzeros}. Is it another edition?"
            warnings.warn(edition, stacklevel=2)
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


def _absent(dataset: Dataset, file: File, places: Sequence[Path]) -> str:
    return f"{dataset.name}: {file.name} is not in {' or '.join(map(str, places))}"


def _download(
    dataset: Dataset, split: str, places: list[Path], *, missing: Sequence[File], progress: bool
) -> tuple[Any, NDArray[Any]]:
    """Download the missing files of a split and return X and y.

    Files are downloaded to a folder of this call, and moved to their place, atomically, after they have been read.
    """
    target, file = places[-1], missing[0]
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=target) as name:
            new = Path(name)
            for file in missing:
                at_hand = find(file, [new])  # an archive may hold two files
                if at_hand is None and (problems := fetch(file, new, progress=progress)):
                    absent, how = _absent(dataset, file, places), how_to_get(file, places)
                    raise DatasetError(f"{absent}, and could not be downloaded.{problems}\n{how}")
            rows = _read(dataset, split, places, new=new)
            for path in new.iterdir():
                os.replace(path, target / path.name)
            return rows
    except DatasetError:
        raise
    except OSError as error:
        how = how_to_get(file, places)
        raise DatasetError(f"{dataset.name}: {target} cannot be written to: {error}. {how}") from error


def _read(dataset: Dataset, split: str, places: list[Path], *, new: Path | None = None) -> tuple[Any, NDArray[Any]]:
    """Return X and y of files in the folders, checked against the registry. `new` is the folder of downloads."""
    files, contents = dataset.splits[split].files, []
    paths = [path for file in files if (path := find(file, [*places, *([new] if new else [])]))]
    try:
        for file, path in zip(files, paths):
            folder = places[-1] if path.parent == new else path.parent
            content, sha256 = read(path, file, _parser(dataset), record=folder / f"{file.name}.sha256")
            contents.append(content)
            if file.sha256 is None and path.parent == new:
                path.with_name(f"{file.name}.sha256").write_text(f"{sha256}  {file.name}\n")  # as sha256sum writes it
        x, y = contents if len(contents) == 2 else contents[0]
        x = x.astype(np.float64, copy=False)
        y = _labels(dataset, np.ravel(y.toarray() if sp.issparse(y) else y))
        n, d = dataset.splits[split].n_rows, dataset.n_features
        if x.shape != (n, d) or len(y) != n:
            got = f"{x.shape[0]} x {x.shape[1]} and {len(y)}"
            raise DatasetError(f"{paths[0]} should have {n} x {d} values and {n} labels, got {got}.")
    except DatasetError as error:
        note = " The download was removed." if new else " The file was not changed."
        raise DatasetError(f"{dataset.name}: {error}{note}") from error
    return x, y


def _labels(dataset: Dataset, published: NDArray[Any]) -> NDArray[Any]:
    """Return published labels as the labels that `load` returns."""
    if dataset.labels is None:
        return published.astype(np.int64)
    values = np.array(list(dataset.labels.values()))
    match = published[:, None] == np.array(list(dataset.labels))
    if not match.any(axis=1).all():
        stranger = published[~match.any(axis=1)][0]
        raise DatasetError(f"The labels must be {', '.join(map(str, dataset.labels))}, got {stranger:g}.")
    return values[match.argmax(axis=1)]


def _parser(dataset: Dataset) -> Callable[[IO[bytes]], Any]:
    if dataset.format == "libsvm":
        return lambda stream: _read_libsvm(stream, dataset.n_features)
    return _read_idx if dataset.format == "idx" else _read_table


def _read_libsvm(stream: IO[bytes], n_features: int) -> tuple[Any, NDArray[np.float64]]:
    """Return the rows (CSR) and labels of LIBSVM text with one-based columns."""
    rows, labels = [sp.csr_matrix((0, n_features))], [np.empty(0)]
    for x, y in open_stream(stream, format="libsvm", n_features=n_features, zero_based=False):
        rows.append(x)
        labels.append(y)
    return sp.vstack(rows, format="csr"), np.concatenate(labels)


def _read_table(stream: Iterable[bytes]) -> Any:
    """Return lines of numbers as CSR rows. The dense table is never in memory as a whole."""
    blocks = []
    lines = (line for line in stream if line.strip())
    while block := list(islice(lines, LINES_AT_ONCE)):
        blocks.append(sp.csr_matrix(np.loadtxt(block, ndmin=2)))
    if not blocks:
        raise ValueError("it has no numbers")
    return sp.vstack(blocks, format="csr")


def _read_idx(stream: IO[bytes]) -> NDArray[np.uint8]:
    """Return an IDX file of bytes as an array with one row per item."""
    head = stream.read(4)
    if head[:3] != b"\0\0\x08":
        raise ValueError(f"it is not an IDX file of bytes: it starts with {head!r}")
    shape = np.frombuffer(stream.read(4 * head[3]), dtype=">u4").astype(np.int64)
    return np.frombuffer(stream.read(), dtype=np.uint8).reshape(shape).reshape(shape[0], -1)
