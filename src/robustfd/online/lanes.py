"""Short vectors of numbers side by side, one for each expert: what compiled loops do with them.

A loop over sixteen numbers is unrolled before LLVM thinks of vector instructions, and then stays as it is. So the two
loops that meet every non-zero of a row are written in LLVM's own words.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from robustfd._compile import loops

STRIP = 8  # float32 numbers of a vector
# Constants of float32: with others numba would compute in float64, in half as many numbers at a time.
ZERO, HALF, ONE, FOUR, SMALL = (np.float32(x) for x in (0.0, 0.5, 1.0, 4.0, 0.01))
LEAST, SIXTY_FOURTH, LOG_TWO = np.float32(-60.0), np.float32(1 / 64), np.float32(math.log(2.0))
C2, C3, C4, C5, C6 = (np.float32(1 / math.factorial(k)) for k in range(2, 7))


def padded(n: int) -> int:
    """Return n rounded up to whole strips."""
    return -(-n // STRIP) * STRIP


@intrinsic
def add_multiple(typing_context: Any, y: Any, to: Any, x: Any, at: Any, scale: Any, n: Any) -> Any:
    """Add scale x[at : at + n] to y[to : to + n], arrays of float32 and n a number of whole strips."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        f32 = ir.FloatType()
        vector = ir.VectorType(f32, STRIP)
        data = [context.make_array(signature.args[i])(context, builder, values[i]).data for i in (0, 2)]
        target, source = builder.gep(data[0], [values[1]]), builder.gep(data[1], [values[3]])
        nothing, i32 = ir.Constant(vector, ir.Undefined), ir.IntType(32)
        first = builder.insert_element(nothing, builder.fptrunc(values[4], f32), i32(0))
        scales = builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(i32, STRIP), [0] * STRIP))
        kind = ir.FunctionType(vector, [vector] * 3)
        fma = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{STRIP}f32")
        count = builder.udiv(values[5], ir.IntType(64)(STRIP))
        with cgutils.for_range(builder, count) as loop:
            offset = builder.mul(loop.index, ir.IntType(64)(STRIP))
            a = builder.bitcast(builder.gep(target, [offset]), vector.as_pointer())
            b = builder.bitcast(builder.gep(source, [offset]), vector.as_pointer())
            total = builder.call(fma, [builder.load(b, align=4), scales, builder.load(a, align=4)])
            builder.store(total, a, align=4)
        return context.get_dummy_value()

    wide = types.int64
    return types.void(y, wide, x, wide, types.float64, wide), generate


@loops
def exp_of_negative(x: Any) -> Any:
    """Return exp(x) for a float32 x <= 0, to some 1e-5 of it down to x = -20, and more than 0 below: no branches."""
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
    """Return 1 / (1 + exp(-x)) of a float32."""
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

    With u = z + a s, a the length, h(u) = u - z - a sigmoid(-u) is to be 0. If h(0) < 0 the root is positive and h
    concave there: Newton's iteration from the left does not overshoot. It begins at z, 0 or, for a long step, at a
    lower bound of Lambert's W. Otherwise h is convex, and it begins on the right. Two iterations bring s within some
    per cent of the root, which is enough: an expert with another rate would step further or less far.
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
