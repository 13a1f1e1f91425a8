"""Frequent directions and its relatives: one engine, five rules (diagonal.py has a sixth, which remembers more)."""

from abc import abstractmethod
from typing import Any, ClassVar

from robustfd._validation import check_real
from robustfd.linalg.decompose import Solver
from robustfd.linalg.eigen import EPS
from robustfd.linalg.rules import shrunk_count
from robustfd.sketch._base import BaseSketch, View, unit_rows
from robustfd.sketch._engine import Engine, State
from robustfd.sketch._rows import Queue, Unread

MANY_ROWS = 2**17  # from which on it pays to start processes: threads wait for the lock between the steps of a shrink


class _FrequentDirections(BaseSketch):
    """The engine's public face; a member says how many values a shrink takes from, and how it is read."""

    _state_type: ClassVar[type[State]] = State

    def __init__(
        self,
        sketch_size: int = 50,
        *,
        buffer_size: int | None = None,
        alpha0: float = 0.0,
        decay: float = 1.0,
        center: bool = False,
        solver: Solver = "auto",
    ):
        self.sketch_size = sketch_size
        self.buffer_size = buffer_size
        self.alpha0 = alpha0
        self.decay = decay
        self.center = center
        self.solver = solver

    def _shrunk_count(self) -> int:
        """Return j, how many of the m largest values a shrink takes delta from."""
        return self.sketch_size

    @abstractmethod
    def _view_of(self, state: State) -> View:
        """Return how a shrunk state is read."""

    def _engine(self) -> Engine:
        m = self.sketch_size
        buffer_size = 2 * m if self.buffer_size is None else self.buffer_size
        return Engine(m, buffer_size, self._shrunk_count(), self.solver)

    def _start(self, d: int) -> State:
        return self._state_type.empty(d, self.center)

    def _gains_by_processes(self, n: int) -> bool:
        return n >= MANY_ROWS

    def _absorb(self, state: State, queue: Queue) -> tuple[State, Queue]:
        return self._engine().absorb(state, queue)

    def _read(self, unread: Unread) -> View:
        return self._view_of(self._engine().finish(unread.state, unread.queue, formed=False).faded(unread.factor))

    def _union(self, one: Unread, two: Unread) -> State:
        return self._engine().merge(one, two)

    def _plain_view(self, state: State, *, lifted: float = 0.0, share: float = 0.0) -> View:
        """Return the view with `lifted` times Delta on the kept directions and `share` times Delta on all."""
        alpha = float(self.alpha0) + share * state.delta
        return View(
            form=lambda: unit_rows(state.rows, state.lam, fresh=callable(state.b)),
            lam=state.lam + lifted * state.delta,
            alpha=alpha,
            error_bound=(1.0 - share) * state.delta + state.rounding + (EPS * alpha if alpha > self.alpha0 else 0.0),
            rounding=state.rounding,
            squared_norm=state.squared_norm,
            weight=state.weight,
            mean=None if state.mean is None else state.mean[0],
            floor_lam=state.lam,
            floor_alpha=float(self.alpha0),
            ceiling_alpha=float(self.alpha0) + state.delta,
        )


_PARAMETERS = """
    Parameters
    ----------
    sketch_size : int, default=50
        m of the paper: the sketch has at most m - 1 rows. Memory is O(buffer_size * n_features).
    {extra}buffer_size : int, optional
        How many rows are held in all before a shrink; default 2 * sketch_size, the paper's fast algorithms.
        `sketch_size` gives its one-row-at-a-time algorithms. Larger is usually more accurate.
    alpha0 : float, default=0.0
        The matrix approximated is A'A + alpha0 I.
    decay : float in (0, 1], default=1.0
        Before each row, all that is older is multiplied by this.
    center : bool, default=False
        Sketch the rows minus their mean, exactly: `covariance()` is then the covariance.
    solver : {{"auto", "gram", "svd"}}, default="auto"
        How a buffer is decomposed: through its Gram matrix, which is fast and sees squared singular values
        down to about 1e-14 of the largest, by SVD, or by the first and, where that is too coarse, more accurately.

    Attributes
    ----------
    sketch_ : ndarray of shape (at most sketch_size - 1, n_features)
        B, orthogonal rows, longest first.
    components_, singular_values_ : ndarray
        Directions and lengths of the rows of `sketch_`.
    alpha_ : float
        The multiple of the identity beside B'B.
    error_bound_, relative_error_bound_ : float
        A certified bound on the spectral error, absolute and relative to ||A'A||_2.
    {attributes}squared_norm_ : float
        ||A||_F^2, exact.
    n_samples_seen_, n_features_in_ : int
    weight_sum_ : float
        Total weight of the rows.
    mean_ : ndarray of shape (n_features,)
        With `center=True` only.

    Notes
    -----
    Attributes can be read at any time; reading loses nothing and changes nothing. Any number of threads may
    use one sketch: their calls take turns. When n_features is below buffer_size, `ExactSecondMoment` costs no more
    and has no error."""


