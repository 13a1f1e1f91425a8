"""A sketch of the most recent rows of a stream, those in a sliding window, with a certificate at any time."""

import copy
import math
from dataclasses import replace
from typing import Any, ClassVar, NoReturn, Self

import numpy as np

from robustfd._validation import check_choice, check_real
from robustfd.linalg.operator import LowRankPlusIdentity
from robustfd.sketch.base import BaseSketch
from robustfd.sketch.rows import Contents, Floats, Queue, energy
from robustfd.sketch.window import CLOCK, WindowEngine, WindowState, stacked
from robustfd.sketch.window_read import WindowView, read

CLOCKS = ("rows", "time", "weight")


class SlidingFrequentDirections(BaseSketch):
    """Frequent directions over a sliding window: B'B + alpha I for the most recent rows, by count, time or weight.

    At any time ||A'A + alpha0 I - (B'B + alpha I)||_2 <= `error_bound_`, where A holds the rows in the window. Rows
    that left the window have no influence at all. The sketch stores about 6 `sketch_size` rows, however long the window
    is. A window of up to 4 `sketch_size` rows is stored exactly.

    Parameters
    ----------
    window : float
        Length of the window in units of the clock. The window is (now - window, now].
    sketch_size : int, default=50
        m: the pool of directions has m - 1 rows. The certificate is about ||A||_F^2 / (6 m) or better.
    clock : {"auto", "rows", "time", "weight"}, default="auto"
        The unit of the clock: the number of rows, the time stamps passed as `times`, or the sum of the row weights.
        "auto" is "time" if the first rows have time stamps, else "rows".
    alpha0 : float, default=0.0
        The sketch approximates A'A + alpha0 I.
    center : bool, default=False
        Subtract the mean of the rows in the window. See Notes.

    Attributes
    ----------
    sketch_ : ndarray of shape (at most about 6 sketch_size, n_features)
        B, with orthogonal rows, longest first.
    components_, singular_values_ : ndarray
        Directions and lengths of the rows of `sketch_`.
    alpha_ : float
        The multiple of the identity that is added to B'B. It is positive as soon as a shrink step removed mass from the
        window.
    error_bound_, relative_error_bound_ : float
        A certified bound on the spectral error, absolute and relative to ||A'A||_2.
    now_ : float
        The current value of the clock.
    squared_norm_ : float
        ||A||_F^2, exact up to the rows of the single step that the window begins in.
    weight_sum_ : float
        Total weight of the rows in the window. Exact if the clock counts rows and the rows have no weights, otherwise
        approximate in the same way as `squared_norm_`.
    n_samples_seen_, n_features_in_ : int
        `n_samples_seen_` counts the rows of the whole stream.
    mean_ : ndarray of shape (n_features,)
        With `center=True` only: the approximate mean of the rows in the window.

    See Also
    --------
    RobustFrequentDirections : A sketch of all rows, optionally with exponential decay.
    ExactSecondMoment : The exact matrix of all rows, for small n_features.

    Notes
    -----
    There is no decay, and `forget` raises an error: rows leave the window by the clock only.

    With centring, the sketch subtracts the mean of the first rows from each row and appends a constant column. The
    scatter about the current mean is the Schur complement of that column, and the certificate covers it. The
    certificate grows if the mean of the window moves far from that of the first rows. For sparse rows the initial mean
    is taken to be 0.

    Sketches of streams that share a clock can be merged. The result is a sketch of the rows of both in the window.

    References
    ----------
    The pool and its dumps follow DS-FD (Yin et al., "Optimal Matrix Sketching over Sliding Windows", VLDB 2024). This
    version has a single pool that is never restarted, adapts its threshold to the rows, and stores long rows as they
    are (:doc:`proof </mathematics>`).

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd import SlidingFrequentDirections
    >>> A = np.random.default_rng(0).standard_normal((5000, 30)) / np.arange(1, 31)
    >>> sliding = SlidingFrequentDirections(window=1000, sketch_size=10).fit(A)
    >>> error = np.linalg.norm(A[-1000:].T @ A[-1000:] - sliding.second_moment().to_dense(), 2)
    >>> bool(error <= sliding.error_bound_)
    True
    >>> last = sliding.within(300)  # only the last 300 rows
    >>> bool(np.linalg.norm(A[-300:].T @ A[-300:] - last.second_moment().to_dense(), 2) <= last.error_bound_)
    True
    """

    _structure: ClassVar[tuple[str, ...]] = ("window", "sketch_size", "clock", "center")
    _state_type: ClassVar[type[WindowState]] = WindowState
    _state: WindowState
    decay = 1.0  # for the base class

    def __init__(
        self, window: float, sketch_size: int = 50, *, clock: str = "auto", alpha0: float = 0.0, center: bool = False
    ):
        self.window = window
        self.sketch_size = sketch_size
        self.clock = clock
        self.alpha0 = alpha0
        self.center = center

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_real("window", self.window, 0.0, open_low=True)
        check_choice("clock", self.clock, ("auto", *CLOCKS))

    # -- fitting

    def fit(  # type: ignore[override]  # no n_jobs, because the order of the rows matters
        self, X: Any, y: Any = None, sample_weight: Any = None, times: Any = None
    ) -> Self:
        """Sketch the rows of X from scratch.

        Parameters
        ----------
        X : array, sparse matrix, memory map or DataFrame of shape (n, d)
        y : ignored
        sample_weight : array of shape (n,), optional
            A row of weight s counts as sqrt(s) times the row. Rows of weight 0 are ignored.
        times : array of shape (n,), optional
            Time stamps of the rows, in nondecreasing order. Required if the clock is time.

        Returns
        -------
        self
        """
        return self._learn(X, sample_weight, reset=True, times=times)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, times: Any = None) -> Self:
        """Add the rows of X to the sketch. The result does not depend on how the rows are split into batches.

        The parameters and the result are those of `fit`. After the first call, X may have 0 rows.
        """
        return self._learn(X, sample_weight, reset=not self.__sklearn_is_fitted__(), times=times)

    def advance(self, now: float) -> Self:
        """Advance the clock to `now` without adding rows, and return self.

        Parameters
        ----------
        now : float
            The new time, not before the current one. Only for a clock of time.
        """
        self._require_rows()
        self._check_structure()
        if self._state.clock != "time":
            raise ValueError(f"advance is for a clock of time, but here the clock counts {self._state.clock}.")
        now = check_real("now", now, -math.inf)
        if now < self._state.now:
            raise ValueError(f"now goes backwards: {now:g} comes after {self._state.now:g}.")
        state = replace(self._state, now=now).trimmed(now - self.window)
        if state.marks.size and state.marks[CLOCK, -1] <= now - self.window:
            state = state.cleared()
        if not state.marks.size and len(self._queue):
            gone = int(np.searchsorted(self._queue.clocks(len(self._queue)), now - self.window, side="right"))
            self._queue = self._queue.take(gone)[1] if gone else self._queue
        self._state, self._cached = state, None
        return self

    def forget(self, factor: float) -> NoReturn:
        """Raise an error: rows leave the window by the clock only."""
        self._require_rows()
        raise NotImplementedError(
            "A SlidingFrequentDirections forgets by its clock alone: rows leave when the window has moved on. "
            "For gradual forgetting, use RobustFrequentDirections with decay or forget."
        )

    def _clocks(self, weight: Floats, times: Floats | None) -> Floats:
        before, started = self._state, self._n_seen > 0
        clock = before.clock if started else self.clock
        if clock == "auto":
            clock = "rows" if times is None else "time"
        if (times is None) == (clock == "time"):
            raise ValueError(
                "times is missing: the clock of this sketch is time, so every row needs a time stamp."
                if times is None
                else f"times was given, but the clock of this sketch counts {clock}. Leave times out, or start "
                'over with clock="time".'
            )
        if times is not None:
            found, now = times, before.now if started else times[0]
            if times[0] < now:
                raise ValueError(f"times goes backwards: {times[0]:g} comes after {now:g}. Sort the rows by time.")
        else:  # a running sum, so that batches do not change its rounding
            found = np.cumsum(np.concatenate([[before.now], np.ones(len(weight)) if clock == "rows" else weight]))[1:]
        if not np.spacing(abs(found[-1])) <= self.window / 2:
            raise ValueError(
                f"The clock is at {found[-1]:g}, where float64 cannot tell times apart that differ by "
                f"window={self.window:g}. Count from a later time, or in other units."
            )
        self._state = replace(before, clock=clock, now=before.now if started else float(found[0]))
        return found

    def _start(self, d: int) -> WindowState:
        return WindowState.empty(d, bool(self.center))

    def _windowed(self) -> WindowEngine:
        return WindowEngine(self.sketch_size, float(self.window))

    def _absorb(self, state: WindowState, queue: Queue) -> tuple[WindowState, Queue]:
        if queue.pieces:
            energy(queue.pieces[-1])  # check all new rows, because some may leave the window before they are processed
        state, queue = self._windowed().absorb(state, queue)
        return state, queue.owned(state.squared_norm)

    # -- reading

    def within(self, window: float) -> Self:
        """Return a copy with a shorter window, for reading or for adding rows.

        All its attributes, including the certificate, refer to the shorter window.

        Parameters
        ----------
        window : float
            The new length, at most `self.window`.
        """
        self._require_rows()
        self._check_structure()
        check_real("window", window, 0.0, float(self.window), open_low=True)
        shorter = copy.copy(self)
        shorter.window, shorter._cached = window, None
        shorter._seen_structure = shorter._structural_parameters()
        return shorter

    def second_moment(self, window: float | None = None) -> LowRankPlusIdentity:
        """Return the approximation of A'A + alpha0 I for the window, or for a shorter one."""
        return super().second_moment() if window is None else self.within(window).second_moment()

    @property
    def now_(self) -> float:
        """The clock: the time of the last row or of `advance`, or the number or the total weight of the rows."""
        self._require_rows()
        return self._state.now

    def _read(self, contents: Contents) -> WindowView:
        return read(contents.state, contents.queue, float(self.window), float(self.alpha0))

    # -- merging

    def _check_mergeable(self, other: Any) -> None:
        super()._check_mergeable(other)
        if self.__sklearn_is_fitted__() and other.__sklearn_is_fitted__() and self._state.clock != other._state.clock:
            here, there = self._state.clock, other._state.clock
            raise ValueError(f"Cannot merge windows of different clocks: {here} here, {there} there.")

    def _union(self, one: Contents, two: Contents) -> tuple[WindowState, Queue]:
        return self._windowed().merge(one, two)

    # -- saving

    def _stored_state(self) -> WindowState:
        state = self._state
        return replace(state, dumps=stacked(state.dumps, state.b))  # type: ignore[arg-type]  # an array in snapshots

    def _restored_state(self, stored: WindowState, structure: dict[str, Any], d: int) -> WindowState:
        check_choice("clock", stored.clock, CLOCKS)
        stored.check(structure["sketch_size"])
        return replace(stored, dumps=tuple(stored.dumps))
