"""The data sets of the experiments and their digests."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustfd import datasets
from robustfd.experiments import paper

TRAIN_SHARE = 0.7


@dataclass(frozen=True)
class Data:
    """The properties of a data set that are needed to plan experiments."""

    name: str
    n_rows: int
    n_features: int
    n_nonzeros: int
    two_classes: bool
    digest: str

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The sketch sizes m1, m2, m3 of the online experiments."""
        return paper.sizes(self.name, self.n_features)

    @property
    def is_papers(self) -> bool:
        """Whether this is the same data set as in the paper."""
        return paper.is_papers(self.name, self.n_rows, self.n_features)

    @property
    def n_train(self) -> int:
        """The number of training rows. The others are the test set."""
        return int(TRAIN_SHARE * self.n_rows)


@lru_cache(maxsize=4)
def rows(name: str) -> tuple[Any, NDArray[Any]]:
    """Return X and y of a data set."""
    x, y = datasets.load(name)
    return (sp.csr_array(x) if sp.issparse(x) else x), y


def describe(name: str) -> Data:
    """Load a data set and return its description."""
    name = datasets.info(name).name
    x, y = rows(name)
    parts = (x.data, x.indices, x.indptr) if sp.issparse(x) else (x,)
    nonzeros = x.nnz if sp.issparse(x) else x.size
    two = bool(np.isin(y, (-1.0, 1.0)).all())
    return Data(name, x.shape[0], x.shape[1], int(nonzeros), two, _digest((*parts, y)))


def split(name: str, order: int | None) -> tuple[Any, NDArray[Any], Any, NDArray[Any]]:
    """Return X, y of 70 % of the rows for training and X, y of 30 % for testing.

    The rows are in the order of the file if `order` is None, and shuffled with the seed `order` otherwise.
    """
    x, y = rows(name)
    n = int(TRAIN_SHARE * len(y))
    if order is None:
        return x[:n], y[:n], x[n:], y[n:]
    p = np.random.default_rng(order).permutation(len(y))
    return x[p[:n]], y[p[:n]], x[p[n:]], y[p[n:]]


def _digest(arrays: Iterable[NDArray[Any]]) -> str:
    h = hashlib.sha256()
    for array in arrays:
        h.update(f"{array.dtype}{array.shape}".encode())
        h.update(np.ascontiguousarray(array).data)
    return h.hexdigest()[:16]
