"""Slow, literal transcriptions of the online learners, as references for the tests.

Dense float64, one row at a time, explicit d x d algebra. "Luo et al. 2019" is the paper (Robust Frequent Directions
with Application in Online Learning). Names follow it and docs/online-mathematics.md: w the weights, H = B'B + alpha I,
C the bound; t counts rows of positive weight from 1.

Every learner is one loop, `learn`, over a model that adds rows and returns its matrix H:

    p = w'x,  g = l'(p)                              the margin, then the slope
    add the row c x to H, c^2 = s (mu + eta_t) g^2   s is the weight of the row
    u = w - H^+ (s g x)                              the step
    w = argmin ||w - u||_H over the domain           the projection

Common to all: a slope of |g| <= FLAT max(1, |y|) is set to 0. A row of weight 0 only gets a margin.
Every other row counts and takes a slot, even with gradient 0. A vector has a part outside the row space if the squared
length of that part is above OUTSIDE times its squared length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import expit

from tests import reference as ref
from tests.reference import Array

FLAT = 1e-9
OUTSIDE = 1e-11
RANK = 1e-11  # relative, on the eigenvalues of a random B'B when alpha0 = 0
EPS = float(np.finfo(float).eps)

# ---------------------------------------------------------------- losses
# name: (value, slope) of the margin p and the label y. At a kink, and within FLAT of it, the slope is 0: a projected
# margin is often the label itself, up to rounding.

Loss = tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]


def huber(delta: float) -> Loss:
    """(p - y)^2 up to |p - y| = delta, then its tangent."""

    def value(p: Any, y: Any) -> Any:
        r = np.abs(p - y)
        return np.where(r <= delta, r**2, 2 * delta * r - delta**2)

    return value, lambda p, y: 2 * np.clip(p - y, -delta, delta)


LOSSES: dict[str, Loss] = {
    "squared": (lambda p, y: (p - y) ** 2, lambda p, y: 2 * (p - y)),
    "logistic": (lambda p, y: np.logaddexp(0, -y * p), lambda p, y: -y * expit(-y * p)),
    "squared_hinge": (lambda p, y: np.maximum(0, 1 - y * p) ** 2, lambda p, y: -2 * y * np.maximum(0, 1 - y * p)),
    "hinge": (lambda p, y: np.maximum(0, 1 - y * p), lambda p, y: -y * (y * p < 1 - FLAT)),
    "absolute": (
        lambda p, y: np.abs(p - y),
        lambda p, y: np.sign(p - y) * (np.abs(p - y) > FLAT * np.maximum(1, np.abs(y))),
    ),
    "huber": huber(1.0),
}


def inverse_time(t: int) -> float:
    """eta_t = 1/t, the rate of the experiments."""
    return 1 / t


# ------------------------------------------------ H, and projections in it


@dataclass(frozen=True)
class Hessian:
    """H = V diag(h) V', with orthonormal columns V and h > 0; zero on the complement of the span of V."""

    V: Array
    h: Array

    def solve(self, v: Array) -> Array:
        """H^+ v."""
        return np.asarray(self.V @ ((self.V.T @ v) / self.h))

    def outside(self, v: Array) -> Array:
        """The part of v outside the range of H (projected twice, against rounding errors)."""
        if self.V.shape[1] == len(v):
            return np.zeros(len(v))
        v = v - self.V @ (self.V.T @ v)
        return np.asarray(v - self.V @ (self.V.T @ v))

    def dense(self) -> Array:
        """H itself."""
        return np.asarray((self.V * self.h) @ self.V.T)

    def condition(self) -> float:
        """The largest h over the smallest."""
        return float(self.h.max() / self.h.min()) if len(self.h) else 1.0


def project_slab(u: Array, x: Array, H: Hessian, C: float) -> Array:
    """argmin ||w - u||_H over |w'x| <= C (Luo et al. 2019, Appendix A, w_2 corrected, see docs/online-mathematics.md).

    If H is singular and x has a part outside its range, moving along that part costs nothing. Of the minimisers this
    returns the one nearest to u.
    """
    z = u @ x
    tau = np.sign(z) * max(abs(z) - C, 0.0)
    if tau == 0:
        return u
    x0 = H.outside(x)
    if x0 @ x0 > OUTSIDE * (x @ x):
        return np.asarray(u - tau / (x0 @ x0) * x0)
    k = H.solve(x)
    return np.asarray(u - tau / (x @ k) * k)


