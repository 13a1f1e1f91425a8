"""Records of arrays that Python passes to compiled loops as one pointer.

numba unpacks a named tuple of arrays at every call from Python, which takes 0.2 us for each array. It passes each array
between functions as seven numbers, which is slow to compile. Here Python passes one array of integers instead: the
address and the shape of each array of the record. Compiled loops open it with `open_record`, and access the fields of
the result like those of the record.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import (
    infer_getattr,
    lower_builtin,
    lower_getattr_generic,
    models,
    overload,
    register_model,
    type_callable,
    typeof_impl,
)

by_address = False  # whether Python passes records as addresses; otherwise it passes the records themselves


class Field(NamedTuple):
    """An array of a record, or a nested record."""

    name: str
    place: int  # index of its first integer
    dtype: Any  # None for a record
    dimensions: int
    record: Any  # the layout of a nested record, None for an array


class Layout:
    """The names and types of the contiguous arrays of a record. Compiled loops can use it only as a global."""

    def __init__(self, example: Any) -> None:
        """Derive the layout from a record: a named tuple of arrays and of such tuples."""
        self.name, self.fields, self.size = type(example).__name__, [], 0
        for name, value in zip(example._fields, example, strict=True):
            if isinstance(value, np.ndarray):
                self.fields.append(Field(name, self.size, value.dtype, value.ndim, None))
                self.size += 1 + value.ndim
            else:
                inside = Layout(value)
                self.fields.append(Field(name, self.size, None, 0, inside))
                self.size += inside.size

    def pointers(self, record: Any) -> Any:
        """Return the argument of a compiled loop for a record. The caller must hold the record while the loop runs."""
        return np.array(self._numbers(record), np.int64) if by_address else record

    def _numbers(self, record: Any) -> list[int]:
        numbers: list[int] = []
        for field, value in zip(self.fields, record, strict=True):
            if field.record is not None:
                numbers += field.record._numbers(value)
                continue
            if value.dtype != field.dtype or value.ndim != field.dimensions or not value.flags.carray:
                raise TypeError(f"{self.name}.{field.name} must be a contiguous array of {field.dtype}, got {value!r}.")
            numbers += [value.ctypes.data, *value.shape]
        return numbers


def open_record(pointers: Any, layout: Layout) -> Any:
    """Return the record that was passed to `layout.pointers`, or None for None."""
    return pointers


class RecordType(types.Type):
    """The type of a record in compiled loops: a pointer to the addresses and shapes of its arrays."""

    def __init__(self, layout: Layout) -> None:
        self.fields: dict[str, Any] = {}
        for field in layout.fields:
            kind = RecordType(field.record) if field.record is not None else _array_type(field)
            self.fields[field.name] = (kind, field.place)
        super().__init__(f"{layout.name}({', '.join(f'{name}: {kind}' for name, (kind, _) in self.fields.items())})")


def _array_type(field: Field) -> types.Array:
    from numba.np.numpy_support import from_dtype

    return types.Array(from_dtype(field.dtype), field.dimensions, "C")


class LayoutType(types.Dummy):
    """The type of a layout as a global of compiled loops."""

    def __init__(self, record: RecordType) -> None:
        self.record = record
        super().__init__(f"Layout({record})")


def register_inlined() -> None:
    """Register `open_record` with numba for records passed as addresses."""
    global by_address
    from llvmlite import ir
    from numba.core.typing.templates import AttributeTemplate
    from numba.np.arrayobj import populate_array

    by_address = True
    place = ir.IntType(64).as_pointer()

    @register_model(RecordType)
    class RecordModel(models.PrimitiveModel):
        def __init__(self, manager: Any, kind: Any) -> None:
            super().__init__(manager, kind, place)

    register_model(LayoutType)(models.OpaqueModel)
    typeof_impl.register(Layout)(lambda layout, context: _layout_type(layout))

    @type_callable(open_record)
    def type_open(context: Any) -> Any:
        return lambda pointers, layout: types.none if pointers is types.none else layout.record

    @lower_builtin(open_record, types.Array, LayoutType)
    def lower_open(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, values[0]).data

    @lower_builtin(open_record, types.NoneType, LayoutType)
    def lower_none(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return context.get_dummy_value()

    @infer_getattr
    class RecordAttributes(AttributeTemplate):
        key = RecordType

        def generic_resolve(self, kind: Any, name: str) -> Any:
            return kind.fields[name][0] if name in kind.fields else None

    @lower_getattr_generic(RecordType)
    def lower_attribute(context: Any, builder: Any, kind: Any, value: Any, name: str) -> Any:
        inside, first = kind.fields[name]
        if isinstance(inside, RecordType):
            return builder.gep(value, [ir.IntType(64)(first)])

        def number(i: int) -> Any:
            loaded = builder.load(builder.gep(value, [ir.IntType(64)(first + i)]))
            # No loop writes to these integers. Without this hint, LLVM would reload them after every store.
            loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
            return loaded

        out = context.make_array(inside)(context, builder)
        size = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(inside.dtype)))
        shape, steps = [number(1 + i) for i in range(inside.ndim)], [size]
        for length in shape[:0:-1]:
            steps.insert(0, builder.mul(steps[0], length))
        data = builder.inttoptr(number(0), out.data.type)
        populate_array(out, data=data, shape=shape, strides=steps, itemsize=size, meminfo=None)
        return out._getvalue()


def _layout_type(layout: Layout) -> LayoutType:
    return LayoutType(RecordType(layout))


def register_plain() -> None:
    """Register `open_record` with numba for records passed as named tuples."""
    overload(open_record)(lambda pointers, layout: lambda pointers, layout: pointers)
    register_model(LayoutType)(models.OpaqueModel)
    typeof_impl.register(Layout)(lambda layout, context: _layout_type(layout))
