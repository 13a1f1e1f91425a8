"""Disks that are full, files and folders that are not there or not whole: a clear error, and nothing lost."""

import os
import signal
import stat
import subprocess
import threading

import pytest

import robustfd as rf
from robustfd.streams import open_stream
from tests.cli.warm import until, write_rows

pytestmark = pytest.mark.slow

KEPT = ("--checkpoint", "kept", "--every", "1")
TRAIN = ("train", "rows.svm", "-m", "5", "--features", "20", "--classes=-1,1")
SKETCH = ("sketch", "rows.svm", "-m", "5", "--features", "20")
SMALL = 1000  # bytes, less than any model


@pytest.fixture(scope="module")
def whole(warm, tmp_path_factory):
    """Rows, and what is made of them if all goes well; a checkpoint of the first half of them, and predictions."""
    folder = tmp_path_factory.mktemp("whole")
    write_rows(folder / "rows.svm", 1000)
    for command in (TRAIN, SKETCH):
        assert warm.run(folder, *command, "-o", command[0]).status == 0
        half(warm, folder, command)
        (folder / "kept").rename(folder / f"{command[0]}.kept")
    assert warm.run(folder, "predict", "train", "rows.svm", "-o", "said.csv").status == 0
    return folder


def half(warm, folder, command):
    """Leave a checkpoint of about half of the rows: the next one cannot be read at first."""
    text = (folder / "rows.svm").read_bytes()
    lines = text.split(b"\n")
    (folder / "rows.svm").write_bytes(b"\n".join([*lines[:500], b"x" * len(lines[500]), *lines[501:]]))
    done = warm.run(folder, *command, "-o", "model", *KEPT)
    (folder / "rows.svm").write_bytes(text)
    assert done.status == 1 and "line 501" in done.err
    assert "kept holds the" in done.err


@pytest.fixture
def folder(whole, tmp_path):
    (tmp_path / "rows.svm").write_bytes((whole / "rows.svm").read_bytes())
    return tmp_path


@pytest.fixture(params=[TRAIN, SKETCH], ids=["train", "sketch"])
def command(request):
    return request.param


def goes_on(warm, whole, folder, command):
    """Assert that the checkpoint in a folder is a good one: gone on from, it makes the model it should."""
    done = warm.run(folder, *command, "-o", "model", *KEPT, "--resume")
    assert done.status == 0 and "Continuing from row" in done.err, done.err
    assert (folder / "model").read_bytes() == (whole / command[0]).read_bytes()
    assert not (folder / "kept").exists()


def assert_failed(done, *words, status=1):
    assert done.status == status, (done.status, done.err)
    assert "Traceback" not in done.err
    last = done.err.strip().splitlines()[-1]
    assert last.startswith("robustfd: ")
    for word in words:
        assert str(word) in last, done.err
    assert not list(done.folder.rglob(".robustfd-*"))


@pytest.fixture
def kept(whole, folder, command):
    """A checkpoint in the folder, and its content."""
    content = (whole / f"{command[0]}.kept").read_bytes()
    (folder / "kept").write_bytes(content)
    return content


class Disk:
    """A folder on a file system of its own, of 256 kB."""

    def __init__(self, path):
        self.path, self.filler = path, path / "filler"

    def fill(self):
        with open(self.filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                return

    def free(self):
        self.filler.unlink()


@pytest.fixture
def disk(tmp_path):
    path = tmp_path / "disk"
    path.mkdir()
    mount(path, "size=256k")
    yield Disk(path)
    subprocess.run(["umount", "-l", path], check=True)


def mount(path, options):
    """Mount a file system in memory, or skip the test."""
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "robustfd-tests", path], capture_output=True, text=True
        )
    except OSError as error:
        pytest.skip(f"there is no mount here: {error}")
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")


# -- the disk is full


