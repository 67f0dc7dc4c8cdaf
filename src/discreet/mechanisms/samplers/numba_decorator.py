"""The decorator that compiles numba kernels, for samplers and selections here and for sums over rows elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiled(*fastmath: str) -> Callable[[F], F]:
    """Return a typed numba decorator: no interpreter lock, cached on disk, IEEE division."""
    flags = set(fastmath) if fastmath else False
    decorator: Any = njit(nogil=True, cache=True, error_model="numpy", fastmath=flags)
    return cast(Callable[[F], F], decorator)
