"""What compiled kernels call: formulas of losses and code below numba, and what the processor offers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic, overload, register_jitable

from discreet.losses import base


@overload(base.clip)
def _clip(x, low, high):  # type: ignore[no-untyped-def]
    return lambda x, low, high: min(high, max(low, x))


@overload(base.least)
def _least(a, b):  # type: ignore[no-untyped-def]
    return lambda a, b: min(a, b)


@overload(base.select)
def _select(condition, yes, no):  # type: ignore[no-untyped-def]
    return lambda condition, yes, no: yes if condition else no


# Compiled with the flags of the kernel that calls them.
for _formula in base.FORMULAS:
    register_jitable(_formula)


#: Loops and registers in the language below numba.
code: Any = cgutils


def generated(function: Callable[..., Any]) -> Any:
    """A function that compiled code can call and whose body is written in the language below numba."""
    return intrinsic(function)


def _vectors() -> tuple[int, int]:
    """Doubles in a vector and vectors in registers, for the processor that numba compiles for."""
    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    if "+avx512f" in features:
        return 8, 32
    if "+avx," in features:
        return 4, 16
    return 2, 32 if triple.startswith(("aarch64", "arm64")) else 16


WIDTH, REGISTERS = _vectors()
