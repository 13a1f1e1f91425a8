"""Hashing of feature names to columns as in scikit-learn's `FeatureHasher`, for compiled loops."""

from typing import Any

import numpy as np

from robustfd._compile import loops


@loops
def murmur3(text: Any, begin: int, end: int, h: Any) -> Any:
    """Return MurmurHash3 (32 bits, x86) of text[begin:end] with a seed, both as uint32."""
    for k in range(begin, end - 3, 4):
        word = np.uint32(text[k]) | np.uint32(text[k + 1]) << np.uint32(8)
        word |= np.uint32(text[k + 2]) << np.uint32(16) | np.uint32(text[k + 3]) << np.uint32(24)
        h = np.uint32(rotated(np.uint32(h ^ scrambled(word)), 13) * np.uint32(5) + np.uint32(0xE6546B64))
    word = np.uint32(0)
    for k in range(end - 1, begin + (end - begin) // 4 * 4 - 1, -1):
        word = word << np.uint32(8) | np.uint32(text[k])
    h = np.uint32(h ^ scrambled(np.uint32(word))) ^ np.uint32(end - begin)
    h = np.uint32(np.uint32(h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B))
    h = np.uint32(np.uint32(h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35))
    return np.uint32(h ^ (h >> np.uint32(16)))


@loops
def scrambled(word: Any) -> Any:
    """Return a word as scrambled by MurmurHash3; 0 stays 0."""
    return np.uint32(rotated(np.uint32(word * np.uint32(0xCC9E2D51)), 15) * np.uint32(0x1B873593))


@loops
def rotated(word: Any, by: int) -> Any:
    """Return a 32-bit word rotated to the left."""
    return np.uint32(word << np.uint32(by) | word >> np.uint32(32 - by))


@loops
def column_and_sign(text: Any, begin: int, end: int, bits: int, seed: Any = np.uint32(0)) -> Any:  # noqa: B008
    """Return the column, below 2^bits, and the sign of a feature name; `FeatureHasher` uses the seed 0."""
    h = np.int64(np.int32(murmur3(text, begin, end, seed)))
    return abs(h) % (np.int64(1) << bits), 1.0 if h >= 0 else -1.0
