"""Run the benchmarks: `make bench`, or `make bench ARGS="wide sparse"` for some of them.

How long each took when it last ran is in results/minutes.json. It is printed before the benchmarks start.
"""

import json
import sys
import time
from collections.abc import Sequence

from benchmarks import (
    asides,
    bandits,
    big_file,
    calibration,
    cluster,
    command_line,
    demo,
    distributed,
    drift,
    frozen,
    intervals,
    jobs,
    many,
    merging,
    online_speed,
    partitions,
    pca,
    policies,
    quantiles,
    reading,
    second_look,
    sketch_peers,
    sketch_speed,
    tables,
    threads,
    trees,
    untuned,
    untuned_speed,
    windows,
)
from benchmarks.common import RESULTS

CASES = {
    "demo": demo.demo,
    "wide": sketch_speed.wide,
    "tall": sketch_speed.tall,
    "sparse": sketch_speed.sparse,
    "linear": sketch_speed.linear,
    "peers": sketch_peers.peers,
    "threads": threads.threads,
    "jobs": jobs.jobs,
    "pca": pca.pca,
    "newton": online_speed.newton,
    "classes": online_speed.classes,
    "vowpal": online_speed.against_vowpal,
    "linear_online": online_speed.linear_online,
    "untuned": untuned.untuned,
    "untuned_speed": untuned_speed.untuned_speed,
    "many": many.many,
    "tables": tables.tables,
    "trees": trees.trees,
    "bandits": bandits.bandits,
    "bandits_speed": bandits.bandits_speed,
    "drift": drift.drift,
    "frozen": frozen.frozen,
    "intervals": intervals.intervals,
    "command_line": command_line.command_line,
    "price": command_line.price,
    "big_file": big_file.big_file,
    "reading": reading.reading,
    "merging": merging.merging,
    "distributed": distributed.distributed,
    "partitions": partitions.partitions,
    "cluster": cluster.cluster,
    "policies": policies.policies,
    "quantiles": quantiles.quantiles,
    "calibration": calibration.calibration,
    "second_look": second_look.second_look,
    "windows": windows.windows,
    "asides": asides.asides,
}


MINUTES = RESULTS / "minutes.json"
# Guesses for those that have not been timed yet. minutes.json replaces them.
GUESSES = {
    "wide": 2, "tall": 1, "sparse": 3, "linear": 1, "threads": 2, "jobs": 4, "pca": 15, "newton": 1, "classes": 0.5,
    "vowpal": 2, "linear_online": 3, "untuned": 20, "untuned_speed": 1, "many": 30, "tables": 10, "bandits": 60,
    "bandits_speed": 2, "drift": 60, "frozen": 10, "intervals": 20, "command_line": 5, "price": 3, "big_file": 4,
    "reading": 2, "merging": 10, "distributed": 10, "partitions": 5, "policies": 5, "quantiles": 5, "calibration": 10,
    "demo": 0.2, "peers": 10, "cluster": 0.5, "trees": 60, "second_look": 1,
    "windows": 60, "asides": 2,
}  # fmt: skip


def main(names: Sequence[str]) -> None:
    """Run the named cases, or all. Missed goals are printed and do not raise an error."""
    unknown = set(names) - set(CASES)
    if unknown:
        sys.exit(f"unknown benchmark {', '.join(sorted(unknown))}. The benchmarks are {', '.join(CASES)}")
    names = list(dict.fromkeys(names)) or list(CASES)
    timed = json.loads(MINUTES.read_text()) if MINUTES.exists() else {}
    minutes = GUESSES | timed
    parts = ", ".join(f"{name} {shown(minutes[name])}{'' if name in timed else ' (a guess)'}" for name in names)
    print(f"This will take about {shown(sum(minutes[name] for name in names))}: {parts}.", flush=True)
    for place, name in enumerate(names, 1):
        left = sum(minutes[each] for each in names[place - 1 :])
        print(f"\n[{place} of {len(names)}, about {shown(left)} left] {name}", flush=True)
        start = time.monotonic()
        CASES[name]()
        timed[name] = round((time.monotonic() - start) / 60, 2)
        MINUTES.write_text(json.dumps(dict(sorted(timed.items())), indent=1) + "\n")


def shown(minutes: float) -> str:
    """Return a duration as text."""
    return (
        f"{60 * minutes:.0f} s" if minutes < 1.5 else f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
