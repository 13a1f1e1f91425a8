"""The progress lines and the plot of `robustfd train`. It reads the model and changes nothing."""

from functools import partial
from pathlib import Path
from typing import Any

from robustfd.cli._console import log
from robustfd.cli._options import ConsoleOptions
from robustfd.cli._progress_bar import Print

FIGURES = ("loss", "error")


class TrainingPrinter:
    """Print progressive loss and error at 1, 2, 4, ... rows, as Vowpal Wabbit does, and redraw the plot as often."""

    def __init__(self, console: ConsoleOptions, plot: Path | None):
        self._console, self._plot = console, plot
        self._printed = 0  # entries of the table `progressive_`
        self._redraw = plot is not None  # until a plot fails

    def resumed(self, model: Any) -> None:
        """Skip the lines of rows learned before."""
        self._printed = len(model.progressive_["rows"])

    def task_decided(self, task: str, classes: Any) -> None:
        """Print the task."""
        about = "labels are numbers" if classes is None else f"classes {', '.join(map(str, classes))}"
        log(self._console, f"{task}: {about}")

    def figures(self, model: Any) -> dict[str, str]:
        """Return the current loss and error."""
        table = model.progressive_
        return {name: f"{table[name][-1]:.4g}" for name in FIGURES if name in table}

    def block_learned(self, model: Any, show: Print) -> None:
        """Print the new lines at powers of two, and redraw the plot if there are any."""
        if model.n_samples_seen_.bit_length() <= self._printed:  # reading the table waits for parallel workers
            return
        rows = model.progressive_["rows"].tolist()
        complete = len(rows) - (rows[-1] & (rows[-1] - 1) != 0)  # the last entry is of any number of rows
        if self._printed < complete:
            self._print(model.progressive_, complete, show)
            if self._redraw:
                self._redraw = self.draw(model)

    def finished(self, model: Any) -> None:
        """Print the line of the last row."""
        table = model.progressive_
        if self._printed < len(table["rows"]):
            self._print(table, len(table["rows"]), partial(log, self._console))

    def _print(self, table: Any, end: int, show: Print) -> None:
        """Print the entries of a table that are new, up to an end."""
        names = [name for name in FIGURES if name in table]
        if self._printed == 0:
            headers = ["rows", *(header for name in names for header in (name, "since last"))]
            show("".join(f"{header:>12}" for header in headers), bold=True)
        rows = table["rows"].tolist()
        for k in range(self._printed, end):
            cells = [f"{rows[k]:>12,}"]
            for name in names:
                before, sum_before = (rows[k - 1], rows[k - 1] * table[name][k - 1]) if k else (0, 0.0)
                since = (rows[k] * table[name][k] - sum_before) / (rows[k] - before)
                cells += [f"{table[name][k]:>12.5g}", f"{abs(since):>12.5g}"]
            show("".join(cells))
        self._printed = end

    def draw(self, model: Any) -> bool:
        """Draw the plot, if there is one; return whether that worked."""
        if self._plot is None:
            return True
        from robustfd.cli import _plots

        path = self._plot
        return _plots.try_to_draw(lambda: _plots.draw_progress(model, path), path)
