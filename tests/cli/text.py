"""Rows as text, for files that commands read."""

import numpy as np


def libsvm_text(X, y) -> str:
    lines = []
    for row, label in zip(X, y, strict=True):
        lines.append(" ".join([f"{label:.17g}", *(f"{j + 1}:{float(row[j])!r}" for j in np.flatnonzero(row))]))
    return "\n".join(lines) + "\n"
