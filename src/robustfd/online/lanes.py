"""Vectorized kernels for short contiguous arrays with one number for each expert.

LLVM unrolls a loop over sixteen numbers before its vectorizer runs, and then does not vectorize it. So this module
generates vector instructions for the loops that run for every non-zero of a row.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from robustfd._compile import in_llvm, loops

STRIP = 8  # numbers of a vector
# float32 constants. With float64 ones numba would compute in float64, at half the throughput.
ZERO, HALF, ONE, FOUR, SMALL = (np.float32(x) for x in (0.0, 0.5, 1.0, 4.0, 0.01))
LEAST, LOG_TWO, BITS_OF_E = np.float32(-60.0), np.float32(math.log(2.0)), np.float32(math.log2(math.e))
TINY = np.float32(1e-8)
C1, C2, C3, C4, C5 = (np.float32(math.log(2.0) ** k / math.factorial(k)) for k in range(1, 6))
EXPONENT_PLACE, EXPONENT_OF_ONE = 23, 127  # of a float32
LOG_OF_BIT = np.float32(math.log(2.0) / 2**EXPONENT_PLACE)
LOG_OF_ZERO = np.float32(EXPONENT_OF_ONE * math.log(2.0))


def padded(n: int) -> int:
    """Return n rounded up to a multiple of STRIP."""
    return -(-n // STRIP) * STRIP


_I32, _I64 = ir.IntType(32), ir.IntType(64)


class _Strips:
    """Generator of vector instructions on a flattened array, STRIP numbers at a time, optionally masked."""

    def __init__(self, context: Any, builder: Any, kind: Any, array: Any) -> None:
        self.builder, self.data = builder, context.make_array(kind)(context, builder, array).data
        number = self.data.type.pointee
        self.single = number == ir.FloatType()
        self.vector, self.align = ir.VectorType(number, STRIP), 4 if self.single else 8
        self.zeros = ir.Constant(self.vector, None)
        self.name = f"v{STRIP}f{32 if self.single else 64}"

    def spread(self, value: Any) -> Any:
        """Return a vector whose elements all equal `value`."""
        if self.single and value.type == ir.DoubleType():
            value = self.builder.fptrunc(value, ir.FloatType())
        nothing = ir.Constant(ir.VectorType(value.type, STRIP), ir.Undefined)
        first = self.builder.insert_element(nothing, value, _I32(0))
        return self.builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_I32, STRIP), [0] * STRIP))

    def load(self, at: Any, mask: Any) -> Any:
        """Return the STRIP numbers that start at index `at`."""
        place = self._place(at)
        if mask is None:
            return self.builder.load(place, align=self.align)
        return self._call(f"masked.load.{self.name}.p0{self.name}", place, _I32(self.align), mask, self.zeros)

    def store(self, values: Any, at: Any, mask: Any) -> None:
        """Store a vector at index `at`."""
        place = self._place(at)
        if mask is None:
            self.builder.store(values, place, align=self.align)
        else:
            self._call(f"masked.store.{self.name}.p0{self.name}", values, place, _I32(self.align), mask)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """Return a b + c."""
        return self._call(f"fma.{self.name}", a, b, c)

    def cover(self, n: Any, groups: tuple[int, ...], body: Any) -> None:
        """Generate a loop over n numbers by `body(first, strips, mask)`: groups of strips, then a masked rest."""
        done, builder = cgutils.alloca_once_value(self.builder, _I64(0)), self.builder
        for strips in groups:
            begin, size = builder.load(done), _I64(strips * STRIP)
            with cgutils.for_range(builder, builder.udiv(builder.sub(n, begin), size)) as loop:
                body(builder.add(begin, builder.mul(loop.index, size)), strips, None)
            builder.store(builder.sub(n, builder.urem(builder.sub(n, begin), size)), done)
        rest = builder.sub(n, builder.load(done))
        with builder.if_then(builder.icmp_unsigned(">", rest, _I64(0))):
            lanes = ir.Constant(ir.VectorType(_I64, STRIP), list(range(STRIP)))
            body(builder.load(done), 1, builder.icmp_unsigned("<", lanes, self.spread(rest)))

    def _place(self, at: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(self.data, [at]), self.vector.as_pointer())

    def _call(self, name: str, *arguments: Any) -> Any:
        result = ir.VoidType() if "store" in name else self.vector
        kind = ir.FunctionType(result, [a.type for a in arguments])
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.{name}"), arguments)


def _add_multiple(y: Any, to: int, x: Any, at: int, scale: float, n: int) -> None:
    # The Python versions here and below run if LLVM code cannot be generated, compiled by numba or not. They multiply
    # in float64, where products of float32 are exact. So float32 sums equal those of LLVM's fma except for ties, and
    # float64 sums have one more rounding.
    target, source, factor = y.reshape(y.size), x.reshape(x.size), np.float64(y.dtype.type(scale))
    for k in range(n):
        target[to + k] = np.float64(target[to + k]) + factor * np.float64(source[at + k])


@in_llvm(_add_multiple)
def add_multiple(typing_context: Any, y: Any, to: Any, x: Any, at: Any, scale: Any, n: Any) -> Any:
    """Add scale * x[at : at + n] to y[to : to + n]; the arrays have the same type."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        target, source = (_Strips(context, builder, signature.args[i], values[i]) for i in (0, 2))
        _, to, _, at, scale, n = values
        scales = target.spread(scale)

        def add(first: Any, strips: int, mask: Any) -> None:
            there = builder.add(to, first)
            more = source.load(builder.add(at, first), mask)
            target.store(target.fma(more, scales, target.load(there, mask)), there, mask)

        target.cover(n, (1,), add)
        return context.get_dummy_value()

    wide = types.int64
    return types.void(y, wide, x, wide, types.float64, wide), generate


