"""A file fetched into a folder: address after address, checked before it gets its name."""

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
    """Return the path of a copy in the last of the folders, and whether it was downloaded now.

    Of several processes that want the same data set one downloads and the others wait. A file has its name only when
    all of it is there and its checksum is right.
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
    """Return the file that an address led to, complete and checked."""
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
        # The bytes of an earlier day and of today need not be of the same file; those of today alone are.
        return _fetch_from(address, file, folder, progress=progress)
    os.replace(part, path)
    return path


def _most_bytes(file: File, name: str) -> int | None:
    """Return how many bytes a copy can have: an archive may hold other files too; what is random may grow a little."""
    if file.size is None or name.endswith(".zip"):
        return None
    return file.size if name == file.name else file.size + file.size // 50 + 4096


def _nothing(stream: IO[bytes]) -> None:
    """Leave it to the reader of the content to go through all of it."""
