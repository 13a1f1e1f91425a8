"""Sparse rows of a table with columns of text, which carry a code for each cell of text. Imports scipy."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class CodedRows(sp.csr_array):
    """Rows with the codes (n, columns of text) of their text; the first `numbers` columns of the rows are numbers."""

    codes: Floats
    numbers: int

    def __getitem__(self, key: Any) -> Any:
        """Return some rows with their codes."""
        some = super().__getitem__(key)
        return coded(some, self.codes[key], self.numbers) if isinstance(some, CodedRows) else some

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the codes, too."""
        return coded, (sp.csr_array(self), self.codes, self.numbers)


def coded(x: Any, codes: Floats, numbers: int) -> CodedRows:
    """Return rows with these codes."""
    rows = x if isinstance(x, CodedRows) else CodedRows(x)
    rows.codes, rows.numbers = codes, numbers
    return rows


def codes_of(texts: Iterable[Any]) -> Floats:
    """Return the codes of columns of text, given their entries, which are 1 or -1 if a cell has only one.

    The code of a cell with one feature j is 1 + j, with the sign of the entry, from which the row can be made again.
    The code of a cell with several features is not a whole number, and that of a cell without any is NaN.
    """
    codes = []
    for text in texts:
        single = np.diff(text.indptr) == 1
        data = np.where(np.repeat(single, np.diff(text.indptr)), text.data, 1.0) * (1.0 + text.indices)
        found = np.asarray(sp.csr_array((data, text.indices, text.indptr), text.shape).sum(axis=1)).reshape(-1)
        codes.append(np.where(single, found, np.where(found == 0.0, np.nan, found + 0.5)))
    return np.column_stack(codes)


def stacked(some: Sequence[Any]) -> Any:
    """Return rows one below the other, dense or sparse, with their codes if they have any."""
    if not any(sp.issparse(x) for x in some):
        return np.vstack(some)
    rows = sp.vstack(some, format="csr")
    if not all(isinstance(x, CodedRows) for x in some):
        return rows
    return coded(rows, np.vstack([x.codes for x in some]), some[0].numbers)
