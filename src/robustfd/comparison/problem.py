"""The learning problem of a comparison, and its rows in the forms that the learners need."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True)
class Problem:
    """A classification problem with labels 0, 1, ..., or a regression on standardised targets if classes is 0."""

    classes: int
    features: int
    reach: float = 1.0  # the largest absolute value among the first targets
    seed: int = 0

    @property
    def outputs(self) -> int:
        """The number of linear functions: one per class (one-vs-rest) for more than two classes, else 1."""
        return self.classes if self.classes > 2 else 1

    def error_of(self, predicted: Any, y: Any) -> Any:
        """Return the error of each row: 1 for a wrong class, or the squared residual."""
        return (predicted != y).astype(np.float64) if self.classes else np.square(predicted - y)

    def mean_error(self, total: Any) -> Any:
        """Return the error rate, or the root mean squared error, given the mean of `error_of`."""
        return total if self.classes else np.sqrt(total)


class Columns:
    """Running scale of each column, for learners that need scaled features.

    Dense columns are standardised; sparse columns are divided by their largest absolute value. Missing values become
    the mean in dense rows and 0 in sparse rows.
    """

    def __init__(self) -> None:
        self._scaler: Any = None

    def update(self, X: Any) -> None:
        """Update the statistics with some rows."""
        from sklearn.preprocessing import MaxAbsScaler, StandardScaler

        if self._scaler is None:
            self._scaler = MaxAbsScaler() if sp.issparse(X) else StandardScaler()
        with np.errstate(all="ignore"):
            self._scaler.partial_fit(X)

    def filled(self, X: Any) -> Any:
        """Return rows with missing values filled in."""
        values = X.data if sp.issparse(X) else X
        if not (missing := np.isnan(values)).any():
            return X
        if sp.issparse(X):
            return type(X)((np.where(missing, 0.0, values), X.indices, X.indptr), shape=X.shape)
        return np.where(missing, np.nan_to_num(self._scaler.mean_), X)

    def scaled(self, X: Any) -> Any:
        """Return rows with missing values filled in and columns scaled."""
        with np.errstate(all="ignore"):
            return self._scaler.transform(self.filled(X))


class Scale(NamedTuple):
    """Typical norm of a row and typical absolute value of its non-zero entries."""

    length: float = 1.0
    entry: float = 1.0

    @classmethod
    def of(cls, X: Any) -> "Scale":
        """Return the scale of some rows as root mean squares."""
        values = np.asarray(X.data if sp.issparse(X) else X, dtype=np.float64)
        total, entries = float(np.square(values).sum()), np.count_nonzero(values)
        return cls(float(np.sqrt(total / X.shape[0])), float(np.sqrt(total / entries))) if total > 0 else cls()


class Rows(NamedTuple):
    """Rows in several forms: raw, filled, scaled, and scaled with a constant feature of typical size."""

    X: Any
    filled: Any
    scaled: Any
    with_constant: Any
    y: Any

    @classmethod
    def of(cls, X: Any, y: Any, columns: Columns, scale: Scale) -> "Rows":
        """Return rows X with targets y. `scale` is that of rows with scaled columns."""
        scaled, constant = columns.scaled(X) / scale.length, np.full((X.shape[0], 1), scale.entry / scale.length)
        if sp.issparse(X):
            whole = sp.hstack([scaled, sp.csr_array(constant)], format="csr")
        else:
            whole = np.hstack([scaled, constant])
        return cls(X, columns.filled(X), scaled, whole, y)