def test_a_full_disk_when_a_checkpoint_is_due(warm, whole, folder, command, kept, disk):
    (disk.path / "kept").write_bytes(kept)
    disk.fill()
    resume = (*command, "-o", "model", "--checkpoint", "disk/kept", "--every", "1", "--resume")
    assert_failed(
        warm.run(folder, *resume), "disk/kept could not be written: No space left", "An earlier checkpoint is unchanged"
    )
    assert (disk.path / "kept").read_bytes() == kept
    disk.free()
    assert warm.run(folder, *resume).status == 0
    assert (folder / "model").read_bytes() == (whole / command[0]).read_bytes()
    assert list(disk.path.iterdir()) == []


def test_a_file_too_large_when_a_checkpoint_is_due(warm, whole, folder, command, kept):
    done = warm.run(folder, *command, "-o", "model", *KEPT, "--resume", largest_file=SMALL)
    assert_failed(done, "kept could not be written: File too large", "An earlier checkpoint is unchanged")
    assert (folder / "kept").read_bytes() == kept
    goes_on(warm, whole, folder, command)


def test_the_first_checkpoint_cannot_be_written(warm, folder, command):
    done = warm.run(folder, *command, "-o", "model", *KEPT, largest_file=SMALL)
    assert_failed(done, "kept could not be written: File too large")
    assert not (folder / "kept").exists() and not (folder / "model").exists()


def test_a_full_disk_at_the_end_and_a_checkpoint_elsewhere(warm, whole, folder, command, disk):
    disk.fill()
    done = warm.run(folder, *command, "-o", "disk/model", "--checkpoint", "kept")
    assert_failed(
        done, "disk/model could not be written: No space left on device", "The checkpoint kept holds all rows"
    )
    assert not (disk.path / "model").exists()
    disk.free()
    done = warm.run(folder, *command, "-o", "disk/model", "--checkpoint", "kept", "--resume")
    assert done.status == 0 and "Continuing from row 1,000" in done.err
    assert (disk.path / "model").read_bytes() == (whole / command[0]).read_bytes()


def test_a_full_disk_at_the_end_and_no_checkpoint(warm, whole, folder, command, disk):
    disk.fill()
    done = warm.run(folder, *command, "-o", "disk/model")
    assert_failed(done, "disk/model could not be written", "The model is in")
    place = done.err.rpartition("The model is in ")[2].partition(" instead")[0]
    assert os.path.dirname(place) == str(folder) and place.endswith("-model")
    with open(place, "rb") as file:
        assert file.read() == (whole / command[0]).read_bytes()


def test_an_old_model_stays_when_the_new_one_cannot_be_written(warm, folder, command):
    (folder / "model").write_bytes(b"old")
    done = warm.run(folder, *command, "-o", "model", largest_file=SMALL)
    assert_failed(done, "model could not be written: File too large", "The model is lost")
    assert (folder / "model").read_bytes() == b"old"
    assert {each.name for each in folder.iterdir()} == {"model", "rows.svm", ".stdout", ".stderr"}


def test_nowhere_to_write_at_the_end_but_an_old_checkpoint(warm, whole, folder, command, kept):
    resume = (*command, "-o", "model", "--checkpoint", "kept", "--resume")  # the next checkpoint is not due
    done = warm.run(folder, *resume, largest_file=SMALL)
    assert_failed(done, "model could not be written", "The checkpoint kept is unchanged")
    assert (folder / "kept").read_bytes() == kept
    goes_on(warm, whole, folder, command)


# -- results


@pytest.mark.parametrize(
    "command",
    [
        "predict train rows.svm", "evaluate train rows.svm", "info sketch", "info sketch --json",
        "--help", "info --help", "--version",
    ],
)  # fmt: skip
def test_standard_output_is_full(warm, whole, command):
    done = warm.run(whole, *command.split(), stdout="/dev/full")
    assert_failed(done, "Standard output could not be written: No space left on device.")


