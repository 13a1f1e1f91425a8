"""Linear bandits whose confidence comes from a sketch: SketchedLinUCB.

With the rows S that a sketch keeps, H = S'S + a I, and L L' = a I + S S' for the kernel of these rows,

    x'H^-1 z = q(x)'q(z) + v(x)'v(z) / a,      q(x) = (L L')^-1 S x,      v(x) = x - S'q(x).

The shorter form (x'z - (S x)'q(z)) / a would cancel. S consists of the sketch B and of the rows since its last shrink
step, which count exactly. A new row adds a row to S and to L. A shrink step makes S orthogonal and L diagonal.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from robustfd._container import Document, Saved, Tensors
from robustfd._core import choose_probabilities, draw_arm
from robustfd._guard import guarded_pair
from robustfd._scipy import scipy_linalg
from robustfd._sklearn import BaseEstimator, NotFittedError
from robustfd._validation import check_choice, check_integer, check_real, check_same_params
from robustfd.linalg.decompose import EPS, Floats, shrink_stack
from robustfd.linalg.threads import one_blas_thread

SHARES = {"rfd": 0.5, "fd": 0.0, "scfd": 1.0, "exact": 0.0}  # the share of Delta that is added to alpha
MOST = 1e50  # the largest feature or reward; products stay finite


@dataclass(frozen=True)
class Confidence:
    """H = S'S + alpha I, and b, the sum of rewards times rows. The first n rows of S and L are in use."""

    stack: Floats  # S, with room for 2 m rows
    chol: Floats  # L
    n: int
    b: Floats
    m: int
    alpha: float
    delta: float = 0.0  # Delta, the sum of what shrink steps removed
    grown: float = 0.0  # Delta when m last changed

    @classmethod
    def empty(cls, d: int, m: int, alpha: float) -> "Confidence":
        """Return the state before any row."""
        return cls(np.empty((2 * m, d)), np.zeros((2 * m, 2 * m)), 0, np.zeros(d), m, alpha)

    def with_room(self, m: int, stack: Floats, chol: Floats, **changes: Any) -> "Confidence":
        """Return the state with these S and L, and room for 2 m rows in all."""
        n, fresh = len(stack), Confidence.empty(len(self.b), m, self.alpha)
        fresh.stack[:n], fresh.chol[:n, :n] = stack, chol
        return replace(self, stack=fresh.stack, chol=fresh.chol, n=n, m=m, **changes)

    @property
    def rows(self) -> Floats:
        """S."""
        return self.stack[: self.n]

    def split(self, x: Floats) -> tuple[Floats, Floats]:
        """Return q and v of each row of x."""
        if not self.n:
            return np.zeros((len(x), 0)), x
        q = scipy_linalg.cho_solve((self.chol[: self.n, : self.n], True), self.rows @ x.T, check_finite=False).T
        return q, x - q @ self.rows

    def read(self, x: Floats) -> tuple[Floats, Floats]:
        """Return x'H^-1 b and x'H^-1 x for each row of x, 2 m rows at a time."""
        means, squares, (q_b, v_b) = np.empty(len(x)), np.empty(len(x)), self.split(self.b[None])
        for start in range(0, len(x), 2 * self.m):
            some = slice(start, start + 2 * self.m)
            q, v = self.split(x[some])
            means[some] = q @ q_b[0] + v @ v_b[0] / self.alpha
            squares[some] = np.einsum("ij,ij->i", q, q) + np.einsum("ij,ij->i", v, v) / self.alpha
        return means, squares

    def with_row(self, x: Floats, reward: float) -> "Confidence":
        """Return the state with another row, for which there must be room. Rows in use do not change."""
        n, (q, v) = self.n, self.split(x[None])
        self.stack[n], self.chol[n, :n] = x, q[0] @ self.chol[:n, :n]
        rest = self.alpha * (1.0 + q[0] @ q[0]) + v[0] @ v[0]
        self.chol[n, n] = np.sqrt(max(rest, EPS * (x @ x)))  # less would be rounding error of S S', magnified
        return replace(self, n=n + 1, b=self.b + reward * x)

    def shrunk(self, alpha0: float, share: float, *, grows: bool) -> "Confidence":
        """Return the state after a shrink step, or with twice the size if the error would exceed the prior."""
        result = shrink_stack(self.rows[:0], np.zeros(0), self.rows, self.m, self.m)
        d, delta = len(self.b), self.delta + result.delta
        if grows and self.m <= d and share * (delta - self.grown) > alpha0:
            chol = self.chol[: self.n, : self.n]
            return self.with_room(min(2 * self.m, d + 1), self.rows, chol, grown=self.delta)
        alpha = alpha0 + share * delta
        chol = np.diag(np.sqrt(result.lam + alpha))
        return self.with_room(self.m, result.rows, chol, alpha=alpha, delta=delta)

    def plus(self, other: "Confidence", alpha0: float, share: float) -> "Confidence":
        """Return the state of the rows of both, after a shrink step."""
        m, delta = max(self.m, other.m), self.delta + other.delta
        rows = np.concatenate([self.rows, other.rows])
        both = replace(self, stack=rows, n=len(rows), b=self.b + other.b, m=m, delta=delta, grown=delta)
        return both.shrunk(alpha0, share, grows=False)


