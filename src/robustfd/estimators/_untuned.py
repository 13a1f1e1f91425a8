"""Base class of the classifier and the regressor without tuning parameters."""

import numbers
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from robustfd._container import Document, Tensors, plain
from robustfd._core import Judge, OneRow
from robustfd._scipy import scipy_sparse as sp
from robustfd._validation import check_choice, check_integer, random_generator
from robustfd.estimators import explain
from robustfd.estimators._cells import cells_of, first_columns, has_rows, owners_of, rows_of
from robustfd.estimators._expanded import Expanded
from robustfd.estimators._learning import nothing
from robustfd.estimators._online import OnlineEstimator
from robustfd.estimators._rows import IS_MISSING, rows_to_learn, rows_to_read, with_indicators
from robustfd.estimators._transfer import check_sizes
from robustfd.learners import expansion_transfer, progress, untuned_merging, untuned_reading
from robustfd.learners.expansion_transfer import Merged
from robustfd.learners.hessian import next_event
from robustfd.learners.rows import CsrRows, Floats
from robustfd.learners.snapshot import Parts
from robustfd.learners.untuned import SPARE, UntunedState, is_whole
from robustfd.learners.untuned_merging import with_features_at

USUAL = 0.75  # a numeric feature that more than this fraction of dicts have counts as missing in the others
FEW_ROWS = 256  # one pass over fewer rows is not enough


