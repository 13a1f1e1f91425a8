"""Running cases of all targets for a given time, in processes that may crash, hang or run out of memory."""

import collections
import multiprocessing
import os
import pickle
import resource
import select
import shutil
import signal
import tempfile
import time
import traceback
import warnings
import zlib
from importlib import import_module
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np

TARGETS = (
    "files", "threads", "certificates", "components", "resumed", "outputs", "refused", "extremes", "interrupts",
    "forks", "memory",
)  # fmt: skip
ADDRESSES = 6 << 30  # bytes of address space that a process may allocate in addition to its initial size
STALLED = 300.0  # seconds after which a case counts as hanging
CORPUS = Path(__file__).with_name("corpus.txt")  # cases that once failed; they run first
Case = tuple[str, int, int]  # target, number, seed
Result = tuple[str, int, int, str, str, float]  # the case, then outcome, details of a failure, seconds


class TooLong(BaseException):
    """A case exceeded its time limit."""


def rng_of(target: str, number: int, seed: int) -> np.random.Generator:
    """Return the random generator of a case."""
    return np.random.default_rng([seed, zlib.crc32(target.encode()), number])


def judge(target: str, number: int, seed: int, folder: Path) -> Result:
    """Run one case and return its result."""
    began = time.monotonic()
    place = folder / f"{target}-{number}"
    place.mkdir()
    try:
        apart = getattr(import_module(f"fuzz.{target}"), "APART", False)
        outcome, detail = (_run_apart if apart else _run)(target, number, seed, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return target, number, seed, outcome, detail, time.monotonic() - began


def _run(target: str, number: int, seed: int, place: Path) -> tuple[str, str]:
    """Run a case and return the outcome and the details of a failure."""
    module = import_module(f"fuzz.{target}")
    signal.setitimer(signal.ITIMER_PROF, module.SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return module.case(rng_of(target, number, seed), place), ""
    except (Exception, TooLong) as error:
        return "FAILURE", f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _run_apart(target: str, number: int, seed: int, place: Path) -> tuple[str, str]:
    """Do the same as `_run` in a separate process, so that heap corruption does not affect later cases."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(writing, "wb") as out:
            pickle.dump(_run(target, number, seed, place), out)
        os._exit(0)
    os.close(writing)
    until, data = time.monotonic() + STALLED / 2, b""
    with os.fdopen(reading, "rb") as answer:
        while time.monotonic() < until:
            if select.select([answer], [], [], 1.0)[0]:
                more = os.read(reading, 1 << 16)
                data += more
                if not more:
                    break
        else:
            os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if status != 0 or not data:
        return "FAILURE", f"The process ended with {os.waitstatus_to_exitcode(status)}: it crashed or hung."
    return pickle.loads(data)  # type: ignore[no-any-return]


def limit() -> None:
    """Limit the memory of this process and install the handler for the time limit of cases."""
    if os.path.exists("/proc/self/statm"):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + ADDRESSES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    def on_timeout(signum: int, frame: Any) -> None:
        raise TooLong

    signal.signal(signal.SIGPROF, on_timeout)


def prepare(targets: tuple[str, ...]) -> None:
    """Import everything that the targets need, so that it does not count for their time."""
    with tempfile.TemporaryDirectory() as place:
        for target in targets:
            module = import_module(f"fuzz.{target}")
            if hasattr(module, "prepare"):
                module.prepare(Path(place))


def read_corpus(targets: tuple[str, ...]) -> list[Case]:
    """Return the known cases of these targets that once failed."""
    lines = [line.partition("#")[0].split() for line in CORPUS.read_text().splitlines()]
    return [(line[0], int(line[1]), int(line[2])) for line in lines if line and line[0] in targets]


def work(first: dict[str, int], old: list[Case], how: tuple[int, int, float], results: Connection) -> None:
    """Run old cases, then new cases until the time is up, always of the target that has used the least time.

    `how` is the step between case numbers, the seed, and the end time. Each case is sent before it runs, and its result
    afterwards.
    """
    prepare(tuple(first))
    limit()
    step, seed, until = how
    spent, numbers = dict.fromkeys(first, 0.0), dict(first)
    with tempfile.TemporaryDirectory() as place:
        while time.time() < until:
            if old:
                case = old.pop(0)
            else:
                target = min(spent, key=lambda each: spent[each])
                case = target, numbers[target], seed
                numbers[target] += step
            results.send(case)
            result = judge(*case, Path(place))
            spent[case[0]] += result[-1]
            results.send(result)


class Worker:
    """A process that runs cases. If it dies, a new process continues with the next case."""

    def __init__(self, first: dict[str, int], old: list[Case], how: tuple[int, int, float]):
        self.numbers, self.old, self.how = first, old, how
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.results, sender = context.Pipe(duplex=False)
        given = (dict(self.numbers), list(self.old), self.how, sender)
        self.process = context.Process(target=work, args=given, daemon=True)
        self.process.start()
        sender.close()
        self.last_message, self.current = time.monotonic(), None

    def take(self) -> Result | None:
        """Return the next result, or None if the message only announces a case."""
        self.last_message = time.monotonic()
        message = self.results.recv()
        if len(message) == 3:
            self.current = message
            if self.old:
                self.old.pop(0)
            else:
                self.numbers[message[0]] = message[1] + self.how[0]
            return None
        self.current = None
        return message  # type: ignore[no-any-return]

    def after_end(self) -> Result | None:
        """Return the failure of the case that was running when the process ended, if any."""
        self.process.join()
        if self.current is None:
            return None
        how = f"The process ended with {self.process.exitcode}: it crashed, hung or ran out of memory."
        return (*self.current, "FAILURE", how, 0.0)

    def kill_if_stalled(self) -> None:
        """Kill the process if its case hangs. That counts as a crash."""
        if time.monotonic() - self.last_message > STALLED:
            self.process.kill()


def run(seconds: float, seed: int, jobs: int, targets: tuple[str, ...]) -> list[Result]:
    """Run cases for the given time, print failures and counts, and return the failures."""
    prepare(targets)
    until = time.time() + seconds
    old = read_corpus(targets)
    made = [Worker(dict.fromkeys(targets, k), old[k::jobs], (jobs, seed, until)) for k in range(jobs)]
    workers = {worker.results: worker for worker in made}
    found: dict[str, collections.Counter[str]] = {target: collections.Counter() for target in targets}
    failures: list[Result] = []
    while workers:
        for ready in wait(list(workers), timeout=1.0):
            worker = workers.pop(ready)  # type: ignore[call-overload]
            try:
                result = worker.take()
            except EOFError:
                result = worker.after_end()
                if time.time() < until and result is not None:
                    worker.start()
                    workers[worker.results] = worker
            else:
                workers[worker.results] = worker
            if result is not None:
                target, number, its_seed, outcome, detail, _ = result
                found[target][outcome] += 1
                if outcome == "FAILURE":
                    failures.append(result)
                    print(f"{target}:{number} --seed {its_seed}: {detail.splitlines()[0]}", flush=True)
        for worker in workers.values():
            worker.kill_if_stalled()
    for target, counts in found.items():
        bad = counts.pop("FAILURE", 0)
        what = ", ".join(f"{outcome} {times}" for outcome, times in sorted(counts.items()))
        print(f"{target:<13} {counts.total() + bad:>6} cases, {bad} failures ({what})")
    print(f"{sum(c.total() for c in found.values()) + len(failures)} cases, {len(failures)} failures")
    return failures
