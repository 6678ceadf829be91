"""Structures of arrays that compiled functions take as a single number.

Numba passes an array as nine values or more: who owns it, its size, its shape, its strides. With
thirty arrays in a call, most of the compiler's time goes into passing them on, and into counting
references. A `Structure` keeps a table of where its arrays are and what shape they have. Compiled
code takes the address of the table, and `structure.field` is an array of a simpler kind:

- its elements are in order (C), and an index is never negative;
- nobody counts references: the caller keeps the structure until the call has returned;
- it has elements and rows to read and to write, `len` and `shape`, and nothing else.

The same functions run without Numba on the NumPy arrays themselves.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import (
    AbstractTemplate,
    AttributeTemplate,
    infer_getattr,
    infer_global,
    signature,
)
from numba.extending import (
    NativeValue,
    lower_builtin,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np.numpy_support import from_dtype
from numpy.typing import NDArray

__all__ = ["Structure"]


@dataclass(frozen=True, eq=False)
class Structure:
    """Base of a frozen dataclass whose fields are NumPy arrays, to be passed to compiled functions.

    `dataclasses.replace` makes one with other arrays; the fields themselves cannot be set, as the
    table would then point to arrays that may no longer exist.

    >>> import numpy as np
    >>> from tidegate.theory.compiled import compiled
    >>> @dataclass(frozen=True, eq=False)
    ... class Pair(Structure):
    ...     weights: np.ndarray
    ...     totals: np.ndarray
    >>> @compiled
    ... def add(pair, row):
    ...     for column in range(pair.weights.shape[1]):
    ...         pair.totals[row] += pair.weights[row, column]
    >>> pair = Pair(np.ones((2, 3)), np.zeros(2))
    >>> add(pair, 1)
    >>> pair.totals.tolist()
    [0.0, 3.0]
    """

    _numba_type_: Any = field(init=False, repr=False)
    _address: int = field(init=False, repr=False)
    _table: NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Write the table: for each array its address, then its shape."""
        entries: list[int] = []
        kinds: list[tuple[str, Any, int]] = []
        kind: Any = type(self)
        for name in _names(kind):
            array: NDArray[Any] = getattr(self, name)
            if not array.flags.c_contiguous:
                raise ValueError(f"the array {name} is not contiguous")
            entries += array.ctypes.data, *array.shape
            kinds.append((name, array.dtype, array.ndim))
        table = np.array(entries, np.int64)
        object.__setattr__(self, "_table", table)
        object.__setattr__(self, "_address", table.ctypes.data)
        object.__setattr__(self, "_numba_type_", _type_by(kind.__name__, tuple(kinds)))

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has other arrays, and so another table."""
        kind: Any = type(self)
        return kind, tuple(getattr(self, name) for name in _names(kind))


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind) if each.init)


@cache
def _type_by(name: str, kinds: tuple[tuple[str, Any, int], ...]) -> Any:
    """The type of a structure, from the names, dtypes and dimensions of its arrays."""
    return _StructureType(name, tuple((each, from_dtype(d), n) for each, d, n in kinds))


class _StructureType(types.Type):
    """The type of a structure, by the names, elements and dimensions of its arrays."""

    def __init__(self, name: str, kinds: tuple[tuple[str, Any, int], ...]) -> None:
        self.places: dict[str, tuple[int, _ArrayType]] = {}
        place = 0
        for each, element, dimensions in kinds:
            self.places[each] = place, _ArrayType(element, dimensions)
            place += 1 + dimensions
        super().__init__(f"{name}{kinds}")


class _ArrayType(types.Type):
    """The type of an array in a structure, or of a row of one."""

    def __init__(self, element: Any, dimensions: int) -> None:
        self.element, self.dimensions = element, dimensions
        super().__init__(f"array({element}, {dimensions})")

    def after(self, indices: int) -> Any:
        """The type of what some indices select: an element or a row."""
        rest = self.dimensions - indices
        return _ArrayType(self.element, rest) if rest else self.element


@register_model(_StructureType)
class _StructureModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: _StructureType) -> None:
        super().__init__(manager, kind, ir.IntType(64).as_pointer())


@register_model(_ArrayType)
class _ArrayModel(models.StructModel):
    def __init__(self, manager: Any, kind: _ArrayType) -> None:
        shape = types.UniTuple(types.int64, kind.dimensions)
        super().__init__(manager, kind, [("data", types.CPointer(kind.element)), ("shape", shape)])


@typeof_impl.register(Structure)
def _type_of(structure: Structure, _context: Any) -> Any:
    return structure._numba_type_


@unbox(_StructureType)
def _from_python(_kind: Any, thing: Any, context: Any) -> Any:
    number = context.pyapi.object_getattr_string(thing, "_address")
    address = context.pyapi.long_as_ulonglong(number)
    context.pyapi.decref(number)
    return NativeValue(context.builder.inttoptr(address, ir.IntType(64).as_pointer()))


# --- types ----------------------------------------------------------------------------------------


@infer_getattr
class _Fields(AttributeTemplate):
    key = _StructureType

    def generic_resolve(self, kind: _StructureType, name: str) -> Any:  # type: ignore[override]
        return kind.places[name][1] if name in kind.places else None


@infer_getattr
class _Shape(AttributeTemplate):
    key = _ArrayType

    def resolve_shape(self, kind: _ArrayType) -> Any:
        return types.UniTuple(types.int64, kind.dimensions)


FIRST = {"target": "cpu"}
"""Rules for a target come before those for all targets, of which dozens would fail first."""


def _indices(index: Any) -> tuple[int, Any]:
    """Number of indices in square brackets, and the type that they are converted to."""
    if isinstance(index, types.Integer):
        return 1, types.int64
    inner: tuple[Any, ...] = ()
    if isinstance(index, types.BaseTuple):
        inner = tuple(index)  # type: ignore[arg-type]
    if inner and all(isinstance(each, types.Integer) for each in inner):
        return len(inner), types.UniTuple(types.int64, len(inner))
    return 0, None


@infer_global(operator.getitem)
class _Get(AbstractTemplate):
    metadata = FIRST

    def generic(self, arguments: Any, _named: Any) -> Any:
        array, index = arguments
        count, indices = _indices(index)
        if isinstance(array, _ArrayType) and 0 < count <= array.dimensions:
            return signature(array.after(count), array, indices)
        return None


@infer_global(operator.setitem)
class _Set(AbstractTemplate):
    metadata = FIRST

    def generic(self, arguments: Any, _named: Any) -> Any:
        array, index, _ = arguments
        count, indices = _indices(index)
        if isinstance(array, _ArrayType) and count == array.dimensions:
            return signature(types.none, array, indices, array.element)
        return None


@infer_global(len)
class _Length(AbstractTemplate):
    metadata = FIRST

    def generic(self, arguments: Any, _named: Any) -> Any:
        (array,) = arguments
        return signature(types.int64, array) if isinstance(array, _ArrayType) else None


# --- code -----------------------------------------------------------------------------------------


@lower_getattr_generic(_StructureType)
def _field(_context: Any, builder: Any, kind: _StructureType, table: Any, name: str) -> Any:
    """Read the address and the shape of an array from the table."""
    first, array = kind.places[name]

    def entry(place: int) -> Any:
        found = builder.load(builder.gep(table, [ir.IntType(64)(place)]))
        found.set_metadata("invariant.load", builder.module.add_metadata([]))
        return found

    return _array(
        _context, builder, array,
        builder.inttoptr(entry(first), _context.get_data_type(array.element).as_pointer()),
        [entry(first + 1 + n) for n in range(array.dimensions)],
    )  # fmt: skip


def _array(context: Any, builder: Any, kind: _ArrayType, data: Any, shape: list[Any]) -> Any:
    made = cgutils.create_struct_proxy(kind)(context, builder)
    made.data, made.shape = data, cgutils.pack_array(builder, shape)
    return made._getvalue()


@lower_getattr_generic(_ArrayType)
def _shape(_context: Any, builder: Any, _kind: Any, array: Any, _name: str) -> Any:
    return builder.extract_value(array, 1)


@lower_builtin(len, _ArrayType)
def _len(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
    return builder.extract_value(arguments[0], [1, 0])


def _element(builder: Any, sig: Any, arguments: Any) -> tuple[Any, int]:
    """Where the selected element or row begins, and the number of indices."""
    array, indices = arguments[0], [arguments[1]]
    if isinstance(sig.args[1], types.BaseTuple):
        indices = cgutils.unpack_tuple(builder, arguments[1])
    place = indices[0]
    for dimension in range(1, sig.args[0].dimensions):
        place = builder.mul(place, builder.extract_value(array, [1, dimension]), flags=["nsw"])
        if dimension < len(indices):
            place = builder.add(place, indices[dimension], flags=["nsw"])
    return builder.gep(builder.extract_value(array, 0), [place], inbounds=True), len(indices)


@lower_builtin(operator.getitem, _ArrayType, types.Integer)
@lower_builtin(operator.getitem, _ArrayType, types.BaseTuple)
def _get(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
    kind = sig.args[0]
    place, count = _element(builder, sig, arguments)
    if count == kind.dimensions:
        return builder.load(place)
    rest = [builder.extract_value(arguments[0], [1, n]) for n in range(count, kind.dimensions)]
    return _array(context, builder, sig.return_type, place, rest)


@lower_builtin(operator.setitem, _ArrayType, types.Integer, types.Any)
@lower_builtin(operator.setitem, _ArrayType, types.BaseTuple, types.Any)
def _set(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
    place, _ = _element(builder, sig, arguments)
    builder.store(arguments[2], place)
    return context.get_dummy_value()
