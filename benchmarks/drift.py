"""The untuned learner on streams with drift or anomalies, compared with the defaults of other libraries.

    python -m benchmarks.drift [--quick] [--peers] [--seeds chosen|reported|both] [--out file.md] [names]

Every row is predicted before it is learned, in one pass. Vowpal Wabbit, River and SGD run once. Their results are
cached in results/drift_peers.json and used as long as the rows of a stream are the same. `--quick` never runs them, and
`--peers` always does. Names, or parts of names, select streams; then only the file of `--out` is written. Settings of
the learner may be chosen on CHOSEN. REPORTED has other seeds, orders or rows and must not be used for that.
"""

import argparse
import json
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from benchmarks import defaults
from benchmarks.common import RESULTS, signed
from benchmarks.odd_streams import CHOSEN_ONLY, NUMBERS, ODD, REPORTED_ONLY, Stream
from benchmarks.streams_of_change import CHOSEN_SEED, REPORTED_SEED, STREAMS, Rows
from robustfd import SketchedNewtonClassifier, SketchedNewtonRegressor

KEPT = RESULTS / "drift_peers.json"
CHANGING = [Stream(name, make) for name, make in STREAMS.items()]
CHOSEN = [(stream, CHOSEN_SEED) for stream in CHANGING + ODD + NUMBERS if stream.name not in REPORTED_ONLY]
REPORTED = [(stream, REPORTED_SEED) for stream in CHANGING + ODD + NUMBERS if stream.name not in CHOSEN_ONLY]

INTRODUCTION = (
    "`python -m benchmarks.drift`. One pass with default settings. Every row is predicted before it is learned. The "
    "best default is chosen in hindsight for each stream out of up to twelve: five modes of Vowpal Wabbit, two of "
    "scikit-learn's SGD, and five of River where it is not slow (up to 32,000 rows of 45 columns); four, one and four "
    "for regression."
)

Figures = dict[str, float]


# -- Ours


def progressive(model: Any, x: Any, y: Any, start: int = 0) -> tuple[float, float]:
    """Return the progressive error rate and mean loss of the rows from `start` on."""
    options = {"classes": np.unique(y)} if is_classifier(model) else {}
    sums = np.zeros(2)
    for first, last in ((0, start), (start, len(y))):
        if first < last:
            before = sums
            model.partial_fit(x[first:last], y[first:last], **options)
            sums = last * np.array([getattr(model, "progressive_error_", np.nan), model.progressive_loss_])
    error, loss = (sums - before) / (len(y) - start)
    return float(error), float(loss)


def figure(stream: Stream, predicted: Any, y: Any) -> float:
    """Return the error in percent, or R^2, of the evaluated rows."""
    first = max(stream.start, _learned_rows(stream, y)) if stream.learned < 1 else stream.start
    y, p = y[first:], predicted[first:]
    if stream.numbers:
        with np.errstate(over="ignore", invalid="ignore"):
            return float(1 - np.mean((y - p) ** 2) / np.var(y))
    return float(100 * np.mean(p != y))


def _learned_rows(stream: Stream, y: Any) -> int:
    return int(stream.learned * len(y))


def _ours(stream: Stream, x: Any, y: Any) -> tuple[float, float]:
    """Return the error or R^2, and the progressive loss."""
    model = SketchedNewtonRegressor() if stream.numbers else SketchedNewtonClassifier()
    if stream.learned < 1:
        rows = _learned_rows(stream, y)
        model.fit(x[:rows], y[:rows])
        return figure(stream, np.concatenate([y[:rows], model.predict(x[rows:])]), y), model.progressive_loss_
    error, loss = progressive(model, x, y, stream.start)
    return (1 - loss / float(np.var(y[stream.start :])) if stream.numbers else 100 * error), loss


# -- Other libraries, whose results are cached


def _mark(x: Any, y: Any) -> str:
    """Return a fingerprint of the rows."""
    return f"{x.shape[0]} x {x.shape[1]}, {zlib.crc32(y.astype(np.float32).tobytes()):08x}, {abs(x).mean():.4g}"


def _peers(stream: Stream, seed: int, x: Any, y: Any, *, run: bool, rerun: bool) -> Figures:
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    kind = "numbers" if stream.numbers else "classes"
    key, mark = f"{kind}: {stream.name}, seed {seed}", _mark(x, y)
    if rerun or kept.get(key, {}).get("rows") != mark:
        if not run:
            return {}
        found = defaults.predictions(x, y, _learned_rows(stream, y), numbers=stream.numbers)
        kept[key] = {"rows": mark} | {name: round(figure(stream, p, y), 6) for name, p in found}
        RESULTS.mkdir(exist_ok=True)
        KEPT.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")
    return {name: value for name, value in kept[key].items() if name != "rows"}


# -- Tables


class Missing(Exception):
    """A data set or package is not available."""


def _rows(make: Any, seed: int) -> Rows:
    try:
        return make(seed)
    except (ImportError, FileNotFoundError) as error:
        raise Missing(str(error)) from None


