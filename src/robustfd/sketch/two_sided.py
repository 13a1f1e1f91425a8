"""Two shrink rules over the same rows: one gives directions and lower bounds of A'A, the other upper bounds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from robustfd.linalg.decompose import shrunk_count
from robustfd.sketch.engine import Engine, Route, State
from robustfd.sketch.frequent_directions import _FrequentDirections, documented
from robustfd.sketch.prepared import PreparedBatch
from robustfd.sketch.rows import TINY, Contents, Floats, Queue
from robustfd.sketch.view import View, padded, unit_rows

OWN = ("b", "lam", "delta", "rounding")  # what the second rule does not share with the first
BETA = 0.2  # share of the values that a shrink step of the first rule reduces


@dataclass(frozen=True)
class TwoSidedState(State):
    """The state of the first rule, plus the B of the second. Queue, mean and norm are common to both."""

    ARRAYS: ClassVar[dict[str, str]] = State.ARRAYS | {"upper_b": "q d", "upper_lam": "q"}
    LEAST: ClassVar[dict[str, float]] = State.LEAST | {"upper_lam": TINY}

    upper_b: Any  # as `b`
    upper_lam: Floats
    upper_delta: float
    upper_rounding: float

    @classmethod
    def empty(cls, d: int, center: bool) -> Self:
        """Return the state before any row."""
        state = State.empty(d, center)
        return cls.of(state, state)

    @classmethod
    def of(cls, lower: State, upper: State) -> Self:
        """Return two states of the same rows as one."""
        return cls(**vars(lower), **{f"upper_{name}": getattr(upper, name) for name in OWN})

    @property
    def lower(self) -> State:
        """The state of the first rule."""
        return State(**{field.name: getattr(self, field.name) for field in fields(State)})

    @property
    def upper(self) -> State:
        """The state of the second rule."""
        return replace(self.lower, **{name: getattr(self, f"upper_{name}") for name in OWN})

    def with_b(self, *, overwrite: bool) -> Self:
        """Return the state with both B formed."""
        return replace(self, b=self.b(overwrite=overwrite), upper_b=self.upper_b(overwrite=overwrite))

    def faded(self, factor: float) -> Self:
        """Return the state with all sums multiplied by `factor`. The mean does not change."""
        return self if factor == 1.0 else type(self).of(self.lower.faded(factor), self.upper.faded(factor))


@dataclass(frozen=True)
class TwoSidedEngine(Engine):
    """An engine with two rules: its own, and that of frequent directions, which reduces all m values."""

    @property
    def _rules(self) -> tuple[Engine, Engine]:
        first, second = (Engine(self.m, self.buffer_size, j, self.solver) for j in (self.j, self.m))
        return first, second

    def _route(self, state: State, queue: Queue) -> Route:
        route = super()._route(state, queue)
        # Both rules can share the products of rows that are processed together, which dominate the cost.
        fits = self.solver != "svd" and self.buffer_size <= state.b.shape[1]
        return "dense" if route == "separate" and fits else route

    def _run_batched(self, state: State, new: PreparedBatch, cuts: Sequence[int], *, sparse: bool) -> State | None:
        assert isinstance(state, TwoSidedState)
        first, second = self._rules
        lower = first._run_batched(state.lower, new, cuts, sparse=sparse)
        upper = second._run_batched(state.upper, new, cuts, sparse=sparse)
        return None if lower is None or upper is None else TwoSidedState.of(lower, upper)

    def _shrink(self, state: State, new: PreparedBatch) -> State:
        assert isinstance(state, TwoSidedState)
        first, second = self._rules
        return TwoSidedState.of(first._shrink(state.lower, new), second._shrink(state.upper, new))

    def merge(self, one: Contents, two: Contents) -> State:
        """Return the sketch of the union, merging each rule separately."""
        lower, upper = self._rules
        return TwoSidedState.of(
            lower.merge(one._replace(state=one.state.lower), two._replace(state=two.state.lower)),
            upper.merge(one._replace(state=one.state.upper), two._replace(state=two.state.upper)),
        )


@dataclass(frozen=True, kw_only=True)
class TwoSidedView(View):
    """A view of the first rule, plus the spectrum and certificate of the second."""

    upper_lam: Floats
    upper_delta: float
    upper_rounding: float
    upper_form: Callable[[], Floats]  # returns the directions of the second rule

    def upper_explains_more(self, k: int) -> bool:
        """Return whether the first k directions of the second rule certainly explain more than those of the first.

        This happens when new directions become dominant late in a stream, because the first rule adapts more slowly.
        """
        more, off = self.upper_lam[:k] - self.upper_rounding, self.rounding
        return bool(np.maximum(more, 0.0).sum() > (self.lam[:k] + off).sum())

    @property
    def eigenvalues(self) -> Floats:
        """The larger of the lower bounds of the two rules."""
        return np.maximum(self.lam, padded(self.upper_lam, len(self.lam))) + self.alpha

    def bracket_eigenvalues(self, count: int) -> tuple[Floats, Floats]:
        """Return the tighter bounds of the two rules."""
        lam, other = padded(self.floor_lam, count), padded(self.upper_lam, count)
        delta = self.ceiling_alpha - self.floor_alpha
        low = np.maximum(np.maximum(lam - self.rounding, other - self.upper_rounding), 0.0)
        high = np.minimum(lam + delta + self.rounding, other + self.upper_delta + self.upper_rounding)
        # The eigenvalues sum to ||A||_F^2, so each is at most that minus the lower bounds of the others.
        left = self.squared_norm + self.rounding - (low.sum() - low)
        return low + self.floor_alpha, np.maximum(np.minimum(high, left), low) + self.floor_alpha


@documented(
    attributes="""upper_error_bound_ : float
        Delta of the second rule. Up to rounding, no interval of `bracket_eigenvalues` is longer.
    """
)
class TwoSidedFrequentDirections(_FrequentDirections):
    """Two sketches of the same rows in one pass, for principal components with certified variances.

    The first, P, is `ParameterizedFrequentDirections` with beta = 0.2. Its shrink steps do not reduce the largest
    directions, so these are accurate. The second, F, is `FrequentDirections`, which has the better error bound. Since
    both satisfy B'B <= A'A <= B'B + Delta I,

        max(lambda_i(P'P), lambda_i(F'F)) <= lambda_i(A'A) <= min(lambda_i(P'P) + Delta_P, lambda_i(F'F) + Delta_F)

    for every i. `bracket_eigenvalues` returns these bounds. No interval is longer than Delta_F, which is at most ||A -
    A_k||_F^2 / (m - k) for every k < m, and most are much shorter. `sketch_`, `components_`, `second_moment()` and
    `error_bound_` are those of the first sketch. Both share the queued rows and their products, so memory is
    (buffer_size + 2 sketch_size) n_features numbers, and the time is 1.5 to 2 times that of one sketch.

    {parameters}

    See Also
    --------
    ParameterizedFrequentDirections : The first sketch alone.
    FrequentDirections : The second sketch alone.
    SketchedPCA : The estimator that uses this sketch.

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd import TwoSidedFrequentDirections
    >>> A = np.random.default_rng(0).standard_normal((1000, 30)) / np.arange(1, 31)
    >>> sketch = TwoSidedFrequentDirections(sketch_size=12).fit(A)
    >>> lower, upper = sketch.bracket_eigenvalues()
    >>> truth = np.linalg.eigvalsh(A.T @ A)[::-1][: len(lower)]
    >>> bool(np.all((lower <= truth) & (truth <= upper)))
    True
    """

    _state_type: ClassVar[type[State]] = TwoSidedState

    def _shrunk_count(self) -> int:
        return shrunk_count(self.sketch_size, BETA)

    def _engine(self) -> TwoSidedEngine:
        return TwoSidedEngine(**vars(super()._engine()))

    def _continue_from(self, state: State, rows: int, *, single: bool) -> None:
        """Replace the rows seen by a summary of them that satisfies B'B <= A'A <= B'B + Delta I.

        It serves as both sketches. Later rows update the two by their own rules.
        """
        self._check_parameters()
        self._state, self._queue, self._tail, self._cached = TwoSidedState.of(state, state), Queue(), 1.0, None
        self._n_seen, self._single, self.n_features_in_ = rows, single, state.b.shape[1]
        self._seen_structure = self._structural_parameters()

    def _view_of(self, state: State) -> TwoSidedView:
        assert isinstance(state, TwoSidedState)
        return TwoSidedView(
            **vars(super()._view_of(state)),
            upper_lam=state.upper_lam,
            upper_delta=state.upper_delta,
            upper_rounding=state.upper_rounding,
            upper_form=lambda: unit_rows(state.upper.rows, state.upper_lam, fresh=callable(state.upper_b)),
        )

    @property
    def upper_error_bound_(self) -> float:
        """Delta of the second rule, rounding included."""
        view = self._view
        assert isinstance(view, TwoSidedView)
        return view.upper_delta + view.upper_rounding
