"""Correctly rounded conversion of decimal text to doubles, for compiled loops."""

import math
from typing import Any

import numpy as np

from robustfd._compile import loops

MOST_DIGITS = 19  # any number of 19 digits fits into 64 bits
LEAST_POWER, LARGEST_POWER = -342, 308  # powers of ten; outside, a number of 19 digits is 0 or infinite
LARGEST_EXPONENT = 100_000  # larger exponents have the same result
FINE, LONG, NONE = 0, 1, 2  # a number; a number with too many digits; not a number


def powers_of_five() -> Any:
    """Return 5^q for -342 <= q <= 308, normalised to 128 bits (high, low), rounded down, or up for q < 0."""
    table = np.empty((LARGEST_POWER - LEAST_POWER + 1, 2), np.uint64)
    for q in range(LEAST_POWER, LARGEST_POWER + 1):
        power = 5 ** abs(q)
        if q < 0:
            power = 2 ** (power.bit_length() + 127) // power + 1
        power = power << 128 >> power.bit_length()
        table[q - LEAST_POWER] = power >> 64, power & (2**64 - 1)
    return table


POWERS = powers_of_five()
_TENS = tuple(10.0**k for k in range(23))  # all exact


@loops
def number_at(text: Any, i: int, powers: Any) -> Any:
    """Return the number that starts at text[i], its end, and its status: FINE, LONG or NONE.

    The text must be followed by a byte that is not part of a number.
    """
    negative = text[i] == 45  # -
    if negative or text[i] == 43:  # +
        i += 1
    w, begin, fraction = np.uint64(0), i, 0
    while np.uint8(text[i] - 48) < 10:
        w = w * np.uint64(10) + np.uint64(text[i] - 48)
        i += 1
    digits = i - begin
    if text[i] == 46:  # .
        i += 1
        point = i
        while np.uint8(text[i] - 48) < 10:
            w = w * np.uint64(10) + np.uint64(text[i] - 48)
            i += 1
        fraction = i - point
        digits += fraction
    if digits == 0:
        return 0.0, i, NONE
    q = -fraction
    if text[i] == 101 or text[i] == 69:  # e, E
        i += 1
        down = text[i] == 45
        if down or text[i] == 43:
            i += 1
        exponent, first = 0, i
        while np.uint8(text[i] - 48) < 10:
            exponent = min(10 * exponent + int(text[i] - 48), LARGEST_EXPONENT)
            i += 1
        if i == first:
            return 0.0, i, NONE
        q += -exponent if down else exponent
    if digits > MOST_DIGITS:
        k = begin
        while text[k] == 48 or text[k] == 46:  # leading zeros do not count
            digits -= text[k] == 48
            k += 1
        if digits > MOST_DIGITS:
            return 0.0, i, LONG
    value = rounded(w, q, powers)
    return -value if negative else value, i, FINE


@loops
def rounded(w: Any, q: int, powers: Any) -> float:
    """Return the double nearest to w 10^q (Clinger 1990 where w and 10^|q| are doubles, else Lemire 2021)."""
    if w < np.uint64(2**53) and -22 <= q <= 22:
        return float(w) / _TENS[-q] if q < 0 else float(w) * _TENS[q]
    if w == 0 or q < LEAST_POWER:
        return 0.0
    if q > LARGEST_POWER:
        return math.inf
    zeros = 0
    for step in (32, 16, 8, 4, 2, 1):
        if w >> np.uint64(64 - step) == 0:
            w = w << np.uint64(step)
            zeros += step
    # The first 64 bits of w 5^q, and more where they could still change the rounding.
    high, low = product(w, powers[q - LEAST_POWER, 0])
    if high & np.uint64(0x1FF) == np.uint64(0x1FF):
        carried, _ = product(w, powers[q - LEAST_POWER, 1])
        low += carried
        if low < carried:
            high += np.uint64(1)
    upper = high >> np.uint64(63)
    mantissa = high >> (upper + np.uint64(9))  # 54 bits, one more than a double
    exponent = (217706 * q >> 16) + 63 + int(upper) - zeros + 1023
    if exponent <= 0:  # below the normal doubles
        if exponent <= -63:
            return 0.0
        mantissa >>= np.uint64(1 - exponent)
    elif low <= 1 and -4 <= q <= 23 and mantissa & np.uint64(3) == 1 and mantissa << (upper + np.uint64(9)) == high:
        mantissa &= ~np.uint64(1)  # halfway between two doubles: round to even
    mantissa = (mantissa + (mantissa & np.uint64(1))) >> np.uint64(1)
    return math.ldexp(float(mantissa), max(exponent, 1) - 1075)


@loops
def product(a: Any, b: Any) -> Any:
    """Return the 128 bits of a b, as two halves."""
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    a1, a0, b1, b0 = a >> half, a & mask, b >> half, b & mask
    low, cross = a0 * b0, a1 * b0
    middle = cross + (low >> half)
    other = a0 * b1 + (middle & mask)
    return a1 * b1 + (middle >> half) + (other >> half), (other << half) | (low & mask)
