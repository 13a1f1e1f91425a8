"""A folder of one's own for each test, no real data, and a web server on this machine."""

import pytest

from robustfd.datasets import _http, cache_folder
from tests.datasets.server import Server


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Return the cache folder, which is below the test's own and does not exist yet."""
    monkeypatch.delenv("ROBUSTFD_DATA", raising=False)
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(_http, "PAUSE", 0.0)
    return cache_folder()


@pytest.fixture
def server():
    """Return a server that is closed when the test is over."""
    it = Server()
    yield it
    it.close()