def test_predictions_on_a_full_disk(warm, whole, disk):
    disk.fill()
    for name in ("said.csv", "said.parquet"):
        done = warm.run(whole, "predict", "train", "rows.svm", "-o", disk.path / name)
        assert_failed(done, "No space left on device")
    assert [each.name for each in disk.path.iterdir()] == ["filler"]


def test_predictions_too_large_for_a_file(warm, whole, folder):
    (folder / "said.csv").write_bytes(b"old")
    for name in ("said.csv", "said.parquet"):
        done = warm.run(
            folder, "predict", whole / "train", "rows.svm", "--probabilities", "-o", name, largest_file=SMALL
        )
        assert_failed(done, "File too large")
    assert (folder / "said.csv").read_bytes() == b"old"


def test_nobody_can_be_told_anything_and_it_goes_on(warm, whole, folder, command):
    done = warm.run(folder, *command, "-o", "model", *KEPT, "--resume", stderr="/dev/full")
    assert done.status == 0
    assert (folder / "model").read_bytes() == (whole / command[0]).read_bytes()
    assert warm.run(folder, *command, "-o", "none/model", stderr="/dev/full").status == 1


def test_a_result_for_a_pipe_does_not_take_its_place(warm, whole, folder, command):
    """As it would that of /dev/null, where the system lets it."""
    os.mkfifo(folder / "pipe")
    received = []
    reader = threading.Thread(target=lambda: received.append((folder / "pipe").read_bytes()))
    reader.start()
    assert warm.run(folder, *command, "-o", "pipe").status == 0
    reader.join()
    assert received == [(whole / command[0]).read_bytes()]
    assert stat.S_ISFIFO((folder / "pipe").stat().st_mode)


# -- places that are none


@pytest.mark.parametrize("place", ["-o", "--checkpoint"])
def test_places_where_nothing_can_be_written(warm, folder, command, place):
    (folder / "file").write_text("x")
    (folder / "there").mkdir()
    other = ("-o", "model") if place == "--checkpoint" else ()
    for bad, words in {"none/m": "no directory", "file/m": "no directory", "there": "is a directory"}.items():
        assert_failed(warm.run(folder, *command, place, bad, *other), words, bad.split("/")[0])
    assert (folder / "file").read_text() == "x" and not list((folder / "there").iterdir())


def test_a_folder_that_may_only_be_read(warm, folder, command):
    (folder / "there").mkdir()
    mounted = os.geteuid() == 0  # whom permissions do not keep from writing
    if mounted:
        mount(folder / "there", "ro,size=64k")
    else:
        (folder / "there").chmod(0o500)
    try:
        assert_failed(warm.run(folder, *command, "-o", "there/model"), "there is not writable")
        assert_failed(warm.run(folder, *command, "-o", "model", "--checkpoint", "there/kept"), "is not writable")
    finally:
        if mounted:
            subprocess.run(["umount", "-l", folder / "there"], check=True)


def test_standard_streams_that_are_files_to_read(warm, whole, folder, command):
    """The shell opens them before the command runs; that it adds to the file is what `>>` asks for."""
    text = (folder / "rows.svm").read_bytes()
    piped = (command[0], "-", *command[2:])
    assert_failed(warm.run(folder, *piped, "-o", "rows.svm", stdin="rows.svm"), "is standard input", status=2)
    (folder / "copy").symlink_to(".stdout")  # which the command opens as its standard output
    done = warm.run(folder, "predict", whole / "train", "copy", "--format", "libsvm")
    assert_failed(done, "standard output goes to it", status=2)
    assert (folder / "rows.svm").read_bytes() == text


# -- the input was changed


EDITS = {
    "a digit": lambda lines: [lines[0].replace(b":", b":1", 1), *lines[1:]],
    "a label": lambda lines: [
        *lines[:99],
        {b"1": b"-1", b"-1": b"1"}[lines[99].split(b" ")[0]] + lines[99][2:],
        *lines[100:],
    ],
    "a line less": lambda lines: lines[:50] + lines[51:],
    "a line more": lambda lines: [lines[7], *lines],
    "two lines swapped": lambda lines: [lines[1], lines[0], *lines[2:]],
    "an entry of the last row before": lambda lines: [*lines[:485], lines[485] + b" 20:9", *lines[486:]],
}


