"""One pass over files that can be stopped at any moment and gone on with: checkpoints, signals, progress."""

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from robustfd.cli._models import load_model_and_notes, require_folder
from robustfd.cli._parameters import Keeping, Missing, Reading, Talk
from robustfd.cli._talk import Stopped, say, stderr
from robustfd.streams import Block, Position, Stream, StreamError, open_stream
from robustfd.streams._ahead import Ahead
from robustfd.streams._names import names_in, with_names
from robustfd.streams._seen_names import SeenNames

SECONDS = 0.5  # between two looks at what is costly to show


def open_files(
    files: list[str],
    reading: Reading,
    *,
    layout: dict[str, Any] | None = None,
    start: Position | None = None,
    takes_missing: bool = False,
    **more: Any,
) -> Stream:
    """Return the stream of the files that a command was given; NaN is in its rows only for what `takes_missing`."""
    if reading.missing == Missing.nan and not takes_missing:
        raise ValueError(
            "--missing nan is for the learner newton, which learns what it means that a value is missing. Here take "
            "--missing zero, --drop to leave out columns, or --on-error skip to leave out rows."
        )
    options = {name: value for name, value in vars(reading).items() if value is not None}
    options["format"], options["on_error"] = str(reading.format), str(reading.on_error.value)
    if takes_missing:
        options.setdefault("missing", Missing.nan)
    for name in ("categories", "missing"):
        if name in options:
            options[name] = str(options[name])
    for name in ("columns", "drop"):
        if name in options:
            options[name] = [_column(each) for each in options[name].split(",")]
    for name in ("target", "weight", "id"):
        if name in options:
            more[name] = _column(options[name])
    if reading.interactions is not None:
        options["interactions"] = [pair.strip(" ") or pair for pair in reading.interactions.split(",")]
    if layout is not None:  # it says all this already
        for name in ("n_features", "zero_based", "hash_bits", "categories", "columns", "drop", "interactions"):
            options.pop(name, None)
    source = files[0] if len(files) == 1 else files
    return open_stream(source, layout=layout, start=start, **{**options, **more})


def columns_of(reading: Reading) -> dict[str, Any]:
    """Return those of the options for reading that say what the columns are: they cannot change on the way."""
    names = (
        "target", "weight", "id", "columns", "drop", "categories", "hash_bits", "n_features", "zero_based", "header",
        "delimiter", "missing", "interactions",
    )  # fmt: skip
    return {name: getattr(reading, name) for name in names}


def _column(name: str) -> str | int:
    name = name.strip()
    return int(name) if name.lstrip("-").isdigit() else name


