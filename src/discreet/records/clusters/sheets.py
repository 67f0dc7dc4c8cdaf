"""Values of one process that others on the machine read in place: mapped files that no folder names.

A sheet holds the arrays of a value. Whoever knows the process that made it and its descriptor opens it by
``/proc/<process>/fd/<descriptor>``, as the same user, while that process lives; who has mapped it keeps it longer. When
the last process that has it ends, however that ends, the sheet is gone. Arrays that lie in a sheet already are not
written again: a value that is made of another refers to its sheet.
"""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

SHARED = Path("/proc/self/fd").is_dir()  # elsewhere no process finds the sheets of another
_NAME, _ALIGNED = 16, 64


class Gone(Exception):
    """A sheet that nobody has open where it was."""


class Address(NamedTuple):
    """Where a sheet is: its random name, and a process that has it open under this descriptor."""

    name: bytes
    process: int
    descriptor: int


class Sheet:
    """A mapped file that begins with its name. Arrays in it can be changed, which nobody else sees."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
        self.name = self.map[:_NAME]
        self.first = int(np.frombuffer(self.map, np.uint8).ctypes.data)
        self.stream: IO[bytes] | None = stream  # None: others have it open
        self.address = Address(self.name, os.getpid(), stream.fileno())

    @staticmethod
    def at(address: Address, *, stay_open: bool) -> Sheet:
        """The sheet at an address; `Gone` if it is not there. Descriptors are few: only ``stay_open`` keeps one."""
        if (known := _open.get(address.name)) is not None:
            return known
        try:
            with Path(f"/proc/{address.process}/fd/{address.descriptor}").open("rb") as stream:
                sheet = Sheet(os.fdopen(os.dup(stream.fileno()), "rb") if stay_open else stream)
        except (OSError, ValueError):
            raise Gone from None
        if sheet.name != address.name:  # something else has this descriptor now
            raise Gone
        if not stay_open:
            sheet.stream, sheet.address = None, address
        return _open.setdefault(sheet.name, sheet)


_open: WeakValueDictionary[bytes, Sheet] = WeakValueDictionary()


@dataclass(frozen=True)
class Entry:
    """A value that lies in sheets: its own, which comes first, and those of what it was made of."""

    value: Any
    sheets: tuple[Sheet, ...]

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where others find it."""
        return tuple(sheet.address for sheet in self.sheets)


def kept(value: Any, made_of: Iterable[Entry] = ()) -> Entry:
    """The value in a sheet of its own, but for arrays that lie in those of what it was made of."""
    others = {sheet.name: sheet for entry in made_of for sheet in entry.sheets}
    arrays: list[pickle.PickleBuffer] = []
    frame = pickle.dumps(value, protocol=5, buffer_callback=arrays.append)
    name = os.urandom(_NAME)
    places: list[tuple[bytes, int, int]] = []  # of every array: a sheet, where it begins there, its size
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None  # that of the executor
    stream = tempfile.TemporaryFile(prefix="discreet-", dir=folder)  # noqa: SIM115
    stream.write(name)
    for array in arrays:
        raw = array.raw()
        if (where := _place_in(others.values(), raw)) is None:
            stream.write(bytes(-stream.tell() % _ALIGNED))
            where = name, stream.tell()
            stream.write(raw)
        places.append((*where, raw.nbytes))
    table = pickle.dumps((frame, places))
    stream.write(table + len(table).to_bytes(8, "little"))
    stream.flush()
    own = _open.setdefault(name, Sheet(stream))
    used = {sheet for sheet, _, _ in places}
    return _read((own, *(sheet for other, sheet in others.items() if other in used)))


def _place_in(sheets: Iterable[Sheet], raw: memoryview) -> tuple[bytes, int] | None:
    """The sheet in which an array lies, and where; None if it lies in none."""
    if not raw.nbytes:
        return None
    address = int(np.frombuffer(raw, np.uint8).ctypes.data)
    for sheet in sheets:
        if 0 <= address - sheet.first < len(sheet.map):
            return sheet.name, address - sheet.first
    return None


def found(addresses: Iterable[Address], *, stay_open: bool = False) -> Entry:
    """The value at these addresses; `Gone` if one of its sheets is."""
    return _read(tuple(Sheet.at(address, stay_open=stay_open) for address in addresses))


def _read(sheets: tuple[Sheet, ...]) -> Entry:
    own = sheets[0].map
    end = len(own) - 8
    frame, places = pickle.loads(own[end - int.from_bytes(own[end:], "little") : end])
    maps = {sheet.name: memoryview(sheet.map) for sheet in sheets}
    arrays = [maps[name][start : start + size] for name, start, size in places]
    return Entry(pickle.loads(frame, buffers=arrays), sheets)
