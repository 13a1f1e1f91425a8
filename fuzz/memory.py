"""Small files that claim to be large.

The promise: reading takes little memory, whatever sizes and indices a file states, and however well it is compressed.
Compressed batches of Arrow and pages of Parquet are the exception.
"""

import gzip
import lzma
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np

from robustfd.streams import StreamError, open_stream
from tests.streams.hostile import npy, npz

SECONDS = 60.0
MEMORY = 600 << 20  # bytes
MOST = 1 << 25  # bytes that a file has when it is decompressed


def case(rng: np.random.Generator, folder: Path) -> str:
    """Read one file."""
    kind = str(rng.choice(["npy", "npz", "svm", "vw", "csv", "jsonl", "endless"]))
    name, data = _file(kind, rng)
    packing = rng.integers(3)
    path = folder / (name + ("", ".gz", ".xz")[packing])
    path.write_bytes((bytes, gzip.compress, lambda each: lzma.compress(each, preset=0))[packing](data))
    before, outcome = _peak(), "accepted"
    try:
        for count, (X, _) in enumerate(open_stream(path)):
            assert X.shape[0] > 0
            if count > 20:
                break
    except StreamError:
        outcome = "StreamError"
    except ValueError as error:
        if kind != "npz" and "can be read only once" not in str(error):
            raise
        outcome = "ValueError"
    assert _peak() - before <= MEMORY, f"{kind}: it took {(_peak() - before) >> 20} MB for {len(data)} bytes."
    return f"{kind} {outcome}"


def _file(kind: str, rng: np.random.Generator) -> tuple[str, bytes]:
    """Return a name and what the file has before it is compressed."""
    many, count = int(2 ** rng.uniform(0, 40)), int(2 ** rng.uniform(0, 23))
    token = rng.choice([b"1", b"[]", b"a", b"1:1", b'"', b"{}", b"1.5e300", b'""', b"x:1", b"|a b"])
    between = bytes(rng.choice([b",", b" ", b"\t", b";", b""]))
    line = (bytes(token) + between) * min(count, MOST // (len(token) + 1))
    if kind == "npy":
        return "rows.npy", npy((int(2 ** rng.uniform(0, 40)), many), bytes(min(8 * count, MOST)))
    if kind == "npz":
        return "rows.npz", npz(min(many, 2**62), count)
    starts: dict[str, Any] = {
        "svm": b"1 %d:1\n1 " % many, "vw": b"1 | %d:1\n1 | " % many, "csv": b"", "jsonl": b'{"a":[', "endless": b"",
    }  # fmt: skip
    suffix = f".{kind}" if kind != "endless" else str(rng.choice([".svm", ".vw", ".csv", ".jsonl", ""]))
    return f"rows{suffix}", starts[kind] + line + (b"]}" if kind == "jsonl" else b"") + b"\n" * int(rng.integers(2))


def _peak() -> int:
    """Return the peak memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
