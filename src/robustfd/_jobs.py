"""Parallel work on parts of the rows, in threads or in processes.

Threads share memory and start at once. The core, BLAS and LAPACK release the global interpreter lock, so threads are
the default. Processes are faster for work that is mostly Python, if there is enough of it to outweigh their start. Both
give the same results, bit for bit.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from robustfd._validation import check_integer

SHARED_BYTES = 2**16  # arrays of at least this size go to a process through a file that it maps


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
    """Return the results of `work` for each tuple of arguments, computed in parallel. Raise an error of one of them.

    With `processes`, `work` must be a module-level function that returns its changes.
    """
    arguments = list(parts)
    if processes and len(arguments) > 1:
        from joblib import Parallel, delayed  # type: ignore[import-untyped]  # scikit-learn depends on it

        pool = Parallel(n_jobs=len(arguments), max_nbytes=SHARED_BYTES)
        return list(pool(delayed(work)(*each) for each in arguments))
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max(len(arguments), 1), thread_name_prefix="robustfd-job") as threads:
        return [done.result() for done in [threads.submit(work, *each) for each in arguments]]


def seed_of_part(random_state: Any, part: int) -> Any:
    """Return the seed of a part. Part 0 has the seed itself, and no two parts draw the same random numbers."""
    if part == 0 or random_state is None or not isinstance(random_state, int | np.integer):
        return random_state
    return int(np.random.SeedSequence((int(random_state), part)).generate_state(1)[0])
