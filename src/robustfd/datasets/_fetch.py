"""Download of a file into a folder. The file is checked before it gets its final name."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from robustfd.datasets import _content
from robustfd.datasets._errors import DatasetError
from robustfd.datasets._http import DownloadError, download
from robustfd.datasets._lock import locked
from robustfd.datasets._places import find, how_to_get, stored_name
from robustfd.datasets._progress import progress_bar
from robustfd.datasets.registry import File


def fetch(dataset: str, file: File, places: Sequence[Path], *, progress: bool) -> tuple[Path, bool]:
    """Return the path of a file in the last folder, and whether this call downloaded it.

    If several processes need the same data set, one downloads it and the others wait. A file gets its final name only
    when it is complete and its checksum is right.
    """
    folder = places[-1]
    problems = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / f".{dataset}.lock"):
            if (path := find(file, [folder])) is not None:
                return path, False
            for address in file.addresses:
                try:
                    return _fetch_from(address, file, folder, progress=progress), True
                except (DownloadError, DatasetError) as error:
                    problems.append(f"\n  {address}: {error}")
    except OSError as error:
        raise DatasetError(f"{dataset}: {folder} cannot be written to: {error}. {how_to_get(file, places)}") from error
    looked = " or ".join(map(str, places))
    raise DatasetError(
        f"{dataset}: {file.name} is not in {looked}, and could not be downloaded.{''.join(problems)}\n"
        + how_to_get(file, places)
    )


def _fetch_from(address: str, file: File, folder: Path, *, progress: bool) -> Path:
    """Download a file from an address, check it and return its path."""
    path = folder / stored_name(file, address)
    part = path.with_name(f"{path.name}.part")
    resumed = part.exists()
    with progress_bar(path.name, wanted=progress) as report:
        download(address, part, report, _most_bytes(file, path.name))
    try:
        _content.read(part, file, _nothing, name=path.name)
    except DatasetError:
        part.unlink()
        if not resumed:
            raise
        # The file may have changed since the earlier partial download: start over.
        return _fetch_from(address, file, folder, progress=progress)
    os.replace(part, path)
    return path


def _most_bytes(file: File, name: str) -> int | None:
    """Return the largest possible download size, or None for an archive, which may hold other files.

    Compression can make random content slightly larger.
    """
    if file.size is None or name.endswith(".zip"):
        return None
    return file.size if name == file.name else file.size + file.size // 50 + 4096


def _nothing(stream: IO[bytes]) -> None:
    """Parse nothing: `_content.read` reads the rest for the checksum."""
