"""Disks that are full, and files that are missing, damaged or changed: a clear error, and nothing lost."""

import contextlib
import os
import resource
import stat
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

import robustfd
from robustfd.cli._pass import ProgressBar
from robustfd.streams import open_stream
from tests.cli.conftest import execute

pytestmark = pytest.mark.slow

KEPT = ("--checkpoint", "kept", "--every", "1")
TRAIN = ("train", "rows.svm", "-m", "5", "--features", "12", "--classes=-1,1")
SKETCH = ("sketch", "rows.svm", "-m", "5", "--features", "12")


@pytest.fixture(autouse=True)
def folder(svm, small_blocks, monkeypatch):
    """The folder of the rows, which is the current one and that of temporary files."""
    monkeypatch.chdir(svm.parent)
    monkeypatch.setattr(tempfile, "tempdir", str(svm.parent))
    return svm.parent


@pytest.fixture(params=[TRAIN, SKETCH], ids=["train", "sketch"])
def command(request):
    return request.param


@pytest.fixture
def expected(run, command, folder):
    """The bytes of the file that the command writes if all goes well."""
    assert run(*command, "-o", "expected").status == 0
    content = Path("expected").read_bytes()
    os.unlink("expected")
    return content


@pytest.fixture
def kept(run, command, expected):
    """A checkpoint of about half of the rows, and its content: the next row could not be read."""
    lines = Path("rows.svm").read_text().splitlines(keepends=True)
    Path("rows.svm").write_text("".join([*lines[:200], "x" * (len(lines[200]) - 1) + "\n", *lines[201:]]))
    done = run(*command, "-o", "model", *KEPT)
    assert done.status == 1 and "line 201" in done.err and "kept holds the" in done.err
    Path("rows.svm").write_text("".join(lines))
    return Path("kept").read_bytes()


@pytest.fixture
def resumes(run, command, expected):
    """A function that asserts that the checkpoint is good: resumed, it makes the expected model."""

    def check():
        done = run(*command, "-o", "model", *KEPT, "--resume")
        assert done.status == 0 and "Continuing from row" in done.err, done.err
        assert Path("model").read_bytes() == expected and not os.path.exists("kept")

    return check


def assert_failed(done, *words, status=1):
    assert done.status == status, (done.status, done.err)
    last = done.err.strip().splitlines()[-1]
    assert last.startswith("robustfd: ") and "Traceback" not in done.err
    for word in words:
        assert str(word) in last, done.err
    assert not list(Path().rglob(".robustfd-*"))