def _measure(stream: Stream, seed: int, *, run: bool, rerun: bool) -> dict[str, Any]:
    """Return all results of a stream, averaged over its seeds."""
    ours, twins, peers, constants = [], [], [], []
    for one in range(seed, seed + stream.repeats):
        x, y = _rows(stream.make, one)
        peers.append(_peers(stream, one, x, y, run=run, rerun=rerun))
        ours.append(_ours(stream, x, y))
        constants.append(0.0 if stream.numbers else 100 * (1 - np.bincount(y).max() / len(y)))
        if stream.twin is not None:
            twins.append(_ours(stream, *_rows(stream.twin, one))[0])
    names = [name for name in peers[0] if all(np.isfinite(each.get(name, np.nan)) for each in peers)]
    means = {name: float(np.mean([each[name] for each in peers])) for name in names}
    value, loss = np.mean(ours, axis=0)
    twin = float(np.mean(twins)) if twins else None
    goal = stream.goal
    if stream.constant:
        goal = float(np.mean(constants))
    elif stream.margin is not None and twin is not None:
        goal = twin + stream.margin
    best = (max if stream.numbers else min)(means, key=lambda name: means[name], default="")
    return {"ours": value, "loss": loss, "twin": twin, "goal": goal, "peers": means, "best": best}


def _text(value: float | None, digits: int) -> str:
    if value is None or not np.isfinite(value):
        return "-"
    return f"{value:.{digits}f}" if abs(value) < 1000 else f"{value:.1e}"


def _changing(found: list[tuple[str, dict[str, Any]]]) -> list[str]:
    lines = [
        "| stream | here | VW log | VW coin | best default | here minus best | log loss here |", "|" + "---|" * 7
    ]  # fmt: skip
    for name, each in found:
        peers, best = each["peers"], each["best"]
        gap = f"{each['ours'] - peers[best]:+.2f}" if best else "-"
        cells = [_text(v, 2) for v in (each["ours"], peers.get("VW log"), peers.get("VW coin"), peers.get(best))]
        lines.append(f"| {name} | {' | '.join(cells)} {best} | {gap} | {each['loss']:.4f} |")
    judged = [each for _, each in found if each["best"]]
    ahead = {
        rival: sum(each["ours"] < each["peers"].get(rival or each["best"], -1) for each in judged)
        for rival in ("", "VW log", "VW coin")
    }
    lines += ["", f"Of {len(judged)} streams ahead of the best default, picked in hindsight, on {ahead['']}; of VW log "
                  f"on {ahead['VW log']}, of VW coin on {ahead['VW coin']}."]  # fmt: skip
    return lines


def _with_goals(found: list[tuple[str, dict[str, Any]]], *, numbers: bool) -> list[str]:
    digits, sign = (3, ">=") if numbers else (2, "<=")
    lines = ["| stream | here | without the oddity | best default | goal | |", "|" + "---|" * 6]
    for name, each in found:
        ours, goal, best = each["ours"], each["goal"], each["best"]
        # Values are compared as printed. A value that is not finite misses every goal.
        met = goal is not None and (round(ours - goal, digits) >= 0 if numbers else round(goal - ours, digits) >= 0)
        verdict = "" if goal is None else "ok" if met else "MISSED"
        wanted = "" if goal is None else f"{sign} {_text(goal, digits)}"
        cells = (
            f"{_text(ours, digits)} | {_text(each['twin'], digits)} | {_text(each['peers'].get(best), digits)} {best}"
        )
        lines.append(f"| {name} | {cells} | {wanted} | {verdict} |")
    return lines


def drift(arguments: list[str] | None = None) -> None:
    """Print and save the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drift", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--quick", action="store_true", help="never run other libraries, only use cached results")
    parser.add_argument("--peers", action="store_true", help="run other libraries again, ignoring cached results")
    parser.add_argument("--seeds", choices=("chosen", "reported", "both"), default="both")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args(arguments or [])
    lines = [INTRODUCTION, ""]

    def section(title: str, streams: list[tuple[Stream, int]], kind: str) -> None:
        found = []
        for stream, seed in streams:
            if chosen.names and not any(name.lower() in stream.name.lower() for name in chosen.names):
                continue
            try:
                found.append((stream.name, _measure(stream, seed, run=not chosen.quick, rerun=chosen.peers)))
            except Missing as error:
                print(f"{stream.name}: skipped, {error}", flush=True)
        if found:
            table = _changing(found) if kind == "changing" else _with_goals(found, numbers=kind == "numbers")
            lines.extend([f"## {title}", "", *table, ""])
            print("\n".join(["", title, "", *table]), flush=True)

    for label, pairs in (("reported", REPORTED), ("chosen", CHOSEN)):
        if chosen.seeds not in (label, "both"):
            continue
        note = "" if label == "reported" else " (CHOSEN: settings were chosen on these)"
        for title, streams, kind in (
            ("Streams that change, progressive error in per cent", CHANGING, "changing"),
            ("Odd streams, error in per cent", ODD, "odd"),
            ("Numbers, R^2", NUMBERS, "numbers"),
        ):
            section(title + note, [pair for pair in pairs if pair[0] in streams], kind)
    if chosen.out is not None or not chosen.names:
        path = chosen.out or RESULTS / "drift.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(signed("\n".join(lines)))


if __name__ == "__main__":
    drift(sys.argv[1:])