@pytest.mark.parametrize("edit", EDITS)
def test_rows_that_were_read_before_are_others(warm, whole, folder, command, kept, edit):
    """Also if a place in the file would still be right; the checkpoint stays as it was."""
    text = (folder / "rows.svm").read_bytes()
    (folder / "rows.svm").write_bytes(b"\n".join(EDITS[edit](text.split(b"\n"))))
    done = warm.run(folder, *command, "-o", "model", *KEPT, "--resume")
    assert_failed(done, "rows.svm was changed", "rows are not those that were read before", "start over")
    assert (folder / "kept").read_bytes() == kept and not (folder / "model").exists()
    (folder / "rows.svm").write_bytes(text)
    goes_on(warm, whole, folder, command)


def test_the_same_rows_written_otherwise_are_the_same(warm, whole, folder, command, kept):
    """All that was read before is in another place then: a byte number would lead into the middle of a line."""
    lines = (folder / "rows.svm").read_bytes().splitlines()
    text = b"# moved\n\n" + b"".join(b" " + line.replace(b" ", b"  ") + b" # a comment\r\n" for line in lines)
    (folder / "rows.svm").write_bytes(text)
    goes_on(warm, whole, folder, command)


def test_rows_may_be_added_behind(warm, folder, command, kept):
    with open(folder / "rows.svm", "ab") as file:
        file.write(b"1 1:2.5 20:1\n" * 10)
    assert warm.run(folder, *command, "-o", "more").status == 0
    assert warm.run(folder, *command, "-o", "model", *KEPT, "--resume").status == 0
    assert (folder / "model").read_bytes() == (folder / "more").read_bytes()


# -- rows that vanish


def test_no_input(warm, folder, command):
    (folder / "rows.svm").unlink()
    assert_failed(warm.run(folder, *command, "-o", "model", *KEPT), "rows.svm: No such file or directory.")


def test_the_input_vanishes_between_two_looks(folder):
    stream = open_stream(folder / "rows.svm")  # which has read it once, to count the features
    (folder / "rows.svm").unlink()
    with pytest.raises(FileNotFoundError, match="rows.svm"):
        list(stream)


def test_an_input_that_was_opened_is_read_to_its_end(folder):
    stream = open_stream(folder / "rows.svm", block_bytes=4096)
    blocks = iter(stream)
    rows = next(blocks).X.shape[0]
    (folder / "rows.svm").unlink()
    assert rows + sum(block.X.shape[0] for block in blocks) == 1000


def test_the_second_input_vanishes_while_the_first_is_read(warm, folder, command):
    both = (*command, "more.svm")
    (folder / "more.svm").write_bytes((folder / "rows.svm").read_bytes())
    assert warm.run(folder, *both, "-o", "both").status == 0
    for _ in range(5):
        job = warm.start(folder, *both, "-o", "model", *KEPT)
        until((folder / "kept").exists, job)
        job.kill(signal.SIGSTOP)
        (folder / "more.svm").rename(folder / "away.svm")
        job.kill(signal.SIGCONT)
        job.wait()
        (folder / "away.svm").rename(folder / "more.svm")
        if job.status:
            break
        (folder / "kept").unlink(missing_ok=True)  # it had opened the second one already: again
    assert_failed(job, "more.svm: No such file or directory.")
    assert "The checkpoint kept holds the 1,000 rows before the error." in job.err
    assert warm.run(folder, *both, "-o", "model", *KEPT, "--resume").status == 0
    assert (folder / "model").read_bytes() == (folder / "both").read_bytes()


