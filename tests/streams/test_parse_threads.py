"""Text parsed by several threads: the blocks, positions and messages are those of one thread."""

import gzip
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustfd.streams import StreamError, open_stream
from robustfd.streams.layout import SeenNames

LINES = {
    "libsvm": ["1 1:2 3:4.5", "-1 2:1e-3 # remark", "", "0 1:-1 2:7 5:3", "2", "1 1:one", "3 4:1 2:1", "1 7:1e999"],
    "vw": ["1 | a b:2", "-1 2.0 'tag|x c:3 d", "", "| a", "0 |x b", "1 | a:one", "2 0.5 | e:1e999", "1 |y a a"],
}
OPTIONS = {"libsvm": {"n_features": 9}, "vw": {"hash_bits": 6}}


def everything(source, threads, **options):
    """All blocks, the positions after them, the messages, the names, and the error if there is one."""
    stream, blocks, error = open_stream(source, **options), [], None
    stream.parse_threads, stream.seen_names = threads, SeenNames()
    try:
        for x, y in stream:
            blocks.append((x.toarray().tolist(), repr(y), stream.position))
    except StreamError as found:
        error = str(found)
    return blocks, stream.position, stream.skipped, stream.seen_names.names, error


@pytest.mark.parametrize("kind", LINES)
@given(data=st.data())
def test_threads_change_nothing(kind, tmp_path_factory, data):
    lines = data.draw(st.lists(st.sampled_from(LINES[kind]), min_size=1, max_size=60))
    path = tmp_path_factory.mktemp("text") / "rows"
    path.write_text("\n".join(lines))
    options = OPTIONS[kind] | {
        "format": kind,
        "block_bytes": data.draw(st.integers(64, 200)),
        "on_error": data.draw(st.sampled_from(["raise", "skip"])),
    }
    assert everything(path, data.draw(st.integers(2, 4)), **options) == everything(path, 1, **options)


def test_rows_before_damage_are_read(tmp_path):
    path, rng = tmp_path / "rows.svm.gz", np.random.default_rng(0)
    text = "".join(f"1 1:{i} # {rng.bytes(500).hex()}\n" for i in range(4000))  # much more than a decompressor buffers
    path.write_bytes(gzip.compress(text.encode(), 1)[:-2000])
    options = {"n_features": 1, "block_bytes": 1 << 16}
    alone = everything(path, 1, **options)
    assert len(alone[0]) > 10 and "damaged or truncated" in alone[-1]
    assert everything(path, 3, **options) == alone


def test_leaving_ends_the_threads(tmp_path):
    path = tmp_path / "rows.svm"
    path.write_text("".join(f"{i % 2} 1:{i}\n" for i in range(1000)))
    stream = open_stream(path, n_features=1, block_bytes=500)
    stream.parse_threads = 3
    blocks = iter(stream)
    assert next(blocks).X.shape[0] > 0
    del blocks
    assert not [each for each in threading.enumerate() if each.name.startswith("robustfd-parse")]
