"""Small files in the formats of missing data sets, and a registry that accepts them."""

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from robustfd.datasets.registry import REGISTRY
from tests.datasets.small import files

ROWS = 150
FEATURES = {"gisette": 40, "sido0": 40, "rcv1": 120, "real-sim": 120}


def rows_of(name):
    """Return random sparse rows, and labels that depend on them."""
    rng, shape = np.random.default_rng(len(name)), (ROWS, FEATURES[name])
    X = np.where(rng.random(shape) < 0.3, rng.integers(1, 4, shape), 0) / 4
    return X, np.where(X @ rng.standard_normal(shape[1]) > 0, 1.0, -1.0)


def write(folder: Path) -> None:
    """Write the files of each data set under their published names."""
    for name in FEATURES:
        for file, content in zip(REGISTRY[name].splits["train"].files, files(name, *rows_of(name))):
            (folder / file.name).write_bytes(content)


def expect_small_ones() -> None:
    """Make the registry expect files of these shapes."""
    for name, d in FEATURES.items():
        split = replace(REGISTRY[name].splits["train"], n_rows=ROWS, n_nonzeros=None)
        REGISTRY[name] = replace(REGISTRY[name], n_features=d, splits=MappingProxyType({"train": split}))
