"""A stream that is read by a second thread, one block ahead of whoever uses the blocks."""

from collections.abc import Iterator
from queue import Empty, SimpleQueue
from threading import Thread

from robustfd.streams._base import Block, Position, Stream

_SECONDS = 0.2  # Windows delivers no signal to a thread that waits for longer

_Found = tuple[Block, Position] | BaseException | None  # None is the end


class ReadAhead:
    """An iterator of the blocks of a stream, each with the position after it; while one is used the next is read.

    At most one block is read that nobody has asked for yet. The stream itself says how far the reading is, so its own
    `position` is ahead too. An error of the stream is raised when its turn comes, behind the blocks before it.

    Leaving the context ends the thread. If it waits for input that may never come, it is left to end with the process.
    """

    def __init__(self, stream: Stream):
        self._asked: SimpleQueue[bool] = SimpleQueue()  # True for one more block, False to end
        self._found: SimpleQueue[_Found] = SimpleQueue()
        self._thread = Thread(target=_read, args=(stream, self._asked, self._found), name="robustfd-ahead", daemon=True)
        self._over = False

    def __enter__(self) -> "ReadAhead":
        self._thread.start()
        self._asked.put(True)
        return self

    def __exit__(self, *_: object) -> None:
        self._asked.put(False)

    def __iter__(self) -> Iterator[tuple[Block, Position]]:
        return self

    def __next__(self) -> tuple[Block, Position]:
        if self._over:
            raise StopIteration
        found = self._wait()
        if isinstance(found, tuple):
            self._asked.put(True)
            return found
        self._over = True
        self._thread.join()
        if found is not None:
            raise found
        raise StopIteration

    def _wait(self) -> _Found:
        """Return what the thread has read; a signal may end the waiting."""
        while True:
            try:
                return self._found.get(timeout=_SECONDS)
            except Empty:
                continue


def _read(stream: Stream, asked: "SimpleQueue[bool]", found: "SimpleQueue[_Found]") -> None:
    """Read a block whenever one is asked for, until there is none."""
    blocks = iter(stream)
    while asked.get():
        try:
            block = next(blocks, None)
        except BaseException as error:
            found.put(error)
            return
        if block is None:
            found.put(None)
            return
        found.put((block, stream.position))
