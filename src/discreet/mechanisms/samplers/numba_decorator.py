"""The one decorator that compiles kernels: of samplers and selections here, of sums over rows further up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiled(*fastmath: str) -> Callable[[F], F]:
    """A typed numba decorator: no interpreter lock, cached on disk, IEEE division."""
    flags = set(fastmath) if fastmath else False
    decorator: Any = njit(nogil=True, cache=True, error_model="numpy", fastmath=flags)
    return cast(Callable[[F], F], decorator)