def documented(extra: str = "", attributes: str = "") -> Any:
    """Return the decorator that fills in what the docstrings of the family share."""

    def finish(cls: type) -> type:
        if cls.__doc__ is not None:  # as with `python -OO`
            shared = _PARAMETERS.strip().format(extra=extra, attributes=attributes)
            cls.__doc__ = cls.__doc__.replace("{parameters}", shared)
        return cls

    return finish


@documented()
class FrequentDirections(_FrequentDirections):
    """Frequent directions (Luo et al. 2019, Alg. 1 and 4): A'A from above B'B, within a known Delta.

    0 <= A'A - B'B <= Delta I, Delta <= ||A - A_k||_F^2 / (m - k) for every k < m, and Delta is `error_bound_`.

    {parameters}

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd import FrequentDirections
    >>> A = np.random.default_rng(0).standard_normal((1000, 30)) / np.arange(1, 31)
    >>> fd = FrequentDirections(sketch_size=10).fit(A)
    >>> error = np.linalg.norm(A.T @ A - fd.sketch_.T @ fd.sketch_, 2)
    >>> bool(error <= fd.error_bound_)
    True
    """

    def _view_of(self, state: State) -> View:
        return self._plain_view(state)


@documented()
class RobustFrequentDirections(_FrequentDirections):
    """Robust frequent directions (Luo et al. 2019, Alg. 2 and 5): A'A as B'B + alpha I, at half FD's bound.

    B is that of frequent directions; alpha = alpha0 + Delta / 2 puts back half of what the shrinks took. Then
    ||A'A + alpha0 I - (B'B + alpha I)||_2 <= Delta / 2 <= ||A - A_k||_F^2 / (2 (m - k)) for every k < m, and
    Delta / 2 is `error_bound_`. The approximation is invertible as soon as a shrink has taken anything.

    {parameters}

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd import RobustFrequentDirections
    >>> A = np.random.default_rng(0).standard_normal((1000, 30)) / np.arange(1, 31)
    >>> rfd = RobustFrequentDirections(sketch_size=10)
    >>> for batch in np.array_split(A, 7):
    ...     rfd = rfd.partial_fit(batch)
    >>> M = rfd.second_moment()
    >>> bool(np.linalg.norm(A.T @ A - M.to_dense(), 2) <= rfd.error_bound_)
    True
    >>> x = M.solve(np.ones(30))
    >>> bool(np.allclose(M @ x, 1.0))
    True
    """

    def _view_of(self, state: State) -> View:
        return self._plain_view(state, share=0.5)


@documented("""beta : float in (0, 1], default=0.2
        Which part of the m values a shrink takes from; 1 is FD.
    """)
class ParameterizedFrequentDirections(_FrequentDirections):
    """Parameterised frequent directions (Desai et al. 2016): a shrink takes only from the smallest values.

    Of the m largest squared singular values the last max(1, floor(beta m)) lose delta. 0 <= A'A - B'B <= Delta I
    holds as for FD; Delta <= ||A - A_k||_F^2 / (j - k) for k < j = max(1, floor(beta m)), a weaker promise that
    often comes with a smaller error.

    {parameters}
    """

    _structure: ClassVar[tuple[str, ...]] = (*_FrequentDirections._structure, "beta")

    def __init__(
        self,
        sketch_size: int = 50,
        *,
        beta: float = 0.2,
        buffer_size: int | None = None,
        alpha0: float = 0.0,
        decay: float = 1.0,
        center: bool = False,
        solver: Solver = "auto",
    ):
        super().__init__(sketch_size, buffer_size=buffer_size, alpha0=alpha0, decay=decay, center=center, solver=solver)
        self.beta = beta

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_real("beta", self.beta, 0.0, 1.0, open_low=True)

    def _shrunk_count(self) -> int:
        return shrunk_count(self.sketch_size, float(self.beta))

    def _view_of(self, state: State) -> View:
        return self._plain_view(state)


@documented()
class CompensativeFrequentDirections(_FrequentDirections):
    """Compensative frequent directions (Desai et al. 2016): FD, with Delta put back on the kept directions.

    The read-out C has C'C = B'B + Delta P, P the projection on the rows of B. It may overshoot:
    -Delta P <= A'A - C'C <= Delta (I - P), so `error_bound_` is Delta, two-sided.

    {parameters}
    """

    def _view_of(self, state: State) -> View:
        return self._plain_view(state, lifted=1.0)


@documented()
class GreedySketch(_FrequentDirections):
    """Greedy low-rank approximation (Luo et al. 2019, Alg. 8), also known as incremental SVD: keep the largest.

    A shrink drops what is beyond m - 1 rows and takes nothing from the rest. 0 <= A'A - B'B <= Delta I holds
    and Delta is `error_bound_`, but nothing bounds Delta beforehand: the paper's Appendix F has a stream on
    which it grows without end while FD's stays put.

    {parameters}
    """

    def _shrunk_count(self) -> int:
        return 1

    def _view_of(self, state: State) -> View:
        return self._plain_view(state)
