"""Snapshots: sketches and learners as bytes and back. The layout is documented in docs/snapshot-format.md.

A snapshot is a safetensors file. Its metadata holds the version of this format, the name of the class, a JSON
document of parameters and scalars, and a SHA-256 over all of it and the tensors. Nothing is pickled, and loading never
runs code from a file. Each class decides the content of its document and its tensors, see `Saved`.
"""

import contextlib
import hashlib
import json
import numbers
import os
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any, Self

import numpy as np
import safetensors.numpy

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from robustfd._guard import Guarded

VERSION = 1
LARGEST_HEADER = 100_000_000  # bytes; safetensors refuses to read a larger one
_WORTH_A_THREAD = 2**20  # bytes
_KEYS = ("robustfd", "kind", "document", "sha256")
_DTYPES = {  # numpy's names and those of safetensors
    "<f8": "F64", "<f4": "F32", "<f2": "F16", "<i8": "I64", "<i4": "I32", "<i2": "I16", "|i1": "I8",
    "<u8": "U64", "<u4": "U32", "<u2": "U16", "|u1": "U8", "|b1": "BOOL",
}  # fmt: skip

Document = dict[str, Any]
Tensors = dict[str, np.ndarray[Any, Any]]


class SnapshotError(ValueError):
    """Raised if a snapshot cannot be read: damaged, truncated, not a snapshot, or of a newer version.

    See Also
    --------
    load : Load a snapshot from a file.

    Examples
    --------
    >>> from robustfd import FrequentDirections, SnapshotError
    >>> try:
    ...     FrequentDirections.from_bytes(b"not a snapshot")
    ... except SnapshotError as error:
    ...     print(error)
    Not a robustfd snapshot, or its header is damaged.
    """


class Saved(Guarded):
    """An object that can be saved and loaded. Subclasses define what is saved in addition to their parameters.

    Each subclass in robustfd registers its name as a kind of snapshot when it is defined.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # A file must not name a class from outside, or a common base.
        if cls.__module__.startswith("robustfd.") and not cls.__name__.startswith("_"):
            _kinds[cls.__name__] = cls

    get_params: Callable[..., dict[str, Any]]

    def _pack(self) -> tuple[Document, Tensors]:
        """Return the state as a JSON document and arrays; the object stays unchanged."""
        raise NotImplementedError

    def _unpack(self, document: Document, tensors: Tensors) -> None:
        """Restore a packed state. The object has its parameters and nothing else. Raise any error on bad content.

        The arrays may be kept and changed. Document and arrays are untrusted: check sizes before allocating memory, and
        check everything that the core uses as an index.
        """
        raise NotImplementedError

    def _saved_params(self) -> Document:
        """Return the parameters as a JSON document."""
        return plain(self.get_params(deep=False))

    @classmethod
    def _from_params(cls, params: Document) -> Self:
        """Return a new object with saved parameters."""
        return cls(**params)

    def _parts(self, notes: Document | None = None) -> list[Any]:
        if _kinds.get(type(self).__name__) is not type(self):
            raise TypeError(f"Only robustfd's own sketches and learners can be saved, got {type(self)!r}.")
        document, tensors = self._pack()
        document = {"params": self._saved_params(), **document}
        return seal(type(self).__name__, document if notes is None else {**document, "notes": notes}, tensors)

    def to_bytes(self) -> bytes:
        """Return a snapshot of the exact state, in the :doc:`documented format </snapshot-format>`."""
        return b"".join(self._parts())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the object in a snapshot; raise `SnapshotError` if it is damaged or of another class."""
        return cls._from_bytes(data)[0]

    @classmethod
    def _from_bytes(cls, data: bytes) -> tuple[Self, Document]:
        """Return the object in a snapshot, and its notes."""
        kind, text, tensors = unseal(data)
        found = _find(kind)
        if found is None:
            raise SnapshotError(f"The snapshot holds a {kind!r}, which this version of robustfd does not have.")
        if not issubclass(found, cls):
            raise SnapshotError(f"The snapshot holds a {kind}, not a {cls.__name__}.")
        try:
            document = json.loads(text)
            notes = document.pop("notes", {})
            if not isinstance(notes, dict):
                raise TypeError("notes must be an object")
            result = found._from_params(document.pop("params"))
            with np.errstate(all="ignore"):
                result._unpack(document, tensors)
        except Exception as error:  # the checksum is right but the content is not: a file made by hand
            raise SnapshotError(f"The snapshot does not make sense: {error}") from error
        return result, notes

    def save(self, path: Any, *, notes: dict[str, Any] | None = None) -> None:
        """Write a snapshot to a file. If writing fails, an existing file of that name stays unchanged.

        Parameters
        ----------
        path : str or path
            The file to write.
        notes : dict, optional
            A JSON document to store with the snapshot, see `load_with_notes`.
        """
        parts = self._parts(notes)
        with replacing(path) as file:
            file.writelines(parts)


