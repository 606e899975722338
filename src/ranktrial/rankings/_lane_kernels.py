"""Lanes: ``LANES`` numbers side by side, a value that compiled loops keep in vector registers.

A loop over the last axis of small arrays stays a loop over single numbers: what it writes might be what it reads next, so
the compiler does not dare. With ``load``, ``store`` and the arithmetic in between written out, each step of a recursion is a
few vector instructions, several times as fast. Rows are those of a contiguous array of float64 whose last axis has
``LANES`` entries, counted through its other axes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, models, overload, register_model
from numba.np.arrayobj import make_array

LANES = 12  # a multiple of every number of steps per doubling of ``_race_kernels``, and of WIDTH
WIDTH = 4  # numbers in a register

_VECTOR = ir.VectorType(ir.DoubleType(), WIDTH)
_VECTORS = ir.LiteralStructType([_VECTOR] * (LANES // WIDTH))
_INDEX = ir.IntType(64)


class LanesType(types.Type):
    """The type of such a value in compiled code."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


_LANES = LanesType()


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]  # numba has no types
    def __init__(self, manager: Any, lanes: Any) -> None:
        super().__init__(manager, lanes, _VECTORS)


def _vectors(builder: Any, lanes: Any) -> list[Any]:
    return [builder.extract_value(lanes, i) for i in range(LANES // WIDTH)]


def _lanes(builder: Any, vectors: list[Any]) -> Any:
    lanes = ir.Constant(_VECTORS, ir.Undefined)
    for i, vector in enumerate(vectors):
        lanes = builder.insert_value(lanes, vector, i)
    return lanes


def _places(context: Any, builder: Any, array_type: Any, array: Any, row: Any) -> list[Any]:
    """Pointers to the vectors of a row."""
    data = make_array(array_type)(context, builder, array).data
    first = builder.mul(row, _INDEX(LANES))
    starts = [builder.add(first, _INDEX(start)) for start in range(0, LANES, WIDTH)]
    return [builder.bitcast(builder.gep(data, [start]), _VECTOR.as_pointer()) for start in starts]


def _splat(builder: Any, number: Any) -> Any:
    vector = ir.Constant(_VECTOR, ir.Undefined)
    for i in range(WIDTH):
        vector = builder.insert_element(vector, number, ir.IntType(32)(i))
    return vector


@intrinsic
def load(context: Any, array: Any, row: Any) -> Any:
    """The lanes in a row of an array."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        places = _places(target, builder, signature.args[0], *arguments)
        return _lanes(builder, [builder.load(place, align=8) for place in places])

    return _LANES(array, types.int64), generate


@intrinsic
def store(context: Any, array: Any, row: Any, lanes: Any) -> Any:
    """Write lanes into a row of an array."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        places = _places(target, builder, signature.args[0], *arguments[:2])
        for place, vector in zip(places, _vectors(builder, arguments[2])):
            builder.store(vector, place, align=8)
        return target.get_dummy_value()

    return types.void(array, types.int64, lanes), generate


@intrinsic
def every(context: Any, number: Any) -> Any:
    """Lanes that all hold one number."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _lanes(builder, [_splat(builder, arguments[0])] * (LANES // WIDTH))

    return _LANES(types.float64), generate


@intrinsic
def total(context: Any, lanes: Any) -> Any:
    """The sum of the lanes."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first, *others = _vectors(builder, arguments[0])
        for vector in others:
            first = builder.fadd(first, vector)
        numbers = [builder.extract_element(first, ir.IntType(32)(i)) for i in range(WIDTH)]
        while len(numbers) > 1:
            half = len(numbers) // 2
            numbers = [builder.fadd(a, b) for a, b in zip(numbers[:half], numbers[half:])]
        return numbers[0]

    return types.float64(lanes), generate


@intrinsic
def where_above(context: Any, lanes: Any, bound: Any, above: Any, other: Any) -> Any:
    """``above`` in the lanes that exceed a number, ``other`` in the rest."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bounds = _splat(builder, arguments[1])
        of = [_vectors(builder, arguments[i]) for i in (0, 2, 3)]
        return _lanes(builder, [builder.select(builder.fcmp_ordered(">", x, bounds), a, b) for x, a, b in zip(*of)])

    return _LANES(lanes, types.float64, above, other), generate


def _arithmetic(instruction: str) -> Callable[..., Any]:
    @intrinsic
    def apply(context: Any, one: Any, other: Any) -> Any:
        def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            both = zip(*(_vectors(builder, lanes) for lanes in arguments))
            return _lanes(builder, [getattr(builder, instruction)(a, b) for a, b in both])

        return _LANES(one, other), generate

    def of_lanes(one: Any, other: Any) -> Any:
        return apply(one, other)

    def of_lanes_and_number(one: Any, other: Any) -> Any:
        return apply(one, every(other))

    def of_number_and_lanes(one: Any, other: Any) -> Any:
        return apply(every(one), other)

    def operation(one: Any, other: Any) -> Any:
        if isinstance(one, LanesType):
            return of_lanes if isinstance(other, LanesType) else of_lanes_and_number
        return of_number_and_lanes if isinstance(other, LanesType) else None

    return operation


for _operator, _instruction in ((operator.mul, "fmul"), (operator.add, "fadd"), (operator.sub, "fsub")):
    overload(_operator)(_arithmetic(_instruction))
