"""Progress is shown only on a terminal, with rich if it is installed."""

import io
import sys

import pytest

from robustfd import datasets
from robustfd.datasets import _progress
from tests.datasets.small import files, rows_and_labels, shrink_registry


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def download(server, monkeypatch):
    """Return a function that downloads a small real-sim and returns the output on stderr."""

    def run(stderr, **options):
        x, y = rows_and_labels("a9a", 4000)
        contents = files("a9a", x, y)
        shrink_registry(monkeypatch, "a9a", contents, x, checksum=False, address=lambda a: server.address("a9a"))
        server.put("a9a", contents[0])
        monkeypatch.setattr(sys, "stderr", stderr)
        datasets.load("a9a", **options)
        return stderr.getvalue()

    return run


def test_plain_text_without_rich(download, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(_progress, "SECONDS_BETWEEN", 0.0)
    text = download(Terminal())
    assert text.startswith("\ra9a: 0.0 of 0.") and "MB, 100%\n" in text and "a9a: sha256 " in text


def test_bar_of_rich(download):
    pytest.importorskip("rich")
    assert "a9a" in download(Terminal())


@pytest.mark.parametrize("stderr, options", [(io.StringIO(), {}), (Terminal(), {"progress": False})])
def test_silent_elsewhere(download, capsys, stderr, options):
    assert download(stderr, **options) == ""
    assert capsys.readouterr().out == ""


def test_no_stderr_at_all(download, monkeypatch):
    assert not _progress._on_terminal()
    monkeypatch.setattr(sys, "stderr", None)
    assert not _progress._on_terminal()


def test_unknown_length(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with _progress._line("file") as report:
        report(1_500_000, None)
    assert sys.stderr.getvalue() == "\rfile: 1.5 MB\n"