_kinds: dict[str, type[Saved]] = {}  # the classes that have been imported, by name
# The packages that define the other classes. They are imported when a file needs them.
_PACKAGES = ("robustfd.sketch", "robustfd.learners", "robustfd.decisions", "robustfd.estimators")


def load(path: Any) -> Any:
    """Return the sketch, learner or estimator that was saved to a file.

    Loading reads numbers and never runs code from the file, so untrusted files are safe to open.

    Parameters
    ----------
    path : str or path
        The file to read.

    Returns
    -------
    object
        An object of the class that was saved.

    Raises
    ------
    SnapshotError
        If the file is damaged, is not a snapshot, or has a newer format.

    See Also
    --------
    robustfd.merge : Merge several sketches or models into one.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from robustfd import FrequentDirections, load
    >>> path = Path(tempfile.mkdtemp()) / "sketch.rfd"
    >>> FrequentDirections(sketch_size=4).fit([[1.0, 2.0], [3.0, 4.0]]).save(path)
    >>> load(path).n_samples_seen_
    2
    """
    return load_with_notes(path)[0]


def load_with_notes(path: Any) -> tuple[Any, dict[str, Any]]:
    """Return the object in a file, and the notes that were given to `save`. The notes are untrusted."""
    return Saved._from_bytes(Path(os.fsdecode(path)).read_bytes())


def parameters_as_json(thing: Saved) -> str:
    """Return the class and the parameters of an object as JSON, without its state."""
    return json.dumps({"kind": type(thing).__name__, "params": thing._saved_params()})


def from_parameters_json(text: str) -> Any:
    """Return a new object of the class and with the parameters of `parameters_as_json`."""
    document = json.loads(text)
    found = _find(document["kind"])
    if found is None:
        raise ValueError(f"This version of robustfd does not have a {document['kind']!r}.")
    return found._from_params(document["params"])


def _find(kind: str) -> type[Saved] | None:
    """Return the class of this name, or None. Import the package that defines it if necessary."""
    packages = map(import_module, () if kind in _kinds else _PACKAGES)
    if package := next((package for package in packages if kind in package.__all__), None):
        getattr(package, kind)  # the class registers itself
    return _kinds.get(kind)


