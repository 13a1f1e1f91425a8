"""A model that learns parts of the rows in parallel (`--jobs`). Commands use it as one model."""

import atexit
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, reduce
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

from robustfd._sklearn import do_without
from robustfd.learners import progress
from robustfd.sketch.merging import merge

_BY_ROW = ("rewards",)  # further arguments of `partial_fit` that have a value for each row
AHEAD = 2  # changes that may wait or run before `change` blocks; they hold their rows in memory


def parallel(model: Any, jobs: int, expected_rows: Callable[[], int] = lambda: 0) -> Any:
    """Return the model, or a `ParallelModel` if there is more than one job.

    `expected_rows` estimates the number of rows to come, if that is possible: processes pay off only for many.
    """
    return ParallelModel(model, jobs, expected_rows) if jobs > 1 and not isinstance(model, ParallelModel) else model


def merged(model: Any) -> Any:
    """Return the merged model of all rows so far; a model that is not parallel unchanged."""
    return model.merged() if isinstance(model, ParallelModel) else model


def close(model: Any) -> None:
    """End the workers of a model, if it has any."""
    if isinstance(model, ParallelModel):
        model.close()


class ParallelModel:
    """A model split into parts. Row i, counted since the split, goes to part i modulo the number of parts.

    Each part belongs to a worker for the whole pass, and `partial_fit` returns before the workers have learned the
    rows. Whatever reads or saves the model waits for them.

    Saving merges the parts and splits the result again. So a pass that resumes from a checkpoint makes the same model
    as a pass that wrote the checkpoint and continued.
    """

    _relearns = False  # whether an earlier pass has learned the rows

    def __init__(self, model: Any, jobs: int, expected_rows: Callable[[], int] = lambda: 0):
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
        more["relearns"], first = self._relearns, not self._all_rows
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
        return int(self._rows_before + (0 if self._relearns else self._all_rows))

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
        model = merge(self._all(Worker.read))
        model.__dict__.pop("_share", None)
        return model

    def save(self, path: Path, **more: Any) -> None:
        """Merge the parts, save the model, and split it again."""
        model = self.merged()
        model.save(path, **more)
        self._parts, self._rows = model.split(self._jobs), 0
        for worker, part in zip(self._workers, self._parts, strict=True):
            worker.replace(part)

    def close(self) -> None:
        """End the workers."""
        self._all(Worker.close)


def _some_rows(x: Any, y: Any, weight: Any, more: dict[str, Any], rows: slice) -> tuple[Any, ...]:
    """Return the arguments of `_learn` for some rows."""
    more = {name: value[rows] if name in _BY_ROW else value for name, value in more.items()}
    return (*(each if each is None else each[rows] for each in (x, y, weight)), more)


def _learn(part: Any, x: Any, y: Any, weight: Any, more: dict[str, Any]) -> Any:
    """Return the part after its rows, of which there may be none."""
    if more.pop("relearns"):
        part._relearns = True
    if x.shape[0] and (weight is None or weight.any() or part.__sklearn_is_fitted__()):
        part.partial_fit(x, y, **more, **({} if weight is None else {"sample_weight": weight}))
    return part


def _progress(part: Any) -> tuple[Any, list[str]] | None:
    """Return the progress of a part and the names of its columns; None before the first row."""
    return (part._progress, list(part.progressive_)) if part.__sklearn_is_fitted__() else None


def _identity(value: Any) -> Any:
    return value


class Worker:
    """A thread that owns a value. `use_process` moves the value to a process, as soon as that has started.

    Threads share the interpreter's lock, processes need time to start. The value is the same in both.
    """

    def __init__(self, value: Any):
        from concurrent.futures import ThreadPoolExecutor  # not above: most commands have one job

        self._value = value
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="robustfd-job")
        self._pending: deque[Any] = deque()  # results that are awaited
        self._process: Any = None  # an executor
        self._started: Any  # awaits the number of the process
        self._moved = False  # whether the process has the value

    def change(self, work: Callable[..., Any], arguments: Callable[[], tuple[Any, ...]]) -> None:
        """Replace the value by `work(value, *arguments())`, in the background and in order.

        `work` must be a function of a module. An error is raised by a later call.
        """
        self._pending.append(self._thread.submit(self._change, work, arguments))
        while len(self._pending) > AHEAD:
            self._pending.popleft().result()

    def _change(self, work: Callable[..., Any], arguments: Callable[[], tuple[Any, ...]]) -> None:
        if self._process is not None and not self._moved and self._started.done():
            self._call(_replace, self._value)
            self._moved, self._value = True, None
        if self._moved:
            self._call(_change, work, *arguments())
        else:
            self._value = work(self._value, *arguments())

    def wait(self) -> None:
        """Wait for all changes, and raise the first error."""
        while self._pending:
            self._pending.popleft().result()

    def read(self, look: Callable[[Any], Any] = _identity) -> Any:
        """Return `look(value)` after all changes. It must not change the value."""
        self.wait()
        return self._call(_read, look) if self._moved else look(self._value)

    def replace(self, value: Any) -> None:
        """Set the value after all changes."""
        self.wait()
        if self._moved:
            self._call(_replace, value)
        else:
            self._value = value

    def use_process(self) -> None:
        """Start a process for the value. Changes continue in the thread until it has started."""
        if self._process is None:
            from concurrent.futures import ProcessPoolExecutor
            from multiprocessing import get_context

            # Not a fork, which would copy threads' locks in any state. Ctrl-C reaches all processes, and this one
            # decides when the others end: they ignore it from the beginning.
            with _interrupts_blocked():
                module = (type(self._value).__module__,)
                self._process = ProcessPoolExecutor(1, get_context("spawn"), initializer=_prepare, initargs=module)
                self._started = self._process.submit(os.getpid)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in the process."""
        from concurrent.futures import BrokenExecutor

        assert self._process is not None
        try:
            return self._process.submit(function, *arguments).result()
        except BrokenExecutor:
            raise ChildProcessError(
                "A process of --jobs ended unexpectedly. Its rows are lost. It may have run out of memory: use fewer "
                "jobs."
            ) from None

    def close(self) -> None:
        """Drop changes that wait, and end the thread and the process."""
        self._thread.shutdown(cancel_futures=True)
        if self._process is not None:
            self._process.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C, also in processes that start here. It is delivered to this one afterwards."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# -- in the process of a worker

_value: Any = None


def _prepare(module: str) -> None:
    """Import the module of the value, and end with the command even if that is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    atexit.register(_replace, None)  # the core complains of objects that outlive the interpreter
    do_without()
    import_module(module)


def _end_with_parent() -> None:
    from multiprocessing import parent_process

    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _read(look: Callable[[Any], Any]) -> Any:
    return look(_value)


def _replace(value: Any) -> None:
    global _value
    _value = value


def _change(work: Callable[..., Any], *arguments: Any) -> None:
    _replace(work(_value, *arguments))