class UntunedEstimator(Expanded):
    """Base class of `SketchedNewtonClassifier` and `SketchedNewtonRegressor`."""

    _learned = (
        *OnlineEstimator._learned, "_model", "_calibration", "_missing", "_common_names", "_encoder", "_scale", "_ends",
        "_tracker", "_expansion", "_owners",
    )  # fmt: skip
    _takes_missing = True
    _undoes = True  # whether a call that fails leaves the model as it was
    sketch_size: Literal["auto"] | int
    shuffle: bool
    epochs: int
    intervals: bool
    _common_names: set[Any]  # names of numeric features that most dicts have

    def _check_parameters(self) -> None:
        check_choice("shuffle", self.shuffle, (True, False))
        check_integer("epochs", self.epochs, 1)
        check_choice("intervals", self.intervals, (True, False))
        check_choice("expand", self.expand, (None, "trees", "auto"))
        if self.random_state is not None:  # otherwise numpy.random need not be imported
            random_generator(self.random_state)
        if isinstance(self.sketch_size, str) and self.sketch_size == "auto":
            return
        if check_integer("sketch_size", self.sketch_size, 0) == 1:
            raise ValueError("sketch_size must be 'auto', 0 (no sketch) or an integer of at least 2, got 1.")

    @property
    def _settings(self) -> dict[str, Any]:
        """The sketch size and the loss, as the state expects them."""
        sketch = None if isinstance(self.sketch_size, str) else int(self.sketch_size)
        return {"sketch": sketch, "loss": self._number_loss()}

    def _begin(self, x: Any) -> None:
        self._model = UntunedState(x.shape[1], self._outputs, share=getattr(self, "_share", 1.0), **self._settings)
        self._missing, self._common_names = [], set()
        if self.expand is not None:
            self._expansion = self._new_expansion(first_columns(self, x))

    @abstractmethod
    def _output_labels(self) -> list[Any]:
        """Return the class or the quantile of each output, [None] if there is only one."""

    def _saved_params(self) -> Document:
        params = self.get_params(deep=False)
        if not isinstance(self.random_state, numbers.Integral):
            params["random_state"] = None  # a generator cannot be saved
        return plain({name: value for name, value in params.items() if name != "class_weight"})

    def _orders(self, n: int) -> Iterator[NDArray[np.int64] | None]:
        random = random_generator(self.random_state)
        while True:
            yield random.permutation(n) if self.shuffle else None

    def _repeats(self, passes: int, n: int) -> bool:
        return passes < max(self.epochs, 3 if self.shuffle and n < FEW_ROWS else 1)

    def _quick_rows(self) -> OneRow | None:
        """Return what learns the next dicts without a detour through Python, or None if that is not possible yet."""
        model, states = self._model, self._all_states().values()
        if self._kind != "dicts" or model.outputs > 1 or not is_whole(model.share) or self.expand is not None:
            return None
        if any(state.seen < state.first for state in states):
            return None
        if (judged := self._judge()) is None:
            return None
        left = min(next_event(state) - state.seen for state in states)
        until = min(model.seen + left, 1 << model.seen.bit_length())  # at powers of two, common names are updated
        usual = np.array(sorted(self._vocabulary[name] for name in self._common_names), np.int32)
        shares, watch = getattr(self, "_calibration", None), self._watching()
        return OneRow(model.core, self._lock, self._vocabulary, *judged, self._progress, shares, usual, until, watch)

    def _watching(self) -> tuple[Any, ...] | None:
        """Return what `OneRow` needs to do the same as `_learn_part`, if that does more than to learn."""
        return None

    @abstractmethod
    def _judge(self) -> tuple[dict[Any, int] | None, Judge, float] | None:
        """Return the places of two labels (None for regression), the loss and its level; None for other models."""

    def _learn_margins(self, x: Any, y: Any, weight: Floats, *, new: bool = True) -> Floats:
        """Learn rows, which may be new to the model or not, and return their margins."""
        margins, codes = np.empty((x.shape[0], self._model.outputs)), getattr(x, "codes", None)
        every = slice(0, x.shape[0])
        # A dict has no missing values to indicate.
        parts = [(every, x)] if isinstance(x, CsrRows) else rows_to_learn(self, x, self._widen)
        for here, rows in parts:
            mine = None if codes is None else codes[here]
            self._learn_part(rows, mine, y[here], weight[here], margins[here], new=new)
        if self._kind == "dicts" and is_time_to_count(self._model.seen):
            counts = self._model.experts.features.table["count"][1:]
            self._common_names = common_names(self._vocabulary, counts, self._model.seen)
        return margins

    def _learn_again(self, x: Any, y: Any, weight: Floats) -> None:
        self._learn_margins(x, y, weight, new=False)  # the errors on known rows say nothing about new ones

    def _learn_part(self, x: Any, codes: Any, y: Any, weight: Floats, margins: Floats, *, new: bool) -> None:
        """Learn rows, whose text has these codes, and fill their margins."""
        self._learn_some(x, codes, y, weight, margins, new=new)

    def _all_states(self) -> dict[str, UntunedState]:
        """Return the states of all learners by the names of their attributes, the predicting one first."""
        return {"_model": self._model}

    def _keep(self, x: Any) -> Callable[[], object]:
        if self._model.seen == 0 or not self._undoes:  # after an error, nobody uses a new model
            return nothing
        states: list[Any] = list(self._all_states().values())
        kept = [each.keep(x.shape[0], features_of(x, self._kind, each.d)) for each in states]
        if self.expand is not None:
            cells = cells_of(x, owners_of(self), getattr(x, "codes", None))
            states, kept = [*states, self._expansion], [*kept, self._expansion.keep(x, cells)]

        def undo() -> None:
            for each, before in zip(states, kept, strict=True):
                each.undo(before)

        return undo

    def _margins(self, x: Any) -> Floats:
        return self._with_trees(x, self._margins_of(self._model, x))

    def _margins_of(self, state: UntunedState, x: Any) -> Floats:
        if isinstance(x, CsrRows):
            return state.margins(x)
        margins = np.empty((x.shape[0], state.outputs))
        for part, rows in rows_to_read(x, self._missing):
            margins[part] = state.margins(rows)
        return margins

    def _read_encoded(self) -> None:
        """Change the model of a table to one of the rows that its encoder makes."""
        width = self._width
        del self._encoder, self.feature_names_in_
        self.n_features_in_ = width

    def contributions(self, X: Any, *, by: Literal["column", "value"] = "column", intercept: bool = False) -> Any:
        """Return what each feature adds to the prediction of each row.

        The contributions of a row plus `intercept_` sum to its `decision_function` (classifier) or `predict`
        (regressor; with `loss="poisson"` to the logarithm of it). The effect of a missing value counts as the
        contribution of its column. A regressor limits predictions to a range near the targets. In a row where it does,
        the contributions are those before the limit. With `intercept=True`, the last column has all the rest, so that
        each row sums to the prediction.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n, n_features)
            The rows.
        by : {"column", "value"}, default="column"
            For a table with text or dates: one contribution for each column of the table, or one for each value of
            text ("city=Oslo") and for each number that a date becomes.
        intercept : bool, default=False
            Whether to add a last column, "(intercept)" in a table: `intercept_`, plus the effect of the limit.

        Returns
        -------
        array, sparse array or DataFrame of shape (n, n_features)
            Sparse if X is sparse. If X is a table, a table of the same library with named columns. For more than two
            classes or several quantiles, a list with one of these for each.
        """
        found = explain.contributions(self._require_rows(), X, by=by, intercept=intercept)
        return found[0] if len(found) == 1 else found

    def contributions_one(
        self, x: Any, *, by: Literal["column", "value"] = "column", intercept: bool = False
    ) -> dict[Any, Any]:
        """Return the contributions to the prediction of one row in any format of `learn_one`, by name or index.

        A string, or a missing value, contributes to the name that it has in the dict; with `by="value"`, "name=value"
        and "name is missing" contribute by themselves. For more than two classes, or several quantiles, return a dict
        of such dicts by class or level. Before the first row it is empty.
        """
        if not self.__sklearn_is_fitted__():
            return {}
        found = explain.contributions_of_one(self, x, by=by, intercept=intercept)
        return found[0] if len(found) == 1 else dict(zip(self._output_labels(), found, strict=True))

    @property
    def effects_(self) -> Floats:
        """The typical effect of each feature on predictions, of shape (1 or n_classes, n_features + indicators).

        The effect is the weight times the root mean square of the feature (of its deviation from the mean if it is
        rarely 0) times the fraction of rows where it is not 0. The last columns are the missing-value indicators of
        `missing_columns_`.
        """
        effects = untuned_reading.effects(self._require_rows()._model)
        return np.ascontiguousarray(effects[: self._width + len(self._missing)].T)

    @property
    def missing_columns_(self) -> NDArray[np.int64]:
        """The columns that have had missing values, in the order of their first missing value."""
        return np.array(self._require_rows()._missing, np.int64)

    def _widen(self, d: int, *, growing: bool = True) -> None:
        for state in self._all_states().values():
            state.widen(d, growing=growing)
        if self.expand is not None:
            self._expansion.widen(d, self._expansion.category, growing=growing)

    # -- merging

    @property
    def share_(self) -> float:
        """The share of the prior: 1, or 1/k for one of k parts that `split` returned."""
        return self._model.share if self.__sklearn_is_fitted__() else getattr(self, "_share", 1.0)

    def _add_prior_share(self, share: float) -> None:
        if self.__sklearn_is_fitted__() and share > 0:
            for name, state in self._all_states().items():
                setattr(self, name, untuned_merging.with_more_prior(state, share))
            if self.expand is not None:
                self._expansion = expansion_transfer.with_more_prior(self._expansion, share)

    def _split_states(self, k: int, which: Sequence[int]) -> list[dict[str, Any]]:
        parts: dict[str, list[Any]] = {
            name: untuned_merging.split(state, k, which) for name, state in self._all_states().items()
        }
        if self.expand is not None:
            parts["_expansion"] = expansion_transfer.split(self._expansion, k, which)
        return [dict(zip(parts, states, strict=True)) for states in zip(*parts.values(), strict=True)]

    def _merge_states(self, other: Any) -> None:
        columns = [owners_of(model) for model in (self, other)] if self.expand is not None else []
        self.__dict__.pop("_owners", None)
        here, there, width = join_features(self, other)
        theirs = other._all_states()
        for name, mine in self._all_states().items():
            capacity = max(mine.d, theirs[name].d, width)
            one, two = (
                state if np.array_equal(places, np.arange(len(places))) else with_features_at(state, places, capacity)
                for state, places in ((mine, here), (theirs[name], there))
            )
            setattr(self, name, untuned_merging.merge(one, two, capacity))
        if self.expand is not None:
            owners = owners_of(self)
            category, moves = np.array(owners.category, bool), [owners.places_of(each) for each in columns]
            stored = [model._expansion.stored().cells for model in (self, other)]
            known = self._kind == "rows" and all(has_rows(cells, category) for cells in stored)
            after = Merged(self._model, (here, there), moves, category, self._rows_of_cells if known else None)
            self._expansion = expansion_transfer.merge(self._expansion, other._expansion, after)

    def _rows_of_cells(self, cells: Floats) -> Any:
        """Return the rows of cells, with indicators."""
        return with_indicators(rows_of(cells, self._expansion.category, self._width), self._missing)

    def _linear_model(self) -> tuple[Floats, Floats]:
        """Return weights (n_features, outputs) and intercepts (outputs,) in the units of the features."""
        weights, intercepts = untuned_reading.linear_model(self._require_rows()._model)
        return weights[: self._width], intercepts

    def _pack_states(self) -> list[tuple[Document, Tensors]]:
        (numbers, arrays), *others = (state.pack() for state in self._all_states().values())
        return [(numbers, arrays | pack_columns(self)), *others]

    def _unpack_states(self, states: list[Parts]) -> None:
        if len(states) != 1:
            raise ValueError(f"{len(states)} states")
        check = unpack_columns(self, states[0])
        self._model = UntunedState.unpack(states[0], check, **self._settings)

    def _unpack_trees(self, parts: Parts) -> None:
        """Restore the expansion by trees."""

        def unpack_state(own: Parts, front: int) -> UntunedState:
            return UntunedState.unpack(own, size_check(self, front), **self._settings)

        self._expansion = expansion_transfer.unpack(parts, self._new_expansion, unpack_state)
        category = self._expansion.category
        fits = int((~category).sum()) <= self._width
        if self._kind == "dicts":
            fits = category.tolist() == owners_of(self).category[: len(category)]
        if not fits:
            raise ValueError("the columns of trees do not fit the model")

    @property
    def hessian_(self) -> str:
        """The form of the Hessian in use: "diagonal", "exact", or "sketch" for a diagonal plus a sketch."""
        return self._require_rows()._model.form

    @property
    def experts_(self) -> dict[str, float]:
        """The share of each kind of expert in predictions; kinds that were dropped are missing."""
        return untuned_reading.shares_of_kinds(self._require_rows()._model)

    @property
    def sketch_size_(self) -> int:
        """The number of sketch rows in use, 0 without a sketch."""
        return self._model.size if self.hessian_ == "sketch" else 0

    @property
    def singular_values_(self) -> Floats:
        """The singular values of the sketch after its last shrink step; empty without a sketch."""
        return np.sqrt(self._require_rows()._model.experts.low_rank.lam)

    @property
    def drift_(self) -> dict[str, NDArray[Any]]:
        """Arrays "rows" and "share": the weight of the experts that forget, averaged since the previous entry.

        It is about 0.5 or less on a stationary stream and rises when the stream drifts.
        """
        return untuned_reading.drift(self._require_rows()._model)

    def plot_progress(self, ax: Any = None, label: str | None = None) -> Any:
        """Plot `progressive_` against the number of rows with `drift_` below, and return the axes of the former.

        With `ax` given, plot only `progressive_`, on these axes.
        """
        if ax is not None:
            return super().plot_progress(ax=ax, label=label)
        upper, lower = progress.two_panels()
        progress.plot_drift(self.drift_, lower)
        return super().plot_progress(ax=upper, label=label)


