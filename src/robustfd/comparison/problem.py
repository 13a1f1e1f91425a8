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
    """Some rows: as they are, of length about 1, and these with a constant feature as large as the others are."""

    X: Any
    scaled: Any
    with_constant: Any
    y: Any

    @classmethod
    def of(cls, X: Any, y: Any, scale: Scale) -> "Rows":
        """Return the rows X, usually of this scale, with what is to be learnt of them."""
        scaled, constant = X / scale.length, np.full((X.shape[0], 1), scale.entry / scale.length)
        if sp.issparse(X):
            return cls(X, scaled, sp.hstack([scaled, sp.csr_array(constant)], format="csr"), y)
        return cls(X, scaled, np.hstack([scaled, constant]), y)
