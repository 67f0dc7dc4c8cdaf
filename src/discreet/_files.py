"""Files that are either written whole or not at all, and ledgers that are never written over."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

LEDGER_ID = 0x44504C47  # "DPLG": what SQLite's header calls the application, in every ledger
_BLOCK = 1 << 20  # bytes that are overwritten at a time


class Databases:
    """The SQLite files that this process uses, and the one lock inside which it opens them.

    POSIX systems drop all locks of a process on a file as soon as the process closes any descriptor of it. SQLite takes
    care of its own descriptors; whoever else opens a ledger while a transaction runs lets another process write into
    it. So a ledger that is in use is recognized by its device and inode, without opening it, and a file that is not
    known is looked into only while no connection is open.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._open: dict[int, tuple[int, int]] = {}

    def add(self, holder: object, path: Path) -> None:
        """Count the file at ``path`` as in use for as long as ``holder`` lives."""
        found = os.stat(path)
        self._open[id(holder)] = (found.st_dev, found.st_ino)
        weakref.finalize(holder, self._open.pop, id(holder), None)

    def holds(self, path: Path) -> bool:
        """Whether ``path`` leads to a file in use, under whatever name; does not open it."""
        try:
            found = os.stat(path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) in list(self._open.values())

    def _renew_lock(self) -> None:
        self.lock = threading.RLock()


databases = Databases()
if hasattr(os, "register_at_fork"):
    # SQLite keeps its locks per process: a child that was forked while a connection was open would believe in locks
    # that it does not hold. Every connection lives inside this lock, and a fork waits for it.
    os.register_at_fork(
        before=lambda: databases.lock.acquire(),
        after_in_parent=lambda: databases.lock.release(),
        after_in_child=databases._renew_lock,
    )


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Read a whole file; ``FileExistsError`` if it is a ledger that this process uses."""
    if databases.holds(Path(path)):
        raise FileExistsError(17, "it is a privacy ledger in use")
    with databases.lock:
        return Path(path).read_bytes()


def write_atomically(path: str | os.PathLike[str], content: bytes, *, private: bool = False) -> None:
    """Write ``content`` so that ``path`` then holds all of it or, after any failure, what it held before.

    A link stays a link: the file it leads to is written. A ``private`` file is for its owner only, whatever the umask
    and the file that it replaces allow.

    Raises
    ------
    OSError
        With a message that names ``path`` (full disk, missing folder, no permission, a pipe, a ledger, ...).
    """
    target = _checked(path)
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if not private:  # a temporary file is its owner's
            os.chmod(temporary, _default_mode(target))
        os.replace(temporary, target)
        temporary = None
        _sync_folder(target.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise type(error)(
            error.errno, f"could not write {str(target)!r}: {reason}; nothing was changed there"
        ) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def check_writable(path: str | os.PathLike[str], size: int) -> None:
    """Raise ``OSError`` now if ``size`` bytes cannot be written beside ``path``; leaves nothing behind.

    Called before a budget is spent, so that a full disk is noticed while it is still free of charge.
    """
    target = _checked(path)
    trial = target.with_name(f".{target.name}.{os.getpid()}.trial")
    try:
        write_atomically(trial, bytes(size))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise type(error)(error.errno, f"cannot write {str(target)!r}: {reason}") from error
    finally:
        with contextlib.suppress(OSError):
            trial.unlink(missing_ok=True)


def erase(path: str | os.PathLike[str]) -> None:
    """Overwrite the file with zeros and delete it, if there is one.

    Where somebody has it open and the platform does not let go of such a file, it stays, full of zeros.
    """
    try:
        with open(path, "r+b") as stream:
            size = os.fstat(stream.fileno()).st_size
            for start in range(0, size, _BLOCK):
                stream.write(bytes(min(_BLOCK, size - start)))
            stream.flush()
            os.fsync(stream.fileno())
    except FileNotFoundError:
        return
    with contextlib.suppress(PermissionError):
        os.unlink(path)


@contextlib.contextmanager
def reserved(path: str | os.PathLike[str]) -> Iterator[None]:
    """Keep a free name for what will be written to it; ``FileExistsError`` if it is taken.

    Two commands that were told to write one new file must not both be paid for: the name is an empty file meanwhile,
    removed in the end if nothing was written.
    """
    target = _checked(path)
    with target.open("xb"):
        pass
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if target.stat().st_size == 0:
                target.unlink()


def _checked(path: str | os.PathLike[str]) -> Path:
    """Where ``path`` leads, if a file may be put there."""
    target, name = Path(os.path.realpath(path)), repr(str(path))
    if target.is_dir():
        raise IsADirectoryError(21, f"cannot write {name}: it is a folder; name a file inside it")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            2, f"cannot write {name}: there is no folder {str(target.parent)!r}; create it first"
        )
    if target.exists() and not target.is_file():
        raise FileExistsError(
            17, f"cannot write {name}: it is a device or a pipe, not a file; name a file of your own"
        )
    if _is_ledger(target):
        raise FileExistsError(
            17,
            f"cannot write {name}: it is a privacy ledger, and a ledger is never replaced; name another file",
        )
    return target


def _is_ledger(target: Path) -> bool:
    if databases.holds(target):
        return True
    try:
        with databases.lock, target.open("rb") as stream:
            header = stream.read(72)
    except OSError:  # not there, or not readable, so that nobody can tell
        return False
    return header.startswith(b"SQLite format 3\0") and header[68:] == LEDGER_ID.to_bytes(4, "big")


def _default_mode(target: Path) -> int:
    """The permissions of the file being replaced, or those a plain ``open`` would give."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable; not every platform can open a folder."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
