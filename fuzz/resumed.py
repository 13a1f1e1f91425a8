"""Resumed runs after the input was edited.

The promise: `--resume` continues only if the rows before the checkpoint are unchanged, and then gives the same bytes as
an uninterrupted run. Otherwise it fails and leaves the checkpoint unchanged.
"""

from pathlib import Path

import numpy as np

from fuzz._commands import run, write_rows
from robustfd.streams import open_stream

SECONDS = 60.0
BLOCK = 1500  # bytes per read


def case(rng: np.random.Generator, folder: Path) -> str:
    """Stop a run at an invalid line, edit the file, and resume."""
    assert open_stream.__kwdefaults__ is not None
    open_stream.__kwdefaults__["block_bytes"] = BLOCK
    command, suffix = str(rng.choice(["train", "sketch"])), str(rng.choice([".svm", ".csv"]))
    path, kept, model = folder / f"rows{suffix}", folder / "checkpoint", folder / "model"
    write_rows(path, rng, int(rng.integers(150, 300)))
    whole = path.read_bytes()
    bad = b"1 x:y\n" if suffix == ".svm" else b"1,2,x,\n"
    path.write_bytes(whole + bad)
    more = ["--classes", "-1,1"] if command == "train" else ["-m", "3"]
    more += ["--features", "4", "--one-based"] if suffix == ".svm" else []
    given = [command, path, "-o", model, "--checkpoint", kept, "--every", "20", *more, "-q"]
    status, output = run(*given)
    assert status == 1, output
    if not kept.exists():
        return "no checkpoint"
    checkpoint = kept.read_bytes()
    edit = str(rng.choice(["none", "insert", "delete", "change", "shorter", "longer"]))
    place = int(rng.integers(0, len(whole) // 3))  # before the position of the checkpoint
    edited = {
        "none": whole, "insert": whole[:place] + b"7" + whole[place:], "delete": whole[:place] + whole[place + 1 :],
        "change": whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :], "shorter": whole[:place],
        "longer": whole + whole[whole.index(b"\n") + 1 :],
    }[edit]  # fmt: skip
    path.write_bytes(edited)
    status, output = run(*given, "--resume")
    if status == 0:  # the edit may not change the values of the rows
        resumed = model.read_bytes()
        status, output = run(*given[: given.index("--checkpoint")], *more, "-q")
        same = status == 0 and model.read_bytes() == resumed
        assert same, f"{command} {suffix}, {edit} at byte {place}: continued with an edited file"
    else:
        assert edit not in ("none", "longer"), f"{command} {suffix}, {edit}: {output}"
        assert kept.read_bytes() == checkpoint, f"{command} {suffix}, {edit}: the checkpoint was changed"
    return f"{command} {edit}"
