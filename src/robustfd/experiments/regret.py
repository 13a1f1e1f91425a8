"""Theorems 5 to 7: the regret of RFD-SON and FD-SON compared with the bounds.

The theorems apply to Algorithm 3 as printed (one shrink step per row, projection before the next prediction), so this
experiment runs it. For comparison it also runs the fast algorithm of the other experiments. No theorem covers that one,
because it projects after the step and a prediction may leave the domain. Rotating the rows changes nothing, so they are
expressed in coordinates of the space that they span, and its dimension replaces d.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from robustfd import FrequentDirections, OnlineNewton, RobustFrequentDirections
from robustfd.experiments.cells import Cell, Result, Row, Table, Verdict, cell, listed, per_data_set, power, select
from robustfd.experiments.figures import Figure, Style, decades
from robustfd.experiments.protocol import Data, split

TITLE = "Regret"
CLAIM = (
    "The regret of RFD-SON is bounded, also with α₀ = 0, and the bound depends little on α₀, while FD-SON's blows up "
    "as α₀ becomes small (Theorems 5 to 7)."
)
C, MU, L = 1.0, 1 / 8, 4.0  # size of the domain, curvature, and the largest |2(p - y)| on the domain
ALPHAS = (1e-3, 1.0, 1e3)
MOST = 3000  # with at most this many rows or dimensions, the best weights take less than a minute
POINTS = 7  # number of doubling row counts at which regret is measured

Floats = NDArray[np.float64]


def cells(data: Data, *, quick: bool) -> list[Cell]:
    """Return one cell per data set. All learners share the best weights in hindsight, which take longest."""
    if not data.two_classes:
        return []
    most = 400 if quick else MOST
    rows = data.n_train if min(data.n_train, data.n_features) <= most else most
    rows = min(rows, 2000) if quick else rows
    narrow = min(rows, data.n_features)
    effort = 1e-9 * rows * narrow**2 + 4e-3 * rows
    return [cell("regret", data.name, effort=effort, m=data.sizes[-1], rows=rows)]


def run(cell: Cell) -> Result:
    """Return the regret and the bounds of each learner at doubling row counts."""
    x, y, _, _ = split(cell.data, None)
    x, y, m = x[: cell["rows"]], y[: cell["rows"]], cell["m"]
    u, s, _ = span(x)
    x = np.ascontiguousarray(u * s)
    at = sorted({n for k in range(POINTS) if (n := len(y) >> k) > 2 * m} | {len(y)})
    best = [best_in_hindsight(x[:t], y[:t], C) for t in at]
    curves = []
    for method, alpha0 in [("rfd", 0.0), *((method, alpha0) for alpha0 in ALPHAS for method in ("rfd", "fd"))]:
        slow = follow(x, y, m, method, alpha0, at)
        fast = OnlineNewton(method, m, alpha0=alpha0).learn(x, y)  # type: ignore[arg-type]
        points = []
        for run, other in zip(slow, best):
            t = run.rows
            bound, printed = bounds(run, other.w, alpha0)
            points.append({
                "rows": t, "regret": run.loss - other.loss,
                "fast_regret": float(np.sum((fast[:t] - y[:t]) ** 2)) - other.loss,
                "bound": bound, "printed": printed, "loss": run.loss, "best_loss": other.loss,
                "gap": other.loss - other.lower,
            })  # fmt: skip
        curves.append({"method": method, "alpha0": alpha0, "points": points})
    return {"m": m, "dimension": x.shape[1], "curves": curves}


@dataclass
class Run:
    """The state of Algorithm 3 after some rows, in the notation of the theorems. `method` is "rfd" or "fd"."""

    method: str
    m: int
    alpha: float
    weighted: Floats  # sum of delta_t w_t
    rows: int = 0
    loss: float = 0.0
    squared_norm: float = 0.0  # ||A||_F^2 of the rows sqrt(mu + eta) g
    delta: float = 0.0  # sum of delta_t
    over_alpha: float = 0.0  # sum of delta_t / alpha_t, after the first positive alpha if alpha0 = 0
    squares: float = 0.0  # sum of delta_t ||w_t||^2
    first: Any = None  # with alpha0 = 0: the phase before alpha becomes positive

    def distance_term(self, w: Floats) -> float:
        """Return a quarter of the sum of delta_t ||w_t - w||^2."""
        return (self.squares - 2 * float(self.weighted @ w) + self.delta * float(w @ w)) / 4


@dataclass(frozen=True)
class FirstPhase:
    """The phase until alpha becomes positive at row T': the gradients before it, and log det H after it."""

    rows: int
    gradients: Floats
    logdet: float


