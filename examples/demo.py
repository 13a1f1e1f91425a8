"""Sketch a stream of images and compare what the sketch promises with what it really does.

Two sketches read the handwritten digits that ship with scikit-learn, a batch at a time, never a row twice.
Each knows a bound on its own error, `error_bound_`, without access to the data. Here the data is small enough
to compute the true error beside it.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

from robustfd import ExactSecondMoment, FrequentDirections, RobustFrequentDirections

SKETCHES = {"FD": FrequentDirections, "RFD": RobustFrequentDirections}
COLOURS = {"FD": "#c0392b", "RFD": "#1f5fa8"}
SIZES = (4, 6, 8, 12, 16, 24, 32, 48)
BATCH_ROWS = 100
PICTURE = Path("demo.png")


def stream():
    """Yield the rows in batches, as a file or a socket would."""
    X = load_digits().data
    for start in range(0, len(X), BATCH_ROWS):
        yield X[start : start + BATCH_ROWS]


def feed(sketch):
    """Return the sketch after one pass over the stream."""
    for batch in stream():
        sketch.partial_fit(batch)
    return sketch


def measure(truth):
    """Return {rule: (true errors, certified bounds)}, one entry a sketch size, as shares of ||A'A||_2."""
    scale = np.linalg.norm(truth, 2)
    results = {}
    for rule, sketch_class in SKETCHES.items():
        sketches = [feed(sketch_class(sketch_size=m, center=True)) for m in SIZES]
        errors = [np.linalg.norm(truth - sketch.second_moment().to_dense(), 2) for sketch in sketches]
        bounds = [sketch.error_bound_ for sketch in sketches]
        results[rule] = (np.array(errors) / scale, np.array(bounds) / scale)
    return results


def print_table(results):
    print(f"{'':>6}  {'FD':^23}  {'RFD':^23}")
    print(f"{'size m':>6}" + f"  {'true':>11} {'certified':>11}" * 2)
    for i, m in enumerate(SIZES):
        columns = [f"  {errors[i]:>11.2%} {bounds[i]:>11.2%}" for errors, bounds in results.values()]
        print(f"{m:>6}" + "".join(columns))


def save_picture(results):
    """Draw the true errors as broad pale lines and the certificates dashed on top of them."""
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    for rule, (errors, bounds) in results.items():
        colour = COLOURS[rule]
        axes.loglog(SIZES, errors, color=colour, alpha=0.35, linewidth=5, solid_capstyle="round")
        axes.loglog(SIZES, bounds, "o--", color=colour, linewidth=1.3, markersize=3)
        label = {"xytext": (9, 0), "textcoords": "offset points", "va": "center", "weight": "bold"}
        axes.annotate(rule, (SIZES[-1], bounds[-1]), color=colour, **label)

    pointer = {"textcoords": "offset points", "arrowprops": {"arrowstyle": "-", "color": "0.5"}}
    certified, true = results["FD"][1], results["RFD"][0]
    text = "dashed: certified bound,\nknown without the data"
    axes.annotate(text, (SIZES[2], certified[2]), xytext=(20, 22), **pointer)
    axes.annotate("solid: true error", (SIZES[3], true[3]), xytext=(-95, -38), **pointer)

    axes.set_xticks(SIZES, [str(m) for m in SIZES])
    axes.minorticks_off()
    axes.margins(x=0.08)
    axes.set_xlabel("sketch size m")
    axes.set_ylabel("spectral error / ||A'A||")
    axes.set_title("What a sketch of the digits promises, and what it does", loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.92")
    figure.savefig(PICTURE, dpi=160)


def main():
    start = time.perf_counter()
    exact = feed(ExactSecondMoment(center=True))
    n, d = exact.n_samples_seen_, exact.n_features_in_
    print(f"Handwritten digits as a stream: {n} rows of {d} pixels in batches of {BATCH_ROWS}, centred.")
    print("Spectral error of the sketched A'A as a share of ||A'A||; 'certified' needs no data.\n")
    results = measure(exact.second_moment().to_dense())
    print_table(results)

    held = all(np.all(errors <= bounds * (1 + 1e-9)) for errors, bounds in results.values())
    tightness = min(np.min(errors / bounds) for errors, bounds in results.values())
    gain = np.median(results["FD"][0] / results["RFD"][0])
    print(
        f"\nReading: {'every' if held else 'NOT every'} true error is within its certificate and never under "
        f"{tightness:.0%} of it; RFD errs {gain:.1f} times less than FD."
    )
    save_picture(results)
    print(f"Picture: {PICTURE.resolve()}  ({time.perf_counter() - start:.1f} s in all)")
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
