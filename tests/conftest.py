"""What every test shares: one BLAS thread, hypothesis profiles, the real data sets."""

from __future__ import annotations

import os

# Before numpy is imported: with several pytest workers, threads of BLAS only get in each other's way.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from hypothesis import HealthCheck, settings
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.datasets import load_svmlight_file

from tests.pairs import others

# No deadline and no complaint about slow examples: the machine may be busy, and first examples import modules.
settings.register_profile(
    "default",
    deadline=None,
    max_examples=40,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
# Of `make test`. A test that needs more or fewer examples takes a multiple of this number.
settings.register_profile("short", settings.get_profile("default"), max_examples=10)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

MNIST_ROWS = 10_000


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their marks
def pytest_collection_modifyitems(items):
    """Mark as slow what `make test` leaves out.

    These are tests with real data, most of a product of parameters, and scikit-learn's checks of similar classes.
    """
    for item in items:
        if "data_path" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
    parametrized = [item for item in items if hasattr(item, "callspec") and not item.get_closest_marker("slow")]
    found = [(item, (item.nodeid.split("[")[0], tuple(item.callspec._idlist))) for item in parametrized]
    left_out = others(key for _, key in found)
    first: dict[tuple[str, bool], str] = {}
    for item, key in found:
        estimator = item.callspec.params.get("estimator") if "check" in item.callspec.params else None
        if estimator is None:
            slow = key in left_out
        else:  # the first classifier and the first other estimator of each test
            slow = first.setdefault((key[0], is_classifier(estimator)), repr(estimator)) != repr(estimator)
        if slow:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def data_path() -> Callable[[str], Path]:
    """Return the function from a data set's name to its .xz file in ROBUSTFD_DATA; absent data is a skip."""

    def find(name: str) -> Path:
        folder = os.environ.get("ROBUSTFD_DATA")
        if not folder:
            pytest.skip(f"real data set {name}: ROBUSTFD_DATA is not set")
        path = Path(folder) / f"{name}.xz"
        if not path.is_file():
            pytest.skip(f"real data set {name}: {path} does not exist")
        return path

    return find


def _read_only(X):
    """Return X with its buffers locked: a data set is shared by all tests, and no input may be written to."""
    for buffer in (X.data, X.indices, X.indptr) if sparse.issparse(X) else (X,):
        buffer.setflags(write=False)
    return X


def _load_svmlight(path: Path, n_features: int):
    with lzma.open(path) as file:
        X, y = load_svmlight_file(file, n_features=n_features)
    return _read_only(X), _read_only(y)


def _load_idx(path: Path, n_rows: int) -> np.ndarray:
    """Return the first rows of an IDX file of bytes, one flat row for each item."""
    with lzma.open(path) as file:
        n_dims = file.read(4)[3]
        shape = np.frombuffer(file.read(4 * n_dims), dtype=">i4")
        width = int(np.prod(shape[1:]))
        n_rows = min(n_rows, int(shape[0]))
        return np.frombuffer(file.read(n_rows * width), dtype=np.uint8).reshape(n_rows, width)


@pytest.fixture(scope="session")
def a9a(data_path):
    """X (csr, 32561 x 123, all ones) and y (-1, +1)."""
    return _load_svmlight(data_path("a9a"), 123)


@pytest.fixture(scope="session")
def farm_ads(data_path):
    """X (csr, 4143 x 54877, all ones) and y (-1, +1)."""
    return _load_svmlight(data_path("farm-ads-vect"), 54_877)


@pytest.fixture(scope="session")
def mnist(data_path):
    """X (float64, the first MNIST_ROWS rows x 784, values 0 to 255) and y (0 to 9)."""
    X = _load_idx(data_path("train-images-idx3-ubyte"), MNIST_ROWS).astype(np.float64)
    y = _load_idx(data_path("train-labels-idx1-ubyte"), MNIST_ROWS).ravel().astype(np.int64)
    return _read_only(X), _read_only(y)


@pytest.fixture(scope="session")
def connectus(data_path):
    """X (csr array, transposed: 394792 x 512, all ones) and None, as there are no labels."""
    with lzma.open(data_path("connectus.mat")) as file:
        problem = scipy.io.loadmat(file)["Problem"]
    return _read_only(sparse.csr_array(problem["A"][0, 0].T)), None