def project_ball(u: Array, H: Hessian, C: float) -> Array:
    """argmin ||w - u||_H over ||w||_2 <= C: w = (H + nu I)^-1 H u with nu from the secular equation.

    If H is singular, the part of u outside its range is shortened first, as far as needed, which costs nothing. The
    result is the minimiser nearest to u, and the limit for alpha -> 0.
    """
    if np.linalg.norm(u) <= C:
        return u
    c, out = H.V.T @ u, H.outside(u)
    if np.linalg.norm(c) <= C and H.V.shape[1] < len(u):
        return np.asarray(u - out + np.sqrt(C**2 - c @ c) * out / np.linalg.norm(out))
    h = H.h / H.h.max()

    def excess(nu: float) -> float:
        return float(np.linalg.norm(h * c / (h + nu)) - C)

    nu = brentq(excess, 0.0, np.linalg.norm(c) / C, xtol=1e-300, rtol=4 * EPS, maxiter=2000)
    return np.asarray(H.V @ (h * c / (h + nu)))


# ---------------------------------------------------------------- models


class Model:
    """The interface between `learn` and the matrix of a learner; alpha and delta are those after the row."""

    alpha: float
    delta: float = 0.0

    def add_row(self, x: Array, g: float, c: float) -> None:
        """Add a row: x are its features, g x is its gradient including the weight, c x is the row for a sketch."""
        raise NotImplementedError

    def hessian(self) -> Hessian:
        """The current H."""
        raise NotImplementedError

    def finish_row(self) -> None:
        """Called after the step and the projection."""


def _extend_basis(Q: Array, x: Array) -> Array:
    """Q with a column for the part of x outside its span, if there is one."""
    x0 = Hessian(Q, np.ones(Q.shape[1])).outside(x)
    return np.column_stack([Q, x0 / np.linalg.norm(x0)]) if x0 @ x0 > OUTSIDE * (x @ x) else Q


@dataclass
class Sketched(Model):
    """The buffer of Luo et al. 2019, Alg. 3 (L = m) and Alg. 6 (L = 2 m), with any rule of `reference`.

    B starts empty and has m - 1 rows after a shrink step, including zero rows. While alpha is 0, the row space is
    stored as orthonormal columns Q, extended row by row with a tolerance relative to the row. Then H^+ = Q (Q'B'B Q)^-1
    Q', a shrink step of rank r < m has a delta of exactly 0, and rounding errors above rank r are dropped (trap T1 of
    tests/sketch/test_traps.py).
    """

    m: int
    L: int
    rule: ref.Rule
    alpha: float
    shrink_first: bool
    B: Array
    Q: Array

    def add_row(self, x: Array, g: float, c: float) -> None:
        """Append c x. With `shrink_first` (the printed order), a full buffer is shrunk at once."""
        self.B = np.vstack([self.B, c * x])
        self.delta = 0.0
        if c != 0 and self.alpha == 0:
            self.Q = _extend_basis(self.Q, x)
        if self.shrink_first:
            self._shrink_if_full()

    def finish_row(self) -> None:
        """Shrink a full buffer here in the default order, after the step and the projection."""
        if not self.shrink_first:
            self._shrink_if_full()

    def hessian(self) -> Hessian:
        """B'B + alpha I by an SVD of B; with alpha = 0, within the row space."""
        B = np.vstack([self.B, np.zeros((1, self.B.shape[1]))])  # SVD needs at least one row
        if self.alpha > 0:
            _, s, vt = np.linalg.svd(B, full_matrices=True)
            return Hessian(vt.T, self.alpha + np.concatenate([s**2, np.zeros(len(vt) - len(s))]))
        if self.Q.shape[1] == 0:
            return Hessian(self.Q, np.zeros(0))
        _, s, vt = np.linalg.svd(B @ self.Q, full_matrices=False)
        return Hessian(self.Q @ vt.T, s**2)

    def _shrink_if_full(self) -> None:
        if len(self.B) < self.L:
            return
        _, s, vt = np.linalg.svd(self.B, full_matrices=False)
        missing = max(0, self.m - len(s))
        s = np.concatenate([s, np.zeros(missing)])
        vt = np.vstack([vt, np.zeros((missing, self.B.shape[1]))])
        s[s <= EPS * max(self.B.shape) * s[0]] = 0.0
        if self.alpha == 0:
            s[self.Q.shape[1] :] = 0.0
        kept, self.delta, half = self.rule(s, self.m)
        self.alpha += half
        self.B = np.sqrt(kept)[:, None] * vt[: self.m - 1]
        self.Q = vt[: self.m - 1][kept > 0].T


@dataclass
class Full(Model):
    """FULL-ON: H = alpha0 I + sum of the outer products, d x d."""

    alpha: float
    H: Array
    Q: Array

    def add_row(self, x: Array, g: float, c: float) -> None:
        """H += c^2 x x'."""
        self.H = self.H + c**2 * np.outer(x, x)
        if c != 0 and self.alpha == 0:
            self.Q = _extend_basis(self.Q, x)

    def hessian(self) -> Hessian:
        """The eigenpairs of H, within the row space if alpha0 = 0."""
        Q = self.Q if self.alpha == 0 else np.eye(len(self.H))
        h, v = np.linalg.eigh(Q.T @ self.H @ Q)
        return Hessian(Q @ v, h)


