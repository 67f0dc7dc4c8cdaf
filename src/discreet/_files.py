"""Files that are either written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write ``content`` so that ``path`` then holds all of it or, after any failure, what it held before.

    Raises
    ------
    OSError
        With a message that names ``path`` (full disk, missing folder, no permission, ...).
    """
    target = Path(path)
    _check_place(target)
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
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
    target = Path(path)
    trial = target.with_name(f".{target.name}.{os.getpid()}.trial")
    try:
        _check_place(target)
        write_atomically(trial, bytes(size))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise type(error)(error.errno, f"cannot write {str(target)!r}: {reason}") from error
    finally:
        with contextlib.suppress(OSError):
            trial.unlink(missing_ok=True)


def _check_place(target: Path) -> None:
    if target.is_dir():
        raise IsADirectoryError(21, f"{str(target)!r} is a folder; name a file inside it")
    if not target.parent.is_dir():
        raise FileNotFoundError(2, f"there is no folder {str(target.parent)!r}; create it first")


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
