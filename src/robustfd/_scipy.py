"""Modules of scipy that are imported on first use."""

import sys
from importlib import import_module
from typing import Any

import numpy as np


class _LazyModule:
    """A module that is imported when one of its names is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


class _Sparse(_LazyModule):
    """scipy.sparse, which is not imported to find out that something is not sparse."""

    def issparse(self, x: Any) -> bool:
        """Return whether x is a sparse matrix or array."""
        if type(x) is np.ndarray:  # the usual case
            return False
        module = sys.modules.get(self._name)
        return module is not None and bool(module.issparse(x))


scipy_linalg = _LazyModule("scipy.linalg")
scipy_sparse = _Sparse("scipy.sparse")