def plain(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as plain numbers, strings, booleans and None, or lists of these."""
    values = {name: _plain_value(value) for name, value in params.items()}
    for name, value in values.items():
        if not all(isinstance(each, bool | int | float | str | None) for each in _listed(value)):
            raise TypeError(f"{name}={value!r} cannot be saved: a snapshot holds only plain numbers and strings.")
    return values


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _plain_value(value: Any) -> Any:
    """Return a number as an int or a float, several as a list."""
    if isinstance(value, list | tuple):
        return [_plain_value(each) for each in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def check_names(names: Any, d: int) -> None:
    """Raise unless these are the names of d features, or an empty list."""
    if not isinstance(names, list) or len(names) not in (0, d) or not all(isinstance(n, str) for n in names):
        raise ValueError(f"feature_names must be {d} strings or none")


# -- bytes


def seal(kind: str, document: Document, tensors: Tensors) -> list[Any]:
    """Return a snapshot as a list of buffers, in order."""
    arrays = {}
    for name, value in tensors.items():
        arrays[name] = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<")).reshape(value.shape)
    meta = {"robustfd": str(VERSION), "kind": kind, "document": json.dumps(document)}
    meta["sha256"] = digest(meta, arrays)
    header: dict[str, Any] = {"__metadata__": meta}
    order, end = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name)), 0  # this order aligns all arrays
    for name in order:
        array, start, end = arrays[name], end, end + arrays[name].nbytes
        header[name] = {"dtype": _DTYPES[array.dtype.str], "shape": array.shape, "data_offsets": (start, end)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > LARGEST_HEADER:
        raise ValueError(f"Parameters and feature names take {len(text)} bytes; the format allows 100 MB.")
    return [len(text).to_bytes(8, "little"), text, *(_bytes_of(arrays[name]) for name in order)]


def unseal(data: Any) -> tuple[str, str, Tensors]:
    """Return kind, document and tensors of a snapshot; raise unless the file is intact."""
    if isinstance(data, bytearray | memoryview):
        data = bytes(data)
    try:
        length = int.from_bytes(data[:8], "little")
        meta = json.loads(data[8 : 8 + length])["__metadata__"]
        if not all(isinstance(meta[key], str) for key in _KEYS):
            raise TypeError
        version = int(meta["robustfd"])
    except Exception:
        raise SnapshotError("Not a robustfd snapshot, or its header is damaged.") from None
    if version != VERSION:
        raise SnapshotError(
            f"The snapshot has version {version}; this robustfd reads version {VERSION}. Upgrade robustfd."
        )
    try:
        tensors = safetensors.numpy.load(data)
        found = digest(meta, tensors)
    except Exception as error:
        raise SnapshotError(f"The snapshot is truncated or damaged: {error}") from None
    if found != meta["sha256"]:
        raise SnapshotError("The snapshot is damaged: its checksum does not match its content.")
    return meta["kind"], meta["document"], tensors


def digest(meta: Mapping[str, str], tensors: Mapping[str, Any]) -> str:
    """Return the checksum over metadata and tensors. A second thread computes that of the largest tensor."""
    found: dict[str, str] = {}

    def add(*names: str) -> None:
        found.update((name, hashlib.sha256(_bytes_of(tensors[name])).hexdigest()) for name in names)

    names = sorted(tensors, key=lambda name: tensors[name].nbytes)
    second = Thread(target=add, args=names[-1:])
    with contextlib.suppress(RuntimeError):  # a process that ends starts no threads
        if len(names) > 1 and tensors[names[-1]].nbytes > _WORTH_A_THREAD:
            second.start()
    if second.ident is None:
        add(*names)
    else:
        add(*names[:-1])
        second.join()
    sha = hashlib.sha256()
    for key in _KEYS[:-1]:
        sha.update(f"{key}={meta[key]}\n".encode())
    for name in sorted(tensors):
        sha.update(f"{name} {tensors[name].dtype.str} {tensors[name].shape} {found[name]}\n".encode())
    return sha.hexdigest()


def _bytes_of(value: Any) -> Any:
    return value.reshape(-1).view(np.uint8)


# -- files


@contextlib.contextmanager
def replacing(path: Any) -> Iterator[Any]:
    """Yield a binary file that replaces the file of this name when it is complete, and never before."""
    named, path = path, Path(os.path.realpath(os.fsdecode(path)))  # a link stays a link
    if path.is_dir():
        raise IsADirectoryError(f"Cannot save to {str(named)!r}: it is a directory.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"Cannot save to {str(named)!r}: there is no directory {str(path.parent)!r}.")
    if path.exists() and not path.is_file():  # a device or a pipe, which must not be replaced
        with open(path, "wb") as file:
            yield file
        return
    file, temporary = _temporary(path)
    with file:  # it stays locked until it has its name
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if path.exists():
                os.chmod(temporary, path.stat().st_mode & 0o777)
            if fcntl is None:
                file.close()
            os.replace(temporary, path)
        except BaseException:
            if fcntl is None:
                file.close()
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    with contextlib.suppress(OSError):  # not every system can sync a directory
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def discard(path: Any) -> None:
    """Remove a file that `replacing` wrote, if there is one, and what a killed process left of the next version."""
    path = Path(os.path.realpath(os.fsdecode(path)))
    path.unlink(missing_ok=True)
    _remove_abandoned(_part(path, 0))


def _part(path: Path, number: int) -> Path:
    """Return the name of a temporary file for `path`. It is the same for each process, so that the next finds it."""
    return path.parent / f".robustfd-{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}-{number}.part"


def _temporary(path: Path) -> tuple[Any, Path]:
    """Return a new file beside `path`, and its name. One that a killed process left for the same path is removed."""
    number = 0
    while True:
        temporary = _part(path, number)
        try:
            file = open(temporary, "xb")  # noqa: SIM115  the caller closes it
        except FileExistsError:
            number += not _remove_abandoned(temporary)
            continue
        if fcntl is None or _locked(file, temporary, new=True):
            return file, temporary
        file.close()


def _remove_abandoned(temporary: Path) -> bool:
    """Remove a temporary file unless a process still writes it; return whether it is gone."""
    try:
        if fcntl is None:  # Windows removes no open file
            os.unlink(temporary)
            return True
        with open(temporary, "r+b") as file:
            if not _locked(file, temporary, new=False):
                return False
            os.unlink(temporary)
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return True


def _locked(file: Any, temporary: Path, *, new: bool) -> bool:
    """Lock an open file; return False if another process has locked it, or has renamed or removed it before.

    A file that cannot be locked, as in some network folders, counts as locked if it is new.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if isinstance(error, BlockingIOError) or not new:
            return False
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), os.lstat(temporary))
    return False
