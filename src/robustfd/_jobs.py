"""Parallel work in threads: compiled loops, BLAS and LAPACK release Python's global lock."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from robustfd._validation import check_integer


def count_jobs(name: str, n_jobs: Any) -> int:
    """Return the number of jobs: 1 for None, the number of cores for -1, one less for -2, and so on."""
    if n_jobs is None:
        return 1
    jobs = check_integer(name, n_jobs, -(2**31))
    if jobs == 0:
        raise ValueError(f"{name} must be at least 1, or -1 for all cores, got 0.")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return jobs if jobs > 0 else max(cores + 1 + jobs, 1)


def side_by_side(work: Callable[..., Any], parts: Iterable[Sequence[Any]]) -> list[Any]:
    """Return the result of `work` for each tuple of arguments, computed in parallel; raise the first error."""
    arguments = list(parts)
    with ThreadPoolExecutor(max(len(arguments), 1), thread_name_prefix="robustfd-job") as pool:
        return [done.result() for done in [pool.submit(work, *each) for each in arguments]]


def seed_of_part(random_state: Any, part: int) -> Any:
    """Return the seed of a part. No two parts draw the same random numbers; part 0 keeps the seed."""
    if part == 0 or random_state is None or not isinstance(random_state, int | np.integer):
        return random_state
    return int(np.random.SeedSequence((int(random_state), part)).generate_state(1)[0])
