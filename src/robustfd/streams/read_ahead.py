"""A stream that a second thread reads, one block ahead of the caller."""

from collections.abc import Iterator
from queue import Empty, SimpleQueue
from threading import Thread

from robustfd.streams.base import Block, Stream
from robustfd.streams.inputs import Position

_SECONDS = 0.2  # on Windows a thread that waits without a timeout gets no signals

_Item = tuple[Block, Position] | BaseException | None  # None marks the end


class ReadAhead:
    """An iterator over the blocks of a stream, each with the position after it. It reads one block ahead.

    The `position` of the stream itself is ahead too. An error of the stream is raised after the blocks before it.

    Leaving the context ends the thread. A thread that waits for input that never comes ends with the process.
    """

    def __init__(self, stream: Stream):
        self._requests: SimpleQueue[bool] = SimpleQueue()  # True requests a block, False ends the thread
        self._found: SimpleQueue[_Item] = SimpleQueue()
        self._thread = Thread(
            target=_read, args=(stream, self._requests, self._found), name="robustfd-ahead", daemon=True
        )
        self._ended = False

    def __enter__(self) -> "ReadAhead":
        self._thread.start()
        self._requests.put(True)
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.put(False)

    def __iter__(self) -> Iterator[tuple[Block, Position]]:
        return self

    def __next__(self) -> tuple[Block, Position]:
        if self._ended:
            raise StopIteration
        found = self._wait()
        if isinstance(found, tuple):
            self._requests.put(True)
            return found
        self._ended = True
        self._thread.join()
        if found is not None:
            raise found
        raise StopIteration

    def _wait(self) -> _Item:
        """Return the next item from the thread. A signal can interrupt the wait."""
        while True:
            try:
                return self._found.get(timeout=_SECONDS)
            except Empty:
                continue


def _read(stream: Stream, requests: "SimpleQueue[bool]", found: "SimpleQueue[_Item]") -> None:
    """Read a block for each request, until the stream ends."""
    blocks = iter(stream)
    while requests.get():
        try:
            block = next(blocks, None)
        except BaseException as error:
            found.put(error)
            return
        if block is None:
            found.put(None)
            return
        found.put((block, stream.position))
