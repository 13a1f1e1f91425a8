"""Parsers of the published file formats."""

from collections.abc import Iterable
from itertools import islice
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustfd.streams import open_stream

LINES_AT_ONCE = 512


def read_libsvm(stream: IO[bytes], n_features: int) -> tuple[Any, NDArray[np.float64]]:
    """Return the rows (CSR) and labels of LIBSVM text with one-based columns."""
    rows, labels = [sp.csr_matrix((0, n_features))], [np.empty(0)]
    for x, y in open_stream(stream, format="libsvm", n_features=n_features, zero_based=False):
        rows.append(x)
        labels.append(y)
    return sp.vstack(rows, format="csr"), np.concatenate(labels)


def read_table(stream: Iterable[bytes]) -> Any:
    """Return lines of numbers as CSR rows. The dense table is never in memory as a whole."""
    blocks = []
    lines = (line for line in stream if line.strip())
    while block := list(islice(lines, LINES_AT_ONCE)):
        blocks.append(sp.csr_matrix(np.loadtxt(block, ndmin=2)))
    if not blocks:
        raise ValueError("it has no numbers")
    return sp.vstack(blocks, format="csr")


def read_idx(stream: IO[bytes]) -> NDArray[np.uint8]:
    """Return an IDX file of bytes as an array with one row per item."""
    head = stream.read(4)
    if len(head) != 4 or head[:3] != b"\0\0\x08" or not 1 <= head[3] <= 4:
        raise ValueError(f"it is not an IDX file of bytes: it starts with {head!r}")
    shape = np.frombuffer(stream.read(4 * head[3]), dtype=">u4").astype(np.int64)
    if len(shape) != head[3]:
        raise ValueError("the header is truncated")
    content = stream.read()
    if len(content) != shape.prod():
        raise ValueError(f"it has {len(content)} bytes for {' x '.join(map(str, shape))} values")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape[0], -1)
