"""A sketch with a certificate and a learner with nothing to tune, on one stream.

The stream consists of the handwritten digits of scikit-learn, in random order, one batch at a time, each row once.

Sketches: each reports a bound on its own error, `error_bound_`, without access to the data. The data is small enough to
compute the true error as well.

Learners: each batch is predicted before it is learned. `SGDClassifier` gets columns that are scaled during the stream.
It runs with its defaults and, for the logistic loss, with several constant rates, of which the best is chosen in
hindsight. The untuned learner gets the raw pixels.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler

from robustfd import ExactSecondMoment, FrequentDirections, RobustFrequentDirections, SketchedNewtonClassifier

SKETCHES = {"FD": FrequentDirections, "RFD": RobustFrequentDirections}
COLOURS = {"FD": "#c0392b", "RFD": "#1f5fa8", "default": "#c0392b", "best": "#d68910", "untuned": "#1f5fa8"}
SIZES = (4, 6, 8, 12, 16, 24, 32, 48)
RATES = (1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 1.0, 10.0)
BATCH_ROWS = 20
CLASSES = np.arange(10)
PICTURE = Path("demo.png")


def stream():
    """Yield rows and labels in batches, as a file or a socket would."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    for start in range(0, len(y), BATCH_ROWS):
        batch = order[start : start + BATCH_ROWS]
        yield X[batch], y[batch]


def feed(sketch):
    """Return the sketch after one pass over the stream."""
    for X, _ in stream():
        sketch.partial_fit(X)
    return sketch


def measure_sketches(truth):
    """Return {rule: (true errors, certified bounds)}, one entry a sketch size, as shares of ||A'A||_2."""
    scale = np.linalg.norm(truth, 2)
    results = {}
    for rule, sketch_class in SKETCHES.items():
        sketches = [feed(sketch_class(sketch_size=m, center=True)) for m in SIZES]
        errors = [np.linalg.norm(truth - sketch.second_moment().to_dense(), 2) for sketch in sketches]
        bounds = [sketch.error_bound_ for sketch in sketches]
        results[rule] = (np.array(errors) / scale, np.array(bounds) / scale)
    return results


def progressive_errors(model, scaler=None):
    """Return the share of errors so far after each batch but the first, each batch predicted before it is learned."""
    wrong, seen, shares = 0, 0, []
    for X, y in stream():
        if scaler is not None:
            X = scaler.partial_fit(X).transform(X)
        if hasattr(model, "classes_"):
            wrong, seen = wrong + np.sum(model.predict(X) != y), seen + len(y)
            shares.append(wrong / seen)
        model.partial_fit(X, y, classes=CLASSES)
    return np.array(shares)


def measure_learners():
    """Return the errors so far of the untuned learner, of SGDClassifier's default, and of each of its rates."""
    sgd = {rate: SGDClassifier(loss="log_loss", learning_rate="constant", eta0=rate, random_state=0) for rate in RATES}
    return (
        progressive_errors(SketchedNewtonClassifier()),
        progressive_errors(SGDClassifier(random_state=0), StandardScaler()),
        {rate: progressive_errors(model, StandardScaler()) for rate, model in sgd.items()},
    )


def print_sketches(results):
    print(f"{'':>6}  {'FD':^23}  {'RFD':^23}")
    print(f"{'size m':>6}" + f"  {'true':>11} {'certified':>11}" * 2)
    for i, m in enumerate(SIZES):
        columns = [f"  {errors[i]:>11.2%} {bounds[i]:>11.2%}" for errors, bounds in results.values()]
        print(f"{m:>6}" + "".join(columns))
    tightness = min(np.min(errors / bounds) for errors, bounds in results.values())
    gain = np.median(results["FD"][0] / results["RFD"][0])
    held = certificates_held(results)
    print(
        f"\nReading: {'every' if held else 'NOT every'} true error is within its certificate and never under "
        f"{tightness:.0%} of it; RFD errs {gain:.1f} times less than FD.\n"
    )


def certificates_held(results):
    return all(np.all(errors <= bounds * (1 + 1e-9)) for errors, bounds in results.values())


def print_learners(untuned, default, tried, best):
    print(f"{untuned[-1]:>7.1%}  SketchedNewtonClassifier(), pixels as they are")
    print(f"{default[-1]:>7.1%}  SGDClassifier(), scaled columns")
    for rate, errors in tried.items():
        print(f"{errors[-1]:>7.1%}    with rate {rate:g}{', the best' if rate == best else ''}")
    print(
        f"\nReading: with nothing set there are {untuned[-1]:.1%} errors; SGDClassifier has {default[-1]:.1%} with its "
        f"default rate and {tried[best][-1]:.1%} with the best of {len(RATES)}, picked in hindsight.\n"
    )


def draw_sketches(axes, results):
    """Draw the true errors as broad pale lines and the certificates dashed on top of them."""
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


def draw_learners(axes, untuned, default, tried, best):
    """Draw errors so far against rows: other rates pale, the three that are compared in colour with their names."""
    rows = BATCH_ROWS * np.arange(1, len(untuned) + 1)
    for rate in RATES:
        axes.plot(rows, tried[rate], color="0.85", linewidth=1)
    named = {"untuned": ("untuned", untuned), "best": ("SGD, best rate", tried[best])}
    for key, (name, errors) in {**named, "default": ("SGD, default", default)}.items():
        axes.plot(rows, errors, color=COLOURS[key], linewidth=2)
        label = {"xytext": (6, 0), "textcoords": "offset points", "va": "center", "weight": "bold"}
        axes.annotate(f"{errors[-1]:.1%} {name}", (rows[-1], errors[-1]), color=COLOURS[key], **label)
    axes.annotate("grey: SGD, other rates", (0.97, 0.95), xycoords="axes fraction", ha="right", color="0.5")
    axes.set_xlim(0, rows[-1] * 1.45)
    axes.set_xticks(range(0, int(rows[-1]) + 1, 500))
    axes.set_ylim(0, 0.42)
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.set_xlabel("rows")
    axes.set_ylabel("errors so far, each row predicted first")
    axes.set_title("Which digit is it? A learner with nothing to tune", loc="left", fontsize=11)


def save_picture(results, learners):
    figure = Figure(figsize=(12.4, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_sketches(left, results)
    draw_learners(right, *learners)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="0.92")
    figure.savefig(PICTURE, dpi=160)


def main():
    start = time.perf_counter()
    exact = feed(ExactSecondMoment(center=True))
    n, d = exact.n_samples_seen_, exact.n_features_in_
    print(f"Handwritten digits as a stream: {n} rows of {d} pixels in batches of {BATCH_ROWS}.\n")
    print("1. A sketch that knows its own error: spectral error of the sketched A'A, centred, as a share of ||A'A||.")
    print("   'certified' needs no data.\n")
    results = measure_sketches(exact.second_moment().to_dense())
    print_sketches(results)

    print("2. A learner with nothing to tune: share of errors, each batch predicted before it is learned.\n")
    untuned, default, tried = measure_learners()
    best = min(RATES, key=lambda rate: tried[rate][-1])
    print_learners(untuned, default, tried, best)
    save_picture(results, (untuned, default, tried, best))
    print(f"Picture: {PICTURE.resolve()}  ({time.perf_counter() - start:.1f} s in all)")
    return 0 if certificates_held(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