class SketchedLinUCB(Saved, BaseEstimator):
    """A bandit with linear rewards: arms are rows of features, and a sketch of the rows so far says what is uncertain.

    The expected reward of a row x is x'w with unknown w. A choice compares the estimates x'H^-1 b plus z widths, where
    the width is the size of the errors so far times sqrt(x'H^-1 x), and z is drawn from 20 quantiles of the absolute
    value of a normal number (RandUCB). The probability of each choice is therefore known. H is the matrix A'A + alpha I
    of all rows, or its sketch in O(m d) memory.

    A sketch of fixed size loses directions, and the regret then keeps growing. With "rfd", the default, the sketch
    doubles its size instead of a shrink step after which the certified error, counted since the last doubling, would
    exceed `alpha`.

    Parameters
    ----------
    sketch_size : int, default=20
        m, the number of rows of the sketch to start with. Not used by "exact".
    method : {"rfd", "fd", "scfd", "exact"}, default="rfd"
        How H is kept: robust frequent directions, frequent directions (SOFUL), frequent directions with all that shrink
        steps remove added to alpha (spectral compensation), or the exact matrix.
    alpha : float, default=1.0
        The prior: H starts as alpha I.
    growth : {"auto", None}, default="auto"
        "auto" lets the sketch of "rfd" grow, at most to the exact matrix. The other methods have a fixed size.
    random_state : int, default=0
        Seed of the choices. The k-th choice depends on the seed and on k only, also after saving and loading.

    Attributes
    ----------
    weights_ : ndarray of shape (d,)
        The estimated weights H^-1 b.
    sketch_size_ : int
        The current m.
    alpha_ : float
        The multiple of the identity in H.
    error_bound_ : float
        The certificate: a bound on the spectral error of H.
    residual_size_ : float
        Root mean squared error of the predicted rewards, each predicted before it was learned; 1 before the first.
    n_samples_seen_, n_choices_, n_features_in_ : int

    See Also
    --------
    RobustFrequentDirections : The sketch.
    evaluate_policy : What another policy would have earned, from a log of choices and probabilities.

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd import SketchedLinUCB
    >>> rng = np.random.default_rng(0)
    >>> w, bandit = rng.standard_normal(30), SketchedLinUCB(sketch_size=10)
    >>> for _ in range(500):
    ...     arms = rng.standard_normal((5, 30))
    ...     chosen, probability = bandit.choose(arms)
    ...     bandit = bandit.learn(arms[chosen], arms[chosen] @ w + 0.1 * rng.standard_normal())
    >>> bool(np.linalg.norm(bandit.weights_ - w) < 0.1 * np.linalg.norm(w))
    True
    """

    _state: Confidence
    _structure: ClassVar[tuple[str, ...]] = ("sketch_size", "method", "alpha", "growth")

    def __init__(
        self,
        sketch_size: int = 20,
        *,
        method: str = "rfd",
        alpha: float = 1.0,
        growth: str | None = "auto",
        random_state: int = 0,
    ):
        self.sketch_size = sketch_size
        self.method = method
        self.alpha = alpha
        self.growth = growth
        self.random_state = random_state
        self._squares, self._seen, self._choices = 0.0, 0, 0

    def choose(self, X_arms: Any) -> tuple[int, float]:
        """Return the index of the chosen arm, and the probability with which it was chosen.

        Parameters
        ----------
        X_arms : array of shape (n_arms, d)
            The features of each arm in this round. Arms may be different in every round.
        """
        state, x = self._checked("X_arms", X_arms)
        seed = check_integer("random_state", self.random_state, 0, 2**64 - 1)
        chances = self._chances(state, x)
        chosen = draw_arm(chances, seed, self._choices)
        self._state, self._choices = state, self._choices + 1
        return chosen, float(chances[chosen])

    def predict_proba(self, X_arms: Any) -> Floats:
        """Return the probability of each arm with which `choose` would choose it now."""
        state, x = self._checked("X_arms", X_arms)
        return self._chances(state, x)

    def predict(self, X_arms: Any) -> Floats:
        """Return the estimated reward of each row."""
        state, x = self._checked("X_arms", X_arms)
        return self._read(state, x)[0]

    def learn(self, x: Any, reward: float) -> Self:
        """Learn the reward of a row and return self. The row need not be one that `choose` returned.

        Parameters
        ----------
        x : array of shape (d,)
            The features of the arm.
        reward : float
        """
        state, rows = self._checked("x", np.asarray(x)[None])
        reward = check_real("reward", reward, -MOST, MOST)
        error = reward - float(self._read(state, rows)[0][0])
        with one_blas_thread():
            state = state.with_row(rows[0], reward)
            if state.n == len(state.stack):
                grows = self.method == "rfd" and self.growth == "auto"
                state = state.shrunk(float(self.alpha), SHARES[self.method], grows=grows)
        self._state, self._squares, self._seen = state, self._squares + error * error, self._seen + 1
        return self

    @guarded_pair
    def merge(self, other: "SketchedLinUCB") -> Self:
        """Add all rows that another bandit has learned, and return self. The certificates add up."""
        if type(other) is not type(self):
            raise TypeError(f"Cannot merge a SketchedLinUCB with a {type(other).__name__}: the classes differ.")
        one, two = ({name: getattr(each, name) for name in self._structure} for each in (self, other))
        check_same_params("bandits", one, two)
        if hasattr(other, "_state"):
            state = self._checked("X_arms", np.zeros((1, len(other._state.b))))[0]
            with one_blas_thread():
                self._state = state.plus(other._state, float(self.alpha), SHARES[self.method])
        self._squares, self._seen = self._squares + other._squares, self._seen + other._seen
        self._choices += other._choices
        return self

    # -- reading

    def _fitted(self) -> Confidence:
        if not hasattr(self, "_state"):
            raise NotFittedError("This SketchedLinUCB has seen no rows yet. Call choose or learn first.")
        return self._state

    @property
    def n_features_in_(self) -> int:
        """d, the number of features."""
        return len(self._fitted().b)

    @property
    def weights_(self) -> Floats:
        """The estimated weights."""
        state = self._fitted()
        return state.split(state.b[None])[1][0] / state.alpha

    @property
    def sketch_size_(self) -> int:
        """The current m."""
        return self._fitted().m

    @property
    def alpha_(self) -> float:
        """The multiple of the identity in H."""
        return self._fitted().alpha

    @property
    def error_bound_(self) -> float:
        """The bound on the spectral error of H."""
        return max(SHARES[self.method], 1.0 - SHARES[self.method]) * self._fitted().delta

    @property
    def residual_size_(self) -> float:
        """The size of the errors of the predicted rewards."""
        return float(np.sqrt(self._squares / self._seen)) if self._seen else 1.0

    @property
    def n_samples_seen_(self) -> int:
        """The number of rows learned."""
        return self._seen

    @property
    def n_choices_(self) -> int:
        """The number of choices."""
        return self._choices

    def _read(self, state: Confidence, x: Floats) -> tuple[Floats, Floats]:
        with one_blas_thread():
            means, squares = state.read(x)
        return means, self.residual_size_ * np.sqrt(squares)

    def _chances(self, state: Confidence, x: Floats) -> Floats:
        """Return the probability of each arm. They do not depend on the unit, so that squares of widths are finite."""
        means, widths = self._read(state, x)
        unit = max(np.abs(means).max(), widths.max()) or 1.0
        out = np.empty((1, len(x)))
        choose_probabilities((means / unit)[None], np.square(widths / unit)[None], 0.0, out)
        return out[0]

    def _checked(self, name: str, values: Any) -> tuple[Confidence, Floats]:
        """Return the state and the rows, or raise an error if they or a parameter are invalid."""
        check_integer("sketch_size", self.sketch_size, 2)
        check_choice("method", self.method, tuple(SHARES))
        alpha = check_real("alpha", self.alpha, 1e-10, MOST)
        check_choice("growth", self.growth, ("auto", None))
        try:
            x = np.asarray(values).astype(np.float64, casting="same_kind", copy=False)
        except (TypeError, ValueError):
            raise ValueError(f"{name} must be numbers, got {values!r:.60}.") from None
        shape = "(n_arms, d)" if name == "X_arms" else "(d,)"
        if x.ndim != 2 or 0 in x.shape:
            raise ValueError(f"{name} must have shape {shape}, got {x.shape if name == 'X_arms' else x.shape[1:]}.")
        if not (x.max() <= MOST and x.min() >= -MOST):
            row, column = (int(i) for i in np.argwhere(~(np.abs(x) <= MOST))[0])
            at = f"[{row}, {column}]" if name == "X_arms" else f"[{column}]"
            raise ValueError(f"{name}{at} is {x[row, column]:g}, expected a number of size at most {MOST:g}.")
        d = x.shape[1]
        if not hasattr(self, "_state"):
            m = d + 1 if self.method == "exact" else min(self.sketch_size, d + 1)
            self._then = {each: getattr(self, each) for each in self._structure}
            return Confidence.empty(d, m, alpha), x
        for each, then in self._then.items():
            if getattr(self, each) != then:
                raise ValueError(f"{each} was changed from {then!r} to {getattr(self, each)!r} after rows were seen.")
        if d != len(self._state.b):
            raise ValueError(f"{name} has {d} features, but the bandit has seen rows of {len(self._state.b)}.")
        return self._state, x

    # -- copying and saving

    def __getstate__(self) -> dict[str, Any]:
        held = dict(super().__getstate__())
        if "_state" in held:  # rows are added in place, so copies must not share these arrays
            held["_state"] = replace(self._state, stack=self._state.stack.copy(), chol=self._state.chol.copy())
        return held

    def _pack(self) -> tuple[Document, Tensors]:
        state = self._checked("X_arms", np.zeros((1, self.n_features_in_)))[0]
        numbers = {"m": state.m, "alpha": state.alpha, "delta": state.delta, "grown": state.grown}
        counts = {"squares": self._squares, "seen": self._seen, "choices": self._choices}
        arrays = {"stack": state.rows, "chol": state.chol[: state.n, : state.n], "b": state.b}
        return numbers | counts, arrays

    def _unpack(self, document: Document, tensors: Tensors) -> None:
        rows, chol, b = (tensors.pop(name) for name in ("stack", "chol", "b"))
        if tensors or any(each.dtype != np.float64 or not np.isfinite(each).all() for each in (rows, chol, b)):
            raise ValueError("arrays are unknown or not finite")
        (n, d), (width,) = rows.shape, b.shape
        if d != width or d < 1 or n > 2 * d + 2 or chol.shape != (n, n):
            raise ValueError(f"the arrays have shapes {rows.shape}, {chol.shape} and {b.shape}")
        fresh = self._checked("X_arms", np.zeros((1, d)))[0]
        m = check_integer("m", document.pop("m"), fresh.m)
        if m > d + 1 or n >= 2 * m or np.triu(chol, 1).any() or not np.all(np.diag(chol) > 0):
            raise ValueError(f"m is {m} for {n} rows of {d} features, or chol is not a triangle")
        alpha = check_real("alpha", document.pop("alpha"), fresh.alpha)
        delta = check_real("delta", document.pop("delta"), 0.0)
        grown = check_real("grown", document.pop("grown"), 0.0, delta)
        self._squares = check_real("squares", document.pop("squares"), 0.0)
        self._seen, self._choices = (check_integer(name, document.pop(name), 0) for name in ("seen", "choices"))
        if document:
            raise ValueError(f"unknown parts {sorted(document)}")
        self._state = fresh.with_room(m, rows, chol, b=b, alpha=alpha, delta=delta, grown=grown)
