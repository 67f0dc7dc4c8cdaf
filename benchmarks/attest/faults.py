"""Writers of a ledger in trouble: what was acknowledged is there, and the cap is held.

A writer charges a ledger as fast as it can and tells of every charge that came back. Then something happens to it, and
it is killed with SIGKILL at a random moment:

* kill: nothing else happens;
* full disk: only a few pages of the file system are free;
* read-only: the file system is remounted read-only while the writer writes;
* clock: the wall clock jumps by years, forwards and back, between any two readings;
* namespaces: two writers at once, each in process, mount, IPC and host name namespaces of its own.

After each of them every acknowledged charge must be in the ledger, at most one more for each writer (written, but not
acknowledged), the digests must fit, and nothing may be spent beyond the cap.

All this happens on a small file system in memory, which only this process sees: a kill there is the same as on a disk,
and a hundred times as fast. Power cuts, which lose what the system has not written yet, are not tried. Mounting needs
Linux, and root or user namespaces; without them the first and the fourth happen in an ordinary folder.

Run ``python -m benchmarks.attest.faults 10000``.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from discreet import BudgetExceeded, Ledger, LedgerError
from discreet.privacy.events import Pure

_STEP = 2.0**-10  # epsilon of one charge: sums of it are exact
_CAP = 2.0**-4  # reached after 64 charges, so that some writers are killed while they are refused
_LONGEST = 8.0  # charges, by the time that one takes here, that a writer lives at most beyond its start
_SIZE = 1 << 20  # bytes of the file system
_PAGE = 4096
_YEARS = 30 * 365 * 86400.0
#: What may happen to a writer, and how often of ten times; the first two need no file system of their own.
KINDS: Mapping[str, int] = {"kill": 5, "clock": 1, "full disk": 1, "read-only": 1, "namespaces": 2}
_ANYWHERE = ("kill", "clock")
# From the kernel's headers.
_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000
_READ_ONLY, _REMOUNT, _RECURSIVE, _PRIVATE = 1, 32, 1 << 14, 1 << 18


@dataclass
class Kills:
    """What so many kills showed, in all and by kind; ``left_out`` says what could not be tried here."""

    kills: int = 0
    charges: int = 0
    acknowledged: int = 0
    unacknowledged: int = 0
    refused: int = 0
    lost: int = 0
    damaged: int = 0
    beyond_cap: int = 0
    seconds: float = 0.0
    kinds: dict[str, int] = field(default_factory=dict)
    left_out: str = ""

    @property
    def passed(self) -> bool:
        """Whether nothing was lost and the cap was held."""
        return (
            self.lost == 0
            and self.damaged == 0
            and self.beyond_cap == 0
            and self.charges == self.acknowledged + self.unacknowledged
            and self.unacknowledged <= self.kills + self.kinds.get("namespaces", 0)
        )

    def to_dict(self) -> dict[str, Any]:
        """For a file."""
        return {**asdict(self), "passed": self.passed}


def kills(count: int, seed: int = 0) -> Kills:
    """Bring ``count`` writers, or pairs of them, into trouble, and count."""
    context = get_context("fork")
    heard, say = context.Pipe(duplex=False)
    worker = context.Process(target=_all, args=(count, seed, say))
    worker.start()
    say.close()
    try:
        found = heard.recv()
    except EOFError:
        raise RuntimeError("the process that kills writers died") from None
    worker.join()
    assert isinstance(found, Kills)
    return found


def _all(count: int, seed: int, say: Any) -> None:
    rng, begin, found = random.Random(seed), time.perf_counter(), Kills()
    with _folder() as (folder, own):
        if not own:
            found.left_out = "full disks, read-only file systems and namespaces: nothing can be mounted here"
        names = list(KINDS) if own else list(_ANYWHERE)
        longest = _LONGEST * _time_of_a_charge(folder / "timed")
        path, known = folder / "ledger", _CAP / _STEP
        while found.kills < count:
            if known >= _CAP / _STEP:  # this one is full
                path.unlink(missing_ok=True)
                Ledger(path, epsilon=_CAP, delta=0.0)
                known = 0
            kind = rng.choices(names, [KINDS[name] for name in names])[0]
            told, refused = _troubled(kind, path, rng, rng.uniform(0.0, longest))
            found.kills += 1
            found.kinds[kind] = found.kinds.get(kind, 0) + 1
            try:
                history = Ledger(path).history()  # refuses a file whose digests do not fit
            except LedgerError:
                found.damaged, known = found.damaged + 1, _CAP / _STEP
                continue
            new = len(history) - known
            found.charges += int(new)
            found.lost += int(max(0, told - new))
            found.acknowledged += told
            found.unacknowledged += int(max(0, new - told))
            found.refused += refused
            found.beyond_cap += len(history) * _STEP > _CAP
            known = len(history)
    found.seconds = time.perf_counter() - begin
    say.send(found)


def _time_of_a_charge(path: Path) -> float:
    """Seconds, on average over a few: a slow disk or a busy machine must not kill every writer before it writes."""
    ledger, count = Ledger(path, epsilon=_CAP, delta=0.0), 5
    begin = time.perf_counter()
    for _ in range(count):
        ledger.charge(Pure(_STEP), label="time")
    return (time.perf_counter() - begin) / count


# -- what happens to writers -------------------------------------------------------------------------------------------


def _troubled(kind: str, path: Path, rng: random.Random, after: float) -> tuple[int, int]:
    """Charges that writers were told of before they were killed, and those that the file system refused."""
    filler = path.with_name("filler")
    if kind == "full disk":
        _fill(filler, rng.randrange(2, 8))
    writers = [_Writer(path, kind) for _ in range(2 if kind == "namespaces" else 1)]
    for writer in writers:
        writer.begun()
    time.sleep(after / 2 if kind == "read-only" else after)
    if kind == "read-only":
        _remount(path.parent, _READ_ONLY)
        time.sleep(after / 2)
    heard = [writer.killed() for writer in writers]
    if kind == "read-only":
        _remount(path.parent, 0)
    filler.unlink(missing_ok=True)
    return sum(words.count(b"c") for words in heard), sum(words.count(b"r") for words in heard)


class _Writer:
    """A process that charges a ledger until it is killed."""

    def __init__(self, path: Path, kind: str) -> None:
        self.heard, say = os.pipe()
        told, tell = os.pipe()
        self.parent = os.fork()
        if self.parent == 0:
            _begin(path, say, tell, kind)
        os.close(say)
        os.close(tell)
        self.child = int(os.read(told, 20))  # as this process sees it
        os.close(told)

    def begun(self) -> None:
        """Wait until it charges."""
        if not os.read(self.heard, 1):
            raise RuntimeError("a writer died before it began")

    def killed(self) -> bytes:
        """Kill it, and give what it said."""
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.parent, 0)
        words = b""
        while part := os.read(self.heard, 1 << 16):
            words += part
        os.close(self.heard)
        return words


def _begin(path: Path, say: int, tell: int, kind: str) -> None:
    """Become a writer; the process ends here, whatever happens."""
    try:
        if kind == "namespaces":
            _separate()
            child = os.fork()
            if child:
                os.write(tell, b"%d" % child)
                os.close(say)
                os.waitpid(child, 0)
                os._exit(0)
        else:
            os.write(tell, b"%d" % os.getpid())
        if kind == "clock":
            jumps = random.Random(os.getpid())
            time.time = lambda: 1e9 + jumps.uniform(-_YEARS, _YEARS)
        _write(path, say)
    finally:
        os._exit(1)


def _write(path: Path, say: int) -> None:
    """Charge until killed."""
    os.write(say, b"b")
    ledger: Ledger | None = None
    while True:
        try:
            ledger = Ledger(path) if ledger is None else ledger
            ledger.charge(Pure(_STEP), label="kill")
            os.write(say, b"c")
        except BudgetExceeded:
            time.sleep(0.001)
        except LedgerError:  # nothing was charged
            os.write(say, b"r")
            time.sleep(0.001)


# -- a file system of our own ------------------------------------------------------------------------------------------


@contextmanager
def _folder() -> Iterator[tuple[Path, bool]]:
    """A folder, and whether it is a small file system that only this process and its children see."""
    folder = Path(tempfile.mkdtemp())
    try:
        own = True
        try:
            _unshare(_NEWNS if os.geteuid() == 0 else _NEWUSER | _NEWNS)
            _mount("none", "/", None, _RECURSIVE | _PRIVATE)
            _mount("tmpfs", str(folder), "tmpfs", 0, f"size={_SIZE}")
        except (OSError, AttributeError):
            own = False
        yield folder, own
        if own:  # it is gone with the namespace; the folder below it is not
            ctypes.CDLL(None).umount2(str(folder).encode(), 2)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fill(path: Path, pages: int) -> None:
    """Leave so many pages free."""
    free = os.statvfs(path.parent).f_bavail * os.statvfs(path.parent).f_bsize
    path.write_bytes(bytes(max(0, free - pages * _PAGE)))


def _remount(folder: Path, flags: int) -> None:
    """Change what may be done; while a file is open for writing it stays as it is, so that it is tried again."""
    deadline = time.monotonic() + 1.0
    while True:
        try:
            return _mount("tmpfs", str(folder), "tmpfs", _REMOUNT | flags, f"size={_SIZE}")
        except OSError:
            if time.monotonic() > deadline:
                raise


def _separate() -> None:
    _unshare(_NEWPID | _NEWNS | _NEWIPC | _NEWUTS)


def _unshare(flags: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    words = [None if text is None else text.encode() for text in (source, target, kind, options)]
    if library.mount(*words[:3], ctypes.c_ulong(flags), words[3]) != 0:
        raise OSError(ctypes.get_errno(), "mount")


if __name__ == "__main__":
    print(kills(int(sys.argv[1]) if len(sys.argv) > 1 else 1000, seed=int(time.time())))
