"""Fixtures: a separate folder for each test, without real data, and a local web server."""

import pytest

from robustfd.datasets import _http, cache_folder
from tests.datasets.server import Server


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Return the cache folder, which is in the folder of the test and does not exist yet."""
    monkeypatch.delenv("ROBUSTFD_DATA", raising=False)
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(_http, "PAUSE", 0.0)
    return cache_folder()


@pytest.fixture
def server():
    """Yield a server and close it after the test."""
    it = Server()
    yield it
    it.close()
