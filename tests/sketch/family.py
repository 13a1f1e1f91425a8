"""Shared by the tests of sketches: the table of the family, input formats, and the promises as assertions."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

import robustfd as rfd
from tests import reference as ref
from tests import reference_rivals as rivals

EPS = float(np.finfo(np.float64).eps)
EPS32 = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class Rule:
    """A member of the frequent-directions family: the class, its transcription, and j of P2 and P3."""

    make: Callable[..., Any]
    transcription: Callable[..., ref.Result]
    shrunk: Callable[[int], int]  # j as a function of m
    share: float = 0.0  # share of Delta that is added to alpha
    compensated: bool = False
    diagonal: bool = False

    def delta(self, sketch: Any) -> float:
        """Return Delta, from the bracket of P1. The certificate also includes a bound on rounding errors."""
        return float(copy.copy(sketch).set_params(alpha0=0.0)._view.ceiling_alpha)


RULES = {
    "FD": Rule(rfd.FrequentDirections, ref.frequent_directions, lambda m: m),
    "RFD": Rule(rfd.RobustFrequentDirections, ref.robust_frequent_directions, lambda m: m, share=0.5),
    "PFD": Rule(
        rfd.ParameterizedFrequentDirections, ref.parameterized_frequent_directions, lambda m: ref.n_shrunk(0.2, m)
    ),
    "PFD 0.5": Rule(
        partial(rfd.ParameterizedFrequentDirections, beta=0.5),
        partial(ref.parameterized_frequent_directions, beta=0.5),
        lambda m: ref.n_shrunk(0.5, m),
    ),
    "two-sided": Rule(
        rfd.TwoSidedFrequentDirections, ref.parameterized_frequent_directions, lambda m: ref.n_shrunk(0.2, m)
    ),
    "CFD": Rule(rfd.CompensativeFrequentDirections, ref.frequent_directions, lambda m: m, compensated=True),
    "SCFD": Rule(rfd.SpectralCompensationFrequentDirections, rivals.spectral_compensation, lambda m: m, share=1.0),
    "greedy": Rule(rfd.GreedySketch, ref.greedy, lambda m: 1),
    "DFD": Rule(rfd.DiagonalFrequentDirections, ref.diagonal_frequent_directions, lambda m: m, diagonal=True),
}

# All public sketches, with small sizes, ready to be fitted to a few columns.
SKETCHES: dict[str, Callable[..., Any]] = {
    "FD": partial(rfd.FrequentDirections, 4),
    "RFD": partial(rfd.RobustFrequentDirections, 4),
    "PFD": partial(rfd.ParameterizedFrequentDirections, 4),
    "CFD": partial(rfd.CompensativeFrequentDirections, 4),
    "SCFD": partial(rfd.SpectralCompensationFrequentDirections, 4),
    "greedy": partial(rfd.GreedySketch, 4),
    "DFD": partial(rfd.DiagonalFrequentDirections, 4),
    "random projection": partial(rfd.RandomProjectionSketch, 4, random_state=0),
    "Oja": partial(rfd.OjaSketch, 4, random_state=0),
    "exact": rfd.ExactSecondMoment,
    "two-sided": partial(rfd.TwoSidedFrequentDirections, 4),
    "sliding": partial(rfd.SlidingFrequentDirections, 30, 4),
}


def made(make: Callable[..., Any], **options: Any) -> Any:
    """Return a sketch with the options that it supports. For example, a sliding window has no decay."""
    known = make().get_params()
    return make(**{name: value for name, value in options.items() if name in known})


FORMATS = {
    "dense": lambda X: X,
    "fortran": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "csr matrix": sp.csr_matrix,
    "csr array": sp.csr_array,
    "csc": sp.csc_array,
    "coo": sp.coo_matrix,
    "explicit zeros": lambda X: with_explicit_zeros(X),
    "unsorted": lambda X: unsorted(X),
    "duplicates": lambda X: with_duplicates(X),
}


def with_explicit_zeros(X: Any) -> Any:
    """Return a CSR matrix of X that stores every third zero of it."""
    X = np.asarray(X)
    row, column = np.indices(X.shape).reshape(2, -1)
    stored = (X.ravel() != 0) | (np.arange(X.size) % 3 == 0)
    return sp.coo_array((X.ravel()[stored], (row[stored], column[stored])), shape=X.shape).tocsr()


def unsorted(X: Any) -> Any:
    """Return a CSR matrix of X with the entries of each row stored from right to left."""
    S = sp.csr_array(np.asarray(X))
    order = np.concatenate([np.arange(a, b)[::-1] for a, b in zip(S.indptr, S.indptr[1:])]).astype(int)
    return sp.csr_array((S.data[order], S.indices[order], S.indptr), shape=S.shape)


def with_duplicates(X: Any) -> Any:
    """Return a CSR matrix of X in which every entry is stored twice, as halves (floats) or as x and 0."""
    S = sp.csr_array(np.asarray(X))
    half = S.data / 2 if S.dtype.kind == "f" else np.zeros_like(S.data)
    parts = [half, S.data - half] if S.dtype != bool else [S.data, np.zeros_like(S.data)]
    data = np.stack(parts, axis=1).ravel()
    return sp.csr_array((data, np.repeat(S.indices, 2), 2 * S.indptr), shape=S.shape)


@dataclass
class Ledger:
    """The rows that a sketch was given, with their current weights: the ground truth of a test."""

    d: int
    decay: float = 1.0
    rows: list[np.ndarray] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    def add(self, X: np.ndarray, weights: Any = None) -> None:
        for a, w in zip(np.asarray(X, dtype=float), np.ones(len(X)) if weights is None else weights, strict=True):
            if w > 0:
                self.weights = [self.decay * u for u in self.weights]
                self.rows.append(a)
                self.weights.append(float(w))

    def forget(self, factor: float) -> None:
        self.weights = [factor * u for u in self.weights]

    def merge(self, other: Ledger) -> None:
        self.rows, self.weights = self.rows + other.rows, self.weights + other.weights

    @property
    def A(self) -> np.ndarray:
        return np.array(self.rows).reshape(-1, self.d)

    def target(self, center: bool = False) -> np.ndarray:
        return ref.target(self.A, self.weights, center=center)

    def mean(self) -> np.ndarray:
        return ref.weighted_mean(self.A, self.weights)


def largest_eigenvalue(T: np.ndarray) -> float:
    return float(np.linalg.norm(T, 2)) if T.size else 0.0


def assert_promises(
    rule: Rule, sketch: Any, T: np.ndarray, *, shrinks: int, rounding_scale: float | None = None
) -> None:
    """Assert P1 to P4 for this sketch of T. `rounding_scale` replaces lambda_1(T) in the tolerance."""
    m = sketch.sketch_size
    size = max(2 * m if sketch.buffer_size is None else sketch.buffer_size, len(T))
    B = sketch.sketch_.astype(np.float64)
    unit = max(rounding_scale or 0.0, largest_eigenvalue(T)) or 1.0
    eps = EPS32 if sketch.sketch_.dtype == np.float32 else EPS
    tol = 8 * max(shrinks, 1) * size * eps
    scaled, Delta = T / unit, rule.delta(sketch) / unit
    V, lam = sketch.components_.astype(np.float64), sketch.singular_values_**2 / unit
    assert np.isfinite(B).all()
    assert Delta >= 0
    assert len(B) <= m - 1
    assert np.all(np.diff(lam) <= tol)
    np.testing.assert_allclose(V @ V.T, np.eye(len(V)), atol=max(1e-6, 100 * eps))
    np.testing.assert_allclose(np.linalg.norm(B, axis=1) ** 2 / unit, lam, atol=tol)
    E = scaled - (B / np.sqrt(unit)).T @ (B / np.sqrt(unit))
    I = np.eye(len(T))
    if rule.compensated:
        P = V.T @ V
        assert np.linalg.eigvalsh(E + Delta * P)[0] >= -tol
        assert np.linalg.eigvalsh(Delta * (I - P) - E)[0] >= -tol
        E = E + Delta * P  # the error of the underlying FD sketch
        lam = lam - Delta
    values = np.linalg.eigvalsh(E)
    assert values[0] >= -tol, f"P1: A'A - B'B has the eigenvalue {values[0]}"
    assert values[-1] <= Delta + tol, f"P1: ||A'A - B'B|| = {values[-1]} > Delta = {Delta}"
    j, norm = rule.shrunk(m), sketch.squared_norm_ / unit
    assert abs(norm - np.trace(scaled)) <= tol * max(1.0, norm)
    assert norm - lam.sum() >= j * Delta - tol * max(1.0, norm), "P2"
    assert Delta <= ref.a_priori_bound(scaled, j) + tol * max(1.0, norm), "P3"
    alpha, alpha0 = sketch.alpha_ / unit, sketch.alpha0 / unit
    assert abs(alpha - alpha0 - rule.share * Delta) <= tol + 4 * EPS * alpha0
    error = np.abs(values - (alpha - alpha0)).max()
    if rule.diagonal:
        R = sketch.diagonal_ / unit
        assert R.min() >= 0 and R.max() <= Delta, "0 <= R <= Delta"
        np.testing.assert_allclose(R, np.diag(E), rtol=0, atol=tol + 128 * EPS, err_msg="diag(B'B + R) = diag(A'A)")
        error = np.abs(np.linalg.eigvalsh(E - np.diag(R))).max()
        bound = (sketch.error_bound_ - 2 * sketch._view.rounding) / unit
        assert bound <= (1 - 1 / len(T)) * Delta + tol + 4 * EPS * alpha0
    if not rule.compensated:
        assert error <= sketch.error_bound_ / unit + tol + 4 * EPS * alpha0, "P4"
    relative = error / max(largest_eigenvalue(scaled), 1e-300)
    if largest_eigenvalue(T) > 0 and not rule.compensated and rounding_scale is None:
        assert relative <= sketch.relative_error_bound_ + tol + 4 * EPS * alpha0


def fingerprint(sketch: Any) -> str:
    """Return the checksum in the snapshot of a sketch. It covers its class, parameters, scalars, arrays and queue."""
    data = sketch.to_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return str(header["__metadata__"]["sha256"])
