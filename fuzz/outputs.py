"""Commands whose output file is one of their inputs.

The promise: no command overwrites a file that it reads, by whatever name the file is given. The command fails, and all
inputs stay unchanged.
"""

import os
from pathlib import Path

import numpy as np

from fuzz._commands import run, write_rows

SECONDS = 60.0


def prepare(folder: Path) -> None:
    """Create the files that commands read."""
    _files(folder, np.random.default_rng(0))


def _files(folder: Path, rng: np.random.Generator) -> None:
    for name in ("data.csv", "data.svm"):
        write_rows(folder / name, rng, 40)
    for command in (
        ("train", folder / "data.csv", "-o", folder / "m.rfd"), ("train", folder / "data.svm", "-o", folder / "l.rfd"),
        ("sketch", folder / "data.svm", "-m", 3, "-o", folder / "s.rfd"),
        ("sketch", folder / "data.svm", "-m", 3, "-o", folder / "t.rfd"),
    ):  # fmt: skip
        status, text = run(*command, "-q")
        assert status == 0, text


def case(rng: np.random.Generator, folder: Path) -> str:
    """Run one command with an input file as the output."""
    _files(folder, rng)
    uses = {
        "predict": (["predict", "m.rfd", "data.csv"], "-o"), "pca": (["pca", "data.svm", "-k", "2"], "-o"),
        "export": (["export", "s.rfd"], "-o"), "merge": (["merge", "s.rfd", "t.rfd"], "-o"),
        "train": (["train", "data.svm"], "-o"), "sketch": (["sketch", "data.svm", "-m", "3"], "-o"),
        "train checkpoint": (["train", "data.svm", "-o", "new.rfd"], "--checkpoint"),
        "sketch checkpoint": (["sketch", "data.svm", "-m", "3", "-o", "new.rfd"], "--checkpoint"),
        "train plot": (["train", "data.svm", "-o", "new.rfd"], "--plot"), "info plot": (["info", "s.rfd"], "--plot"),
    }  # fmt: skip
    name = str(rng.choice(list(uses)))
    arguments, option = uses[name]
    inputs = [each for each in arguments if (folder / each).exists()]
    target = folder / str(rng.choice(inputs))
    alias = str(rng.choice(["name", "dotted", "link", "hard link", "relative"]))
    output = {"name": target, "dotted": folder / "." / ".." / folder.name / target.name, "relative": target}.get(alias)
    if output is None:
        output = folder / f"alias-{rng.integers(1 << 30)}{target.suffix}"
        (os.symlink if alias == "link" else os.link)(target, output)
    elif alias == "relative":
        output = Path(os.path.relpath(target))
    before = {each: (folder / each).read_bytes() for each in inputs}
    given = [str(folder / each) if each in inputs or each == "new.rfd" else each for each in arguments]
    status, text = run(*given, option, output, "-q")
    for each, data in before.items():
        assert (folder / each).read_bytes() == data, f"{name} by {alias}: {each} was overwritten, status {status}"
    assert status != 0, f"{name} by {alias}: status 0, {text!r}"
    return name
