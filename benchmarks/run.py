"""Run the benchmarks: `make bench`, or `make bench ARGS="wide sparse"` for some of them."""

import sys

from benchmarks import (
    bandits,
    big_file,
    calibration,
    command_line,
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
    sketch_speed,
    tables,
    threads,
    trees,
    untuned,
    untuned_speed,
)

CASES = {
    "wide": sketch_speed.wide,
    "tall": sketch_speed.tall,
    "sparse": sketch_speed.sparse,
    "linear": sketch_speed.linear,
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
    "policies": policies.policies,
    "quantiles": quantiles.quantiles,
    "calibration": calibration.calibration,
}


def main(names: list[str]) -> None:
    """Run the named cases, or all. Missed goals are printed and do not raise an error."""
    unknown = set(names) - set(CASES)
    if unknown:
        sys.exit(f"unknown benchmark {', '.join(sorted(unknown))}. The benchmarks are {', '.join(CASES)}")
    for name in names or CASES:
        CASES[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
