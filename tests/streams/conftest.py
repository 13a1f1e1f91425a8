"""Fixtures of the tests of streams."""

import json

import pytest


@pytest.fixture
def put(tmp_path, request):
    """Return the function that writes text, bytes or JSON lines to a file and returns its path."""

    def write(content, name=None):
        path = tmp_path / (name or f"rows{request.module.SUFFIX}")
        if isinstance(content, list):
            content = "".join(f"{json.dumps(row)}\n" for row in content)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write
