"""How kernels are compiled, and what the processor offers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])


def compiled(*fastmath: str) -> Callable[[F], F]:
    """A typed numba decorator: no interpreter lock, cached on disk, IEEE division."""
    flags = set(fastmath) if fastmath else False
    decorator: Any = njit(nogil=True, cache=True, error_model="numpy", fastmath=flags)
    return cast(Callable[[F], F], decorator)


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
