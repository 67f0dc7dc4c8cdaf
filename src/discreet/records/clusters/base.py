"""What all clusters share: who keeps parts, how a part is recognized, and the one way in which a fit ends there."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from discreet._checks import contained


class WorkersLost(RuntimeError):
    """Parts that live elsewhere could not be asked; the message is always the same.

    What a worker says is not repeated: after the charge no text may depend on private rows.
    """

    def __init__(self) -> None:
        super().__init__(
            "the workers did not finish: too many of them died or ran out of memory, or a partition failed or changed "
            "when it was computed again. Nothing was released; a charge that was made stays. Give workers more memory "
            "or partitions fewer rows, and read partitions from a source that does not change"
        )


@contextmanager
def one_ending() -> Iterator[None]:
    """Whatever a worker raises becomes `WorkersLost`, without the worker's text."""
    try:
        with contained():
            yield
    except Exception:
        raise WorkersLost from None


def checksum(block: Any) -> int:
    """A number by which a partition is recognized when it was lost and is made again."""
    if block.dtype == object:  # labels
        return zlib.crc32(repr(block.tolist()).encode(errors="replace"))
    arrays = [block] if isinstance(block, np.ndarray) else [block.data, block.indices, block.indptr]
    found = 0
    for array in arrays:
        found = zlib.crc32(np.ascontiguousarray(array).data.cast("B"), found) if array.size else found
    return found


class Keepers(Protocol):
    """Whoever keeps one entry for every part, and can be asked about it."""

    def kept(self, function: Callable[..., Any], *columns: Any) -> Any:
        """``function`` of each tuple of entries; the results stay where they are computed."""

    def answers(self, function: Callable[..., Any], *columns: Any) -> list[Any]:
        """``function`` of each tuple of entries; the results come here, in order."""
