"""A model that learns parts of the rows in parallel (`--jobs`). Commands use it as one model."""

from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import Any

from robustfd.cli._workers import Worker
from robustfd.learners import progress
from robustfd.sketch.merging import merge


class ParallelModel:
    """A model split into parts. Row i, counted since the split, goes to part i modulo the number of parts.

    Each part belongs to a worker for the whole pass, and `partial_fit` returns before the workers have learned the
    rows. Whatever reads or saves the model waits for them.

    Saving merges the parts and splits the result again. So a pass that resumes from a checkpoint makes the same model
    as a pass that wrote the checkpoint and continued.
    """

    def __init__(self, model: Any, jobs: int, expected_rows: Callable[[], int]):
        self._jobs, self._rows, self._all_rows, self._expected_rows = jobs, 0, 0, expected_rows
        # The parts as they were when they last were here. In threads they are the parts that learn.
        self._parts = model.split(jobs)
        self._rows_before = model.n_samples_seen_ if model.__sklearn_is_fitted__() else 0
        self._workers = [Worker(part) for part in self._parts]

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that all parts share and that learning does not change: parameters, classes, features."""
        if name == "_parts":  # not set yet, while the object is being made
            raise AttributeError(name)
        for part in self._parts:
            if hasattr(part, name):
                return getattr(part, name)
        raise AttributeError(f"{type(self._parts[0]).__name__} has no attribute {name}")

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, **more: Any) -> None:
        """Let each worker learn its rows, in a thread or in a process, whichever is faster."""
        if "classes" in more:  # every part needs them in its first call
            known = next((part.classes_ for part in self._parts if hasattr(part, "classes_")), None)
            more["classes"] = known if more["classes"] is None else more["classes"]
        first = not self._all_rows
        for i, worker in enumerate(self._workers):
            rows = slice((i - self._rows) % self._jobs, None, self._jobs)
            worker.change(_learn, partial(_some_rows, X, y, sample_weight, more, rows))
        self._rows, self._all_rows = self._rows + X.shape[0], self._all_rows + X.shape[0]
        if first:
            self._all(Worker.wait)  # then the parts have their features and classes
        gains = getattr(self._parts[0], "_gains_by_processes", None)
        if gains is not None and gains(max(self._all_rows, self._expected_rows())):
            self._all(Worker.use_process)

    def _all(self, action: Callable[..., Any], *arguments: Any) -> list[Any]:
        return [action(worker, *arguments) for worker in self._workers]

    @property
    def n_samples_seen_(self) -> int:
        """The number of rows so far, also of those that workers are about to learn."""
        return int(self._rows_before + self._all_rows)

    @property
    def progressive_(self) -> Any:
        """The progress of all parts together."""
        found = [each for each in self._all(Worker.read, _progress) if each is not None]
        table: Any = progress.table(reduce(progress.joined, [each for each, _ in found]))
        return {name: table[name] for name in found[0][1]}

    def plot_progress(self, **more: Any) -> Any:
        """Plot `progressive_` of all parts together."""
        return self.merged().plot_progress(**more)

    def merged(self) -> Any:
        """Return the model of all rows so far. The parts do not change."""
        whole = merge(self._all(Worker.read))
        whole.__dict__.pop("_share", None)
        return whole

    def save(self, path: Path, **more: Any) -> None:
        """Merge the parts, save the model, and split it again."""
        whole = self.merged()
        whole.save(path, **more)
        self._parts, self._rows = whole.split(self._jobs), 0
        for worker, part in zip(self._workers, self._parts, strict=True):
            worker.replace(part)

    def close(self) -> None:
        """End the workers."""
        self._all(Worker.close)


def _some_rows(x: Any, y: Any, weight: Any, more: dict[str, Any], rows: slice) -> tuple[Any, ...]:
    """Return the arguments of `_learn` for some rows."""
    return (*(each if each is None else each[rows] for each in (x, y, weight)), more)


def _learn(part: Any, x: Any, y: Any, weight: Any, more: dict[str, Any]) -> Any:
    """Return the part after its rows, of which there may be none."""
    if x.shape[0] and (weight is None or weight.any() or part.__sklearn_is_fitted__()):
        part.partial_fit(x, y, sample_weight=weight, **more)
    return part


def _progress(part: Any) -> tuple[Any, list[str]] | None:
    """Return the progress of a part and the names of its columns; None before the first row."""
    return (part._progress, list(part.progressive_)) if part.__sklearn_is_fitted__() else None


def parallel(model: Any, jobs: int, expected_rows: Callable[[], int] = lambda: 0) -> Any:
    """Return the model, or a `ParallelModel` if there is more than one job.

    `expected_rows` estimates the number of rows to come, if that is possible: processes pay off only for many.
    """
    return ParallelModel(model, jobs, expected_rows) if jobs > 1 else model


def merged(model: Any) -> Any:
    """Return the merged model of all rows so far; a model that is not parallel unchanged."""
    return model.merged() if isinstance(model, ParallelModel) else model


def close(model: Any) -> None:
    """End the workers of a model, if it has any."""
    if isinstance(model, ParallelModel):
        model.close()


def finished(model: Any) -> Any:
    """Return the merged model of all rows, and end the workers."""
    whole = merged(model)
    close(model)
    return whole
