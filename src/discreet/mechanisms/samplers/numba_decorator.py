"""The decorator that compiles numba kernels, for samplers and selections here and for sums over rows elsewhere."""

from __future__ import annotations

import atexit
import contextlib
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

import numba
from numba import njit

F = TypeVar("F", bound=Callable[..., Any])
_config: Any = numba.config


def compiled(*fastmath: str) -> Callable[[F], F]:
    """A typed numba decorator: no interpreter lock, kept on disk where a folder can be written, IEEE division."""
    flags = set(fastmath) if fastmath else False
    settings: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": flags}

    def decorator(function: F) -> F:
        with contextlib.suppress(RuntimeError):  # no folder can be written: a read-only container
            return cast(F, njit(cache=True, **settings)(function))
        if _copy_kernels():
            with contextlib.suppress(RuntimeError):
                return cast(F, njit(cache=True, **settings)(function))
        return cast(F, njit(**settings)(function))

    return decorator


@cache
def _copy_kernels() -> bool:
    """Let numba use a copy of the folder NUMBA_CACHE_DIR, since it loads nothing from one that it cannot write."""
    try:
        folder = tempfile.mkdtemp(prefix="discreet-kernels-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        shutil.copytree(_config.CACHE_DIR, folder, dirs_exist_ok=True)
    except OSError:  # there is none, or nothing at all can be written
        return False
    _config.CACHE_DIR = folder
    return True
