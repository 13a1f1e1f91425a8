"""The states of learners that take single rows: ADAGRAD, gradient descent, RP-SON and Oja-SON."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from robustfd.online._base import Floats
from robustfd.online._first_order import Settings, learn_adagrad, learn_gradient_descent, usable
from robustfd.online._newton import FEW, LARGEST
from robustfd.online._random import learn_oja, learn_projection
from robustfd.online.progress import tally_all


class RowState:
    """What they share: rows of either kind go in as columns and values."""

    def __init__(self, settings: Settings, d: int, *, sparse: bool):
        self.settings, self.sparse, self.d = settings, sparse, d
        self.seen = np.zeros(1, np.int64)

    def expect(self, rows: int) -> None:
        """Do nothing: there is nothing to get ready."""

    def learn(self, x: Any, y: Floats, weight: Floats, margins: Floats, progress: Floats) -> int:
        """Learn and tally rows; return how many were learnt before they overflowed, -1 if a row was not finite."""
        rows: tuple[Any, ...]
        if sp.issparse(x):
            rows = (x.data, x.indices, x.indptr)
        elif len(y) <= FEW and not usable(x.ravel(), y, LARGEST):  # they come unchecked
            return -1
        else:
            rows = (x.ravel(), np.arange(self.d, dtype=np.int32), np.empty(0, np.int64))
        done = len(y)
        if self._learn(rows, y, weight, margins):
            done = int(np.argmin(np.isfinite(margins)))
        s = self.settings
        tally_all(s.loss, s.delta, margins[:done], y[:done], weight[:done], progress)
        return done

    def _learn(self, rows: tuple[Any, ...], y: Floats, weight: Floats, margins: Floats) -> int:
        raise NotImplementedError

    def weights(self) -> Floats:
        """Return w."""
        raise NotImplementedError

    def margins(self, x: Any) -> Floats:
        """Return w'x of rows of either kind."""
        return np.asarray(x @ self.weights())


class AdaGradState(RowState):
    """The weights, and the sums of squared gradients."""

    def __init__(self, settings: Settings, d: int, *, sparse: bool):
        super().__init__(settings, d, sparse=sparse)
        self.w, self.squares = np.zeros(d), np.zeros(d)

    def _learn(self, rows: tuple[Any, ...], y: Floats, weight: Floats, margins: Floats) -> int:
        return int(learn_adagrad(self.settings, *rows, y, weight, self.w, self.squares, margins))

    def weights(self) -> Floats:
        """Return w."""
        return self.w.copy()


class DescentState(RowState):
    """The weights, up to a factor."""

    def __init__(self, settings: Settings, d: int, *, sparse: bool):
        super().__init__(settings, d, sparse=sparse)
        self.v, self.scalars = np.zeros(d), np.array([1.0, 0.0])

    def _learn(self, rows: tuple[Any, ...], y: Floats, weight: Floats, margins: Floats) -> int:
        return int(learn_gradient_descent(self.settings, *rows, y, weight, self.v, self.scalars, self.seen, margins))

    def weights(self) -> Floats:
        """Return w."""
        return self.scalars[0] * self.v


class ProjectionState(RowState):
    """RP-SON: w = v + B'c, with BB' beside it."""

    def __init__(self, settings: Settings, d: int, m: int, generator: np.random.Generator, *, sparse: bool):
        super().__init__(settings, d, sparse=sparse)
        self.generator = generator
        self.v, self.bt, self.c, self.gram = np.zeros(d), np.zeros((d, m)), np.zeros(m), np.zeros((m, m))

    def _learn(self, rows: tuple[Any, ...], y: Floats, weight: Floats, margins: Floats) -> int:
        normal = self.generator.standard_normal((len(y), len(self.c)))
        state = (self.v, self.bt, self.c, self.gram, self.seen)
        return int(learn_projection(self.settings, *rows, y, weight, normal, *state, margins))

    def weights(self) -> Floats:
        """Return w."""
        return self.v + self.bt @ self.c


class OjaState(RowState):
    """Oja-SON: w = v + Y'c, with V = F Y orthonormal and what they have seen."""

    def __init__(self, settings: Settings, d: int, m: int, generator: np.random.Generator, *, sparse: bool):
        super().__init__(settings, d, sparse=sparse)
        m = min(m, d)
        self.v, self.c, self.energy, self.f = np.zeros(d), np.zeros(m), np.zeros(m), np.eye(m)
        self.yt = np.ascontiguousarray(np.linalg.qr(generator.standard_normal((d, m)))[0])

    def _learn(self, rows: tuple[Any, ...], y: Floats, weight: Floats, margins: Floats) -> int:
        state = (self.v, self.yt, self.f, self.energy, self.c, self.seen)
        return int(learn_oja(self.settings, *rows, y, weight, *state, margins))

    def weights(self) -> Floats:
        """Return w."""
        return self.v + self.yt @ self.c
