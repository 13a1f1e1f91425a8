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
LEAST, SIXTY_FOURTH, LOG_TWO = np.float32(-60.0), np.float32(1 / 64), np.float32(math.log(2.0))
C2, C3, C4, C5, C6 = (np.float32(1 / math.factorial(k)) for k in range(2, 7))


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

        target.cover(n, (4, 1), add)
        return context.get_dummy_value()

    wide = types.int64
    return types.void(y, x, wide, which, scale, wide, wide), generate


def _add_outer(y: Any, at: int, scale: float, u: Any, x: Any, rows: int, n: int) -> None:
    for i in range(rows):
        factor = np.float64(y.dtype.type(scale * u[i]))
        for k in range(at, at + n):
            y[i, k] = np.float64(y[i, k]) + factor * np.float64(x[k])


@in_llvm(_add_outer)
def add_outer(typing_context: Any, y: Any, at: Any, scale: Any, u: Any, x: Any, rows: Any, n: Any) -> Any:
    """Add scale * u[i] * x[at + k] to y[i, at + k] for i < rows and k < n; x is as long as a row of y."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        target, source = (_Strips(context, builder, signature.args[i], values[i]) for i in (0, 4))
        y, at, scale, u, x, rows, n = values
        width = builder.extract_value(context.make_array(signature.args[0])(context, builder, y).shape, 1)
        along = context.make_array(signature.args[3])(context, builder, u).data

        def add(first: Any, strips: int, mask: Any) -> None:
            first = builder.add(at, first)
            more = source.load(first, mask)
            with cgutils.for_range(builder, rows) as loop:
                factor = target.spread(builder.fmul(scale, builder.load(builder.gep(along, [loop.index]))))
                there = builder.add(builder.mul(loop.index, width), first)
                target.store(target.fma(more, factor, target.load(there, mask)), there, mask)

        target.cover(n, (1,), add)
        return context.get_dummy_value()

    wide = types.int64
    return types.void(y, wide, types.float64, u, x, wide, wide), generate


@loops
def exp_of_negative(x: Any) -> Any:
    """Return exp(x) for a float32 x <= 0, without branches.

    The relative error is about 1e-5 for x >= -20. For smaller x the result is positive but less precise.
    """
    t = max(x, LEAST) * SIXTY_FOURTH
    e = ONE + t * (ONE + t * (C2 + t * (C3 + t * (C4 + t * (C5 + t * C6)))))
    e *= e
    e *= e
    e *= e
    e *= e
    e *= e
    return e * e


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
def implicit_steps(z: Any, length: Any, log_length: Any, chance: Any, step: Any) -> None:
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
        far = max(log_length[k] - LOG_TWO - y, ONE)
        low = y + far - FOUR * (math.sqrt(math.sqrt(far)) - ONE) if far > ONE else y
        u = max(max(y, ZERO), low) if y + HALF * a > ZERO else min(ZERO, y + a)
        s = sigmoid32(-u)
        u -= (u - y - a * s) / (ONE + a * s * (ONE - s))
        s = sigmoid32(-u)
        move = (u - y - a * s) / (ONE + a * s * (ONE - s))
        first = s + s * (ONE - s) * move
        u -= move
        step[k] = min(first, (u - y) / a) if a > SMALL else first