def follow(x: Floats, y: Floats, m: int, method: str, alpha0: float, at: Sequence[int]) -> list[Run]:
    """Return the state of Algorithm 3 after each of the row counts `at`."""
    options = {"alpha0": alpha0, "buffer_size": m, "shrink_first": True, "projection": "next"}
    model = OnlineNewton(method, m, **options)  # type: ignore[arg-type]
    kind = RobustFrequentDirections if method == "rfd" else FrequentDirections
    sketch = kind(m, buffer_size=m, alpha0=alpha0)  # a copy of the learner's sketch, which is not accessible
    pending: list[Floats] = []
    run = Run(method, m, alpha0, np.zeros(x.shape[1]))
    gradients: list[Floats] = []
    before, out = np.zeros(x.shape[1]), []

    def sketched() -> Any:
        if pending:
            sketch.partial_fit(np.array(pending))
            pending.clear()
        return sketch.second_moment()

    for i in range(len(y)):
        margin = float(model.learn(x[i : i + 1], y[i : i + 1])[0])
        slope = 2 * (margin - y[i])
        t = run.rows = i + 1
        run.loss += float((margin - y[i]) ** 2)
        gradient = np.sqrt(MU + 1 / t) * slope * x[i]
        run.squared_norm += float(gradient @ gradient)
        if method == "rfd":
            alpha, delta = model.alpha_, 2 * (model.alpha_ - run.alpha)
            if delta > 0:
                w = before if abs(before @ x[i]) <= C else _projected(before, x[i], sketched())
                run.delta += delta
                run.weighted += delta * w
                run.squares += delta * float(w @ w)
                if run.first is not None or alpha0 > 0:
                    run.over_alpha += delta / alpha
            run.alpha = alpha
        pending.append(gradient)
        if alpha0 == 0 and run.first is None:
            if run.alpha > 0:
                run.first = FirstPhase(t, np.array(gradients), sketched().logdet())
            gradients.append(slope * x[i])
        before = model.weights_
        if t in at:
            if method == "fd":
                sketched()
                run.delta = sketch.error_bound_
            out.append(replace(run, weighted=run.weighted.copy()))
    return out


def _projected(u: Floats, x: Floats, h: Any) -> Floats:
    """Return the projection of u to |w'x| <= C in the norm of H."""
    excess = float(u @ x) - np.sign(u @ x) * C
    outside = x - h.components.T @ (h.components @ x)
    if h.alpha == 0 and outside @ x > 1e-11 * (x @ x):  # the norm is zero in this direction
        return np.asarray(u - excess / (outside @ x) * outside)
    along = h.solve(x)
    return np.asarray(u - excess / (along @ x) * along)


def bounds(run: Run, w: Floats, alpha0: float) -> tuple[float, float | None]:
    """Return the regret bound against w, corrected for slabs, and as printed (None for FD and Theorem 7).

    docs/online-mathematics.md explains the correction. The bound of FD-SON is that of Luo et al. 2016 with the sum of
    the deltas themselves.
    """
    m, t, d = run.m, run.rows, len(w)
    k, eta = MU + 1 / t, float(np.sum(1 / np.arange(1, t + 1)))
    trace = max(run.squared_norm - m * run.delta, 0.0)  # each shrink step subtracts delta from m values
    rates = 2 * (C * L) ** 2 * eta
    if run.method == "fd":
        logs = m * np.log1p(trace / (m * alpha0)) + m * run.delta / alpha0
        return float(alpha0 / 2 * (w @ w) + rates + logs / (2 * k)), None
    if alpha0 > 0:
        shared = alpha0 / 2 * (w @ w) + rates + m / (2 * k) * np.log(trace / (m * alpha0) + run.alpha / alpha0)
        shared += (d - m) / (2 * k) * np.log(run.alpha / alpha0) + m / (4 * k) * run.over_alpha
        return float(shared + run.distance_term(w)), float(shared + C**2 * run.delta)
    if run.first is None:
        return rates + _theorem_6(run), None
    start: FirstPhase = run.first
    logs = m * np.log(trace / m + run.alpha) + (d - m) * np.log(run.alpha) - start.logdet
    total = rates + _theorem_6(run) + 1 / (MU + 1 / start.rows) + m / (4 * k) * run.over_alpha + logs / (2 * k)
    return float(total + run.distance_term(w)), None


def _theorem_6(run: Run) -> float:
    """Return the term that the corrected Theorem 6 adds to 2 (CL)^2 sum eta for the rows before alpha is positive."""
    if run.first is None or not run.first.gradients.any():
        return 0.0
    g = run.first.gradients
    smallest, r = np.inf, 0
    for t in range(1, len(g) + 1):
        s = np.linalg.svd(g[:t], compute_uv=False)
        s = s[s > 1e-12 * s.max(initial=0.0)]
        smallest, r = min(smallest, float(s.min(initial=np.inf)) ** 2), len(s)
    log = np.log1p(2 * float(np.sum(g**2)) / ((1 + r) * r * smallest))
    return float((r + r * (r + 1) / 2 * log) / (2 * (MU + 1 / len(g))))


# ------------------------------------------------------------------ the best fixed weights in hindsight

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


def table(results: Mapping[Cell, Result]) -> list[Row]:
    """Return a row for each learner and row count."""
    return [
        {"data": c.data, "method": curve["method"], "m": r["m"], "dimension": r["dimension"],
         "alpha0": curve["alpha0"], **point}
        for c, r in results.items() if c.kind == "regret"
        for curve in r["curves"] for point in curve["points"]
    ]  # fmt: skip


