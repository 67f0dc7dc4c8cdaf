"""How many operations a second one processor can do at best: multiply-adds on registers, nothing loaded or stored."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from discreet.mechanisms.samplers.numba_decorator import compiled
from discreet.records.kernels.numba_tools import WIDTH, code, generated

_CHAINS = 12  # independent sums, enough to hide how long one multiply-add takes
_STEPS = 10_000_000


@generated
def _chains(typing, steps):  # type: ignore[no-untyped-def]
    """Every sum s becomes 0.9999 s + 0.0001, ``steps`` times; returns a number that depends on all of them."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(ir.DoubleType(), WIDTH)
        factor, term = (ir.Constant(vector, [value] * WIDTH) for value in (0.9999, 0.0001))
        sums = [code.alloca_once(builder, vector) for _ in range(_CHAINS)]
        for k, total in enumerate(sums):
            builder.store(ir.Constant(vector, [float(k)] * WIDTH), total)
        with code.for_range(builder, arguments[0], intp=ir.IntType(64)):
            for total in sums:
                product = builder.fmul(builder.load(total), factor, flags=("contract",))
                builder.store(builder.fadd(product, term, flags=("contract",)), total)
        last = builder.load(sums[0])
        for total in sums[1:]:
            last = builder.fadd(last, builder.load(total))
        return builder.extract_element(last, ir.Constant(ir.IntType(32), 0))

    return types.float64(types.int64), generate


@compiled()
def multiply_adds(steps: int = _STEPS) -> float:
    """Do ``operations(steps)`` operations."""
    return float(_chains(steps))


def operations(steps: int = _STEPS) -> int:
    """Multiplications and additions of doubles in one call."""
    return 2 * _CHAINS * WIDTH * steps
