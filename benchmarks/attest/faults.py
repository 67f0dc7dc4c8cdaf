"""Kills of a ledger's writer at random moments: what was acknowledged is there, and the cap is held.

A child charges a ledger as fast as it can and tells its parent of every charge that came back; the parent kills it
with SIGKILL at a random moment and reads the ledger. Every acknowledged charge must be in it, at most one more
(written, but not acknowledged), the digests must fit, and nothing may be spent beyond the cap.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from discreet import BudgetExceeded, Ledger
from discreet.privacy.events import Pure

_STEP = 2.0**-10  # epsilon of one charge: sums of it are exact
_CAP = 0.25  # reached after 256 charges, so that some writers are killed while they are refused
_LONGEST = 6.0  # charges, by the time that one takes here, that a writer lives at most beyond its start


@dataclass(frozen=True)
class Kills:
    """What so many kills showed."""

    kills: int
    charges: int
    acknowledged: int
    unacknowledged: int
    lost: int
    beyond_cap: int
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether nothing was lost and the cap was held."""
        return (
            self.lost == 0
            and self.beyond_cap == 0
            and self.charges == self.acknowledged + self.unacknowledged
        )

    def to_dict(self) -> dict[str, Any]:
        """For a file."""
        return {**asdict(self), "passed": self.passed}


def kills(count: int, seed: int = 0) -> Kills:
    """Kill ``count`` writers, and count."""
    rng, begin = random.Random(seed), time.perf_counter()
    folder = Path(tempfile.mkdtemp())
    known = acknowledged = unacknowledged = lost = beyond = charges = made = 0
    path = folder / "ledger-0"
    try:
        longest = _LONGEST * _time_of_a_charge(folder / "timed")
        for place in range(count):
            if known >= _CAP / _STEP or place == 0:  # this one is full
                charges, made = charges + known, made + 1
                path, known = folder / f"ledger-{made}", 0
                Ledger(path, epsilon=_CAP, delta=0.0)
            told = _killed(path, rng.uniform(0.0, longest))
            history = Ledger(path).history()  # refuses a file whose digests do not fit
            new = len(history) - known
            lost += max(0, told - new)
            acknowledged += told
            unacknowledged += max(0, new - told)
            beyond += len(history) * _STEP > _CAP
            known = len(history)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Kills(
        count, charges + known, acknowledged, unacknowledged, lost, beyond, time.perf_counter() - begin
    )


def _time_of_a_charge(path: Path) -> float:
    """Seconds, on average over a few: a slow disk or a busy machine must not kill every writer before it writes."""
    ledger, count = Ledger(path, epsilon=_CAP, delta=0.0), 5
    begin = time.perf_counter()
    for _ in range(count):
        ledger.charge(Pure(_STEP), label="time")
    return (time.perf_counter() - begin) / count


def _killed(path: Path, after: float) -> int:
    """Charges that a writer was told of before it was killed."""
    heard, say = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(heard)
        _write(path, say)
    os.close(say)
    told = len(os.read(heard, 1))  # the first byte says that the writer has begun
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while part := os.read(heard, 1 << 16):
        told += len(part)
    os.close(heard)
    return told - 1


def _write(path: Path, say: int) -> None:
    """Charge until killed; the process ends here, whatever happens."""
    try:
        ledger = Ledger(path)
        os.write(say, b"b")
        while True:
            try:
                ledger.charge(Pure(_STEP), label="kill")
                os.write(say, b"c")
            except BudgetExceeded:
                time.sleep(0.001)
    finally:
        os._exit(1)
