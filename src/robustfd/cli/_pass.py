"""A pass over files: signals, the progress bar, and a resumable pass that makes one model."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from robustfd._container import discard
from robustfd.cli._console import Stopped, log
from robustfd.cli._files import load_file, report_remarks, report_skipped
from robustfd.cli._options import CheckpointOptions, ConsoleOptions
from robustfd.cli._output import require_writable
from robustfd.cli._parallel import close, merged
from robustfd.streams import Block, Position, Stream, StreamError
from robustfd.streams.layout import SeenNames, names_in, with_names
from robustfd.streams.read_ahead import ReadAhead

SECONDS = 0.5  # between two updates of the progress bar
FIGURES_SHARE = 0.05  # of the time for computing figures, which may be slow

Figures = Callable[[], dict[str, str]]  # what a command shows next to the bar, by name
Print = Callable[..., None]  # print(line, bold=False), above the bar


class DeferredSignals:
    """A context in which the first SIGINT or SIGTERM is recorded, and a second one ends the process."""

    def __init__(self) -> None:
        self.caught, self._waiting = 0, False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "DeferredSignals":
        for signum in (signal.SIGINT, signal.SIGTERM):
            self._before[signum] = signal.signal(signum, self._record)
        return self

    def __exit__(self, *_: Any) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _record(self, signum: int, frame: FrameType | None) -> None:
        self.caught = signum
        for each in self._before:
            signal.signal(each, signal.SIG_DFL)
        if self._waiting:
            raise _Interrupted

    def interruptible(self, wait: Callable[[], Any]) -> Any:
        """Return the result of `wait`, or None if a signal arrives before or during the call."""
        try:
            self._waiting = True
            return None if self.caught else wait()
        except _Interrupted:
            return None
        finally:
            self._waiting = False


class _Interrupted(BaseException):
    """A signal arrived while the pass was waiting for input."""


class ProgressBar:
    """Rows read, speed, time left, and the figures of a command. Shown only in a terminal."""

    def __init__(self, stream: Stream, console: ConsoleOptions):
        self._next, self._started, self._first = 0.0, time.monotonic(), stream.position
        self._console = console
        self._progress: Any = None
        if not console.quiet and sys.stderr.isatty():  # exit_on_error makes sure that there is one
            self._progress = _bar(stream.bytes_total)
            self._task = self._progress.add_task("", total=stream.bytes_total, rows="", speed="", figures="")

    def __enter__(self) -> "ProgressBar":
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._progress is not None:
            self._progress.stop()

    def print(self, line: str, *, bold: bool = False) -> None:
        """Print a line above the bar."""
        if self._progress is not None:
            self._progress.console.print(line, style="bold" if bold else None, markup=False, highlight=False)
        else:
            log(self._console, line, bold=bold)

    def update(self, position: Position, figures: Figures) -> None:
        """Show a new position."""
        now = time.monotonic()
        if self._progress is None or now < self._next:
            return
        seconds = max(now - self._started, 1e-9)
        speed = f"{(position.rows - self._first.rows) / seconds:,.0f} rows/s"
        text = "  ".join(f"{name} {value}" for name, value in figures().items())
        self._next = now + max(SECONDS, (time.monotonic() - now) / FIGURES_SHARE)
        self._progress.update(
            self._task, completed=position.stored, rows=f"{position.rows:,} rows", speed=speed, figures=text
        )


def _bar(total: int | None) -> Any:
    """Return a bar whose line fits into 80 columns."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    done = (BarColumn(bar_width=12), TextColumn("{task.percentage:>3.0f}%")) if total else (SpinnerColumn(),)
    clock = (TimeRemainingColumn(compact=True), TextColumn("left")) if total else (TimeElapsedColumn(),)
    fields = [TextColumn(f"{{task.fields[{name}]}}") for name in ("rows", "speed", "figures")]
    console = Console(stderr=True, highlight=False)
    return Progress(*done, *fields[:2], *clock, fields[2], console=console, transient=True)


def blocks_with_progress(stream: Stream, console: ConsoleOptions, figures: Figures = dict) -> Iterator[Block]:
    """Yield the blocks of a stream while a progress bar is shown; report skipped rows at the end."""
    stream._resumable = False
    with ProgressBar(stream, console) as bar:
        for block in stream:
            yield block
            bar.update(stream.position, figures)
    report_skipped(stream, console)