def is_time_to_count(rows: int) -> bool:
    """Return whether to count common names after so many rows: each time their number has doubled."""
    return rows & (rows - 1) == 0 and rows >= 8


def common_names(vocabulary: dict[Any, int], counts: Floats, rows: int) -> set[Any]:
    """Return the names of numeric features that most dicts have; `counts` say how often each feature occurred."""
    often = counts > USUAL * rows
    names = [name for name, j in vocabulary.items() if often[j]]
    return {name for name in names if "=" not in str(name) and not str(name).endswith(IS_MISSING)}


def features_of(x: Any, kind: str, d: int) -> NDArray[np.int32] | None:
    """Return the features that learning rows may change in a model of d features, None for all."""
    if not isinstance(x, CsrRows) and not sp.issparse(x):
        return None
    features = x.indices.astype(np.int32, copy=False)
    if kind == "rows":  # indicators of missing values may appear
        features = np.append(features, np.arange(x.shape[1], d, dtype=np.int32))
    return features


def pack_columns(model: Any) -> Tensors:
    """Return the columns with missing values, and those that most dicts have, as arrays of a file."""
    usual = [model._vocabulary[name] for name in model._common_names]
    more = {"missing": model._missing, "usual": sorted(usual)}
    return {name: np.array(some, np.int32) for name, some in more.items() if some}


