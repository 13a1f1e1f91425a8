"""Run fuzz tests for a given time."""

import argparse
import sys
import tempfile
from pathlib import Path

from fuzz._run import TARGETS, judge, limit, prepare, run


def main() -> None:
    """Parse the arguments and run the cases."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="time for all targets together (60)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    parser.add_argument("--targets", default=",".join(TARGETS), help="comma-separated list of targets")
    parser.add_argument("--only", metavar="TARGET:NUMBER", help="run one case and print the traceback")
    given = parser.parse_args()
    targets = tuple(given.targets.split(","))
    if unknown := set(targets) - set(TARGETS):
        parser.error(f"unknown targets: {', '.join(sorted(unknown))}. The targets are {', '.join(TARGETS)}.")
    if given.only is None:
        sys.exit(1 if run(given.seconds, given.seed, given.jobs, targets) else 0)
    target, _, number = given.only.partition(":")
    prepare((target,))
    limit()
    with tempfile.TemporaryDirectory() as place:
        *_, outcome, detail, seconds = judge(target, int(number), given.seed, Path(place))
    print(f"{outcome}, {seconds:.1f} s\n{detail}")
    sys.exit(1 if outcome == "FAILURE" else 0)


if __name__ == "__main__":
    main()