class Pass:
    """A pass over files that makes one model: where it is kept on the way, and where it goes in the end."""

    model: Any

    def __init__(self, job: dict[str, Any], output: Path, keeping: Keeping, talk: Talk):
        self.job, self.output, self.keeping, self.talk = job, output, keeping, talk
        self.layout: dict[str, Any] | None = None
        self.missing: str | None = job["missing"]  # what was said about empty fields
        self.position: Position | None = None
        self._names: list[str] = []
        self._names_before: Any = None
        self._seen_names = SeenNames()
        require_folder(output)
        if keeping.checkpoint is None:
            if keeping.resume:
                raise ValueError("--resume needs --checkpoint FILE, the file to go on from.")
            return
        require_folder(keeping.checkpoint)
        if keeping.checkpoint.exists():
            if not keeping.resume:
                raise ValueError(
                    f"There is a checkpoint {keeping.checkpoint} of an earlier run. Add --resume to go on from it, or "
                    "remove it to start anew."
                )
            self._resume(keeping.checkpoint)
        elif keeping.resume:
            say(talk, f"There is no checkpoint {keeping.checkpoint} yet: starting from the beginning.")

    def _resume(self, path: Path) -> None:
        """Take model and position from a checkpoint, if it is one of this job."""
        model, self.layout, notes = load_model_and_notes(path)
        kept = notes.get("checkpoint")
        if not isinstance(kept, dict) or not isinstance(kept.get("job"), dict) or "position" not in kept:
            raise ValueError(f"{path} is no checkpoint; it holds a {type(model).__name__}.")
        for name, value in self.job.items():
            if kept["job"].get(name) != value:
                raise ValueError(f"The checkpoint {path} was made with {name} {kept['job'].get(name)}, not {value}.")
        self.model, self._names_before = model, kept.get("inputs")
        self.position = Position.from_json(kept["position"])
        say(
            self.talk,
            f"Going on from row {self.position.rows:,} of the checkpoint {path}. The rows before it are read again, to "
            "see that they are the same.",
        )

    @property
    def resumed(self) -> bool:
        """Whether there is a model to go on with."""
        return self.position is not None

    def blocks(
        self, stream: Stream, show: Callable[[], dict[str, str]], ended: Callable[[Progress], None]
    ) -> Iterator[Block]:
        """Yield blocks; by the time the next one is asked for, `self.model` has learnt the one before.

        A thread reads the next one meanwhile. Positions, of checkpoints too, are those of what was learnt.
        """
        before = {} if self.layout is None else names_in(self.layout)
        self.layout, every, self.position = with_names(stream.layout, before), self.keeping.every, stream.position
        stream.seen_names = self._seen_names
        self._names = [each.name for each in stream.inputs]
        if self._names_before is not None and self._names[: self.position.file + 1] != self._names_before:
            raise StreamError(
                f"The checkpoint {self.keeping.checkpoint} was written when there were other files in the directory. "
                "Remove it to start anew."
            )
        first, kept_rows = self.position, self.position.rows
        report_remarks(stream, self.talk)
        with _Signals() as signals, Bar(stream, self.talk) as bar, Ahead(stream) as source:
            while True:
                try:
                    found = signals.interruptible(lambda: next(source, None))
                except Exception:
                    if self.position != first:
                        self._keep_before_bad_rows()
                    raise
                if found is None and not signals.caught:
                    return
                if found is not None:
                    block, position = found
                    yield block
                    self.position = position
                    bar.moved(position, show)
                    ended(bar.progress)
                if signals.caught:
                    raise Stopped(signals.caught, self._farewell())
                if self.keeping.checkpoint is not None and self.position.rows - kept_rows >= every:
                    self._keep()
                    kept_rows = self.position.rows

    def _keep(self) -> None:
        """Write the checkpoint."""
        assert self.keeping.checkpoint is not None and self.position is not None
        names = self._names[: self.position.file + 1]  # further ones may still come
        kept = {"job": self.job, "position": self.position.to_json(), "inputs": names}
        try:
            self.model.save(self.keeping.checkpoint, notes=self._notes() | {"checkpoint": kept})
        except OSError as error:
            raise OSError(
                f"The checkpoint {self.keeping.checkpoint} could not be written: {error.strerror or error}. "
                "The one before, if there is one, is as it was."
            ) from error

    def _notes(self) -> dict[str, Any]:
        """Return what is written beside the model, so that other commands read files as this one did."""
        assert self.layout is not None
        layout = with_names(self.layout, self._seen_names.names)
        return {"layout": layout} | ({} if self.missing is None else {"missing": str(self.missing)})

    def _keep_before_bad_rows(self) -> None:
        """Keep what was learnt before rows that cannot be read."""
        if self.keeping.checkpoint is not None and self.position is not None and self.position.rows:
            with contextlib.suppress(OSError):
                self._keep()
                say(
                    self.talk,
                    f"What was learnt of the {self.position.rows:,} rows before is in {self.keeping.checkpoint}.",
                )

    def _farewell(self) -> str:
        """Write the checkpoint; return what there is to say about it."""
        assert self.position is not None
        if self.keeping.checkpoint is None:
            return f"stopped after {self.position.rows:,} rows. Nothing was kept: --checkpoint FILE would."
        if not self.position.rows:
            return "stopped before the first rows."
        self._keep()
        return (
            f"stopped after {self.position.rows:,} rows, which {self.keeping.checkpoint} keeps. "
            "The same command with --resume goes on from there."
        )

    def finish(self, stream: Stream) -> None:
        """Write the model to its file, and remove the checkpoint."""
        report_losses(stream, self.talk)
        try:
            self.model.save(self.output, notes=self._notes())
        except OSError as error:
            raise OSError(f"{self.output} could not be written: {error.strerror or error}. {self._rescue()}") from error
        if self.keeping.checkpoint is not None:  # what a link leads to, as it was written
            Path(os.path.realpath(self.keeping.checkpoint)).unlink(missing_ok=True)

    def _rescue(self) -> str:
        """Put the model anywhere else; return what there is to say about it."""
        kept = self.keeping.checkpoint
        if kept is not None:
            with contextlib.suppress(OSError):
                self._keep()
                return f"All rows are in the checkpoint {kept}: --resume writes the file."
        with contextlib.suppress(OSError):
            handle, place = tempfile.mkstemp(prefix="robustfd-", suffix=f"-{self.output.name}")
            os.close(handle)
            try:
                self.model.save(place, notes=self._notes())
            except OSError:
                os.unlink(place)
                raise
            return f"The model is in {place} instead."
        if kept is not None and kept.exists():
            return f"The checkpoint {kept} is as it was: --resume goes on from there."
        return "The model is lost."


