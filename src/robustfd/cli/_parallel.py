"""A model that learns parts of the rows in parallel (`--jobs`). Commands use it as one model."""

from functools import reduce
from pathlib import Path
from typing import Any

from robustfd._jobs import side_by_side
from robustfd.online import progress
from robustfd.sketch.merging import merge

MOST_MOVED = 2**17  # entries of a sketch that is moved for a block of about a megabyte of text


class ParallelModel:
    """A model split into parts. Row i, counted since the split, goes to part i modulo the number of parts.

    Saving merges the parts and splits the result again. So a pass that resumes from a checkpoint makes the same model
    as a pass that wrote the checkpoint and continued.
    """

    def __init__(self, model: Any, jobs: int):
        self._jobs, self._rows, self._all_rows = jobs, 0, 0
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
        """Let each part learn its rows, in threads or in processes, whichever is faster."""
        n, d = X.shape
        if "classes" in more:  # every part needs them in its first call
            known = next((part.classes_ for part in self._parts if hasattr(part, "classes_")), None)
            more["classes"] = known if more["classes"] is None else more["classes"]
        work = []
        for i, part in enumerate(self._parts):
            rows = slice((i - self._rows) % self._jobs, None, self._jobs)
            some = (each if each is None else each[rows] for each in (X, y, sample_weight))
            work.append((part, *some, more))
        self._rows, self._all_rows = self._rows + n, self._all_rows + n
        self._parts = side_by_side(_learn, work, processes=self._gains_by_processes(d))

    def _gains_by_processes(self, d: int) -> bool:
        """Return whether processes are faster than threads, although parts move to them and back with every block."""
        part = self._parts[0]
        gains = getattr(part, "_gains_by_processes", None)
        return gains is not None and d * part.sketch_size <= MOST_MOVED and gains(self._all_rows)

    @property
    def progressive_(self) -> Any:
        """The progress of all parts together."""
        fitted = [part for part in self._parts if part.__sklearn_is_fitted__()]
        table: Any = progress.table(reduce(progress.joined, [part._progress for part in fitted]))
        return {name: table[name] for name in fitted[0].progressive_}

    def merged(self) -> Any:
        """Return the model of all rows so far. The parts do not change."""
        whole = merge(self._parts)
        whole.__dict__.pop("_share", None)
        return whole

    def save(self, path: Path, **more: Any) -> None:
        """Merge the parts, save the model, and split it again."""
        whole = self.merged()
        whole.save(path, **more)
        self._parts, self._rows = whole.split(self._jobs), 0


def _learn(part: Any, x: Any, y: Any, weight: Any, more: dict[str, Any]) -> Any:
    """Return the part after its rows, of which there may be none."""
    if x.shape[0] and (weight is None or weight.any() or part.__sklearn_is_fitted__()):
        part.partial_fit(x, y, sample_weight=weight, **more)
    return part


def parallel(model: Any, jobs: int) -> Any:
    """Return the model, or a `ParallelModel` if there is more than one job."""
    return ParallelModel(model, jobs) if jobs > 1 else model


def merged(model: Any) -> Any:
    """Return the merged model of all rows so far; a model that is not parallel unchanged."""
    return model.merged() if isinstance(model, ParallelModel) else model