def _sum_rows(y: Any, x: Any, width: int, which: Any, scale: Any, rows: int, n: int) -> None:
    target, source = y.reshape(y.size), x.reshape(x.size)
    for k in range(n):
        target[k] = 0.0
    for e in range(rows):
        factor = np.float64(y.dtype.type(scale[e]))
        for k in range(n):
            target[k] = np.float64(target[k]) + factor * np.float64(source[which[e] * width + k])


@in_llvm(_sum_rows)
def sum_rows(typing_context: Any, y: Any, x: Any, width: Any, which: Any, scale: Any, rows: Any, n: Any) -> Any:
    """Set y[:n] to the sum of scale[e] * x[which[e], :n] over e < rows; rows of x have `width` numbers of y's type."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        target, source = (_Strips(context, builder, signature.args[i], values[i]) for i in (0, 1))
        _, _, width, which, scale, rows, n = values
        which, scale = (context.make_array(signature.args[i])(context, builder, values[i]).data for i in (3, 4))

        def add(first: Any, strips: int, mask: Any) -> None:
            sums = [cgutils.alloca_once(builder, target.vector) for _ in range(strips)]
            for total in sums:
                builder.store(target.zeros, total)
            with cgutils.for_range(builder, rows) as loop:
                row = builder.mul(builder.load(builder.gep(which, [loop.index])), width)
                factor = target.spread(builder.load(builder.gep(scale, [loop.index])))
                for k, total in enumerate(sums):
                    part = source.load(builder.add(row, builder.add(first, _I64(k * STRIP))), mask)
                    builder.store(target.fma(part, factor, builder.load(total)), total)
            for k, total in enumerate(sums):
                target.store(builder.load(total), builder.add(first, _I64(k * STRIP)), mask)

        target.cover(n, (4, 2, 1), add)
        return context.get_dummy_value()

    wide = types.int64
    return types.void(y, x, wide, which, scale, wide, wide), generate


def _add_outers(y: Any, at: int, u: Any, x: Any, v: Any, z: Any, n: int) -> None:
    for i in range(len(y)):
        for k in range(at, at + n):
            y[i, k] = u[i] * x[k] + (v[i] * z[k] + y[i, k])


@in_llvm(_add_outers)
def add_outers(typing_context: Any, y: Any, at: Any, u: Any, x: Any, v: Any, z: Any, n: Any) -> Any:
    """Add u[i] * x[at + k] + v[i] * z[at + k] to y[i, at + k] for all i and for k < n; all numbers are float64."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        target, first_row, second_row = (_Strips(context, builder, signature.args[i], values[i]) for i in (0, 3, 5))
        y, at, u, _, v, _, n = values
        shape = context.make_array(signature.args[0])(context, builder, y).shape
        rows, width = (builder.extract_value(shape, i) for i in (0, 1))
        u, v = (context.make_array(signature.args[i])(context, builder, values[i]).data for i in (2, 4))

        def add(first: Any, strips: int, mask: Any) -> None:
            first = builder.add(at, first)
            x, z = first_row.load(first, mask), second_row.load(first, mask)
            with cgutils.for_range(builder, rows) as loop:
                there = builder.add(builder.mul(loop.index, width), first)
                total = target.load(there, mask)
                for row, along in ((z, v), (x, u)):
                    total = target.fma(row, target.spread(builder.load(builder.gep(along, [loop.index]))), total)
                target.store(total, there, mask)

        target.cover(n, (1,), add)
        return context.get_dummy_value()

    wide = types.int64
    return types.void(y, wide, u, x, v, z, wide), generate


def _add_square(y: Any, scale: float, x: Any, n: int) -> None:
    for i in range(n):
        for k in range(min(n, i - i % STRIP + STRIP)):
            y[i, k] += scale * x[i] * x[k]


