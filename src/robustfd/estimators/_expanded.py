"""Curves and interactions of the untuned estimators: predictions with trees, what they are made of, pictures."""

import copy
import numbers
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from robustfd.estimators._cells import Owners, cells_of, owners_of
from robustfd.estimators._online import OnlineEstimator
from robustfd.estimators._rows import rows_to_read
from robustfd.learners import forest, progress
from robustfd.learners.expansion import Expansion, Store
from robustfd.learners.experts import NumberLoss
from robustfd.learners.rows import CsrRows, Floats
from robustfd.learners.untuned import UntunedState

MOST_PAIRS = 20  # pairs of columns in `interactions_`


class Expanded(OnlineEstimator):
    """An estimator of one linear learner, `_model`, with an expansion by trees if `expand` is not None."""

    _readers: ClassVar[frozenset[str]] = OnlineEstimator._readers | {"expansion_", "interactions_", "plot_effect"}
    expand: Literal["trees", "auto"] | None
    random_state: Any
    _model: UntunedState
    _missing: list[int]  # columns that have had missing values, in the order of their indicator features
    _expansion: Expansion  # only with `expand`
    _owners: Owners  # only of dicts, with `expand`

    def _number_loss(self) -> NumberLoss | None:
        """Return the loss of a regressor, or None for a classifier."""
        return None

    def _new_expansion(self, category: NDArray[np.bool_]) -> Expansion:
        """Return an expansion by trees with these columns, which are numbers or categories."""
        seed = int(self.random_state) if isinstance(self.random_state, numbers.Integral) else 0
        return Expansion(category, self._outputs, self._number_loss(), seed=seed, always=self.expand == "trees")

    @property
    def _has_trees(self) -> bool:
        return self.expand is not None and bool(self._expansion.states)

    def _learn_some(
        self, x: Any, codes: Any, y: Any, weight: Floats, margins: Floats, *, new: bool, readings: Floats | None = None
    ) -> None:
        """Learn rows with their indicators, and fill in their margins, and what reading them would have returned.

        Known rows do not change the shares of the experts: they would favour experts that remember them.
        """
        if self.expand is not None:
            owners = owners_of(self)
            self._expansion.widen(self._model.d, np.array(owners.category, bool), growing=True)
            cells = cells_of(x, owners, codes)
            if new:
                return self._expansion.learn(self._model, x, cells, y, weight, margins, readings)
            return self._expansion.learn_again(self._model, x, cells, y, weight, margins)
        if new:
            self._model.learn(x, y, weight, margins, readings)
        else:
            self._model.learn_known(x, y, weight, margins)

    def _with_trees(self, x: Any, margins: Floats) -> Floats:
        """Return the margins of rows, given those of the linear learner, which may change in place."""
        if not self._has_trees:
            return margins
        owners, codes = owners_of(self), getattr(x, "codes", None)
        parts = [(slice(0, len(margins)), x)] if isinstance(x, CsrRows) else rows_to_read(x, self._missing)
        for here, rows in parts:
            cells = cells_of(rows, owners, None if codes is None else codes[here])
            margins[here] = self._expansion.margins(rows, cells, margins[here])
        return margins

    def _complete_fit(self) -> None:
        if self.expand is not None:
            self._expansion.complete(self._model)

    @property
    def expansion_(self) -> dict[str, float]:
        """The share of each learner in predictions: "linear", and "sums" and "leaves" of trees if they are in use."""
        self._require_rows()
        if not self._has_trees:
            return {"linear": 1.0}
        linear, sums, leaves, both = self._expansion.steady.tolist()
        return {"linear": linear, "sums": sums + both / 2.0, "leaves": leaves + both / 2.0}

    @property
    def interactions_(self) -> dict[Any, float]:
        """The shares of columns, and of the 20 strongest pairs of columns, in the gains of all splits of the trees.

        The gain of a split counts for its column, and for the pair of its column and that of the split above it. Empty
        without trees.
        """
        self._require_rows()
        if not self._has_trees:
            return {}
        category, names = self._expansion.category, self._column_names()
        at = forest.offsets(category, self._outputs)
        owner = np.repeat(np.arange(len(category)), np.diff(at))
        alone, pairs = forest.importances(self._expansion.forests[0], owner)
        total = max(float(alone.sum()), 1e-300)
        found: dict[Any, float] = {
            names[k]: float(alone[k]) / total for k in np.argsort(-alone).tolist() if alone[k] > 0
        }
        strongest = sorted(pairs.items(), key=lambda item: -item[1])[:MOST_PAIRS]
        return found | {(names[a], names[b]): gain / total for (a, b), gain in strongest}

    def forget_rows(self) -> Self:
        """Drop the stored rows, which only new trees need, and return the model, whose file is then smaller.

        Predictions stay the same. The model can go on: new trees grow once there are as many later rows.
        """
        if self._require_rows().expand is not None:
            kept = copy.copy(self._expansion)
            kept.put(Store(*(array[:0] for array in kept.store)))
            kept.build = None
            self._expansion = kept
        return self

    def _column_names(self) -> list[Any]:
        """Return the names, or the numbers, of the columns of trees."""
        if self._kind == "dicts":
            return [key for key, _ in owners_of(self).places]
        if hasattr(self, "_encoder"):
            layout = self._encoder._layout
            return [*(column.name + part for column, part in layout.numbers), *(each.name for each in layout.texts)]
        return list(getattr(self, "feature_names_in_", range(len(self._expansion.category))))

    def plot_effect(self, X: Any, column: Any, ax: Any = None) -> Any:
        """Plot what a column of X adds to the predictions of its rows against its values, and return the axes.

        Parameters
        ----------
        X : array or DataFrame of shape (n, n_features)
            The rows.
        column : str or int
            The name of a column of a DataFrame, or the index of a column of an array.
        ax : matplotlib axes, optional
            Where to plot. For more than two classes, the effect is that on the first class.
        """
        found: Any = self.contributions(X)
        found = found[0] if isinstance(found, list) else found
        name = column if isinstance(column, str) else f"column {column}"
        which: Any = column if isinstance(column, str) else (slice(None), column)
        return progress.plot_effect(np.asarray(X[which]), np.asarray(found[which]), name, ax)