def report_remarks(stream: Stream, talk: Talk) -> None:
    """Say what was decided about the files, once."""
    while stream.remarks:
        say(talk, stream.remarks.pop(0))


def report_losses(stream: Stream, talk: Talk) -> None:
    """Say what was decided, skipped and left out."""
    report_remarks(stream, talk)
    if stream.position.skipped:
        say(talk, f"skipped {stream.position.skipped:,} rows that could not be read:")
        for message in stream.skipped:
            say(talk, f"  {message}")
        if stream.position.skipped > len(stream.skipped):
            say(talk, f"  ... and {stream.position.skipped - len(stream.skipped):,} more")
    if stream.position.dropped:
        say(talk, f"left out {stream.position.dropped:,} entries of features that the model does not know")


class _Signals:
    """SIGINT and SIGTERM are noted, and end nothing but the waiting for input; a second one ends the process."""

    def __init__(self) -> None:
        self.caught, self._waiting = 0, False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "_Signals":
        for signum in (signal.SIGINT, signal.SIGTERM):
            self._before[signum] = signal.signal(signum, self._note)
        return self

    def __exit__(self, *_: Any) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.caught = signum
        for each in self._before:
            signal.signal(each, signal.SIG_DFL)
        if self._waiting:
            raise _Awake

    def interruptible(self, wait: Callable[[], Any]) -> Any:
        """Return what `wait` does, or None when a signal comes."""
        try:
            self._waiting = True
            return None if self.caught else wait()
        except _Awake:
            return None
        finally:
            self._waiting = False


class _Awake(BaseException):
    """A signal came while input was waited for."""


class Bar:
    """How far the work is: rows, bytes, time left, and what a command adds."""

    def __init__(self, stream: Stream, talk: Talk):
        self._looked, self._began, self._first = 0.0, time.monotonic(), stream.position
        total = stream.bytes_total
        how_far = (BarColumn(bar_width=20), TextColumn("{task.percentage:>3.0f}%")) if total else (SpinnerColumn(),)
        rest = (TextColumn("left"), TimeRemainingColumn(compact=True)) if total else ()
        self.progress = Progress(
            *how_far, TextColumn("{task.fields[rows]}"), TextColumn("{task.fields[speed]}"), TimeElapsedColumn(), *rest,
            TextColumn("{task.fields[more]}"), console=stderr(talk), transient=True,
            disable=talk.quiet or not stderr(talk).is_terminal,
        )  # fmt: skip
        self._task = self.progress.add_task("", total=total, rows="", speed="", more="")

    def __enter__(self) -> "Bar":
        self.progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.progress.stop()

    def moved(self, position: Position, show: Callable[[], dict[str, str]]) -> None:
        """Show how far the work is now."""
        now = time.monotonic()
        if self.progress.disable or now - self._looked < SECONDS:
            return
        self._looked, seconds = now, max(now - self._began, 1e-9)
        speed = f"{(position.rows - self._first.rows) / seconds:,.0f} rows/s"
        if position.stored:
            speed += f"  {(position.stored - self._first.stored) / seconds / 1e6:,.1f} MB/s"
        more = "  ".join(f"{name} {value}" for name, value in show().items())
        self.progress.update(
            self._task, completed=position.stored, rows=f"{position.rows:,} rows", speed=speed, more=more
        )
