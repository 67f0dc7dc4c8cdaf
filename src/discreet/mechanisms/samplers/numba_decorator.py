"""The decorator that compiles numba kernels, for samplers and selections here and for sums over rows elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiled(*fastmath: str) -> Callable[[F], F]:
    """A typed numba decorator: no interpreter lock, cached on disk where a folder can be written, IEEE division."""
    flags = set(fastmath) if fastmath else False
    settings: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": flags}

    def decorator(function: F) -> F:
        try:
            return cast(F, njit(cache=True, **settings)(function))
        except RuntimeError:  # no folder for the cache: a read-only container
            return cast(F, njit(**settings)(function))

    return decorator
