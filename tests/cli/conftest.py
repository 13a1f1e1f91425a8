import os

import pytest


@pytest.fixture(scope="package")
def warm():
    """Where commands are started without waiting for their imports."""
    if not hasattr(os, "fork"):
        pytest.skip("processes cannot be forked here")
    from tests.cli.warm import Warm

    server = Warm()
    yield server
    server.close()
