"""Views of a flat array as arrays of another shape or type, in Python and in compiled loops."""

import math
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import lower_builtin, overload, type_callable


def view(array: Any, start: int, shape: tuple[int, ...]) -> Any:
    """Return the part of a one-dimensional contiguous array that begins at `start`, reshaped to `shape`.

    In compiled loops this is inlined without bounds checks, and the view holds no reference: the array must outlive it.
    """
    return array[start : start + math.prod(shape)].reshape(shape)


def view_as(array: Any, start: int, shape: tuple[int, ...], kind: Any) -> Any:
    """Return a view of any contiguous array, as `view` does, with the dtype `kind`.

    `kind` is a global of the caller: a numpy dtype whose size is a multiple of the array's item size.
    """
    kind = np.dtype(kind)
    stop = start + math.prod(shape) * kind.itemsize // array.itemsize
    return array.reshape(-1)[start:stop].view(kind).reshape(shape)


def register_inlined() -> None:
    """Register both functions with numba as inlined code that computes the address of the first item."""
    type_callable(view)(lambda context: lambda array, start, shape: types.Array(array.dtype, len(shape), "C"))
    type_callable(view_as)(lambda context: lambda array, start, shape, kind: types.Array(kind.dtype, len(shape), "C"))
    lower_builtin(view, types.Array, types.Integer, types.BaseTuple)(_make_view)
    lower_builtin(view_as, types.Array, types.Integer, types.BaseTuple, types.Any)(_make_view_as)


def _make_view(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, values[0])
    return _populate(context, builder, signature, values, array.itemsize)


def _make_view_as(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    size = context.get_abi_sizeof(context.get_data_type(signature.return_type.dtype))
    return _populate(context, builder, signature, values, context.get_constant(types.intp, size))


def _populate(context: Any, builder: Any, signature: Any, values: Any, size: Any) -> Any:
    """Return the array whose first item is item values[1] of the array values[0]; `size` is its item size."""
    from numba.np.arrayobj import populate_array

    array = context.make_array(signature.args[0])(context, builder, values[0])
    out = context.make_array(signature.return_type)(context, builder)
    lengths = [
        context.cast(builder, length, kind, types.intp)
        for length, kind in zip(cgutils.unpack_tuple(builder, values[2]), signature.args[2], strict=True)
    ]
    steps = [size]
    for length in lengths[:0:-1]:
        steps.insert(0, builder.mul(steps[0], length))
    data = builder.bitcast(builder.gep(array.data, [values[1]]), out.data.type)
    populate_array(out, data=data, shape=lengths, strides=steps, itemsize=size, meminfo=None)
    return out._getvalue()


def register_plain() -> None:
    """Register both functions with numba as ordinary slices."""

    def compile_view(array: Any, start: Any, shape: Any) -> Any:
        def make(array: Any, start: Any, shape: Any) -> Any:
            count = 1
            for length in shape:
                count *= length
            return array[start : start + count].reshape(shape)

        return make

    def compile_view_as(array: Any, start: Any, shape: Any, kind: Any) -> Any:
        number = kind.dtype
        size = number.size if isinstance(number, types.Record) else number.bitwidth // 8
        times = size // (array.dtype.bitwidth // 8)

        def make(array: Any, start: Any, shape: Any, kind: Any) -> Any:
            count = times
            for length in shape:
                count *= length
            return array.reshape(array.size)[start : start + count].view(kind).reshape(shape)

        return make

    overload(view)(compile_view)
    overload(view_as)(compile_view_as)
