"""Shapes, non-zeros and labels of the real files in ROBUSTFD_DATA."""

import os

import numpy as np
import pytest
import scipy.sparse as sp

from robustfd import datasets

pytestmark = pytest.mark.slow

FOLDER = os.environ.get("ROBUSTFD_DATA")  # read before fixtures replace it

BINARY = [
    ("a9a", "train", 451_592, 24_720, 7_841), ("a9a", "test", 225_731, 12_435, 3_846),
    ("gisette", "train", 29_729_997, 3_000, 3_000), ("sido0", "train", None, None, None),
    ("farm-ads", "train", 817_141, 1_933, 2_210), ("rcv1", "train", 1_498_952, 9_751, 10_491),
    ("real-sim", "train", 3_709_083, 50_071, 22_238), ("ijcnn1", "train", 649_870, 45_137, 4_853),
    ("ijcnn1", "test", 1_192_113, 82_989, 8_712), ("mushrooms", "train", 170_604, 3_916, 4_208),
    ("rcv1-subsets", "train", 1_784_672, 11_929, 11_836), ("w8a", "train", 579_586, 48_270, 1_479),
]  # fmt: skip


def load(name, split):
    if not FOLDER:
        pytest.skip(f"real data set {name}: ROBUSTFD_DATA is not set")
    try:
        return datasets.load(name, split=split, folder=FOLDER, download=False)
    except datasets.DatasetError as error:
        if "is not in" not in str(error):
            raise
        pytest.skip(f"real data set {name}: {str(error).partition('. To use')[0]}")


@pytest.mark.parametrize("name, split, nonzeros, negative, positive", BINARY)
def test_two_classes(name, split, nonzeros, negative, positive):
    x, y = load(name, split)
    n, d = datasets.info(name).splits[split].n_rows, datasets.info(name).n_features
    assert sp.issparse(x) and x.format == "csr" and x.shape == (n, d) and x.dtype == np.float64
    assert y.dtype == np.float64 and set(y) == {-1.0, 1.0}
    if nonzeros is not None:
        assert (x.nnz, (y < 0).sum(), (y > 0).sum()) == (nonzeros, negative, positive)
    if name in ("a9a", "farm-ads"):
        assert (x.data == 1).all()


def test_news20_has_raw_counts_and_twenty_classes():
    x, y = load("news20", None)
    assert x.shape == (15_935, 62_061) and x.nnz == 1_272_569 and x.min() == 0 and (x.data == np.rint(x.data)).all()
    assert y.dtype == np.int64 and set(y) == set(range(1, 21))


@pytest.mark.parametrize("split, n", [("train", 60_000), ("test", 10_000)])
def test_mnist_is_dense_from_0_to_255(split, n):
    x, y = load("mnist", split)
    assert x.shape == (n, 784) and x.dtype == np.float64 and x.min() == 0 and x.max() == 255
    assert y.dtype == np.int64 and set(y) == set(range(10))
