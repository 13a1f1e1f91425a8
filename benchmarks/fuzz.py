"""Damaged files, by the thousand: `python -m benchmarks.fuzz --count 20000`.

Everything that reads a file of somebody else, `robustfd.load` and all readers of `robustfd.streams`, gets damaged and
made-up ones (`tests/fuzzing.py`) in processes with little memory and little time. What may happen is documented: the
file is read, or refused with `SnapshotError`, `StreamError` or the system's `OSError`. Anything else, a crash, or a
file that takes too much memory or time is a violation: it is written to a folder, and the exit status is 1. A case is
told by its number: `--only NUMBER` reads it again, with the traceback.
"""

import argparse
import collections
import json
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

MEMORY = 1 << 30  # bytes that a file may take, above those that the process has at first
ADDRESSES = 4 << 30  # bytes that it may ask for: learners ask for whole blocks, and fill them by and by
SECONDS = 5.0  # of computing for a file
STALLED = 60.0  # seconds after which nothing more is to be expected


class TooLong(BaseException):
    """A file took longer than it may."""


def limit() -> None:
    """Give this process little more memory than it has, and little time for each file."""
    if os.path.exists("/proc/self/statm"):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + ADDRESSES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    def ring(signum: int, frame: Any) -> None:
        raise TooLong

    signal.signal(signal.SIGPROF, ring)


def peak() -> int:
    """Return the most bytes that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def outcome_of(number: int, seed: int, folder: Path) -> tuple[str, str, str]:
    """Return the reader of a case, what happened, and, of a violation, all there is to say."""
    from tests.fuzzing import judge, make_case

    case, before = make_case(number, seed), peak()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        outcome = judge(case, folder)
        if peak() - before > MEMORY:
            raise MemoryError(f"It took {(peak() - before) / 1e9:.1f} GB.")
        return case.reader, outcome, ""
    except (Exception, TooLong) as error:
        return case.reader, f"VIOLATION {type(error).__name__}", f"{case.options}\n{traceback.format_exc()}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def work(numbers: range, seed: int, results: Connection) -> None:
    """Judge the cases of these numbers, and send what comes of each."""
    from tests.fuzzing import warm_up

    with tempfile.TemporaryDirectory() as place:
        warm_up(Path(place))
        limit()
        for number in numbers:
            results.send((number, *outcome_of(number, seed, Path(place))))


class Worker:
    """A process with a share of the cases; one that dies is followed by another, which goes on behind the case."""

    def __init__(self, numbers: range, seed: int):
        self.numbers, self.seed = numbers, seed
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.results, sender = context.Pipe(duplex=False)
        self.process = context.Process(target=work, args=(self.numbers, self.seed, sender), daemon=True)
        self.process.start()
        sender.close()
        self.heard = time.monotonic()

    def take(self) -> tuple[int, str, str, str] | None:
        """Return the next result, or that of the case that killed the process; None at the end."""
        try:
            result = self.results.recv()
        except EOFError:
            self.process.join()
            if not self.numbers:
                return None
            result = (self.numbers[0], "?", "VIOLATION crash", f"The process ended with {self.process.exitcode}.")
            self.numbers = self.numbers[1:]
            self.start()
            return result
        self.heard = time.monotonic()
        self.numbers = self.numbers[1:]
        return result

    def watch(self) -> None:
        """End the process if nothing comes of its case; that counts as a crash."""
        if time.monotonic() - self.heard > STALLED:
            self.process.kill()


def run(count: int, seed: int, jobs: int, folder: Path) -> int:
    """Judge so many cases; print what came of them, and return how many are violations."""
    from tests.fuzzing import warm_up

    with tempfile.TemporaryDirectory() as place:
        warm_up(Path(place))  # compiles, once for all processes
    workers = {worker.results: worker for worker in (Worker(range(k, count, jobs), seed) for k in range(jobs))}
    found: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    bad, done, began = 0, 0, time.monotonic()
    while workers:
        for ready in wait(list(workers), timeout=1.0):
            worker = workers.pop(ready)
            result = worker.take()
            if result is None:
                continue
            workers[worker.results] = worker
            number, reader, outcome, detail = result
            done += 1
            found[reader][outcome] += 1
            if outcome.startswith("VIOLATION"):
                bad += 1
                keep(number, seed, f"{outcome}\n{detail}", folder)
                print(f"case {number}: {outcome}", flush=True)
            if done % 2000 == 0:
                print(f"  {done} of {count}, {time.monotonic() - began:.0f} s", flush=True)
        for worker in workers.values():
            worker.watch()
    for reader in sorted(found):
        print(f"{reader:<8}" + "  ".join(f"{what} {times}" for what, times in sorted(found[reader].items())))
    total = collections.Counter[str]()
    for each in found.values():
        total.update(each)
    print(f"{done} inputs: " + ", ".join(f"{what} {times}" for what, times in sorted(total.items())))
    print(f"{bad} violations" + (f", kept in {folder}" if bad else ""))
    return bad


def keep(number: int, seed: int, detail: str, folder: Path) -> None:
    """Write a case to a folder, for whoever looks into it."""
    from tests.fuzzing import make_case

    case = make_case(number, seed)
    place = folder / f"{seed}-{number}"
    place.mkdir(parents=True, exist_ok=True)
    (place / case.name).write_bytes(case.data)
    about = {"reader": case.reader, "name": case.name, "options": case.options}
    (place / "about.txt").write_text(f"{json.dumps(about)}\n{detail}\n")


def main() -> None:
    """Read arguments, and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=20_000, help="cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--folder", type=Path, default=Path("fuzz-violations"), help="where violations are kept")
    parser.add_argument("--only", type=int, help="the number of one case, to be looked at")
    given = parser.parse_args()
    if given.only is None:
        sys.exit(1 if run(given.count, given.seed, given.jobs, given.folder) else 0)
    from tests.fuzzing import warm_up

    keep(given.only, given.seed, "looked at", given.folder)
    with tempfile.TemporaryDirectory() as place:
        warm_up(Path(place))
        limit()
        print("\n".join(outcome_of(given.only, given.seed, Path(place))))


if __name__ == "__main__":
    main()