def test_the_input_is_shorter_than_it_was(warm, whole, folder, command, kept):
    text = (folder / "rows.svm").read_bytes()
    (folder / "rows.svm").write_bytes(b"".join(text.splitlines(keepends=True)[:250]))
    done = warm.run(folder, *command, "-o", "model", *KEPT, "--resume")
    assert_failed(done, "rows.svm ends before row", "it was changed")
    assert (folder / "kept").read_bytes() == kept
    (folder / "rows.svm").write_bytes(text)
    goes_on(warm, whole, folder, command)


def test_files_of_a_folder_that_are_others(warm, folder, command):
    """A checkpoint knows its file by number, and a new one in front of it would be taken for it."""
    (folder / "rows").mkdir()
    text = (folder / "rows.svm").read_bytes()
    for name in ("b.svm", "d.svm"):
        (folder / "rows" / name).write_bytes(text)
    job = (command[0], "rows", *command[2:])
    assert warm.run(folder, *job, "-o", "both").status == 0
    (folder / "rows" / "d.svm").write_bytes(text[:-10] + b"x:x\n")
    assert warm.run(folder, *job, "-o", "model", *KEPT).status == 1
    (folder / "rows" / "d.svm").write_bytes(text)
    for new in ("a.svm", "c.svm"):
        (folder / "rows" / new).write_bytes(text)
        assert_failed(warm.run(folder, *job, "-o", "model", *KEPT, "--resume"), "other files")
        (folder / "rows" / new).unlink()
    assert warm.run(folder, *job, "-o", "model", *KEPT, "--resume").status == 0
    assert (folder / "model").read_bytes() == (folder / "both").read_bytes()


# -- checkpoints that are none


def test_a_damaged_checkpoint_is_refused_and_left_alone(warm, folder, command, kept):
    damaged = {b"", b"\0" * 100, kept[:7], kept[:50], kept[: len(kept) // 2], kept[:-1], kept + b"x"}
    for place in (0, 9, 60, len(kept) // 2, len(kept) - 1):
        damaged.add(kept[:place] + bytes([kept[place] ^ 4]) + kept[place + 1 :])
    for content in damaged:
        (folder / "kept").write_bytes(content)
        done = warm.run(folder, *command, "-o", "model", *KEPT, "--resume")
        assert_failed(done, "kept: ")
        assert "damaged" in done.err or "Not a robustfd snapshot" in done.err
        assert (folder / "kept").read_bytes() == content and not (folder / "model").exists()


def test_the_checkpoint_of_another_job(warm, whole, folder):
    content = (whole / "train.kept").read_bytes()
    (folder / "kept").write_bytes(content)
    (folder / "more.svm").write_bytes((folder / "rows.svm").read_bytes())
    for other, words in {
        (*TRAIN[:3], "6", *TRAIN[4:]): "sketch_size 5, not 6",
        (*TRAIN, "more.svm"): "files",
        (*TRAIN[:1], "more.svm", *TRAIN[2:]): "files",
        (*TRAIN, "--learner", "rfdson"): "learner newton, not rfdson",
        (*TRAIN[:-1], "--classes=-1,1,2"): "classes",
        (*TRAIN[:4], "--features=21", TRAIN[-1]): "n_features 20, not 21",
        (*TRAIN, "--zero-based"): "zero_based",
        SKETCH: "command train, not sketch",
    }.items():
        done = warm.run(folder, *other, "-o", "model", *KEPT, "--resume")
        assert_failed(done, "kept was made with", words, status=2)
    (folder / "kept").write_bytes((whole / "train").read_bytes())
    done = warm.run(folder, *TRAIN, "-o", "model", *KEPT, "--resume")
    assert_failed(done, "kept is not a checkpoint; it holds a SketchedNewtonClassifier", status=2)
    (folder / "kept").write_bytes(content)
    assert_failed(warm.run(folder, *TRAIN, "-o", "model", *KEPT), "Add --resume", status=2)
    assert (folder / "kept").read_bytes() == content
    assert isinstance(rf.load(folder / "kept"), rf.SketchedNewtonClassifier)
