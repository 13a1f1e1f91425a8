"""Several models that learn parts of the rows side by side: to a command they are one model (`--jobs`)."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from typing import Any

from robustfd.online import progress
from robustfd.sketch.merging import merge


class Team:
    """A model that is split into parts; row i, counted since then, is for part i modulo their number.

    Whenever it is saved the parts are merged and split again. So a pass that went on from a checkpoint makes the same
    model as one that wrote the checkpoint and was not stopped.
    """

    def __init__(self, model: Any, jobs: int):
        self._pool = ThreadPoolExecutor(jobs, thread_name_prefix="robustfd-job")
        self._jobs, self._rows = jobs, 0
        self._parts = model.split(jobs)

    def __getattr__(self, name: str) -> Any:
        """Return what the parts have in common: parameters, classes, features."""
        if name == "_parts":  # there are none yet
            raise AttributeError(name)
        for part in self._parts:
            if hasattr(part, name):
                return getattr(part, name)
        raise AttributeError(f"{type(self._parts[0]).__name__} has no attribute {name}")

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, **more: Any) -> None:
        """Let each part learn its rows."""
        n = X.shape[0]

        def learn(part: Any, begin: int) -> None:
            rows = slice(begin, None, self._jobs)
            weight = None if sample_weight is None else sample_weight[rows]
            if begin < n and (weight is None or weight.any() or part.__sklearn_is_fitted__()):
                part.partial_fit(X[rows], None if y is None else y[rows], sample_weight=weight, **more)

        begins = [(i - self._rows) % self._jobs for i in range(self._jobs)]
        if "classes" in more:  # in the first call of each part
            known = next((part.classes_ for part in self._parts if hasattr(part, "classes_")), None)
            more["classes"] = known if more["classes"] is None else more["classes"]
        self._each(learn, zip(self._parts, begins, strict=True))
        self._rows += n

    def _each(self, work: Callable[..., Any], arguments: Any) -> list[Any]:
        return [done.result() for done in [self._pool.submit(work, *each) for each in arguments]]

    @property
    def progressive_(self) -> Any:
        """The progress of all parts together."""
        begun = [part for part in self._parts if part.__sklearn_is_fitted__()]
        table: Any = progress.table(reduce(progress.joined, [part._progress for part in begun]))
        return {name: table[name] for name in begun[0].progressive_}

    def merged(self) -> Any:
        """Return the model of all rows so far; the parts go on as they are."""
        whole = merge(self._parts)
        whole.__dict__.pop("_share", None)
        return whole

    def save(self, path: Path, **more: Any) -> None:
        """Merge the parts, save the model, and split it again."""
        whole = self.merged()
        whole.save(path, **more)
        self._parts, self._rows = whole.split(self._jobs), 0

    def close(self) -> Any:
        """End the threads; return the model of all rows."""
        self._pool.shutdown()
        return self.merged()


def in_parts(model: Any, jobs: int) -> Any:
    """Return the model, or what stands for it if there is more than one job."""
    return Team(model, jobs) if jobs > 1 else model


def as_one(model: Any) -> Any:
    """Return the model that a team has learnt; any other as it is."""
    return model.close() if isinstance(model, Team) else model


__all__ = ["Team", "as_one", "in_parts"]
