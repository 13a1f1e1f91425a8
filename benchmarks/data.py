"""Real data sets for the benchmarks, from the folder that ROBUSTFD_DATA names."""

import lzma
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_svmlight_file

LIBSVM = {"a9a": ("a9a", 123), "farm-ads": ("farm-ads-vect", 54877), "ijcnn1": ("ijcnn1.trn", 22),
          "mushrooms": ("mushrooms", 112), "news20": ("news20", 62061)}  # fmt: skip


def folder() -> Path | None:
    """Return the folder, or None if there is none."""
    path = Path(os.environ.get("ROBUSTFD_DATA", "nowhere"))
    return path if path.is_dir() else None


@cache
def load(name: str) -> tuple[Any, Any]:
    """Return rows and labels: -1 and +1, or classes for mnist and news20."""
    path = folder()
    if path is None:
        raise FileNotFoundError("Set ROBUSTFD_DATA to a folder with the data sets (see README).")
    if name == "mnist":
        images, labels = (
            np.frombuffer(lzma.decompress((path / f"train-{part}-ubyte.xz").read_bytes()), np.uint8)
            for part in ("images-idx3", "labels-idx1")
        )
        return images[16:].reshape(-1, 784) / 255.0, labels[8:].astype(int)
    file, d = LIBSVM[name]
    with lzma.open(path / f"{file}.xz") as stream:
        x, y = load_svmlight_file(stream, n_features=d)
    if name == "news20":
        return x.tocsr(), y.astype(int)
    return x.tocsr(), np.where(y == (1 if name != "mushrooms" else 2), 1.0, -1.0)
