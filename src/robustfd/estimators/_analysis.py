"""Principal components of a sketch with certified bounds. docs/mathematics.md has the proofs."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.extmath import svd_flip

from robustfd.estimators._whole import Ritz, count_components
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch.two_sided import TwoSidedView
from robustfd.sketch.view import View, padded

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Analysis:
    """Principal components computed from a sketch. Scatter means variance times n - 1."""

    view: View
    ritz: Ritz | None
    second: bool  # whether the directions are those of the second sketch
    k: int
    scatter: Floats  # along each component
    lower: Floats  # bounds on the k + 1 largest eigenvalues of the exact scatter matrix
    upper: Floats
    certain: float  # lower bound on the scatter that all components together explain

    @classmethod
    def of(cls, sketch: Any, ritz: Ritz | None, wanted: Any) -> "Analysis":
        """Return the analysis of a sketch. `wanted` is k, a fraction of the variance, or None for all components."""
        view = sketch._leading(wanted + 1) if isinstance(wanted, int) else sketch._view
        values = view.eigenvalues if ritz is None else ritz.values
        k = count_components(values, view.squared_norm, wanted)
        lower, upper = sketch._brackets(view, k + 1)
        certain, second = view.certain, isinstance(view, TwoSidedView) and ritz is None and view.upper_explains_more(k)
        if isinstance(view, TwoSidedView) and second:
            certain = np.maximum(view.upper_lam - view.upper_rounding, 0.0)
        if ritz is not None:  # Ritz values are never above eigenvalues (Cauchy)
            certain = np.maximum(ritz.values - ritz.rounding, 0.0)
            lower = np.maximum(lower, padded(certain, k + 1))
            known = min(k + 1, len(ritz.upper))
            upper[:known] = np.minimum(upper[:known], ritz.upper[:known])
            upper = np.maximum(upper, lower)
        missing = view.alpha if ritz is None else 0.0  # estimated scatter in directions that the sketch does not keep
        scatter = np.append(values[:k], np.full(max(0, k - len(values)), missing))
        return cls(view, ritz, second, k, scatter, lower, upper, float(certain[:k].sum()))

    @cached_property
    def directions(self) -> Floats:
        """The components, with the signs that scikit-learn's `svd_flip` gives them."""
        with one_blas_thread():
            if self.ritz is not None:
                v = self.ritz.directions[: self.k]
            elif isinstance(self.view, TwoSidedView) and self.second:
                v = self.view.upper_form()[: self.k]
            else:
                v = self.view.components[: self.k]
            return np.asarray(svd_flip(None, _completed(v, self.k).copy(), u_based_decision=False)[1])

    @property
    def excess(self) -> float:
        """An upper bound on the squared projection error minus the smallest possible one."""
        return max(0.0, float(self.upper[: self.k].sum()) - self.certain)


def _completed(v: Floats, k: int) -> Floats:
    """Extend the orthonormal rows v to k orthonormal rows."""
    while len(v) < k:
        row = np.zeros(v.shape[1])
        row[np.argmin(np.einsum("ij,ij->j", v, v))] = 1.0  # squared distance from the span >= 1 - len(v) / d
        for _ in range(2):
            row -= (v @ row) @ v
        v = np.vstack([v, row / np.linalg.norm(row)])
    return v
