"""Online Newton learning with a sketched Hessian (Luo et al. 2019, Section 5)."""

from operator import attrgetter
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustfd._validation import check_choice, check_integer, check_real
from robustfd.linalg._compile import entry
from robustfd.linalg.eigen import routines
from robustfd.linalg.rules import shrunk_count
from robustfd.online import _ball, _block, _columns
from robustfd.online._base import RATES, Floats, OnlineLearner, State, as_rows, check_rate
from robustfd.online._block import (
    BALL,
    BUFFER,
    DOMAIN,
    FILLED,
    NEXT,
    OVERFLOW,
    PROJECTION,
    SHRINK_FIRST,
    STATUS,
    WIDTH,
    Block,
    collect_steps,
    end_block,
    open_block,
    open_change,
    rows_in_block,
)
from robustfd.online._columns import REACH, RUN_ROWS
from robustfd.online._first_order import Settings
from robustfd.online._newton import (
    change_dense,
    change_sparse,
    enter_dense,
    enter_sparse,
    extra_size,
    learn_dense,
    learn_sparse,
    open_dense,
    step_rows,
)
from robustfd.online._row_states import OjaState, ProjectionState
from robustfd.online._shrink import LONG

_enter_dense, _change_dense, _enter_sparse, _change_sparse, _step_rows, _end_block = map(
    entry, (enter_dense, change_dense, enter_sparse, change_sparse, step_rows, end_block)
)
NARROW = 512  # features up to which sparse rows are made dense, a few at a time: faster than to be clever
SKETCHES = ("rfd", "fd", "pfd", "rp", "oja", "full")