@contextlib.contextmanager
def small_files():
    """Files cannot grow beyond 1000 bytes, less than any model."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def mount(path, options):
    """Mount a file system in memory, or skip the test."""
    command = ["mount", "-t", "tmpfs", "-o", options, "robustfd-tests", path]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        pytest.skip(f"there is no mount here: {error}")
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")


@pytest.fixture
def disk(folder):
    """A full file system of 256 kB, with a file `filler`."""
    (folder / "disk").mkdir()
    mount(folder / "disk", "size=256k")
    with open("disk/filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    yield folder / "disk"
    subprocess.run(["umount", "-l", folder / "disk"], check=True)


# -- the disk is full


def test_a_full_disk_when_a_checkpoint_is_due(run, command, expected, kept, disk):
    filler = (disk / "filler").read_bytes()
    (disk / "filler").unlink()
    (disk / "kept").write_bytes(kept)
    with open(disk / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
        file.write(filler)
    resume = (*command, "-o", "model", "--checkpoint", "disk/kept", "--every", "1", "--resume")
    words = ("disk/kept could not be written: No space left", "An earlier checkpoint is unchanged")
    assert_failed(run(*resume), *words)
    assert (disk / "kept").read_bytes() == kept
    (disk / "filler").unlink()
    assert run(*resume).status == 0
    assert Path("model").read_bytes() == expected and list(disk.iterdir()) == []


def test_a_file_too_large_when_a_checkpoint_is_due(run, command, kept, resumes):
    with small_files():
        done = run(*command, "-o", "model", *KEPT, "--resume", "-q")
    assert_failed(done, "kept could not be written: File too large", "An earlier checkpoint is unchanged")
    assert Path("kept").read_bytes() == kept
    resumes()


def test_the_first_checkpoint_cannot_be_written(run, command):
    with small_files():
        done = run(*command, "-o", "model", *KEPT, "-q")
    assert_failed(done, "kept could not be written: File too large")
    assert os.listdir() == ["rows.svm"]


def test_a_full_disk_at_the_end_and_a_checkpoint_elsewhere(run, command, expected, disk):
    finish = (*command, "-o", "disk/model", "--checkpoint", "kept")
    words = ("disk/model could not be written: No space left on device", "The checkpoint kept holds all rows")
    assert_failed(run(*finish), *words)
    assert not (disk / "model").exists()
    (disk / "filler").unlink()
    done = run(*finish, "--resume")
    assert done.status == 0 and "Continuing from row 400" in done.err
    assert (disk / "model").read_bytes() == expected


def test_a_full_disk_at_the_end_and_no_checkpoint(run, folder, command, expected, disk):
    done = run(*command, "-o", "disk/model")
    assert_failed(done, "disk/model could not be written", "The model is in")
    place = Path(done.err.rpartition("The model is in ")[2].partition(" instead")[0])
    assert place.parent == folder and place.name.endswith("-model")
    assert place.read_bytes() == expected


def test_an_old_model_stays_when_the_new_one_cannot_be_written(run, command):
    Path("model").write_bytes(b"old")
    with small_files():
        done = run(*command, "-o", "model", "-q")
    assert_failed(done, "model could not be written: File too large", "The model is lost")
    assert Path("model").read_bytes() == b"old" and sorted(os.listdir()) == ["model", "rows.svm"]


def test_nowhere_to_write_at_the_end_but_an_old_checkpoint(run, command, kept, resumes):
    with small_files():  # the next checkpoint is not due
        done = run(*command, "-o", "model", "--checkpoint", "kept", "--resume", "-q")
    assert_failed(done, "model could not be written", "The checkpoint kept is unchanged")
    assert Path("kept").read_bytes() == kept
    resumes()


# -- results


@pytest.mark.parametrize("arguments", ["predict model rows.svm", "info model --json", "evaluate model rows.svm", "-h"])
def test_standard_output_is_full(run, folder, arguments):
    assert run(*TRAIN, "-o", "model", "-q").status == 0
    places = {"model": folder / "model", "rows.svm": folder / "rows.svm"}
    with open("/dev/full", "wb") as full:
        done = execute(*(places.get(each, each) for each in arguments.split()), stdout=full)
    assert_failed(done, "Standard output could not be written: No space left on device.")


def test_standard_error_is_full_and_the_command_continues(folder, command, expected):
    more = (command[0], folder / "rows.svm", *command[2:])
    with open("/dev/full", "wb") as full:
        assert execute(*more, "-o", folder / "model", stderr=full).status == 0
        assert execute(*more, "-o", folder / "none/model", stderr=full).status == 1
    assert robustfd.load("model").n_samples_seen_ == 400


def test_predictions_that_cannot_be_written(run, disk):
    assert run(*TRAIN, "-o", "model", "-q").status == 0
    Path("said.csv").write_bytes(b"old")
    for name in ("said.csv", "said.parquet"):
        assert_failed(run("predict", "model", "rows.svm", "-o", disk / name), "No space left on device")
        with small_files():
            done = run("predict", "model", "rows.svm", "--probabilities", "-o", name, "-q")
        assert_failed(done, "File too large")
    assert os.listdir(disk) == ["filler"] and Path("said.csv").read_bytes() == b"old"


def test_a_result_for_a_pipe_does_not_replace_it(run, command, expected):
    """As it would replace /dev/null, where the system allows it."""
    os.mkfifo("pipe")
    received = []
    reader = threading.Thread(target=lambda: received.append(Path("pipe").read_bytes()))
    reader.start()
    assert run(*command, "-o", "pipe").status == 0
    reader.join()
    assert received == [expected] and stat.S_ISFIFO(os.stat("pipe").st_mode)


@pytest.mark.parametrize("option", ["-o", "--checkpoint"])
def test_places_where_nothing_can_be_written(run, folder, option):
    Path("file").write_text("x")
    os.mkdir("there")
    os.mkdir("locked")
    other = ("-o", "model") if option == "--checkpoint" else ()
    for place, words in {"none/m": "no directory", "file/m": "no directory", "there": "is a directory"}.items():
        assert_failed(run(*TRAIN, option, place, *other), words, place.split("/")[0])
    assert Path("file").read_text() == "x" and not os.listdir("there")
    mounted = os.geteuid() == 0  # whom permissions do not keep from writing
    if mounted:
        mount(folder / "locked", "ro,size=64k")
    else:
        os.chmod("locked", 0o500)
    try:
        assert_failed(run(*TRAIN, option, "locked/m", *other), "locked is not writable")
    finally:
        if mounted:
            subprocess.run(["umount", "-l", folder / "locked"], check=True)


# -- the input was changed


EDITS = {
    "a digit": lambda lines: [lines[0].replace(":", ":1", 1), *lines[1:]],
    "a label": lambda lines: [*lines[:99], lines[99].removeprefix("-") if lines[99][0] == "-" else "-" + lines[99],
                              *lines[100:]],
    "a line less": lambda lines: lines[:50] + lines[51:],
    "a line more": lambda lines: [lines[7], *lines],
    "two lines swapped": lambda lines: [lines[1], lines[0], *lines[2:]],
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_rows_that_were_read_before_are_others(run, command, kept, resumes, edit):
    """Also if a place in the file would still be right; the checkpoint stays as it was."""
    text = Path("rows.svm").read_text()
    Path("rows.svm").write_text("\n".join(EDITS[edit](text.split("\n"))))
    done = run(*command, "-o", "model", *KEPT, "--resume")
    assert_failed(done, "rows.svm was changed", "rows are not those that were read before", "start over")
    assert Path("kept").read_bytes() == kept and not os.path.exists("model")
    Path("rows.svm").write_text(text)
    resumes()


def test_the_same_rows_written_otherwise_are_the_same(command, kept, resumes):
    """All that was read before is in another place then: a byte number would lead into the middle of a line."""
    lines = Path("rows.svm").read_text().splitlines()
    text = "# moved\n\n" + "".join(" " + line.replace(" ", "  ") + " # a comment\r\n" for line in lines)
    Path("rows.svm").write_bytes(text.encode())
    resumes()


def test_rows_may_be_added_behind(run, command, kept):
    with open("rows.svm", "a") as file:
        file.write("1 1:2.5 12:1\n" * 10)
    assert run(*command, "-o", "more").status == 0
    assert run(*command, "-o", "model", *KEPT, "--resume").status == 0
    assert Path("model").read_bytes() == Path("more").read_bytes()


def test_the_input_is_shorter_than_it_was(run, command, kept, resumes):
    text = Path("rows.svm").read_text()
    Path("rows.svm").write_text("".join(text.splitlines(keepends=True)[:100]))
    assert_failed(run(*command, "-o", "model", *KEPT, "--resume"), "rows.svm ends before row", "it was changed")
    assert Path("kept").read_bytes() == kept
    Path("rows.svm").write_text(text)
    resumes()


def test_an_input_that_is_missing_or_vanishes(run, command, monkeypatch):
    both = (*command, "more.svm")
    assert_failed(run(*both, "-o", "model", *KEPT), "more.svm: No such file or directory.")
    text = Path("rows.svm").read_text()
    Path("more.svm").write_text(text)
    assert run(*both, "-o", "both").status == 0
    with monkeypatch.context() as patched:  # the second file vanishes while the first is read
        patched.setattr(ProgressBar, "update", lambda *_: Path("more.svm").unlink(missing_ok=True))
        done = run(*both, "-o", "model", *KEPT)
    assert_failed(done, "more.svm: No such file or directory.")
    assert "The checkpoint kept holds the 400 rows before the error." in done.err
    Path("more.svm").write_text(text)
    assert run(*both, "-o", "model", *KEPT, "--resume").status == 0
    assert Path("model").read_bytes() == Path("both").read_bytes()


def test_an_input_that_was_opened_is_read_to_its_end():
    stream = open_stream("rows.svm", block_bytes=4096)
    blocks = iter(stream)
    rows = next(blocks).X.shape[0]
    os.unlink("rows.svm")
    assert rows + sum(block.X.shape[0] for block in blocks) == 400


def test_other_files_in_a_directory(run, command):
    """A checkpoint knows its file by number, and a new one in front of it would be taken for it."""
    os.mkdir("rows")
    text = Path("rows.svm").read_text()
    for name in ("b.svm", "d.svm"):
        Path("rows", name).write_text(text)
    job = (command[0], "rows", *command[2:])
    assert run(*job, "-o", "both").status == 0
    Path("rows/d.svm").write_text(text[:-10] + "x:x\n")
    assert run(*job, "-o", "model", *KEPT).status == 1
    Path("rows/d.svm").write_text(text)
    for new in ("a.svm", "c.svm"):
        Path("rows", new).write_text(text)
        assert_failed(run(*job, "-o", "model", *KEPT, "--resume"), "other files")
        Path("rows", new).unlink()
    assert run(*job, "-o", "model", *KEPT, "--resume").status == 0
    assert Path("model").read_bytes() == Path("both").read_bytes()


# -- other checkpoints


def test_a_damaged_checkpoint_is_refused_and_left_alone(run, command, kept):
    damaged = {b"", b"\0" * 100, kept[:7], kept[: len(kept) // 2], kept[:-1], kept + b"x"}
    for place in (0, 9, 60, len(kept) // 2, len(kept) - 1):
        damaged.add(kept[:place] + bytes([kept[place] ^ 4]) + kept[place + 1 :])
    for content in damaged:
        Path("kept").write_bytes(content)
        done = run(*command, "-o", "model", *KEPT, "--resume")
        assert_failed(done, "kept: ")
        assert "damaged" in done.err or "Not a robustfd snapshot" in done.err
        assert Path("kept").read_bytes() == content and not os.path.exists("model")


@pytest.mark.parametrize("command", [TRAIN], ids=["train"])
def test_the_checkpoint_of_another_job(run, command, kept):
    Path("more.svm").write_bytes(Path("rows.svm").read_bytes())
    for other, words in {
        (*TRAIN[:3], "6", *TRAIN[4:]): "sketch_size 5, not 6",
        (*TRAIN, "more.svm"): "files",
        (*TRAIN[:1], "more.svm", *TRAIN[2:]): "files",
        (*TRAIN, "--learner", "rfdson"): "learner newton, not rfdson",
        (*TRAIN[:-1], "--classes=-1,1,2"): "classes",
        (*TRAIN[:4], "--features=13", TRAIN[-1]): "n_features 12, not 13",
        (*TRAIN, "--zero-based"): "zero_based",
        SKETCH: "command train, not sketch",
    }.items():
        assert_failed(run(*other, "-o", "model", *KEPT, "--resume"), "kept was made with", words, status=2)
    assert_failed(run(*TRAIN, "-o", "model", *KEPT), "Add --resume", status=2)
    assert Path("kept").read_bytes() == kept
    assert isinstance(robustfd.load("kept"), robustfd.SketchedNewtonClassifier)
    robustfd.load("kept").save("kept")
    done = run(*TRAIN, "-o", "model", *KEPT, "--resume")
    assert_failed(done, "kept is not a checkpoint; it holds a SketchedNewtonClassifier", status=2)
