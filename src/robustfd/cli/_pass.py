"""A resumable pass over files: one model, its checkpoints, and the file that it is written to."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from robustfd.cli._console import log
from robustfd.cli._errors import Stopped
from robustfd.cli._files import report_remarks, report_skipped, require_writable
from robustfd.cli._models import load_file
from robustfd.cli._options import CheckpointOptions, ConsoleOptions
from robustfd.cli._parallel import close
from robustfd.cli._progress_bar import Figures, Print, ProgressBar
from robustfd.cli._signals import DeferredSignals
from robustfd.streams import Block, Position, Stream, StreamError
from robustfd.streams.layout import SeenNames, names_in, with_names
from robustfd.streams.read_ahead import ReadAhead


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
        if not isinstance(saved, dict) or not isinstance(saved.get("job"), dict) or "position" not in saved:
            raise ValueError(f"{path} is not a checkpoint; it holds a {type(loaded.model).__name__}.")
        for name, value in self.job.items():
            if saved["job"].get(name) != value:
                raise ValueError(f"The checkpoint {path} was made with {name} {saved['job'].get(name)}, not {value}.")
        self.model, self.layout, self._input_names_before = loaded.model, loaded.layout, saved.get("inputs")
        self.position, self.resumed = Position.from_json(saved["position"]), True
        log(
            self.console,
            f"Continuing from row {self.position.rows:,} of the checkpoint {path}. The rows before it are read again "
            "to check that they have not changed.",
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
        stream.seen_names = self._seen_names
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
        saved = {"job": self.job, "position": self.position.to_json(), "inputs": names}
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
            return f"stopped after {self.position.rows:,} rows. Nothing was saved; --checkpoint FILE would do that."
        if not self.position.rows:
            return "stopped before the first rows."
        self._save_checkpoint()
        return (
            f"stopped after {self.position.rows:,} rows, which {self._checkpoint} holds. "
            "Run the same command with --resume to continue."
        )

    def finish(self, stream: Stream) -> None:
        """Write the model to its file and remove the checkpoint."""
        report_skipped(stream, self.console)
        try:
            self.model.save(self.output, notes=self._notes())
        except OSError as error:
            reason = error.strerror or error
            raise OSError(f"{self.output} could not be written: {reason}. {self._save_elsewhere()}") from error
        if self._checkpoint is not None:  # resolved, because a checkpoint is written to the target of a link
            Path(os.path.realpath(self._checkpoint)).unlink(missing_ok=True)

    def _save_elsewhere(self) -> str:
        """Save the model to the checkpoint or a temporary file; return the message about it."""
        if self._checkpoint is not None:
            with contextlib.suppress(OSError):
                self._save_checkpoint()
                return f"The checkpoint {self._checkpoint} holds all rows: --resume writes the file."
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
