"""The commands in docs/ run as they are."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from robustfd.cli import COMMANDS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
@pytest.mark.parametrize("page, least", [("command-line.md", 10), ("from-vowpal-wabbit.md", 2)])
def test_commands_run(page, least, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (DOCS / page).read_text()
    first, *rest = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec(first, {})
    commands = [
        line[2:] for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL) for line in block.splitlines()
    ]
    assert len(commands) >= least
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
    for name in [name for names in COMMANDS.values() for name in names]:
        assert f"\n  {name} " in whole.out
        done = run(name, "--help")
        assert done.status == 0 and "Usage" in done.out
