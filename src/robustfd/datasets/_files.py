"""Files of data sets: the folders to search, downloads, and the uncompressed content with its checksum."""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeVar
from urllib.parse import unquote, urlsplit

from robustfd.datasets.registry import DatasetError, File

T = TypeVar("T")

BLOCK = 1 << 16
TIMEOUT = 30.0  # seconds without a byte
OPEN: dict[str, Callable[..., Any]] = {".xz": lzma.open, ".bz2": bz2.open, ".gz": gzip.open}
# Errors that the four decompressors raise for truncated or damaged bytes. RuntimeError means an encrypted archive.
DAMAGE = (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, RuntimeError)


def cache_folder() -> Path:
    """Return the folder for downloads, by the convention of the platform. It may not exist yet.

    See Also
    --------
    load : Load a data set.

    Examples
    --------
    >>> from robustfd import datasets
    >>> datasets.cache_folder().is_absolute()
    True
    """
    variable, below_home, end = {
        "win32": ("LOCALAPPDATA", "AppData/Local", "robustfd/Cache/datasets"),
        "darwin": ("", "Library/Caches", "robustfd/datasets"),
    }.get(sys.platform, ("XDG_CACHE_HOME", ".cache", "robustfd/datasets"))
    if os.path.isabs(value := os.environ.get(variable, "")):  # the XDG specification says to ignore relative paths
        return Path(value) / end
    try:
        return Path.home() / below_home / end
    except RuntimeError as error:
        raise DatasetError(f"There is no place for a cache: {error} Give the folder with folder=.") from error


def folders(folder: str | os.PathLike[str] | None) -> list[Path]:
    """Return the folders to search. Downloads go to the last one."""
    if folder is not None:
        return [Path(folder).expanduser()]
    data = os.environ.get("ROBUSTFD_DATA")
    return [*([Path(data).expanduser()] if data else []), cache_folder()]


def find(file: File, places: Sequence[Path]) -> Path | None:
    """Return the first copy of a file in the folders, or None."""
    paths = (place / name for place in places for name in _accepted_names(file))
    return next((path for path in paths if os.path.isfile(path)), None)


def how_to_get(file: File, places: Sequence[Path]) -> str:
    """Return instructions: which file to put where."""
    *most, last = _accepted_names(file)
    return (
        f"To use your own copy, put {', '.join(most)} or {last} into the folder {places[-1]}, or into the folder named "
        f"by the environment variable ROBUSTFD_DATA. "
        + (f"Published at: {', '.join(file.addresses)}" if file.addresses else "docs/datasets.md says how to make it.")
    )


def _accepted_names(file: File) -> list[str]:
    stored = dict.fromkeys(_stored_name(file, address) for address in file.addresses)
    return [file.name, *(file.name + suffix for suffix in OPEN), *(name for name in stored if name.endswith(".zip"))]


def _stored_name(file: File, address: str) -> str:
    """Return the name under which the download from an address is stored. Nothing is unpacked."""
    published = PurePosixPath(unquote(urlsplit(address).path))
    if published.suffix == ".zip":
        return published.name
    return file.name + (published.suffix if published.suffix in OPEN else "")


def fetch(file: File, folder: Path, *, progress: bool) -> str:
    """Download a file into a folder from the first address that has the right content. Return what failed if none has.

    pooch cannot check the content: our checksums are those of uncompressed files.
    """
    try:
        from pooch import HTTPDownloader
    except ImportError as error:
        raise ImportError("Downloads need pooch: pip install 'robustfd[data]'") from error
    problems = "" if file.addresses else "\n  It is not published as one file."
    for address in file.addresses:
        path = folder / _stored_name(file, address)
        bar = _Bar(path.name, _most_bytes(file, path.name), visible=progress)
        # Without "identity", a server may compress on the way what is stored as it is published.
        headers = {"User-Agent": "robustfd", "Accept-Encoding": "identity"}
        try:
            HTTPDownloader(bar, BLOCK, timeout=TIMEOUT, headers=headers)(address, str(path), None)
            read(path, file, lambda stream: None)
            return ""
        except Exception as error:  # broken answers raise almost anything
            path.unlink(missing_ok=True)
            problems += f"\n  {address}: {error}"
        finally:
            bar.close()
    return problems


