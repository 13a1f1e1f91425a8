"""The commands of docs/command-line.md run as they stand."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()


def test_commands_run(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, *rest = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(first, {})
    commands = [
        line[2:] for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
    ]
    assert len(commands) > 10
    for command in commands:
        if "|" in command:
            shell = command.replace("robustfd ", f"{shlex.quote(sys.executable)} -m robustfd ")
            done = subprocess.run(shell, shell=True, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0 and done.stdout, (command, done.stderr)
        else:
            name, *arguments = shlex.split(command)
            done = run(*arguments)
            assert name == "robustfd" and done.status == 0 and done.out, (command, done.err)
    exec("\n".join(rest), {})


def test_help_of_every_command_reads(run):
    whole = run("--help")
    assert whole.status == 0
    names = re.findall(r"│ (\w+) +[A-Z]", whole.out)
    assert {"sketch", "merge", "info", "export", "pca", "train", "predict", "evaluate", "inspect", "reproduce"} <= set(
        names
    )
    for name in names:
        done = run(name, "--help")
        assert done.status == 0 and "Usage" in done.out
