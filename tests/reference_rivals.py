"""Slow, literal transcriptions of the methods since Luo et al. 2019, in the loop of `reference_online.learn`.

- SCFD (Chen et al., IJCAI 2020): the sketch of FD with all that its shrinks removed added to the identity,
  B'B + (alpha0 + Delta) I. In the Newton step it is RFD-SON with alpha_t = alpha_{t-1} + sigma_m^2 instead of half.
- S-AdaGrad (Feinberg et al., NeurIPS 2023, "Sketchy"): rho_t and G_t from FD with the row g_t, then
  w_{t+1} = w_t - eta (G_t + (alpha0 + rho_1 + ... + rho_t) I)^(-1/2) g_t.
- Ada-FD (Wan and Zhang, IJCAI 2018, the form of mirror descent): S_t from FD with the row g_t, then
  w_{t+1} = w_t - eta (delta I + (S_t'S_t)^(1/2))^-1 g_t.

The roots of the last two are dense d x d, from an SVD of the sketch. FD shrinks as soon as its buffer has m rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tests import reference as ref
from tests import reference_online as online
from tests.reference import Array


def scfd_rule(s: Array, m: int) -> tuple[Array, float, float]:
    """FD's B, and alpha increases by sigma_m^2."""
    kept, delta, _ = ref.fd_rule(s, m)
    return kept, delta, delta


def spectral_compensation(A: ArrayLike, m: int, L: int | None = None, **options: Any) -> ref.Result:
    """The sketch of Chen et al. 2020."""
    return ref.run(A, m, L, scfd_rule, **options)


def scfd_son(X: ArrayLike, y: ArrayLike, m: int, *, L: int | None = None, **options: Any) -> online.Run:
    """RFD-SON with the rule of SCFD."""
    return online.rfd_son(X, y, m, L=L, rule=scfd_rule, **options)


@dataclass
class Rooted(online.Sketched):
    """The sketch of the gradients with L = m, shrunk before the step; H = root(lambda, alpha) / eta_t."""

    eta: Callable[[int], float] = lambda t: 1.0
    root: Callable[[Array, float], Array] = lambda lam, alpha: lam + alpha
    t: int = 0

    def add_row(self, x: Array, g: float, c: float) -> None:
        """Append the gradient g x."""
        self.t += 1
        super().add_row(x, g, g)

    def hessian(self) -> online.Hessian:
        """The roots of all eigenvalues; those of the row space only while alpha is 0."""
        found = super().hessian()
        lam = np.maximum(found.h - self.alpha, 0.0)
        return online.Hessian(found.V, self.root(lam, self.alpha) / self.eta(max(self.t, 1)))


def _rooted(
    X: ArrayLike, y: ArrayLike, m: int, rule: ref.Rule, root: Any, rate: Callable[[int], float], alpha0: float, **o: Any
) -> online.Run:
    d = np.shape(X)[1]
    model = Rooted(m, m, rule, alpha0, True, np.zeros((0, d)), np.zeros((d, 0)), eta=rate, root=root)
    return online.learn(X, y, model, **o)


def s_adagrad(
    X: ArrayLike, y: ArrayLike, m: int, *, rate: Callable[[int], float], alpha0: float = 0.0, **options: Any
) -> online.Run:
    """Feinberg et al. 2023: (B'B + alpha I)^(1/2), where alpha receives all that was removed."""
    return _rooted(X, y, m, scfd_rule, lambda lam, alpha: np.sqrt(lam + alpha), rate, alpha0, **options)


def ada_fd(
    X: ArrayLike, y: ArrayLike, m: int, *, rate: Callable[[int], float], alpha0: float = 0.0, **options: Any
) -> online.Run:
    """Wan and Zhang 2018: (B'B)^(1/2) + alpha0 I."""
    return _rooted(X, y, m, ref.fd_rule, lambda lam, alpha: np.sqrt(lam) + alpha, rate, alpha0, **options)
