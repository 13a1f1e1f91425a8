"""Parallel work on parts of the rows, in threads or in processes.

Threads share memory and start at once. Compiled loops, BLAS and LAPACK release the global interpreter lock, so threads
are the default. Processes are faster for work that is mostly Python, if there is enough of it to outweigh their start.
Both give the same results, bit for bit.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from robustfd._scipy import scipy_sparse as sp
from robustfd._validation import check_integer

SHARED_BYTES = 2**16  # arrays of at least this size go to a process through a file that it maps
MEMORY_FILES = Path("/dev/shm")  # files in memory, on Linux


def count_jobs(name: str, n_jobs: Any) -> int:
    """Return the number of jobs: 1 for None, the number of cores for -1, one less for -2, and so on."""
    if n_jobs is None:
        return 1
    jobs = check_integer(name, n_jobs, -(2**31))
    if jobs == 0:
        raise ValueError(f"{name} must be at least 1, or -1 to use all cores, got 0.")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return jobs if jobs > 0 else max(cores + 1 + jobs, 1)


def side_by_side(work: Callable[..., Any], parts: Iterable[Sequence[Any]], *, processes: bool = False) -> list[Any]:
    """Return the results of `work` for each tuple of arguments, computed in parallel. Raise the first error.

    With `processes`, the first part runs in this process and each other part in a worker process, which stays alive for
    later calls. `work` must then be a module-level function that returns its changes.
    """
    arguments = list(parts)
    if processes and len(arguments) > 1:
        return _in_processes(work, arguments)
    with ThreadPoolExecutor(max(len(arguments), 1), thread_name_prefix="robustfd-job") as pool:
        return [done.result() for done in [pool.submit(work, *each) for each in arguments]]


def _in_processes(work: Callable[..., Any], arguments: list[Sequence[Any]]) -> list[Any]:
    # scikit-learn depends on joblib.
    from joblib.externals.loky import get_reusable_executor  # type: ignore[import-untyped]

    folder = Path(tempfile.mkdtemp(prefix="robustfd-", dir=_place_for(arguments[1:])))
    try:
        pool = get_reusable_executor(max_workers=len(arguments) - 1)
        others: list[Future[Any]] = []
        for i, each in enumerate(arguments[1:]):
            others.append(
                pool.submit(_opened, work, [_shared(value, folder, f"{i}-{j}") for j, value in enumerate(each)])
            )
        mine = work(*arguments[0])
        return [mine, *(done.result() for done in others)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _place_for(arguments: list[Sequence[Any]]) -> Path | None:
    """Return a folder in memory if it has space for all arrays; otherwise None, for the usual temporary folder."""
    size = sum(array.nbytes for each in arguments for value in each for array in _arrays(value))
    return MEMORY_FILES if MEMORY_FILES.is_dir() and shutil.disk_usage(MEMORY_FILES).free > 2 * size else None


def _arrays(value: Any) -> list[Any]:
    if sp.issparse(value):
        return [value.data, value.indices, value.indptr]
    return [value] if isinstance(value, np.ndarray) else []


def _shared(value: Any, folder: Path, name: str) -> Any:
    """Return a function of no arguments, for another process, that returns the value there."""
    arrays = _arrays(value)
    if sum(array.nbytes for array in arrays) < SHARED_BYTES or any(array.dtype.hasobject for array in arrays):
        return partial(_as_it_is, value)
    paths = [folder / f"{name}-{k}.npy" for k in range(len(arrays))]
    for path, array in zip(paths, arrays, strict=True):
        np.save(path, array)
    return partial(_mapped, paths, (type(value), value.shape) if sp.issparse(value) else None)


def _as_it_is(value: Any) -> Any:
    return value


def _mapped(paths: list[Path], sparse: tuple[Any, Any] | None) -> Any:
    arrays = tuple(np.asarray(np.load(path, mmap_mode="r")) for path in paths)
    if sparse is None:
        return arrays[0]
    kind, shape = sparse
    matrix = kind(arrays, shape=shape)
    matrix.has_canonical_format = True  # as all checked rows have
    return matrix


def _opened(work: Callable[..., Any], arguments: list[Callable[[], Any]]) -> Any:
    return work(*(open_it() for open_it in arguments))


def seed_of_part(random_state: Any, part: int) -> Any:
    """Return the seed of a part. Part 0 has the seed itself, and no two parts draw the same random numbers."""
    if part == 0 or random_state is None or not isinstance(random_state, int | np.integer):
        return random_state
    return int(np.random.SeedSequence((int(random_state), part)).generate_state(1)[0])
