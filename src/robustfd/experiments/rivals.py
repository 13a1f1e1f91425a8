"""Methods since the paper, each with the best of 49 settings, beside those that need none.

The protocol is that of Feinberg et al. 2023 ("Sketchy") in their published code: logistic loss, the rows
as they are with an intercept, one pass in the order of the file, no projection, sketches of m = 10, and the setting
with the least mean loss over all rows, each predicted before it was learned. Methods without an initial matrix choose
among 49 learning rates, the others among 7 learning rates and 7 initial matrices.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from robustfd import AdaGrad, OnlineGradientDescent, OnlineNewton, SketchedNewtonClassifier
from robustfd.experiments.cells import Cell, Result, Row, Table, Verdict, cell, listed, per_data_set, select
from robustfd.experiments.figures import Figure, Style, decades, numbers, panels
from robustfd.experiments.protocol import Data, rows

TITLE = "Methods since the paper"
CLAIM = (
    "S-AdaGrad with the best of 49 learning rates does better than other sketched methods with as many settings "
    "(Feinberg et al. 2023). RFD₀-SON and the untuned learner have no setting."
)

M = 10
RATES = np.geomspace(1e-4, 1e2, 49).tolist()
FEW = RATES[::8]  # one in each decade
TUNED = {
    "s-adagrad": Style("S-AdaGrad", "fd", "s"),
    "ada-fd": Style("Ada-FD", "pfd", "D"),
    "scfd": Style("SCFD-SON", "cfd", "^"),
    "rfd": Style("RFD-SON with a rate", "rfd", "o"),
    "fd": Style("FD-SON", "oja", "P"),
    "adagrad": Style("ADAGRAD", "adagrad", "X"),
    "descent": Style("gradient descent", "full", "v"),
}
UNTUNED = {
    "rfd0": Style("RFD₀-SON: no setting", "ink", dash="--", width=2.0),
    "untuned": Style("untuned learner: none", "ink", dash=":", width=2.0),
}
STYLES = {**TUNED, **UNTUNED}
NAMES = {**{method: style.label for method, style in TUNED.items()}, "rfd0": "RFD₀-SON", "untuned": "untuned learner"}
INITIAL = ("ada-fd", "fd")  # with an initial matrix, as nothing is added to it


def cells(data: Data, *, quick: bool) -> list[Cell]:
    """Return 49 cells for each method with settings (quick: 7), and one for each of the others."""
    if not data.two_classes:
        return []
    effort = data.n_rows * (2e-6 + 2e-7 * M) + 6e-9 * M * data.n_nonzeros
    out = [cell("rivals", data.name, effort=effort, method=method, rate=None, alpha0=None) for method in UNTUNED]
    for method in TUNED:
        grid = [(rate, alpha0) for rate in FEW for alpha0 in FEW] if method in INITIAL else [(r, 0.0) for r in RATES]
        work = (8 if method in ("s-adagrad", "ada-fd") else 1) * effort
        chosen = grid[::8] if quick else grid
        out += [cell("rivals", data.name, effort=work, method=method, rate=r, alpha0=a) for r, a in chosen]
    return out


def learner(method: str, rate: float, alpha0: float) -> Any:
    """Return a learner with a learning rate; for the Newton methods it divides eta_t, as in the published code."""
    shared: dict[str, Any] = {"loss": "logistic", "projection": None}
    if method == "descent":
        return OnlineGradientDescent("1/sqrt(t)", scale=rate, **shared)
    if method == "adagrad":
        return AdaGrad(0.0, **shared)  # `run` scales its rows
    if method in ("s-adagrad", "ada-fd"):
        return OnlineNewton(method, M, rate=rate, alpha0=alpha0, **shared)  # type: ignore[arg-type]
    time = "1/sqrt(t)" if method == "fd" else "1/t"
    return OnlineNewton(method, M, rate=time, scale=1 / rate, curvature=0.0, alpha0=alpha0, **shared)  # type: ignore


def run(cell: Cell) -> Result:
    """Return the mean loss and the errors in percent of all rows, each predicted before it was learned."""
    x, y = rows(cell.data)
    ones = np.ones((len(y), 1))
    x = sp.csr_array(sp.hstack([x, ones])) if sp.issparse(x) else np.hstack([x, ones])
    method, rate = cell["method"], cell["rate"]
    try:
        if method == "untuned":
            model = SketchedNewtonClassifier(shuffle=False).partial_fit(x, y, classes=[-1.0, 1.0])
            return {"diverged": False, "loss": model.progressive_loss_, "error": 100 * model.progressive_error_}
        if method == "rfd0":
            margins = OnlineNewton("rfd", M).learn(x, y)  # with the paper's loss, the squared one
        else:  # ADAGRAD with rows of rate x takes the steps of rate times as large a learning rate
            margins = learner(method, rate, cell["alpha0"]).learn(rate * x if method == "adagrad" else x, y)
    except OverflowError:
        return {"diverged": True}
    loss = None if method == "rfd0" else float(np.logaddexp(0.0, -y * margins).mean())
    return {"diverged": False, "loss": loss, "error": 100 * float(np.mean((margins > 0) != (y > 0)))}


def table(results: Mapping[Cell, Result]) -> list[Row]:
    """Return a row for each cell that did not diverge."""
    return [
        {"data": c.data, "method": c["method"], "rate": c["rate"], "alpha0": c["alpha0"], "loss": r["loss"],
         "error": r["error"]}
        for c, r in results.items() if c.kind == "rivals" and not r["diverged"]
    ]  # fmt: skip


def best(found: Sequence[Row]) -> list[Row]:
    """Return the row of each method with the least loss, those with the fewest errors first."""
    groups = [select(found, method=method) for method in STYLES]
    chosen = [min(group, key=lambda row: row["loss"] or 0.0) for group in groups if group]
    return sorted(chosen, key=lambda row: row["error"])


def figures(found: Sequence[Row]) -> list[Figure]:
    """Return one panel for each data set: the errors of each method against its learning rate."""
    caption = (
        "Errors of one pass against the learning rate, each row predicted before it was learned. Where a method has an "
        "initial matrix, the best of seven is shown. Values above five times the least error, and runs that "
        "diverged, are not. The horizontal lines have no setting."
    )
    title = "Methods since the paper"
    return [Figure("rivals", title, caption, panels(_draw, found), list(STYLES.values()))]


def _draw(found: Sequence[Row], ax: Any) -> None:
    for method, style in TUNED.items():
        by_rate: dict[float, float] = {}
        for row in select(found, method=method):
            by_rate[row["rate"]] = min(row["error"], by_rate.get(row["rate"], np.inf))
        rates = sorted(by_rate)
        ax.plot(rates, [by_rate[rate] for rate in rates], **style.line(markevery=4 if len(rates) > 9 else 1))
    for method, style in UNTUNED.items():
        for row in select(found, method=method):
            ax.axhline(row["error"], **style.line(marker=None))
    least = min(row["error"] for row in found)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(0.92 * least, 5 * least)
    decades(ax.xaxis)
    numbers(ax.yaxis)
    ax.set_xlabel("learning rate")
    ax.set_ylabel("errors, %")


@per_data_set
def display(name: str, found: list[Row]) -> list[Table]:
    """Return the best setting of each method."""
    lines = [
        [NAMES[row["method"]], f"{row['error']:.2f}", "" if row["loss"] is None else f"{row['loss']:.4f}",
         *("" if row[key] is None else f"{row[key]:.3g}" for key in ("rate", "alpha0")),
         str(len(select(found, method=row["method"])))]
        for row in best(found)
    ]  # fmt: skip
    return [Table(
        f"{name}: one pass, m = {M}", ["method", "errors, %", "log loss", "rate", "α₀", "settings that converged"],
        lines, "The setting has the least log loss of 49. RFD₀-SON learns with the squared loss of the paper.",
        opened=True,
    )]  # fmt: skip


@per_data_set
def verdicts(name: str, found: list[Row]) -> list[Verdict]:
    """Return which sketched method is best, and how many of its settings are better than no setting."""
    ranked = best(found)
    sketched = [row for row in ranked if row["method"] in TUNED and row["method"] not in ("adagrad", "descent")]
    words = listed((f"{NAMES[row['method']]} {row['error']:.2f} %" for row in ranked), most=9)
    out = []
    if sketched:
        first = min(sketched, key=lambda row: row["loss"])
        claim = f"{name}: with 49 settings each, S-AdaGrad has the least loss of the sketched methods"
        out.append(Verdict("holds" if first["method"] == "s-adagrad" else "differs", claim, words))
    for method in UNTUNED:
        for row in select(found, method=method):
            tried = [each for each in found if each["method"] == "s-adagrad"]
            ahead = sum(each["error"] < row["error"] for each in tried)
            claim = f"{name}: {NAMES[method]}, which has no setting, has at most the errors of S-AdaGrad's best rate"
            least = min((each["error"] for each in tried), default=np.inf)
            reason = f"{ahead} of S-AdaGrad's {len(tried)} learning rates that converged have fewer errors."
            found_here = f"{row['error']:.2f} % against {least:.2f} %"
            out.append(Verdict("holds" if row["error"] <= least else "differs", claim, found_here, reason))
    return out
