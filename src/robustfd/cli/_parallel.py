"""A model that learns parts of the rows in parallel threads (`--jobs`). Commands use it as one model."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from typing import Any

from robustfd.online import progress
from robustfd.sketch.merging import merge


class ParallelModel:
    """A model split into parts. Row i, counted since the split, goes to part i modulo the number of parts.

    Saving merges the parts and splits the result again. So a pass that resumes from a checkpoint makes the same model
    as a pass that wrote the checkpoint and continued.
    """

    def __init__(self, model: Any, jobs: int):
        self._pool = ThreadPoolExecutor(jobs, thread_name_prefix="robustfd-job")
        self._jobs, self._rows = jobs, 0
        self._parts = model.split(jobs)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that all parts share: parameters, classes, features."""
        if name == "_parts":  # not set yet, while the object is being made
            raise AttributeError(name)
        for part in self._parts:
            if hasattr(part, name):
                return getattr(part, name)
        raise AttributeError(f"{type(self._parts[0]).__name__} has no attribute {name}")

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, **more: Any) -> None:
        """Learn rows, each part its own."""
        n = X.shape[0]

        def learn(part: Any, begin: int) -> None:
            rows = slice(begin, None, self._jobs)
            weight = None if sample_weight is None else sample_weight[rows]
            if begin < n and (weight is None or weight.any() or part.__sklearn_is_fitted__()):
                part.partial_fit(X[rows], None if y is None else y[rows], sample_weight=weight, **more)

        begins = [(i - self._rows) % self._jobs for i in range(self._jobs)]
        if "classes" in more:  # each part needs them in its own first call
            known = next((part.classes_ for part in self._parts if hasattr(part, "classes_")), None)
            more["classes"] = known if more["classes"] is None else more["classes"]
        self._run(learn, zip(self._parts, begins, strict=True))
        self._rows += n

    def _run(self, work: Callable[..., Any], arguments: Any) -> list[Any]:
        return [future.result() for future in [self._pool.submit(work, *each) for each in arguments]]

    @property
    def progressive_(self) -> Any:
        """The progress of all parts together."""
        fitted = [part for part in self._parts if part.__sklearn_is_fitted__()]
        table: Any = progress.table(reduce(progress.joined, [part._progress for part in fitted]))
        return {name: table[name] for name in fitted[0].progressive_}

    def merged(self) -> Any:
        """Return the model of all rows so far; the parts stay as they are."""
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


def parallel(model: Any, jobs: int) -> Any:
    """Return the model, or a `ParallelModel` if there is more than one job."""
    return ParallelModel(model, jobs) if jobs > 1 else model


def merged(model: Any) -> Any:
    """Return the merged model of all rows so far; a model that is not parallel unchanged."""
    return model.merged() if isinstance(model, ParallelModel) else model


def close(model: Any) -> Any:
    """Return the merged model and end its threads; a model that is not parallel unchanged."""
    return model.close() if isinstance(model, ParallelModel) else model
