"""No result takes the place of what is read: every command, every file that it reads, every file that it writes."""

import os
import shutil

import click
import pytest

from robustfd.cli import COMMANDS
from robustfd.cli._command import Commands
from robustfd.cli._options import READ, WRITE

ALL = Commands(COMMANDS)
NAMES = ALL.list_commands(None)


def parameters(name):
    """The parameters of a command: {name: (READ, WRITE or None, the parameter of click)}."""
    command = ALL.get_command(None, name)
    return {each.name: (command.given[each.name].use, each) for each in command.params}


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_that_names_a_file_says_what_is_done_with_it(name):
    for parameter, (use, said) in parameters(name).items():
        if isinstance(said.type, click.Path) or parameter == "files":
            assert use in (READ, WRITE), f"{parameter} of {name} should be READ or WRITE"


def command_line(name, given):
    """The arguments that hand these files to a command, others it needs made up."""
    words = [name]
    for parameter, (_, said) in parameters(name).items():
        if parameter in given or said.required:
            value = str(given.get(parameter, f"other-{parameter}"))
            words += [value] if said.param_type_name == "argument" else [said.opts[-1], value]
    return words


def pairs(first, second):
    """All commands with a parameter of one use and another parameter of the other use."""
    found = []
    for name in NAMES:
        uses = {parameter: use for parameter, (use, _) in parameters(name).items()}
        found += [
            (name, one, two) for one in uses for two in uses
            if uses[one] is first and uses[two] is second and (first is not second or one < two)
        ]  # fmt: skip
    return found


def link(how, folder, target):
    """Another name for a file."""
    place = folder / "another-name"
    if how == "the same name":
        return target.name
    if how == "another spelling":
        return f"../{folder.name}/./{target.name}"
    (place.symlink_to if how == "a symbolic link" else place.hardlink_to)(target)
    return place.name


HOW = ["the same name", "another spelling", "a symbolic link", "a hard link"]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name, read, written", pairs(READ, WRITE), ids="-".join)
def test_no_result_takes_the_place_of_what_is_read(run, svm, tmp_path, monkeypatch, name, read, written, how):
    monkeypatch.chdir(tmp_path)
    content = svm.read_bytes()
    done = run(*command_line(name, {read: svm.name, written: link(how, tmp_path, svm)}))
    assert (done.status, done.out) == (2, "") and "is a file to read" in done.err and f"--{written}" in done.err
    assert svm.read_bytes() == content and "Traceback" not in done.err


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name, one, other", pairs(WRITE, WRITE), ids="-".join)
def test_no_two_results_are_one_file(run, tmp_path, monkeypatch, name, one, other, how):
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "result"
    if how == "a hard link":
        target.touch()
    done = run(*command_line(name, {one: target.name, other: link(how, tmp_path, target)}))
    assert (done.status, done.out) == (2, "") and "are the same file" in done.err
    assert f"--{one}" in done.err and f"--{other}" in done.err


def test_there_are_such_commands():
    assert {name for name, *_ in pairs(READ, WRITE)} == set(NAMES) - {"evaluate", "inspect", "reproduce"}
    assert ("train", "files", "checkpoint") in pairs(READ, WRITE) and ("train", "checkpoint", "plot") in pairs(
        WRITE, WRITE
    )


@pytest.fixture
def model(run, svm, tmp_path):
    assert run("train", svm, "-o", tmp_path / "model.rfd", "-q").status == 0
    return tmp_path / "model.rfd"


def test_an_export_without_a_name_does_not_replace_the_model(run, model):
    for ending in ("npz", "csv"):
        named = model.rename(model.with_suffix(f".{ending}"))
        content = named.read_bytes()
        done = run("export", named, "--to", ending)
        assert done.status == 2 and "is a file to read" in done.err and named.read_bytes() == content
        named.rename(model)


def test_a_result_among_the_files_of_a_directory(run, svm, model, tmp_path):
    """It is refused also if it is not there yet: the next run would read it."""
    folder = tmp_path / "rows"
    folder.mkdir()
    shutil.copy(svm, folder / "a.svm")
    (tmp_path / "inside").symlink_to(folder / "a.svm")
    for name in (folder / "a.svm", tmp_path / "inside"):
        done = run("train", folder, "-o", name)
        assert done.status == 2 and "is a file to read" in done.err
    done = run("train", folder, "-o", folder / "model")
    assert done.status == 2 and "is inside the input directory" in done.err
    assert run("train", folder, "-o", folder / "_model", "-q").status == 0  # which is passed over
    assert os.listdir(folder).count("a.svm") == 1 and (folder / "a.svm").read_bytes() == svm.read_bytes()


def test_a_device_is_nobodys_place(run, svm, model):
    done = run("train", svm, "-o", os.devnull, "--checkpoint", svm.with_suffix(".kept"), "-q")
    assert done.status == 0
    assert run("predict", model, svm, "-o", "-").status == 0
