"""Cells run in a few processes, each with one BLAS thread, or found finished in the store."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing.connection import wait as wait_for_end

from robustfd.experiments._cells import Cell, Result, Store

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

Runner = Callable[[Cell], Result]
Watcher = Callable[[Cell, str], None]


def run_cells(cells: Sequence[Cell], store: Store, run: Runner, *, jobs: int, watch: Watcher) -> dict[Cell, Result]:
    """Return the result of each cell that succeeds; those in the store are not run again.

    `watch` is told of each cell that ends: "kept", "done", or the message of its error. With jobs = 0 cells run in
    this process.
    """
    results: dict[Cell, Result] = {}
    to_do = []
    for cell in dict.fromkeys(cells):
        kept = store.read(cell)
        if kept is None:
            to_do.append(cell)
        else:
            results[cell] = kept
            watch(cell, "kept")
    # The longest first, so that no worker is left with a long one at the end.
    to_do.sort(key=lambda cell: -cell.effort)
    for cell, result in _in_processes(to_do, store, run, jobs, watch) if jobs else _here(to_do, store, run, watch):
        results[cell] = result
    return results


def run_and_keep(cell: Cell, store: Store, run: Runner) -> Result:
    """Return the result of a cell once it is in the store."""
    start = time.perf_counter()
    result = run(cell)
    store.write(cell, result, time.perf_counter() - start)
    return result


def _here(cells: Iterable[Cell], store: Store, run: Runner, watch: Watcher) -> Iterable[tuple[Cell, Result]]:
    for cell in cells:
        try:
            result = run_and_keep(cell, store, run)
        except Exception as error:
            watch(cell, _message(error))
            continue
        watch(cell, "done")
        yield cell, result


def _in_processes(
    cells: Sequence[Cell], store: Store, run: Runner, jobs: int, watch: Watcher
) -> Iterable[tuple[Cell, Result]]:
    if not cells:
        return
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))  # workers inherit it, and read it when they import numpy
    pool = ProcessPoolExecutor(min(jobs, len(cells)), multiprocessing.get_context("spawn"), _begin_worker)
    try:
        waiting = {pool.submit(run_and_keep, cell, store, run): cell for cell in cells}
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                cell, error = waiting.pop(future), future.exception()
                watch(cell, "done" if error is None else _message(error))
                if error is None:
                    yield cell, future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _begin_worker() -> None:
    """Let a worker end at once at Ctrl-C, and when the process that started it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        wait_for_end([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _message(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