@dataclass
class Diagonal(Model):
    """ADAGRAD: S_i += g_i^2 and H = diag(sqrt(alpha0 + S))."""

    alpha: float
    S: Array

    def add_row(self, x: Array, g: float, c: float) -> None:
        """S += (g x)^2."""
        self.S = self.S + (g * x) ** 2

    def hessian(self) -> Hessian:
        """Unit vectors. If alpha0 = 0, features that never had a gradient are outside the range."""
        h = np.sqrt(self.alpha + self.S)
        return Hessian(np.eye(len(h))[:, h > 0], h[h > 0])


@dataclass
class Gradient(Model):
    """Online gradient descent: H = I / rate(t), so that the step is rate(t) g and the projection Euclidean."""

    rate: Callable[[int], float]
    d: int
    t: int = 0
    alpha: float = 0.0

    def add_row(self, x: Array, g: float, c: float) -> None:
        """Count the row."""
        self.t += 1

    def hessian(self) -> Hessian:
        """I / rate(t)."""
        return Hessian(np.eye(self.d), np.full(self.d, 1 / self.rate(max(self.t, 1))))


@dataclass
class Projected(Model):
    """RP-SON: B += r (c x)'/sqrt(m), where r is row t of R; H = B'B + alpha0 I."""

    alpha: float
    R: Array
    B: Array
    t: int = 0

    def add_row(self, x: Array, g: float, c: float) -> None:
        """Add the row to all m rows."""
        self.B = self.B + np.outer(self.R[self.t], c * x) / np.sqrt(len(self.B))
        self.t += 1

    def hessian(self) -> Hessian:
        """From an SVD of B. If alpha0 = 0, only eigenvalues above RANK times the largest count."""
        return _dense_hessian(self.B, self.alpha)


@dataclass
class Oja(Model):
    """Oja-SON: V = orth(V + (1/t)(V a) a'), Lambda = (1 - 1/t) Lambda + (1/t)(V a)^2, B = sqrt(t Lambda) V, a = c x."""

    alpha: float
    V: Array
    Lambda: Array
    t: int = 0

    def add_row(self, x: Array, g: float, c: float) -> None:
        """One step of Oja's algorithm, with the old V on the right-hand sides."""
        self.t += 1
        Va = self.V @ (c * x)
        self.V = ref.orth(self.V + np.outer(Va, c * x) / self.t)
        self.Lambda = (1 - 1 / self.t) * self.Lambda + Va**2 / self.t

    @property
    def B(self) -> Array:
        """sqrt(t Lambda) V."""
        return np.asarray(np.sqrt(self.t * self.Lambda)[:, None] * self.V)

    def hessian(self) -> Hessian:
        """As for RP-SON."""
        return _dense_hessian(self.B, self.alpha)


def _dense_hessian(B: Array, alpha: float) -> Hessian:
    _, s, vt = np.linalg.svd(B, full_matrices=True)
    h = np.concatenate([s**2, np.zeros(len(vt) - len(s))])
    if alpha > 0:
        return Hessian(vt.T, h + alpha)
    kept = h > RANK * h[0]
    return Hessian(vt[kept].T, h[kept])


# ------------------------------------------------------------- the loop


@dataclass
class Run:
    """The record of a run: values for each row, and the final state."""

    margins: Array  # w'x before the row was learnt; with projection="next" after that projection
    w: Array  # the weights at the end
    model: Any
    condition: float = 1.0  # the largest condition number of H
    path: list[Array] = field(default_factory=list)  # w at the margin, for each row of positive weight
    gradients: list[Array] = field(default_factory=list)  # s l'(p) x
    etas: list[float] = field(default_factory=list)
    alphas: list[float] = field(default_factory=list)  # after the row
    deltas: list[float] = field(default_factory=list)  # of the row's shrink, or 0
    first: Array | None = None  # H after the first row with alpha > 0

    @property
    def B(self) -> Array:
        """The current sketch, up to L - 1 rows."""
        return np.asarray(self.model.B)

    @property
    def alpha(self) -> float:
        """alpha at the end."""
        return float(self.model.alpha)


