"""A worker that owns a value and changes it in the background, in a thread or in a process of its own (`--jobs`)."""

import contextlib
import signal
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from typing import Any, NoReturn

from robustfd._sklearn import do_without

AHEAD = 2  # changes that may wait or run before `change` blocks; they hold their rows in memory
SECONDS = 5.0  # until a process that does not end by itself is killed


def identity(value: Any) -> Any:
    """Return the value itself."""
    return value


class Worker:
    """A thread that owns a value. `use_process` moves the value to a process, as soon as that has started.

    Threads share the interpreter's lock, processes need time to start. The value is the same in both.
    """

    def __init__(self, value: Any):
        self._value = value
        self._process: _Process | None = None
        self._moved = False  # whether the process has the value
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="robustfd-job")
        self._pending: deque[Future[Any]] = deque()

    def change(self, work: Callable[..., Any], arguments: Callable[[], tuple[Any, ...]]) -> None:
        """Replace the value by `work(value, *arguments())`, in the background and in order.

        `work` must be a function of a module. An error is raised by a later call.
        """
        self._pending.append(self._thread.submit(self._change, work, arguments))
        while len(self._pending) > AHEAD:
            self._pending.popleft().result()

    def wait(self) -> None:
        """Wait for all changes, and raise the first error."""
        while self._pending:
            self._pending.popleft().result()

    def read(self, look: Callable[[Any], Any] = identity) -> Any:
        """Return `look(value)` after all changes. It must not change the value."""
        self.wait()
        return self._process.call(False, look) if self._process is not None and self._moved else look(self._value)

    def replace(self, value: Any) -> None:
        """Set the value after all changes."""
        self.wait()
        if self._process is not None and self._moved:
            self._process.call(True, _second, value)
        else:
            self._value = value

    def use_process(self) -> None:
        """Start a process for the value. Changes continue in the thread until it has started."""
        if self._process is None:
            self._process = _Process(type(self._value).__module__)

    def close(self) -> None:
        """Drop changes that wait, and end the thread and the process."""
        self._thread.shutdown(cancel_futures=True)
        if self._process is not None:
            self._process.close()
            self._process = None

    def _change(self, work: Callable[..., Any], arguments: Callable[[], tuple[Any, ...]]) -> None:
        if self._process is not None and not self._moved and self._process.has_started():
            self._process.call(True, _second, self._value)
            self._moved, self._value = True, None
        if self._process is not None and self._moved:
            self._process.call(True, work, *arguments())
        else:
            self._value = work(self._value, *arguments())


class _Process:
    """A process that holds a value. It ends when its pipe is closed, which the end of this process does, too.

    It imports `module`, that of the value, before it reports its start.
    """

    def __init__(self, module: str):
        from multiprocessing import get_context

        context = get_context("spawn")  # a fork would copy threads' locks in any state
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, module), name="robustfd-job", daemon=True)
        with _interrupts_blocked():
            self._process.start()
        theirs.close()
        self._started = False

    def has_started(self) -> bool:
        """Return whether the process answers."""
        if not self._started and self._pipe.poll():
            self._receive()
            self._started = True
        return self._started

    def call(self, keep: bool, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run `work(value, *arguments)` there. With `keep` the result becomes the value, otherwise return it."""
        try:
            self._pipe.send((keep, work, arguments))
        except OSError:
            self._raise_lost()
        return self._receive()

    def _receive(self) -> Any:
        try:
            result, error = self._pipe.recv()
        except (EOFError, OSError):
            self._raise_lost()
        if error is not None:
            raise error
        return result

    def _raise_lost(self) -> NoReturn:
        self._process.join(SECONDS)
        raise ChildProcessError(
            f"A process of --jobs ended unexpectedly, with status {self._process.exitcode}. Its rows are lost. It may "
            "have run out of memory: use fewer jobs."
        )

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        if self._started:
            self._process.join(SECONDS)
        self._process.kill()
        self._process.join()
        self._process.close()


def _second(_: Any, value: Any) -> Any:
    return value


def _serve(pipe: Any, module: str) -> None:
    """Answer the calls of `_Process` until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the command decides when they end
    do_without()
    import_module(module)
    value: Any = None
    reply: tuple[Any, Exception | None] = (None, None)
    while True:
        try:
            pipe.send(reply)
            keep, work, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            result = work(value, *arguments)
            value, reply = (result, (None, None)) if keep else (value, (result, None))
        except Exception as error:
            reply = None, error


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C, so that a process that starts here ignores it from the beginning. It is delivered afterwards."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
