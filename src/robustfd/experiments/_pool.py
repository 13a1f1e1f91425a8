"""Running cells in several processes with one BLAS thread each. Finished cells are read from the store."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing.connection import wait as wait_for_end

from robustfd.experiments._cells import Cell, Result, Store

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

Runner = Callable[[Cell], Result]
OnEnd = Callable[[Cell, str], None]


def run_cells(cells: Sequence[Cell], store: Store, run: Runner, *, jobs: int, on_end: OnEnd) -> dict[Cell, Result]:
    """Return the result of each cell that succeeds. Cells in the store do not run again.

    `on_end` is called for each cell with "kept" (from the store), "done", or an error message. With jobs = 0, cells run
    in this process.
    """
    results: dict[Cell, Result] = {}
    to_do = []
    for cell in dict.fromkeys(cells):
        stored = store.read(cell)
        if stored is None:
            to_do.append(cell)
        else:
            results[cell] = stored
            on_end(cell, "kept")
    # Longest first, so that no long cell runs alone at the end.
    to_do.sort(key=lambda cell: -cell.effort)
    for cell, result in _in_processes(to_do, store, run, jobs, on_end) if jobs else _here(to_do, store, run, on_end):
        results[cell] = result
    return results


def run_and_store(cell: Cell, store: Store, run: Runner) -> Result:
    """Run a cell, store its result and return it."""
    start = time.perf_counter()
    result = run(cell)
    store.write(cell, result, time.perf_counter() - start)
    return result


def _here(cells: Iterable[Cell], store: Store, run: Runner, on_end: OnEnd) -> Iterable[tuple[Cell, Result]]:
    for cell in cells:
        try:
            result = run_and_store(cell, store, run)
        except Exception as error:
            on_end(cell, _message(error))
            continue
        on_end(cell, "done")
        yield cell, result


def _in_processes(
    cells: Sequence[Cell], store: Store, run: Runner, jobs: int, on_end: OnEnd
) -> Iterable[tuple[Cell, Result]]:
    if not cells:
        return
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))  # workers inherit these and read them when they import numpy
    pool = ProcessPoolExecutor(min(jobs, len(cells)), multiprocessing.get_context("spawn"), _init_worker)
    try:
        waiting = {pool.submit(run_and_store, cell, store, run): cell for cell in cells}
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                cell, error = waiting.pop(future), future.exception()
                on_end(cell, "done" if error is None else _message(error))
                if error is None:
                    yield cell, future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _init_worker() -> None:
    """Make a worker exit immediately on Ctrl-C and when its parent process ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def exit_with_parent() -> None:
        wait_for_end([parent.sentinel])
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()


def _message(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
