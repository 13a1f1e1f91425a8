"""Two rules over the same rows: one gives directions and lower bounds of A'A, the other gives upper bounds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from robustfd.linalg.rules import shrunk_count
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch._base import View, padded, unit_rows
from robustfd.sketch._engine import Engine, Form, State
from robustfd.sketch._entering import Entrance
from robustfd.sketch._rows import Floats, Queue, Rows, Unread
from robustfd.sketch.frequent_directions import _FrequentDirections, documented

BETA = 0.2  # the part of the values that a shrink of the first rule takes from


@dataclass(frozen=True)
class TwoSidedState(State):
    """The state of the first rule, and what the second has of its own: rows, mean and norm are the same for both."""

    upper_b: Floats
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
        """Return both states of the same rows as one."""
        own = {name: getattr(lower, name) for name in State.__dataclass_fields__}
        return cls(
            **own,
            upper_b=upper.b,
            upper_lam=upper.lam,
            upper_delta=upper.delta,
            upper_rounding=upper.rounding,
        )

    @property
    def lower(self) -> State:
        """The state of the first rule."""
        return State(**{name: getattr(self, name) for name in State.__dataclass_fields__})

    @property
    def upper(self) -> State:
        """The state of the second rule."""
        second = {name: getattr(self, f"upper_{name}") for name in ("b", "lam", "delta", "rounding")}
        return replace(self.lower, **second)

    def faded(self, factor: float) -> Self:
        """Return the state after everything in it is multiplied by factor; the mean stays."""
        return self if factor == 1.0 else type(self).of(self.lower.faded(factor), self.upper.faded(factor))


@dataclass(frozen=True)
class TwoSidedEngine(Engine):
    """The engine with two rules: its own, and that of frequent directions, which takes from all m values."""

    @property
    def _rules(self) -> tuple[Engine, Engine]:
        first, second = (Engine(self.m, self.buffer_size, j, self.solver) for j in (self.j, self.m))
        return first, second

    def _form(self, state: State, queue: Queue) -> Form:
        form = super()._form(state, queue)
        # Only products of rows that are worked on together can be shared, and those are most of the work.
        fits = self.solver != "svd" and self.buffer_size <= state.b.shape[1]
        return "dense" if form == "apart" and fits else form

    @one_blas_thread()
    def _run(self, state: State, rows: Rows, cuts: Sequence[int], form: Form, *, formed: bool = True) -> State:
        assert isinstance(state, TwoSidedState)
        sides = list(zip(self._rules, (state.lower, state.upper), strict=True))
        after: list[State | None] = [None]
        if form != "apart":
            whole, sparse = Entrance(rows, state.mean, state.weight), form == "sparse"
            after = [rule._run_together(side, whole, cuts, sparse=sparse, formed=formed) for rule, side in sides]
        if after[0] is not None and after[-1] is not None:
            return TwoSidedState.of(after[0], after[-1])
        for start, stop in zip([0, *cuts], cuts, strict=False):
            new = Entrance(rows[start:stop], sides[0][1].mean, sides[0][1].weight)
            sides = [(rule, rule._shrink(side, new)) for rule, side in sides]
        return TwoSidedState.of(sides[0][1], sides[1][1])

    def merge(self, one: Unread, two: Unread) -> State:
        """Return the sketch of the union: each rule's by itself."""
        lower, upper = self._rules
        return TwoSidedState.of(
            lower.merge(one._replace(state=one.state.lower), two._replace(state=two.state.lower)),
            upper.merge(one._replace(state=one.state.upper), two._replace(state=two.state.upper)),
        )


@dataclass(frozen=True, kw_only=True)
class TwoSidedView(View):
    """A view of the first rule, with the spectrum and the certificate of the second."""

    upper_lam: Floats
    upper_delta: float
    upper_rounding: float
    upper_form: Callable[[], Floats]  # returns the directions of the second rule

    def upper_explains_more(self, k: int) -> bool:
        """Return whether the k first directions of the second rule certainly explain more than those of the first.

        That is so where new directions become the largest late in a stream: the first rule is slow to let them in.
        """
        more, off = self.upper_lam[:k] - self.upper_rounding, self.rounding
        return bool(np.maximum(more, 0.0).sum() > (self.lam[:k] + off).sum())

    @property
    def eigenvalues(self) -> Floats:
        """The larger of the lower bounds of the two rules."""
        return np.maximum(self.lam, padded(self.upper_lam, len(self.lam))) + self.alpha


@documented(
    attributes="""upper_error_bound_ : float
        Delta of the second rule: no interval of `bracket_eigenvalues` is longer, but for rounding.
    """
)
class TwoSidedFrequentDirections(_FrequentDirections):
    """Two sketches of the same rows in one pass, for principal components with certified variances.

    The first, P, is that of `ParameterizedFrequentDirections` with beta = 0.2. Its shrinks take nothing from the
    largest directions, so that these, and what it says about them, are accurate. The second, F, is that of
    `FrequentDirections`, which has the better bound. With B'B <= A'A <= B'B + Delta I for both,

        max(lambda_i(P'P), lambda_i(F'F)) <= lambda_i(A'A) <= min(lambda_i(P'P) + Delta_P, lambda_i(F'F) + Delta_F)

    for every i, which is what `bracket_eigenvalues` returns. No interval is longer than Delta_F, at most
    ||A - A_k||_F^2 / (m - k) for every k < m, and most are much shorter. `sketch_`, `components_`, `second_moment()`
    and `error_bound_` are those of the first. Both share the rows that wait, and the products of rows with each other:
    memory is (buffer_size + 2 sketch_size) n_features, and time 1.5 to 2 times that of one.

    {parameters}

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

    def _view_of(self, state: State) -> TwoSidedView:
        assert isinstance(state, TwoSidedState)
        return TwoSidedView(
            **vars(self._plain_view(state)),
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

    def _brackets(self, view: View, count: int) -> tuple[Floats, Floats]:
        assert isinstance(view, TwoSidedView)
        lam, other = padded(view.floor_lam, count), padded(view.upper_lam, count)
        delta = view.ceiling_alpha - view.floor_alpha
        low = np.maximum(np.maximum(lam - view.rounding, other - view.upper_rounding), 0.0)
        high = np.minimum(lam + delta + view.rounding, other + view.upper_delta + view.upper_rounding)
        # All eigenvalues together are ||A||_F^2: none is more than the others leave of it.
        left = view.squared_norm + view.rounding - (low.sum() - low)
        return low + float(self.alpha0), np.maximum(np.minimum(high, left), low) + float(self.alpha0)
