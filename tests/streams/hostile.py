"""Small files that claim much, with the error that each must get. As a program, it reads them with little memory."""

import gzip
import io
import json
import lzma
import resource
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np

MEMORY = 400 << 20  # bytes that reading one of them may take
LINE, COLUMNS = 1 << 26, 1 << 20


def npy(shape, data=b"", **how):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape, **how})
    return file.getvalue() + data


def npz(columns, row):
    """Return a matrix of one row, with this many entries."""
    file = io.BytesIO()
    parts = {"format": np.array(b"csr"), "shape": np.array([1, columns]), "indptr": np.array([0, row])}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in (parts | {"indices": np.zeros(row, np.int8), "data": np.zeros(row, np.int8)}).items():
            with archive.open(f"{name}.npy", "w") as part:
                np.save(part, value)
    return file.getvalue()


def _xz(megabytes):
    """Return text whose decompressor asks for a dictionary of so many megabytes."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": megabytes << 20}]
    return lzma.compress(b"1 1:1\n" * 10, filters=filters)


def files():
    """Yield the name of each file, what is in it, options, and the words of the error."""
    endless = gzip.compress(b"1" * (LINE + 10))
    for suffix in ("csv", "jsonl", "vw", "svm", ""):
        yield f"endless.{suffix}.gz", endless, {}, f"no line feed in {LINE} bytes.*max_line_bytes"
    yield "wide.npy", npy((5, 2**30), bytes(48)), {}, f"wide.npy has {2**30} columns.*max_columns={COLUMNS}"
    yield "columns.npy", npy((5, 2**30), fortran_order=True), {}, f"has {2**30} columns"
    header = b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31)
    yield "header.npy.gz", gzip.compress(header + b" " * 2**27), {}, f"a header of {2**31} bytes"
    text = b",".join([b"1"] * (COLUMNS + 1))
    yield "wide.csv.gz", gzip.compress(text + b"\n", 1), {}, f"has {COLUMNS + 1} columns.*--max-columns"
    for name, before in {"values.jsonl.gz": b'{"a":[', "names.jsonl.gz": b'{"b":1},{"a":['}.items():
        line = gzip.compress(before + b",".join([b"[]"] * (4 << 20)) + b"]}\n")
        yield name, line, {}, f"line 1: it has .* commas, so more than max_columns={COLUMNS} values"
    yield "wide.npz", npz(2**31 - 1, 1), {}, f"has {2**31 - 1} columns, more than max_columns={2**24}"
    yield "row.npz", npz(10, 2 * 10**7), {}, "row 0 .*has 20000000 entries, more than max_columns"
    yield "index.svm", b"1 1:1\n1 7:1 2000000000:1\n", {}, "index.svm, line 2.*2000000000, above max_columns=16777216"
    yield "memory.svm.xz", _xz(1000), {}, "memory.svm.xz takes more than 134217728 bytes of memory to decompress"
    line = b"1 |a%b |b%b\n" % ((b"".join(b" %d" % k for k in range(10**4)),) * 2)
    yield "products.vw", line, {"interactions": ["ab"]}, "products.vw: a row has 100000000 products of 'a' and 'b'"


def main(folder, cases):
    """Read all files with little memory; print what each comes to."""
    import scipy.sparse  # noqa: F401

    from robustfd.streams import csv, jsonl, open_stream, text  # noqa: F401

    page = resource.getpagesize()
    for name, options in json.loads(cases):
        limit = int(Path("/proc/self/statm").read_text().split()[0]) * page + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        try:
            found = f"{sum(X.shape[0] for X, _ in open_stream(Path(folder) / name, **options))} rows"
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(json.dumps([name, found]))


if __name__ == "__main__":
    main(*sys.argv[1:])
