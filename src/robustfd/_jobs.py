"""Work side by side, in threads: compiled loops, BLAS and LAPACK do not hold the lock of the interpreter."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from robustfd._validation import check_integer


def count_jobs(name: str, n_jobs: Any) -> int:
    """Return how many jobs are asked for: 1 for None, as many as there are cores for -1, all but one for -2, ..."""
    if n_jobs is None:
        return 1
    jobs = check_integer(name, n_jobs, -(2**31))
    if jobs == 0:
        raise ValueError(f"{name} must be at least 1, or -1 for as many as there are cores, got 0.")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return jobs if jobs > 0 else max(cores + 1 + jobs, 1)


def side_by_side(work: Callable[..., Any], parts: Iterable[Sequence[Any]]) -> list[Any]:
    """Return what `work` returns for each tuple of arguments, all done at the same time; the first error is raised."""
    arguments = list(parts)
    with ThreadPoolExecutor(max(len(arguments), 1), thread_name_prefix="robustfd-job") as pool:
        return [done.result() for done in [pool.submit(work, *each) for each in arguments]]


def seed_of_part(random_state: Any, part: int) -> Any:
    """Return the seed of a part, so that no two parts draw the same random numbers; that of part 0 is as it was."""
    if part == 0 or random_state is None or not isinstance(random_state, int | np.integer):
        return random_state
    return int(np.random.SeedSequence((int(random_state), part)).generate_state(1)[0])
