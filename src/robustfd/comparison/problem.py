"""What the learners of a comparison are given: a problem, and its rows in the forms that they take."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True)
class Problem:
    """What is to be learnt: labels 0, 1, ... of so many classes, or numbers about 0 of about size 1 if classes is 0."""

    classes: int
    features: int
    reach: float = 1.0  # the largest number among the first ones
    seed: int = 0

    @property
    def outputs(self) -> int:
        """Linear functions that it takes: one against the rest for more than two classes."""
        return self.classes if self.classes > 2 else 1

    def error_of(self, said: Any, y: Any) -> Any:
        """Return the error of each row: 1 if it was taken for another class, or the square of the difference."""
        return (said != y).astype(np.float64) if self.classes else np.square(said - y)

    def mean_error(self, total: Any) -> Any:
        """Return the share of errors, or the root of the mean square, as the mean of `error_of` has it."""
        return total if self.classes else np.sqrt(total)


class Columns:
    """How large the values of each column are so far, for learners that have to be told.

    Columns of arrays are standardised, those of sparse rows divided by their largest size. What is missing counts as
    the mean, among sparse rows as 0.
    """

    def __init__(self) -> None:
        self._scaler: Any = None

    def see(self, X: Any) -> None:
        """Take in some rows."""
        from sklearn.preprocessing import MaxAbsScaler, StandardScaler

        if self._scaler is None:
            self._scaler = MaxAbsScaler() if sp.issparse(X) else StandardScaler()
        with np.errstate(all="ignore"):
            self._scaler.partial_fit(X)

    def filled(self, X: Any) -> Any:
        """Return rows with nothing missing."""
        values = X.data if sp.issparse(X) else X
        if not (missing := np.isnan(values)).any():
            return X
        if sp.issparse(X):
            return type(X)((np.where(missing, 0.0, values), X.indices, X.indptr), shape=X.shape)
        return np.where(missing, np.nan_to_num(self._scaler.mean_), X)

    def scaled(self, X: Any) -> Any:
        """Return rows with nothing missing and all columns of about the same size."""
        with np.errstate(all="ignore"):
            return self._scaler.transform(self.filled(X))


class Scale(NamedTuple):
    """How large rows are: their usual length, and the usual size of their entries that are not 0."""

    length: float = 1.0
    entry: float = 1.0

    @classmethod
    def of(cls, X: Any) -> "Scale":
        """Return the scale of some rows, as roots of mean squares."""
        values = np.asarray(X.data if sp.issparse(X) else X, dtype=np.float64)
        total, entries = float(np.square(values).sum()), np.count_nonzero(values)
        return cls(float(np.sqrt(total / X.shape[0])), float(np.sqrt(total / entries))) if total > 0 else cls()


class Rows(NamedTuple):
    """Some rows: as they are, with nothing missing, and scaled, without and with a constant feature of usual size."""

    X: Any
    filled: Any
    scaled: Any
    with_constant: Any
    y: Any

    @classmethod
    def of(cls, X: Any, y: Any, columns: Columns, scale: Scale) -> "Rows":
        """Return the rows X with what is to be learnt of them; once columns are scaled, rows are of this scale."""
        scaled, constant = columns.scaled(X) / scale.length, np.full((X.shape[0], 1), scale.entry / scale.length)
        if sp.issparse(X):
            whole = sp.hstack([scaled, sp.csr_array(constant)], format="csr")
        else:
            whole = np.hstack([scaled, constant])
        return cls(X, columns.filled(X), scaled, whole, y)
