"""Helpers of compiled kernels: formulas of losses, code generation, and the processor's vector sizes."""

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


# Compiled with the flags of the calling kernel.
for _formula in base.FORMULAS:
    register_jitable(_formula)


#: LLVM code generation: loops and registers.
code: Any = cgutils


def generated(function: Callable[..., Any]) -> Any:
    """Return a function that compiled code can call, with a body written in LLVM."""
    return intrinsic(function)


def _vectors() -> tuple[int, int]:
    """Return doubles per vector and number of vector registers, for the processor that numba compiles for."""
    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    if "+avx512f" in features:
        return 8, 32
    if "+avx," in features:
        return 4, 16
    return 2, 32 if triple.startswith(("aarch64", "arm64")) else 16


WIDTH, REGISTERS = _vectors()