def unpack_columns(model: Any, parts: Parts) -> Callable[[int, int], None]:
    """Restore these columns. Return a function that raises if numbers of features and outputs do not fit the model."""
    columns: dict[str, list[int]] = {"missing": [], "usual": []}
    for name in columns:
        if parts.has(name):
            n, most = parts.shape(name, 1)[0], model._width - 1
            columns[name] = parts.array(name, n, dtype=np.int32, least=0, most=most).tolist()
            if len(set(columns[name])) != n or model._kind != ("rows" if name == "missing" else "dicts"):
                raise ValueError(f"{name} is inconsistent")
    model._missing, names = columns["missing"], list(getattr(model, "_vocabulary", ()))
    model._common_names = {names[j] for j in columns["usual"]}
    return size_check(model)


def size_check(model: Any, front: int = 0, outputs: int | None = None) -> Callable[[int, int], None]:
    """Return a function that raises if numbers of features and outputs of a state do not fit the model.

    The rows of the state have `front` more columns, and a state of quantiles has its own number of `outputs`.
    """

    def check(d: int, found: int) -> None:
        d -= front
        if outputs is not None and found != outputs:
            raise ValueError(f"{found} outputs, not {outputs}")
        inputs = model._width + len(model._missing)
        width = d if not model._missing or d < inputs else model._width
        check_sizes(model, width, found if outputs is None else model._outputs, sparse=True)
        if d > 2 * (inputs + front) + SPARE:
            raise ValueError(f"capacity for {d} features, of which {inputs} were seen")

    return check


def join_features(model: Any, other: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Add the features of another model. Return the new indices of both models' features and their total number."""
    if model._kind == "dicts":
        names, known = dict(model._vocabulary), len(model._vocabulary)
        places = [names.setdefault(name, len(names)) for name in other._vocabulary]
        model._vocabulary, model._common_names = names, model._common_names | other._common_names
        model.n_features_in_ = max(model.n_features_in_, len(names))
        return np.arange(known), np.array(places, np.int64), model.n_features_in_
    model.n_features_in_ = max(model.n_features_in_, other.n_features_in_)
    if hasattr(model, "_encoder"):
        model._encoder = model._encoder.with_names_of(other._encoder)
    d, before = model._width, [model._missing, other._missing]
    if before[0] != before[1]:  # sorted, so the result does not depend on which model is first
        model._missing = sorted({*before[0], *before[1]})
    here, there = (np.array([*range(d), *(d + model._missing.index(j) for j in each)], np.int64) for each in before)
    return here, there, d + len(model._missing)
