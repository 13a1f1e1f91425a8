"""What the tests of streams share: all rows of a stream, and whether two sets of rows are the same."""

import numpy as np
import scipy.sparse as sp

from robustfd.streams import open_stream


def rows_of(stream):
    """Return X, an array, and y of all blocks."""
    xs, ys = [], []
    for x, y in stream:
        xs.append(x.toarray() if sp.issparse(x) else np.asarray(x))
        ys.append(y)
    x = np.concatenate(xs) if xs else np.empty((0, stream.n_features))
    return x, (None if not ys or ys[0] is None else np.concatenate(ys))


def read(source, **options):
    """Return X, an array, and y of all rows of a source."""
    return rows_of(open_stream(source, **options))


def same(one, other):
    """Raise unless rows and labels are equal, bit for bit."""
    np.testing.assert_array_equal(one[0], other[0])
    assert (one[1] is None) == (other[1] is None)
    if one[1] is not None:
        np.testing.assert_array_equal(one[1], other[1])