class Pass:
    """A pass over files that makes one model. It owns the model: commands set and change `model`.

    Leaving the context ends the workers of a model that learns in parallel.

    A checkpoint holds the model, the position in the files and the `job`, the options that must not change when the
    pass is resumed.
    """

    def __init__(self, job: dict[str, Any], output: Path, checkpoints: CheckpointOptions, console: ConsoleOptions):
        self.job, self.output, self.console = job, output, console
        self.model: Any = None
        self.layout: dict[str, Any] | None = None
        self.position: Position | None = None
        self.passes: list[dict[str, Any]] = []  # the scores of passes that are complete, if there are several
        self.resumed = False  # whether model, layout and position come from a checkpoint
        self._checkpoint, self._every = checkpoints.checkpoint, checkpoints.every
        self._input_names: list[str] = []
        self._input_names_before: Any = None  # when the checkpoint was written
        self._seen_names = SeenNames()
        require_writable(output)
        if self._checkpoint is None:
            if checkpoints.resume:
                raise ValueError("--resume needs --checkpoint FILE, the file to continue from.")
            return
        require_writable(self._checkpoint)
        if self._checkpoint.exists():
            if not checkpoints.resume:
                raise ValueError(
                    f"There is a checkpoint {self._checkpoint} from an earlier run. Add --resume to continue from it, "
                    "or remove it to start over."
                )
            self._resume(self._checkpoint)
        elif checkpoints.resume:
            log(console, f"There is no checkpoint {self._checkpoint} yet: starting from the beginning.")

    def _resume(self, path: Path) -> None:
        """Restore model and position from a checkpoint of the same job."""
        loaded = load_file(path)
        saved = loaded.notes.get("checkpoint")
        if (
            not isinstance(saved, dict)
            or not isinstance(saved.get("job"), dict)
            or not {"position", "passes"} <= set(saved)
        ):
            raise ValueError(f"{path} is not a checkpoint; it holds a {type(loaded.model).__name__}.")
        for name, value in self.job.items():
            if saved["job"].get(name) != value:
                raise ValueError(f"The checkpoint {path} was made with {name} {saved['job'].get(name)}, not {value}.")
        self.model, self.layout, self._input_names_before = loaded.model, loaded.layout, saved.get("inputs")
        self.position, self.resumed, self.passes = Position.from_json(saved["position"]), True, saved["passes"]
        log(
            self.console,
            f"Continuing from row {self.position.rows:,}{self._of_pass()} of the checkpoint {path}. The rows before it "
            "are read again to check that they have not changed.",
        )

    def __enter__(self) -> "Pass":
        return self

    def __exit__(self, *_: object) -> None:
        close(self.model)

    def blocks(
        self, stream: Stream, figures: Figures, after_block: Callable[[Print], None] = lambda _: None
    ) -> Iterator[Block]:
        """Yield blocks. `model` must have learned from a block by the time the caller asks for the next one.

        A second thread reads the next block meanwhile. Positions, also those of checkpoints, are positions of learned
        rows.
        """
        names_before = {} if self.layout is None else names_in(self.layout)
        self.layout, self.position = with_names(stream.layout, names_before), stream.position
        stream.seen_names, stream._resumable = self._seen_names, self._checkpoint is not None
        self._check_inputs(stream)
        first, saved_rows = self.position, self.position.rows
        report_remarks(stream, self.console)
        with DeferredSignals() as signals, ProgressBar(stream, self.console) as bar, ReadAhead(stream) as source:
            while True:
                try:
                    found = signals.interruptible(lambda: next(source, None))
                except Exception:
                    if self.position != first:
                        self._save_before_error()
                    raise
                if found is None and not signals.caught:
                    return
                if found is not None:
                    block, position = found
                    yield block
                    self.position = position
                    bar.update(position, figures)
                    after_block(bar.print)
                if signals.caught:
                    raise Stopped(signals.caught, self._save_and_describe())
                if self._checkpoint is not None and self.position.rows - saved_rows >= self._every:
                    self._save_checkpoint()
                    saved_rows = self.position.rows

    def _check_inputs(self, stream: Stream) -> None:
        """Raise if the files that a checkpoint has read are not those of the stream."""
        assert self.position is not None
        self._input_names = [each.name for each in stream.inputs]
        before = self._input_names_before
        if before is not None and self._input_names[: self.position.file + 1] != before:
            raise StreamError(
                f"The directory had other files when the checkpoint {self._checkpoint} was written. "
                "Remove the checkpoint to start over."
            )

    def _save_checkpoint(self) -> None:
        assert self._checkpoint is not None and self.position is not None
        names = self._input_names[: self.position.file + 1]  # files may still be added after these
        saved = {"job": self.job, "position": self.position.to_json(), "inputs": names, "passes": self.passes}
        try:
            self.model.save(self._checkpoint, notes=self._notes() | {"checkpoint": saved})
        except OSError as error:
            raise OSError(
                f"The checkpoint {self._checkpoint} could not be written: {error.strerror or error}. "
                "An earlier checkpoint is unchanged."
            ) from error

    def _notes(self) -> dict[str, Any]:
        """Return the notes of the model file, from which other commands read files in the same way."""
        assert self.layout is not None
        layout, missing = with_names(self.layout, self._seen_names.names), self.job["missing"]
        return {"layout": layout} | ({} if missing is None else {"missing": str(missing)})

    def _save_before_error(self) -> None:
        """Save a checkpoint of the rows before those that could not be read."""
        if self._checkpoint is not None and self.position is not None and self.position.rows:
            with contextlib.suppress(OSError):
                self._save_checkpoint()
                log(
                    self.console,
                    f"The checkpoint {self._checkpoint} holds the {self.position.rows:,} rows before the error.",
                )

    def _save_and_describe(self) -> str:
        """Save a checkpoint because of a signal; return the message about it."""
        assert self.position is not None
        if self._checkpoint is None:
            saved = f"{self.output} holds the best pass before" if self.passes else "Nothing was saved"
            return f"stopped after {self.position.rows:,} rows. {saved}; --checkpoint FILE would do that."
        if not self.position.rows:
            return "stopped before the first rows."
        self._save_checkpoint()
        return (
            f"stopped after {self.position.rows:,} rows{self._of_pass()}, which {self._checkpoint} holds. "
            "Run the same command with --resume to continue."
        )

    def _of_pass(self) -> str:
        return f" of pass {len(self.passes) + 1}" if self.passes else ""

    def finish(self, stream: Stream) -> None:
        """Merge the parts of a parallel model, write it to its file, and remove the checkpoint."""
        self._merge()
        report_skipped(stream, self.console)
        self.write()
        self.remove_checkpoint()

    def end_pass(self) -> None:
        """Merge the parts of a parallel model, and save a checkpoint of the whole pass."""
        self._merge()
        if self._checkpoint is not None:
            self._save_checkpoint()

    def _merge(self) -> None:
        parallel, self.model = self.model, merged(self.model)
        close(parallel)

    def write(self) -> None:
        """Write the model to its file."""
        try:
            self.model.save(self.output, notes=self._notes())
        except OSError as error:
            reason = error.strerror or error
            raise OSError(f"{self.output} could not be written: {reason}. {self._save_elsewhere()}") from error

    def remove_checkpoint(self) -> None:
        """Remove the checkpoint."""
        if self._checkpoint is not None:
            discard(self._checkpoint)

    def _save_elsewhere(self) -> str:
        """Save the model to the checkpoint or a temporary file; return the message about it."""
        if self._checkpoint is not None:
            with contextlib.suppress(OSError):
                self._save_checkpoint()
                return f"The checkpoint {self._checkpoint} holds all rows: --resume writes the file."
        import tempfile

        with contextlib.suppress(OSError):
            handle, place = tempfile.mkstemp(prefix="robustfd-", suffix=f"-{self.output.name}")
            os.close(handle)
            try:
                self.model.save(place, notes=self._notes())
            except OSError:
                os.unlink(place)
                raise
            return f"The model is in {place} instead."
        if self._checkpoint is not None and self._checkpoint.exists():
            return f"The checkpoint {self._checkpoint} is unchanged: --resume continues from there."
        return "The model is lost."
