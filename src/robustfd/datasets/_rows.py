"""Reading the files of a split into rows and labels, checked against the registry."""

import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustfd.datasets import _content, _formats
from robustfd.datasets._errors import DatasetError
from robustfd.datasets._progress import notify
from robustfd.datasets.registry import Dataset, File


def read_rows(
    dataset: Dataset, split: str, copies: Sequence[tuple[Path, bool]], *, progress: bool
) -> tuple[Any, NDArray[Any]]:
    """Return X and y. `copies` are (path, downloaded now) pairs. Invalid new downloads are removed."""
    files = dataset.splits[split].files
    fresh = {path for path, is_new in copies if is_new}
    try:
        contents, checksums = [], []
        for file, (path, _) in zip(files, copies):
            content, sha256 = _content.read(path, file, _parser(dataset))
            _compare_with_record(path, file, sha256)
            contents.append(content)
            checksums.append(sha256)
        x, y = contents if len(contents) == 2 else contents[0]
        x = x.astype(np.float64, copy=False)
        y = _labels(dataset, np.ravel(y.toarray() if sp.issparse(y) else y))
        _check_counts(dataset, split, x, y, copies[0][0])
    except DatasetError as error:
        for path in fresh:
            path.unlink(missing_ok=True)
        note = " The download was removed." if fresh else " The file was not changed."
        raise DatasetError(f"{dataset.name}: {error}{note}") from error
    for file, (path, _), sha256 in zip(files, copies, checksums):
        if path in fresh and file.sha256 is None:
            _record(path, file, sha256)
            notify(f"{file.name}: sha256 {sha256}, stored next to the file for later reads.", wanted=progress)
    return x, y


def bundled(dataset: Dataset) -> tuple[Any, NDArray[Any]]:
    """Return X and y of a data set that is included in scikit-learn."""
    from sklearn.datasets import load_breast_cancer, load_digits

    x, y = (load_digits if dataset.name == "digits" else load_breast_cancer)(return_X_y=True)
    return x, _labels(dataset, y)


def _parser(dataset: Dataset) -> Callable[[IO[bytes]], Any]:
    if dataset.format == "libsvm":
        return partial(_formats.read_libsvm, n_features=dataset.n_features)
    return _formats.read_idx if dataset.format == "idx" else _formats.read_table


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


def _check_counts(dataset: Dataset, split: str, x: Any, y: NDArray[Any], path: Path) -> None:
    """Raise if the numbers of rows and columns differ from the registry. Warn if the number of non-zeros differs."""
    n, d, nonzeros = dataset.splits[split].n_rows, dataset.n_features, dataset.splits[split].n_nonzeros
    if x.shape != (n, d) or len(y) != n:
        raise DatasetError(
            f"{path} should have {n} x {d} values and {n} labels, got {x.shape[0]} x {x.shape[1]} and {len(y)}."
        )
    if nonzeros is not None and x.nnz != nonzeros:
        warnings.warn(f"{path} has {x.nnz} non-zeros, not {nonzeros}. Is it another edition?", stacklevel=4)


def _record_path(path: Path, file: File) -> Path:
    return path.with_name(f"{file.name}.sha256")


def _record(path: Path, file: File, sha256: str) -> None:
    """Store a checksum next to a file, in the format of sha256sum."""
    record = _record_path(path, file)
    draft = record.with_name(f"{record.name}.{os.getpid()}")
    draft.write_text(f"{sha256}  {file.name}\n")
    os.replace(draft, record)


def _compare_with_record(path: Path, file: File, sha256: str) -> None:
    """Raise if the checksum differs from the stored one of an earlier download. The registry takes precedence."""
    record = _record_path(path, file)
    if file.sha256 is None and record.is_file():
        expected = record.read_text().split()[:1]
        if expected != [sha256]:
            wrong = _content.wrong_checksum(path, file, " ".join(expected), sha256)
            raise DatasetError(f"{wrong} The expected value is stored in {record}. Delete it to accept any content.")