LEGEND = {
    ("rfd", "regret"): Style("RFD-SON (Alg. 3), measured", "rfd", "o", width=2.0),
    ("rfd", "bound"): Style("its bound", "rfd", dash="--", width=1.2),
    ("rfd", "fast_regret"): Style("RFD-SON (fast), measured", "rfd", dash=":", width=1.4),
    ("fd", "regret"): Style("FD-SON (Alg. 3), measured", "fd", "s", width=1.6),
    ("fd", "bound"): Style("its bound", "fd", dash="--", width=1.2),
    ("fd", "fast_regret"): Style("FD-SON (fast), measured", "fd", dash=":", width=1.4),
}


@per_data_set
def figures(name: str, rows: list[Row]) -> list[Figure]:
    """Return a figure for each data set, with a panel for each alpha0."""
    panels = []
    for alpha0 in sorted({row["alpha0"] for row in rows}):
        theorem = "Theorem 5" if alpha0 else "Theorems 6 and 7"
        panels.append((f"α₀ = {power(alpha0)} ({theorem})", partial(_draw, select(rows, alpha0=alpha0))))
    caption = (
        "Cumulative regret against the best fixed weights in hindsight among those with |w'x| ≤ 1 on all rows so "
        f"far, m = {rows[0]['m']}, {rows[0]['dimension']} dimensions. Dashed: the bound, corrected for slabs. "
        "Dotted: the fast algorithm of the other experiments. A curve stops where the regret is below 1."
    )
    return [Figure(f"regret-{name}", f"Regret on {name}", caption, panels, list(LEGEND.values()))]


def _draw(rows: Sequence[Row], ax: Any) -> None:
    for (method, what), style in LEGEND.items():
        line = select(rows, method=method)
        if line:
            values = [row[what] if row[what] >= 1 else np.nan for row in line]
            ax.plot([row["rows"] for row in line], values, **style.line())
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(sorted({row["rows"] for row in rows}, reverse=True)[::2])
    ax.xaxis.set_major_formatter("{x:,.0f}")
    decades(ax.yaxis)
    ax.set_xlabel("rows")
    ax.set_ylabel("regret")


def _last(rows: Sequence[Row]) -> list[Row]:
    return select(rows, rows=max(row["rows"] for row in rows))


@per_data_set
def display(name: str, rows: list[Row]) -> list[Table]:
    """Return a table of the regret and the bound after the last row."""
    last = _last(rows)
    lines = [
        [f"{row['method'].upper()}-SON", power(row["alpha0"]), f"{row['regret']:,.1f}", f"{row['fast_regret']:,.1f}",
         f"{row['bound']:,.0f}", "" if row["printed"] is None else f"{row['printed']:,.0f}"]
        for row in last
    ]  # fmt: skip
    return [Table(
        f"{name}: after {last[0]['rows']:,} rows",
        ["method", "α₀", "regret", "regret, fast", "bound", "as printed"], lines,
        f"The total loss of the best fixed weights is {last[0]['best_loss']:,.1f} (up to {last[0]['gap']:.2g}).",
    )]  # fmt: skip


@per_data_set
def verdicts(name: str, rows: list[Row]) -> list[Verdict]:
    """Return whether the regret is below the bounds, and whether RFD's bound depends less on alpha0 than FD's."""
    above = [row for row in rows if row["regret"] > row["bound"]]
    largest = max(row["regret"] / row["bound"] for row in rows)
    change = {}
    for method in ("rfd", "fd"):
        bounds = [row["bound"] for row in select(_last(rows), method=method) if row["alpha0"] > 0]
        change[method] = max(bounds) / min(bounds) if bounds else 1.0
    printed = [row for row in rows if row["printed"] is not None and row["regret"] > row["printed"]]
    return [
        Verdict(
            "fails" if above else "holds",
            f"{name}: the regret of RFD-SON and FD-SON is below the bounds of the theorems, corrected for slabs",
            f"at {len(rows) - len(above)} of {len(rows)} points; at most {100 * largest:.1f} % of the bound",
            listed(f"{row['method']} α₀ = {power(row['alpha0'])} at {row['rows']} rows" for row in above),
        ),
        Verdict(
            "holds" if change["rfd"] < change["fd"] else "differs",
            f"{name}: the bound of RFD-SON is much less sensitive to α₀ than FD-SON's",
            f"from α₀ = {power(ALPHAS[0])} to {power(ALPHAS[-1])} RFD-SON's bound changes by a factor of "
            f"{change['rfd']:.1f}, FD-SON's by {change['fd']:,.0f}",
        ),
        Verdict(
            "differs" if printed else "holds",
            f"{name}: Theorem 5 as printed, whose proof assumes ‖w_t − w‖ ≤ 2C, also bounds the regret",
            f"{'not ' if printed else ''}at every point measured",
            "A slab does not bound w; the proof holds for a ball of radius C." if printed else "",
        ),
    ]  # fmt: skip
