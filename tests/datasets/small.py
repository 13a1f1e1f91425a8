"""Small files in the format of each data set, and matching registry entries."""

import hashlib
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from robustfd.datasets import info
from robustfd.datasets.registry import REGISTRY, Split

FILE_SETS = [name for name in REGISTRY if info(name).format != "scikit-learn"]


def rows_and_labels(name: str, n: int = 12, seed: int = 0):
    """Return X (dense) and y as `load` should return them, in a narrow version of a data set."""
    dataset, rng = info(name), np.random.default_rng(seed)
    d = 9
    if dataset.format == "idx":
        return rng.integers(0, 256, (n, d)).astype(float), rng.integers(0, 10, n)
    x = rng.integers(-3, 4, (n, d)) / (1 if name == "sido0" else 8)
    x[:, -1] = 0  # the last column is empty, so the width must come from the registry
    if name == "sido0":
        x = (x > 1).astype(float)
        x[0, -1] = 1
    y = rng.integers(1, 21, n) if dataset.labels is None else rng.choice([-1.0, 1.0], n)
    return x, y


def files(name: str, x, y) -> list[bytes]:
    """Return the contents of the files that publish X and y."""
    dataset = info(name)
    if dataset.labels is not None:
        back = {value: label for label, value in dataset.labels.items()}
        y = np.array([back[value] for value in y])
    if dataset.format == "libsvm":
        lines = [f"{t:g} " + " ".join(f"{j + 1}:{v:g}" for j, v in enumerate(row) if v) for row, t in zip(x, y)]
        return ["".join(line + "\n" for line in lines).encode()]
    if dataset.format == "table":
        lines = [" ".join(f"{v:g}" for v in row) + " \n" for row in x]
        return ["".join(lines).encode(), "".join(f"{t:g}\n" for t in y).encode()]
    n, d = x.shape
    head = b"\0\0\x08\x03" + b"".join(k.to_bytes(4, "big") for k in (n, 3, d // 3))
    return [
        head + x.astype(np.uint8).tobytes(),
        b"\0\0\x08\x01" + n.to_bytes(4, "big") + y.astype(np.uint8).tobytes(),
    ]


def shrink_registry(
    monkeypatch, name: str, contents: list[bytes], x, *, address=None, checksum=True, size=False, split="train"
):
    """Replace the registry entry of a data set by one that describes these contents. Return the new files."""
    dataset = info(name)
    new = tuple(
        replace(
            file,
            addresses=tuple(address(a) for a in file.addresses) if address else file.addresses,
            sha256=hashlib.sha256(content).hexdigest() if checksum else None,
            size=len(content) if size else file.size,
        )
        for file, content in zip(dataset.splits[split].files, contents)
    )
    nonzeros = None if dataset.format == "idx" else np.count_nonzero(x)
    splits = {**dataset.splits, split: Split(len(x), new, nonzeros)}
    monkeypatch.setitem(REGISTRY, name, replace(dataset, n_features=x.shape[1], splits=splits))
    return new


def same(found, expected) -> bool:
    """Return whether two pairs of rows and labels are equal. The first may be sparse."""
    x = found[0].toarray() if sp.issparse(found[0]) else found[0]
    return np.array_equal(x, expected[0]) and np.array_equal(found[1], expected[1])
