"""The best fixed weights in hindsight: least squares subject to |w'x_t| <= C for all rows, with a certified gap."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RANK = 1e-7  # singular values below this fraction of the largest count as zero
GAP = 1e-5  # largest duality gap, relative to the loss
FACTOR = 20.0  # t grows by this factor in each outer iteration


@dataclass(frozen=True)
class Hindsight:
    """The weights w, their loss, and a lower bound on the loss of any weights in the domain."""

    w: Floats
    loss: float
    lower: float


def span(x: Any) -> tuple[Floats, Floats, Floats]:
    """Return the thin SVD X = U diag(s) V' up to rounding errors, without zero singular values."""
    tall = x.shape[0] >= x.shape[1]
    gram = x.T @ x if tall else x @ x.T
    values, vectors = scipy.linalg.eigh(gram.toarray() if sp.issparse(gram) else gram)
    keep = values > RANK**2 * values[-1]
    s, vectors = np.sqrt(values[keep]), vectors[:, keep]
    other = (x @ vectors if tall else x.T @ vectors) / s
    # Dividing by small s loses orthogonality. A QR step restores it.
    other, r = np.linalg.qr(other)
    other *= np.sign(np.diag(r))
    return (other, s, vectors) if tall else (vectors, s, other)


def best_in_hindsight(x: Any, y: Floats, bound: float = 1.0) -> Hindsight:
    """Return the minimiser of sum (w'x_t - y_t)^2 over |w'x_t| <= bound with the smallest norm.

    The interior-point method works in coordinates z with U z = X w. It minimises t ||Uz - y||^2 - sum log(C^2 - p_i^2),
    where p = Uz, by Newton's method for growing t. Any lambda gives the dual lower bound ||q - y||^2 + lambda'q -
    C |lambda|_1 with q = U U'(y - lambda / 2). The barrier suggests lambda = 2 p / (t (C^2 - p^2)).
    """
    u, s, v = span(x)
    p, t = np.zeros(len(y)), 1.0
    z = np.zeros(len(s))
    while True:
        z, p = _centre(u, y, bound, t, z, p)
        lam = 2 * p / (t * (bound**2 - p**2))
        q = u @ (u.T @ (y - lam / 2))
        loss, lower = float(np.sum((p - y) ** 2)), float(np.sum((q - y) ** 2) + lam @ q - bound * np.abs(lam).sum())
        if loss - lower <= GAP * max(loss, 1.0) or t > 1e12:
            return Hindsight(v @ (z / s), loss, min(lower, loss))
        t *= FACTOR


def _centre(u: Floats, y: Floats, bound: float, t: float, z: Floats, p: Floats) -> tuple[Floats, Floats]:
    """Return the minimiser of the barrier function for this t, and its margins."""

    def value(p: Floats) -> float:
        return float(t * np.sum((p - y) ** 2) - np.sum(np.log(bound - p) + np.log(bound + p)))

    for _ in range(60):
        slack = bound**2 - p**2
        slope = u.T @ (2 * t * (p - y) + 2 * p / slack)
        root = np.sqrt(2 * t + 2 * (bound**2 + p**2) / slack**2)
        scaled = root[:, None] * u
        factor = scipy.linalg.cho_factor(scaled.T @ scaled, overwrite_a=True, check_finite=False)
        step = -scipy.linalg.cho_solve(factor, slope, check_finite=False)
        decrease = -float(slope @ step)
        if decrease < 1e-8:
            break
        move = u @ step
        with np.errstate(divide="ignore"):
            reach = np.min(np.where(move > 0, (bound - p) / move, np.where(move < 0, (-bound - p) / move, np.inf)))
        length, before = min(1.0, 0.99 * float(reach)), value(p)
        while value(p + length * move) > before - 0.1 * length * decrease and length > 1e-10:
            length /= 2
        z, p = z + length * step, p + length * move
    return z, p