def learn(
    X: ArrayLike,
    y: ArrayLike,
    model: Model,
    *,
    loss: str | Loss = "squared",
    bound: float = 1.0,
    mu: float = 1 / 8,
    rate: Callable[[int], float] = inverse_time,
    domain: str = "slab",
    projection: str | None = "current",
    weight: ArrayLike | None = None,
) -> Run:
    """Luo et al. 2019, the loop of Alg. 3 (projection="next", onto K_{t+1}) and Alg. 6 ("current", onto K_t).

    With "next", the projection before row t + 1 uses the norm of the current H, after the shrink step if there was one.
    The domain is "slab" (|w'x_t| <= bound), "ball" (||w||_2 <= bound) or "none".
    """
    X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
    weights = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=float)
    slope = (LOSSES[loss] if isinstance(loss, str) else loss)[1]
    run = Run(np.zeros(len(X)), np.zeros(X.shape[1]), model)

    def projected(u: Array, x: Array) -> Array:
        if domain == "none":
            return u
        return (
            project_slab(u, x, model.hessian(), bound) if domain == "slab" else project_ball(u, model.hessian(), bound)
        )

    t = 0
    for i, (x, s) in enumerate(zip(X, weights, strict=True)):
        if s == 0:
            run.margins[i] = run.w @ x
            continue
        t += 1
        if projection == "next":
            run.w = projected(run.w, x)
        run.path.append(run.w)
        run.margins[i] = run.w @ x
        g = float(slope(run.margins[i], y[i]))
        if abs(g) <= FLAT * max(1.0, abs(y[i])):
            g = 0.0
        model.add_row(x, s * g, np.sqrt(s * (mu + rate(t))) * g)
        H = model.hessian()
        run.w = run.w - H.solve(s * g * x)
        if projection == "current":
            run.w = projected(run.w, x)
        model.finish_row()
        run.condition = max(run.condition, H.condition())
        run.gradients.append(s * g * x)
        run.etas.append(rate(t))
        run.alphas.append(model.alpha)
        run.deltas.append(model.delta)
        if run.first is None and run.alphas[-1] > 0:
            run.first = model.hessian().dense()
    return run


# -------------------------------------------------- the named algorithms
# `options` are the keywords of `learn`.


def rfd_son(
    X: ArrayLike,
    y: ArrayLike,
    m: int,
    *,
    L: int | None = None,
    rule: str | ref.Rule = "rfd",
    beta: float = 0.2,
    alpha0: float = 0.0,
    shrink_first: bool = False,
    **options: Any,
) -> Run:
    """RFD-, FD- or PFD-SON with a buffer of L rows (default 2 m): Luo et al. 2019, Alg. 6, step before shrink.

    `shrink_first=True` is the printed order; L = m, shrink_first=True and projection="next" is Alg. 3.
    """
    rules = {"rfd": ref.rfd_rule, "fd": ref.fd_rule, "pfd": ref.pfd_rule(beta)}
    d = np.shape(X)[1]
    L = 2 * m if L is None else L
    chosen = rules[rule] if isinstance(rule, str) else rule
    return learn(X, y, Sketched(m, L, chosen, alpha0, shrink_first, np.zeros((0, d)), np.zeros((d, 0))), **options)


def algorithm_3(X: ArrayLike, y: ArrayLike, m: int, *, alpha0: float = 0.0, **options: Any) -> Run:
    """Luo et al. 2019, Alg. 3, as printed."""
    return rfd_son(X, y, m, L=m, alpha0=alpha0, shrink_first=True, projection="next", **options)


def full_on(X: ArrayLike, y: ArrayLike, *, alpha0: float = 0.0, **options: Any) -> Run:
    """FULL-ON, the online Newton step without a sketch."""
    d = np.shape(X)[1]
    return learn(X, y, Full(alpha0, alpha0 * np.eye(d), np.zeros((d, 0))), **options)


def adagrad(X: ArrayLike, y: ArrayLike, *, alpha0: float = 0.0, **options: Any) -> Run:
    """ADAGRAD as in the experiments: a step of g / sqrt(alpha0 + S), no other rate."""
    return learn(X, y, Diagonal(alpha0, np.zeros(np.shape(X)[1])), **options)


def ogd(X: ArrayLike, y: ArrayLike, *, rate: Callable[[int], float] = inverse_time, **options: Any) -> Run:
    """Online gradient descent with step rate(t)."""
    return learn(X, y, Gradient(rate, np.shape(X)[1]), rate=rate, **options)


def rp_son(X: ArrayLike, y: ArrayLike, R: ArrayLike, *, alpha0: float = 0.0, **options: Any) -> Run:
    """RP-SON; row t of R, of length m, belongs to the t-th row of positive weight."""
    R = np.asarray(R, dtype=float)
    return learn(X, y, Projected(alpha0, R, np.zeros((R.shape[1], np.shape(X)[1]))), **options)


def oja_son(X: ArrayLike, y: ArrayLike, V0: ArrayLike, *, alpha0: float = 0.0, **options: Any) -> Run:
    """Oja-SON from the orthonormal rows V0."""
    V0 = np.asarray(V0, dtype=float)
    return learn(X, y, Oja(alpha0, V0, np.zeros(len(V0))), **options)