@in_llvm(_add_square)
def add_square(typing_context: Any, y: Any, scale: Any, x: Any, n: Any) -> Any:
    """Add scale * x[i] * x[k] to y[i, k] for all k <= i < n; some entries above the diagonal change as well."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        target, source = (_Strips(context, builder, signature.args[i], values[i]) for i in (0, 2))
        y, scale, _, n = values
        width = builder.extract_value(context.make_array(signature.args[0])(context, builder, y).shape, 1)

        def add(first: Any, strips: int, mask: Any) -> None:
            more = source.load(first, mask)
            with cgutils.for_range(builder, builder.sub(n, first)) as loop:
                i = builder.add(first, loop.index)
                factor = target.spread(builder.fmul(scale, builder.load(builder.gep(source.data, [i]))))
                there = builder.add(builder.mul(i, width), first)
                target.store(target.fma(more, factor, target.load(there, mask)), there, mask)

        target.cover(n, (1,), add)
        return context.get_dummy_value()

    return types.void(y, types.float64, x, types.int64), generate


def _dot(x: Any, y: Any, n: int) -> float:
    total = 0.0
    for k in range(n):
        total += x[k] * y[k]
    return total


@in_llvm(_dot)
def dot(typing_context: Any, x: Any, y: Any, n: Any) -> Any:
    """Return the sum of x[k] * y[k] over k < n, for float64 numbers, added in STRIP lanes."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        first, second = (_Strips(context, builder, signature.args[i], values[i]) for i in (0, 1))
        total = cgutils.alloca_once_value(builder, first.zeros)

        def add(at: Any, strips: int, mask: Any) -> None:
            builder.store(first.fma(first.load(at, mask), second.load(at, mask), builder.load(total)), total)

        first.cover(values[2], (1,), add)
        sums, size = builder.load(total), STRIP
        while size > 1:
            size //= 2
            low, high = (ir.Constant(ir.VectorType(_I32, size), list(range(i, i + size))) for i in (0, size))
            nothing = ir.Constant(sums.type, ir.Undefined)
            halves = [builder.shuffle_vector(sums, nothing, which) for which in (low, high)]
            sums = builder.fadd(*halves)
        return builder.extract_element(sums, _I32(0))

    return types.float64(x, y, types.int64), generate


@loops
def exp_of_negative(x: Any) -> Any:
    """Return exp(x) for a float32 x <= 0, without branches. x below -60 counts as -60.

    With x = (n + f) log 2, |f| <= 1/2, this is 2^f, by its series, times 2^n, made from bits. The relative error is
    below 1e-5.
    """
    t = max(x, LEAST) * BITS_OF_E
    n = np.int32(t - HALF)  # the nearest integer, since t <= 0
    f = t - np.float32(n)
    size = max(abs(f), TINY)  # the square of a smaller number may be subnormal, which is a hundred times slower
    square = size * size
    series = (ONE + f * C1) + square * ((C2 + f * C3) + square * (C4 + f * C5))
    return series * np.int32((n + EXPONENT_OF_ONE) << EXPONENT_PLACE).view(np.float32)


@loops
def sigmoid32(x: Any) -> Any:
    """Return 1 / (1 + exp(-x)) for a float32."""
    e = exp_of_negative(-abs(x))
    return (ONE if x >= ZERO else e) / (ONE + e)


@loops
def sigmoid(x: float) -> float:
    """Return 1 / (1 + exp(-x))."""
    e = math.exp(-abs(x))
    return (1.0 if x >= 0.0 else e) / (1.0 + e)


@loops
def log_below(x: Any) -> Any:
    """Return a lower bound of log(x) for a float32 x >= 0, at most 0.06 too low if x is a normal number.

    The bits of a number, as an integer, are linear in its logarithm between two powers of two.
    """
    return np.float32(np.float32(x).view(np.int32)) * LOG_OF_BIT - LOG_OF_ZERO


@loops
def implicit_steps(z: Any, length: Any, chance: Any, step: Any) -> None:
    """Fill chance with sigmoid(z) and step with the root s of s = sigmoid(-(z + length s)); all are float32.

    With u = z + a s and a = length, the root of h(u) = u - z - a sigmoid(-u) is needed. If h(0) < 0 the root is
    positive and h is concave there, so Newton's iteration from the left does not overshoot. It starts at z, at 0 or,
    for a long step, at a lower bound of Lambert's W. Otherwise h is convex, and the iteration starts on the right.
    After two iterations the error of s is a few percent. This is enough, since other experts take longer and shorter
    steps anyway.
    """
    for k in range(len(z)):
        y, a = z[k], length[k]
        chance[k] = sigmoid32(y)
        far = max(log_below(a) - LOG_TWO - y, ONE)
        low = y + far - FOUR * (math.sqrt(math.sqrt(far)) - ONE) if far > ONE else y
        u = max(max(y, ZERO), low) if y + HALF * a > ZERO else min(ZERO, y + a)
        s = sigmoid32(-u)
        u -= (u - y - a * s) / (ONE + a * s * (ONE - s))
        s = sigmoid32(-u)
        move = (u - y - a * s) / (ONE + a * s * (ONE - s))
        first = s + s * (ONE - s) * move
        u -= move
        step[k] = min(first, (u - y) / a) if a > SMALL else first