class NewtonState:
    """The block of rows that is going on, and the basis: w and B, in one of two forms."""

    def __init__(self, settings: Floats, d: int, m: int, rows: int, alpha0: float, *, sparse: bool):
        self.sparse, self.settings, self.d, self.long = sparse, settings, d, False
        self.ball = bool(settings[DOMAIN] == BALL)
        self.late = True if settings[SHRINK_FIRST] else None
        self.memory, self.counts = _block.start(d, m, rows, alpha0, 0 if sparse else extra_size(d, m, rows))
        self.columns: Any = None
        self.room: Any = None  # scratch memory
        if sparse:
            later = rows - (m - 1)
            self.columns = _columns.start(d, m, m - 1, max(rows, later * (RUN_ROWS // later)))
            self.room = _columns.room_of(self.columns, rows)

    def expect(self, rows: int) -> None:
        """Get ready for so many rows: for many it pays to compile the eigenproblem."""
        self.long = self.long or bool(self.counts[_block.SEEN] + rows > LONG)

    def learn(self, x: Any, y: Floats, weight: Floats, margins: Floats, progress: Floats) -> int:
        """Learn and tally rows; return how many were learnt before they overflowed, -1 if a row was not finite."""
        if not self.long:
            self.expect(len(y))
        where = (routines(self.long), self.settings, self.memory, self.counts, self.late)
        if not self.sparse and not self.ball:
            return learn_dense(*where, x, y, weight, margins, progress)
        if self.counts[STATUS] == OVERFLOW:
            return 0
        if self.ball:
            return self._learn_in_ball(x, y, weight, margins, progress)
        done, n, most = 0, len(y), self.counts[BUFFER]
        while done < n:
            self.columns = _columns.with_room(self.columns, int(x.indptr[min(done + most, n)] - x.indptr[done]))
            rest = (x.data, x.indices, x.indptr[done:], y[done:], weight[done:], margins[done:])
            done += learn_sparse(*where, self.columns, self.room, *rest, progress)
            if self.counts[STATUS] == OVERFLOW:
                break
        return done

    def _learn_in_ball(self, x: Any, y: Floats, weight: Floats, margins: Floats, progress: Floats) -> int:
        """Do as `learn`, row by row with a projection after each (or before it)."""
        settings, block, counts, address = self.settings, self.block, self.counts, routines(self.long)
        project_next = settings[PROJECTION] == NEXT
        for i in range(len(y)):
            if project_next:
                self._project(block)
            if self.sparse:
                self.columns = _columns.with_room(self.columns, int(x.indptr[i + 1] - x.indptr[i]))
                _enter_sparse(address, block, self.columns, self.room, x.data, x.indices, x.indptr, i, 1)
            else:
                basis, buffer = open_dense.py_func(block, self.d)
                _enter_dense(address, block, basis, buffer, x, i, 1)
            if _step_rows(settings, block, i, 1, y, weight, margins, progress) == 0:
                return i
            full = counts[FILLED] == rows_in_block.py_func(block)
            if not project_next and not (full and settings[SHRINK_FIRST]):
                self._project(block)
            if full:
                before, q = _ball.gram_of(block), int(counts[WIDTH])
                on_b, on_x, rest = open_change.py_func(block)
                if not _end_block(address, settings, block, on_b, on_x, rest, self.late):
                    return i
                block.ball[q:] = _ball.products_after(before, on_b, on_x)
                if self.sparse:
                    _change_sparse(address, block, self.columns, self.room, on_b, on_x)
                else:
                    _change_dense(address, block, basis, np.uint64(buffer.ctypes.data), on_b, on_x)
                if not project_next and settings[SHRINK_FIRST]:
                    self._project(block)
        return len(y)

    def _project(self, block: Block) -> None:
        """Bring w into the ball, and its factor into the stored weights if it has become small."""
        if not _ball.project(self.settings, block):
            return
        factor, q = block.ball[0], int(self.counts[WIDTH])
        if self.sparse:
            c = self.columns
            stored = [c.basis, c.gathered, c.coefficients, c.history]
            c.counts[REACH] = 0  # to be made again, from the history
        else:
            stored = [open_dense.py_func(block, self.d)[0].T]
        for array in (*stored, block.products):
            array[..., 0] *= factor
        block.ball[q:] *= factor
        block.ball[q] *= factor
        block.ball[0] = 1.0

    @property
    def block(self) -> Block:
        """The block as arrays."""
        return open_block.py_func(self.memory, self.counts)

    def widen(self, d: int) -> None:
        """Make room for d features; only for sparse rows."""
        if d > self.d:
            self.d = max(d, 2 * self.d)
            self.counts[_block.FEATURES] = self.d
            self.columns = _columns.with_features(self.columns, self.d)

    def multiply_weights(self, factor: float) -> None:
        """Let w be that many times itself."""
        block = self.block
        block.ball[: int(self.counts[WIDTH])] *= factor
        block.rows[:, [_block.STEP, _block.EXTRA]] *= factor

    def _steps(self) -> tuple[Floats, Floats]:
        """Return the steps of the block that is going on, in terms of B and of its rows."""
        filled, q = int(self.counts[FILLED]), int(self.counts[WIDTH])
        on_b, on_x = np.zeros((1, q - 1)), np.zeros((1, filled))
        collect_steps(self.block, np.empty(2 * filled), on_b, on_x)
        return on_b, on_x

    def weights(self) -> Floats:
        """Return w."""
        if self.sparse:
            return self._weights_of(np.arange(self.d, dtype=np.int32))
        (on_b, on_x), (basis, buffer) = self._steps(), open_dense.py_func(self.block, self.d)
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is looked at later
            return self.block.ball[0] * (basis[0] + on_b[0] @ basis[1:] + on_x[0] @ buffer[: on_x.shape[1]])

    def _weights_of(self, features: NDArray[np.int32]) -> Floats:
        return (
            self.block.ball[0] * _columns.weights_of(routines(self.long), self.columns, features, *self._steps())[:, 0]
        )

    def margins(self, x: Any) -> Floats:
        """Return w'x of rows of either kind."""
        if self.sparse and sp.issparse(x) and x.nnz < x.shape[1]:  # only the features that occur
            x = as_rows(x, sparse=True)
            features, place = np.unique(x.indices, return_inverse=True)
            w = self._weights_of(features)
            return np.asarray(sp.csr_array((x.data, place, x.indptr), shape=(x.shape[0], len(features))) @ w)
        return np.asarray(x @ self.weights())


class OnlineNewton(OnlineLearner):
    r"""Online Newton learning of a linear model, its Hessian kept by a sketch, in O(m d) a row.

    At row t, with margin p = w'x and gradient g = l'(p) x, the row :math:`\sqrt{\mu + \eta_t}\, g` enters the sketch
    of H, and

    .. math::

        u = w - H_t^{-1} g, \qquad w \leftarrow \arg\min_{|v'x| \le C} (v - u)' H_t (v - u).

    The defaults are the experiments of Luo et al. 2019, and with them there is nothing to tune: squared loss on
    labels -1 and +1, C = 1, mu = 1/8, eta_t = 1/t, alpha0 = 0 (their RFD0-SON).

    Parameters
    ----------
    sketch : {"rfd", "fd", "pfd", "rp", "oja", "full"}, default="rfd"
        RFD-SON (Alg. 3 and 6), FD-SON, PFD-SON, RP-SON, Oja-SON, or FULL-ON, whose H is exact and d x d.
    sketch_size : int, default=20
        m >= 2. Not used by "full".
    alpha0 : float, default=0.0
        H starts from alpha0 I. With 0 pseudo-inverses take the place of inverses until the sketch of "rfd" adds a
        multiple of the identity of its own; the other sketches never do, and should be given one above 0.
    loss : {"squared", "logistic", "squared_hinge", "hinge", "absolute", "huber"}, default="squared"
    bound : float, default=1.0
        C, the bound of the domain. Labels of the squared loss should be within it.
    curvature : float, optional
        mu. By default what the loss has on |w'x| <= C: 1 / (8 C^2) for the squared loss.
    rate : {"1/t", "1/sqrt(t)"} or float, default="1/t"
        eta_t; a number is a constant one.
    projection : {"current", "next", None}, default="current"
        Project after the step with the row just learnt (Alg. 6), before predicting the next row (Alg. 3), or never.
    domain : {"slab", "ball"}, default="slab"
        \|w'x\| <= C for the row at hand, or ||w||_2 <= C. Never for `projection=None`.
    buffer_size : int, optional
        Rows of B and of the buffer together, from m (Alg. 3) on. Default 2 m (Alg. 6).
    beta : float, default=0.2
        For "pfd": the share of the m squared singular values that a shrink takes from.
    shrink_first : bool, default=False
        Whether the row that fills the buffer steps after the shrink, as Alg. 6 is printed, or before it, as the
        paper's figures were made.
    huber_delta : float, default=1.0
        Where the Huber loss turns from a square to a line.
    random_state : int, optional
        Of "rp" and "oja".

    Attributes
    ----------
    weights_ : array of shape (d,)
    alpha_ : float
        alpha of H = B'B + alpha I.
    n_samples_seen_, progressive_loss_, progressive_error_, progressive_
        See `learn`.

    Notes
    -----
    Rows are processed exactly as if one by one, in blocks between shrinks, through small Gram matrices
    (docs/mathematics.md). A row costs O(m) for each non-zero and O(m^2); nothing is O(d) for sparse rows.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import normalize, scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> learner = OnlineNewton(sketch_size=5)
    >>> margins = learner.learn(normalize(scale(X)), 2 * y - 1)
    >>> learner.n_samples_seen_, round(learner.progressive_error_, 2)
    (569, 0.07)
    """

    _names = attrgetter(
        "sketch", "sketch_size", "alpha0", "loss", "bound", "curvature", "rate", "projection", "domain",
        "buffer_size", "beta", "shrink_first", "huber_delta", "random_state",
    )  # fmt: skip

    def __init__(
        self,
        sketch: Literal["rfd", "fd", "pfd", "rp", "oja", "full"] = "rfd",
        sketch_size: int = 20,
        *,
        alpha0: float = 0.0,
        loss: str = "squared",
        bound: float = 1.0,
        curvature: float | None = None,
        rate: str | float = "1/t",
        projection: Literal["current", "next"] | None = "current",
        domain: Literal["slab", "ball"] = "slab",
        buffer_size: int | None = None,
        beta: float = 0.2,
        shrink_first: bool = False,
        huber_delta: float = 1.0,
        random_state: int | None = None,
    ):
        self.sketch = sketch
        self.sketch_size = sketch_size
        self.alpha0 = alpha0
        self.loss = loss
        self.bound = bound
        self.curvature = curvature
        self.rate = rate
        self.projection = projection
        self.domain = domain
        self.buffer_size = buffer_size
        self.beta = beta
        self.shrink_first = shrink_first
        self.huber_delta = huber_delta
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_choice("sketch", self.sketch, SKETCHES)
        m = check_integer("sketch_size", self.sketch_size, 2)
        check_real("alpha0", self.alpha0, 0.0)
        check_real("bound", self.bound, 0.0, open_low=True)
        self._check_loss()
        if self.curvature is not None:
            check_real("curvature", self.curvature, 0.0)
        check_rate(self.rate)
        check_choice("projection", self.projection, ("current", "next", None))
        check_choice("domain", self.domain, ("slab", "ball"))
        check_real("beta", self.beta, 0.0, 1.0, open_low=True)
        check_choice("shrink_first", self.shrink_first, (True, False))
        if self.random_state is not None:
            check_integer("random_state", self.random_state, 0)
        if self.domain == "ball" and self.projection is not None and self.sketch in ("rp", "oja"):
            raise ValueError(
                f"domain='ball' is not possible with sketch={self.sketch!r}; use 'slab', or another sketch."
            )
        if self.buffer_size is not None and check_integer("buffer_size", self.buffer_size, 1) < m:
            raise ValueError(f"buffer_size must be at least sketch_size={m}, got {self.buffer_size}.")

    def _start(self, d: int, *, sparse: bool) -> State:
        if self.sketch in ("rp", "oja"):
            return self._start_random(d, sparse=sparse)
        m = d + 1 if self.sketch == "full" else self.sketch_size
        rows = self.buffer_size if self.buffer_size is not None and self.sketch != "full" else 2 * m
        return NewtonState(self._settings(m), d, m, rows, float(self.alpha0), sparse=sparse and d > NARROW)

    def _start_random(self, d: int, *, sparse: bool) -> State:
        s = self._settings(self.sketch_size)
        settings = Settings(
            loss=int(s[_block.LOSS_CODE]), delta=s[_block.LOSS_DELTA], mu=s[_block.MU], rate=s[_block.RATE],
            power=s[_block.POWER], alpha0=float(self.alpha0), bound=s[_block.BOUND], domain=int(s[DOMAIN]),
            projection=int(s[PROJECTION]),
        )  # fmt: skip
        kind = ProjectionState if self.sketch == "rp" else OjaState
        return kind(settings, d, self.sketch_size, np.random.default_rng(self.random_state), sparse=sparse)

    def _settings(self, m: int) -> Floats:
        """Return the numbers that the compiled loops go by."""
        settings = np.zeros(_block.SETTINGS)
        loss = self._check_loss()
        settings[_block.LOSS_CODE], settings[_block.LOSS_DELTA] = loss.code, self.huber_delta
        mu = self.curvature
        settings[_block.MU] = loss.curvature(self.bound, delta=self.huber_delta) if mu is None else mu
        rate, power = RATES[self.rate] if isinstance(self.rate, str) else (self.rate, 0.0)
        settings[_block.RATE], settings[_block.POWER] = rate, power
        settings[_block.BOUND] = self.bound
        if self.projection is not None:
            settings[_block.PROJECTION] = _block.CURRENT if self.projection == "current" else _block.NEXT
            settings[_block.DOMAIN] = _block.SLAB if self.domain == "slab" else _block.BALL
        settings[_block.SHRINK_FIRST] = self.shrink_first
        settings[_block.SHRUNK] = shrunk_count(m, self.beta) if self.sketch == "pfd" else m
        settings[_block.ADD] = 0.5 if self.sketch == "rfd" else 0.0
        return settings

    @property
    def alpha_(self) -> float:
        """The multiple of the identity in H = B'B + alpha I: alpha0 and what "rfd" has added to it."""
        self._require_rows()
        if self.sketch in ("rp", "oja"):
            return float(self.alpha0)
        state: Any = self._state
        return float(state.block.scalars[_block.ALPHA])
