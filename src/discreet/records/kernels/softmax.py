"""Compiled softmax: coefficients from predictions of several classes, and exponentials with a proved error."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from discreet._typing import Array
from discreet.mechanisms.samplers.numba_decorator import compiled
from discreet.records.kernels.numba_tools import WIDTH, code, generated

_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
_ROUNDER = 1.5 * 2.0**52  # adding it rounds to an integer, which is then in the lowest bits
_LEAST = -700.0
_DOUBLE, _WHOLE = ir.DoubleType(), ir.IntType(64)


def _exponential(builder: Any, x: Any) -> Any:
    """Return exp(x) for a double or a vector of doubles x <= 0; see ``exponentials``."""
    lanes = WIDTH if isinstance(x.type, ir.VectorType) else 0

    def repeated(kind: Any, value: float) -> Any:
        return ir.Constant(ir.VectorType(kind, lanes), [value] * lanes) if lanes else ir.Constant(kind, value)

    def plus_product(total: Any, a: Any, b: Any) -> Any:
        return builder.fadd(total, builder.fmul(a, b, flags=("contract",)), flags=("contract",))

    least, rounder = repeated(_DOUBLE, _LEAST), repeated(_DOUBLE, _ROUNDER)
    x = builder.select(builder.fcmp_ordered(">", x, least), x, least)
    shifted = plus_product(rounder, x, repeated(_DOUBLE, 1.0 / math.log(2.0)))
    n = builder.fsub(shifted, rounder)
    r = plus_product(x, n, repeated(_DOUBLE, -_LN2_HIGH))
    r = plus_product(r, n, repeated(_DOUBLE, -_LN2_LOW))
    series = repeated(_DOUBLE, 1.0 / math.factorial(13))
    for k in range(12, 1, -1):
        series = plus_product(repeated(_DOUBLE, 1.0 / math.factorial(k)), series, r)
    series = builder.fadd(repeated(_DOUBLE, 1.0), plus_product(r, builder.fmul(r, r), series))
    bits = builder.bitcast(shifted, ir.VectorType(_WHOLE, lanes) if lanes else _WHOLE)
    power = builder.shl(builder.add(bits, repeated(_WHOLE, 1023)), repeated(_WHOLE, 52))
    return builder.fmul(series, builder.bitcast(power, x.type))


@generated
def _exponentials(typing, values, m):  # type: ignore[no-untyped-def]
    """Set values[:m] = exp(values[:m]) in vectors, the last few one by one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        lanes = ir.Constant(_WHOLE, WIDTH)
        whole = builder.mul(builder.sdiv(arguments[1], lanes), lanes)
        steps = ((ir.Constant(_WHOLE, 0), whole, lanes), (whole, arguments[1], ir.Constant(_WHOLE, 1)))
        for kind, step in zip((ir.VectorType(_DOUBLE, WIDTH), _DOUBLE), steps, strict=True):
            with code.for_range_slice(builder, *step, intp=_WHOLE) as (k, _):
                place = builder.bitcast(builder.gep(data, [k]), kind.as_pointer())
                found = _exponential(builder, builder.load(place, align=8))
                builder.store(found, place, align=8)
        return context.get_dummy_value()

    return types.void(values, types.int64), generate


@compiled()
def exponentials(values: NDArray[np.float64], m: int) -> None:
    """Set values[:m] = exp(values[:m]) for values <= 0, within 4 units of roundoff; values below -700 count as -700.

    exp(x) = 2^n exp(r), where n is the integer nearest to x / log 2, without branches or calls, so that it vectorizes.
    Error: n LN2_HIGH is exact, so r is off by less than u / 2. The series is truncated at r^14 / 14! < u / 20 and
    rounded by less than 2 u, since its terms after 1 + r are small. Fused products only omit roundings.
    """
    _exponentials(values, m)


MOST_CLASSES = (
    32  # the product of a block's sums of this many exponentials cannot overflow; with more, BLAS is used
)


@compiled("contract")
def softmax_coefficients(
    cap: float, y: Array, scales: Array, t: Array, start: int, m: int, work: Array
) -> float:
    """Replace dot products in t, one row per class, by s (q - e_y); return the block's sum of losses.

    s q is the exponential times s over the sum of exponentials. With a cap > 0, q - e_y is clipped to that norm before
    it is multiplied by s.
    """
    largest, total = work[0, :m], work[1, :m]
    s = scales[start : start + m]
    largest[:] = -np.inf
    for c in range(len(t)):
        row = t[c]
        for k in range(m):
            row[k] *= s[k]
            largest[k] = max(largest[k], row[k])
    value = 0.0
    for k in range(m):
        if s[k] > 0.0:
            value += largest[k] - t[int(y[start + k]), k]
    total[:] = 0.0
    for c in range(len(t)):
        row = t[c]
        for k in range(m):
            row[k] -= largest[k]
        exponentials(row, m)
        for k in range(m):
            total[k] += row[k]
    product = 1.0
    for k in range(m):
        if s[k] > 0.0:
            product *= total[k]
        total[k] = (s[k] if cap == 0.0 else 1.0) / total[k]
    for c in range(len(t)):
        row = t[c]
        for k in range(m):
            row[k] *= total[k]
    for k in range(m):
        t[int(y[start + k]), k] -= s[k] if cap == 0.0 else 1.0
    if cap > 0.0:
        _shrink(cap, s, t, m, total)
    return value + math.log(product)


@compiled("contract")
def _shrink(cap: float, s: Array, t: Array, m: int, work: Array) -> None:
    """Clip columns of t to norm ``cap``, then multiply them by s."""
    work[:] = 0.0
    for c in range(len(t)):
        row = t[c]
        for k in range(m):
            work[k] += row[k] * row[k]
    for k in range(m):
        work[k] = s[k] * (cap / max(math.sqrt(work[k]), cap))
    for c in range(len(t)):
        row = t[c]
        for k in range(m):
            row[k] *= work[k]
