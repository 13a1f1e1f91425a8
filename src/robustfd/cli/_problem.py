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


class Rows(NamedTuple):
    """Some rows: as they are, in units of their usual length, and these with a feature of value 1 behind the others."""

    X: Any
    scaled: Any
    with_one: Any
    y: Any

    @classmethod
    def of(cls, X: Any, y: Any, length: float) -> "Rows":
        """Return the rows X, usually of this length, with what is to be learnt of them."""
        scaled, one = X / length, np.ones((X.shape[0], 1))
        with_one = sp.hstack([scaled, sp.csr_array(one)], format="csr") if sp.issparse(X) else np.hstack([scaled, one])
        return cls(X, scaled, with_one, y)
