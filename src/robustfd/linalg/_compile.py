"""The one place where loops are compiled."""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Return the function compiled by numba, cached on disk where there is a place to write to."""
    try:
        return numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # neither the package's folder nor a user cache can be written
        return numba.njit(nogil=True, error_model="numpy")(function)