def _most_bytes(file: File, name: str) -> float:
    """Return the largest possible size of a download. It is unknown for an archive, which may hold other files."""
    if file.size is None or name.endswith(".zip"):
        return float("inf")
    return file.size + file.size // 50 + BLOCK  # compression can make random content slightly larger


class _Bar:
    """The progress bar that pooch advances: stops a download that is too long, and is shown by rich on a terminal."""

    def __init__(self, label: str, most: float, *, visible: bool):
        self.total, self.most, self.done = 0, most, 0
        self.shown: Any = None
        if visible and sys.stderr is not None and sys.stderr.isatty():
            try:
                from rich.console import Console
                from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
            except ImportError:
                print(f"Downloading {label}", file=sys.stderr)
                return
            columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
            self.shown = Progress(*columns, console=Console(stderr=True))
            self.task = self.shown.add_task(label, total=None)
            self.shown.start()

    def update(self, count: int) -> None:
        """Count bytes."""
        self.done += count
        if self.done > self.most:
            raise DatasetError(f"the server sends more than the {self.most - BLOCK:.0f} bytes expected")
        if self.shown is not None:
            self.shown.update(self.task, completed=self.done, total=self.total or None)

    def reset(self) -> None:
        """Start over; pooch then adds the total."""
        self.done = 0

    def close(self) -> None:
        """End the bar, once or more often."""
        if self.shown is not None:
            self.shown.stop()


def read(path: Path, file: File, parse: Callable[[IO[bytes]], T], record: Path | None = None) -> tuple[T, str]:
    """Return the result of `parse` for the uncompressed content of a file, and the sha256 of that content.

    The kind of compression follows from the file name. `record` has the checksum of an earlier download, which counts
    if the registry has none. A wrong checksum takes precedence over an error of `parse`.
    """
    failure, result = None, None
    try:
        with _plain(path, file) as content:
            hashing = _Hashing(content, path, file)
            stream = io.BufferedReader(hashing, 1 << 20)
            try:
                result = parse(stream)
            except (ValueError, OverflowError, IndexError) as error:
                if isinstance(error, OSError):
                    raise
                failure = error
            while stream.read(1 << 20):
                pass
    except DatasetError:
        raise
    except DAMAGE as error:
        raise DatasetError(f"{path} cannot be read, or is damaged: {error}") from error
    found, expected, where = hashing.sha256.hexdigest(), file.sha256, ""
    if expected is None and record is not None and record.is_file():
        expected = record.read_text().partition(" ")[0]
        where = f" The expected value is stored in {record}. Delete it to accept any content."
    if expected not in (None, found):
        raise DatasetError(f"{path}: wrong checksum. {file.name} has sha256 {found}, expected {expected}.{where}")
    if failure is not None:
        raise DatasetError(f"{path} is not valid: {failure}") from failure
    return result, found  # type: ignore[return-value]


@contextmanager
def _plain(path: Path, file: File) -> Iterator[IO[bytes]]:
    """Yield the uncompressed content as a stream. Nothing is written to disk, so paths in an archive are never used."""
    if path.name == file.name or path.suffix != ".zip":
        with OPEN.get("" if path.name == file.name else path.suffix, open)(path, "rb") as stream:
            yield stream
        return
    with zipfile.ZipFile(path) as archive:
        members = [m for m in archive.infolist() if PurePosixPath(m.filename).name == file.name and not m.is_dir()]
        if len(members) != 1:
            raise DatasetError(f"{path} should have one file named {file.name}, got {len(members)}.")
        with archive.open(members[0]) as stream:
            yield stream


class _Hashing(io.RawIOBase):
    """A stream that computes the sha256 of the bytes read and raises if there are more than expected."""

    def __init__(self, content: IO[bytes], path: Path, file: File) -> None:
        self.content, self.path, self.file = content, path, file
        self.sha256, self.count = hashlib.sha256(), 0
        self.name = file.name  # for error messages of parsers

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self.content.read(len(buffer))
        self.sha256.update(block)
        self.count += len(block)
        if (most := self.file.size) is not None and self.count > most:  # protects against decompression bombs
            raise DatasetError(f"{self.path}: {self.file.name} has more than the {most} bytes it should have.")
        buffer[: len(block)] = block
        return len(block)
