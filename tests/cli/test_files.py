"""Files that commands read and write: no result replaces what is read, links, closed and redirected streams."""

import os
import shutil

import click
import pytest

from robustfd.cli import COMMANDS
from robustfd.cli._command import Commands
from robustfd.cli._options import READ, WRITE
from robustfd.streams.open import FORMATS
from tests.cli.conftest import execute

ALL = Commands(COMMANDS)
OF_BANDITS = ALL.get_command(None, "bandit")
NAMES = [name for name in ALL.list_commands(None) if name != "bandit"]
NAMES += [f"bandit {name}" for name in OF_BANDITS.list_commands(None)]


def parameters(name):
    """The parameters of a command: {name: (READ, WRITE or None, the parameter of click)}."""
    command = OF_BANDITS.get_command(None, name.split()[1]) if " " in name else ALL.get_command(None, name)
    return {each.name: (command.given[each.name].use, each) for each in command.params}


def test_every_format_of_streams_is_an_option():
    assert parameters("train")["format"][1].type.choices == ("auto", *FORMATS)


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_that_names_a_file_says_what_is_done_with_it(name):
    for parameter, (use, said) in parameters(name).items():
        if isinstance(said.type, click.Path) or parameter == "files":
            assert use in (READ, WRITE), f"{parameter} of {name} should be READ or WRITE"


def command_line(name, given):
    """The arguments that hand these files to a command, others it needs made up."""
    words = name.split()
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
    assert {name for name, *_ in pairs(READ, WRITE)} == set(NAMES) - {
        "evaluate",
        "inspect",
        "reproduce",
        "bandit evaluate",
    }
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


def test_standard_streams_that_are_files_to_read(run, svm, model, monkeypatch):
    """The shell opens them before the command runs."""
    text = svm.read_bytes()
    with open(svm) as stdin:
        monkeypatch.setattr("io.TextIOWrapper", lambda _: stdin)
        done = run("train", "-", "--format", "libsvm", "--features", 12, "-o", svm)
    assert done.status == 2 and "is standard input" in done.err
    with open(svm, "ab") as stdout:
        done = execute("predict", model, svm, stdout=stdout)
    assert done.status == 2 and "standard output goes to it" in done.err
    assert svm.read_bytes() == text


def test_standard_input_is_closed(run, tmp_path):
    """Python has None for it then."""
    assert run("train", "-", "-o", tmp_path / "model", stdin=None).status == 1


def test_nobody_reads_the_result(model):
    """As in `robustfd info x | true`: the status is that of a process that a broken pipe ends, and nothing is said."""
    reader, writer = os.pipe()
    os.close(reader)
    done = execute("info", model, stdout=writer)
    os.close(writer)
    assert (done.status, done.err) == (141, "")


def test_a_checkpoint_that_is_a_link_to_nothing_yet(run, svm, tmp_path, small_blocks):
    """The file it leads to is written, resumed from and removed; the link stays for the next run."""
    folder, link = tmp_path / "elsewhere", tmp_path / "kept"
    folder.mkdir()
    link.symlink_to(folder / "kept")
    with open(svm, "a") as file:
        file.write("1 1:x\n")
    command = ("sketch", svm, "--features", 12, "-m", 5)
    kept = ("--checkpoint", link, "--every", 1, "--resume")
    assert run(*command, "-o", tmp_path / "whole", "--on-error", "skip").status == 0
    assert run(*command, "-o", tmp_path / "model", *kept).status == 1
    assert link.is_symlink() and [each.name for each in folder.iterdir()] == ["kept"]
    done = run(*command, "-o", tmp_path / "model", *kept, "--on-error", "skip")
    assert done.status == 0 and "Continuing from row" in done.err
    assert link.is_symlink() and list(folder.iterdir()) == []
    assert (tmp_path / "model").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize("target, words", [("kept", "link to itself"), ("nowhere/kept", "There is no directory")])
def test_a_checkpoint_that_is_a_link_to_nowhere(run, svm, tmp_path, target, words):
    (tmp_path / "kept").symlink_to(tmp_path / target)
    for option in ("--checkpoint", "-o"):
        other = ("-o", tmp_path / "model") if option == "--checkpoint" else ()
        done = run("train", svm, option, tmp_path / "kept", *other)
        assert done.status == 1 and words in done.err and "Traceback" not in done.err
    assert not (tmp_path / "model").exists() and (tmp_path / "kept").is_symlink()
