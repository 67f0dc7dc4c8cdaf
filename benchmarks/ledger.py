"""Many processes on one ledger, one of them killed: is the cap kept, is a charge lost, how fast is it?

``python -m benchmarks.ledger`` prints the verdicts. The cap has room for three quarters of the charges that
are attempted, so that processes race for the last ones.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from discreet.privacy.accounting.gaussian import gaussian_delta, gaussian_mu
from discreet.privacy.events import Gaussian
from discreet.privacy.guarantee import Neighboring
from discreet.privacy.ledger.ledger import BudgetExceeded, Ledger, LedgerError
from discreet.privacy.ledger.rules import FAMILIES, RESERVE

EPSILON, DELTA = 1.0, 1e-6


def _work(path: str, acks: str, noise_multiplier: float, charges: int) -> None:
    """Charge one by one, and write down every sequence number the moment it is acknowledged."""
    ledger = Ledger(path)
    event = Gaussian(noise_multiplier)
    ack = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for _ in range(charges):
        try:
            os.write(ack, f"{ledger.charge(event, label=str(os.getpid())).sequence}\n".encode())
        except BudgetExceeded:
            os.write(ack, b"refused\n")


def _acknowledged(file: Path) -> list[str]:
    # The last line of a killed process may be torn; only whole lines were acknowledged.
    return file.read_text().split("\n")[:-1] if file.exists() else []


def measure(processes: int = 8, charges: int = 500) -> dict[str, Any]:
    """Run the race and return its numbers; every key that starts with ``ok_`` must be True.

    Parameters
    ----------
    processes : int
        At least 2; the first one is killed with SIGKILL in its work, after a quarter of ``charges``.
    charges : int
        Charges that every other process attempts.
    """
    room = max(1, processes * charges * 3 // 4)
    share = DELTA / FAMILIES * float(1 - RESERVE)
    # A little more noise than needed for exactly ``room`` charges, and much less than one charge's worth.
    noise_multiplier = math.sqrt(room + 0.5) / gaussian_mu(EPSILON, share)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "race.ledger"
        ledger = Ledger(path, EPSILON, DELTA, neighboring=Neighboring.REPLACE_ONE, adaptive=True)
        files = [Path(folder) / f"acks-{index}" for index in range(processes)]
        workers = [
            context.Process(target=_work, args=(str(path), str(file), noise_multiplier, limit))
            for file, limit in zip(files, [sys.maxsize] + [charges] * (processes - 1), strict=True)
        ]
        for worker in workers:
            worker.start()
        while not any(map(_acknowledged, files)):
            time.sleep(0.005)
        start = time.perf_counter()
        victim = workers[0]
        while victim.is_alive() and len(_acknowledged(files[0])) < charges // 4:
            time.sleep(0.001)
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        for worker in workers:
            worker.join()
        seconds = time.perf_counter() - start
        lines = [_acknowledged(file) for file in files]
        acknowledged = [int(line) for each in lines for line in each if line != "refused"]
        history = Ledger(path).history()
        try:
            ledger.verify()
            intact = True
        except LedgerError:
            intact = False
        sequences = [charge.sequence for charge in history]
        mu = math.sqrt(
            sum(charge.event.noise_multiplier**-2 for charge in history if isinstance(charge.event, Gaussian))
        )
        refused = sum(line == "refused" for each in lines for line in each)
        attempted = len(acknowledged) + refused
        return {
            "processes": processes,
            "attempted": attempted,
            "charged": len(history),
            "refused": refused,
            "room": room,
            "seconds": seconds,
            "charges_per_second": len(history) / seconds,
            "ok_cap": float(gaussian_delta(EPSILON, mu)) <= DELTA and len(history) <= room,
            # At most the charge in flight at the kill may be recorded without an acknowledgment.
            "ok_acknowledged": set(acknowledged) <= set(sequences)
            and len(history) - len(acknowledged) in (0, 1),
            "ok_no_duplicates": len(set(acknowledged)) == len(acknowledged),
            "ok_gapless": sequences == list(range(1, len(history) + 1)),
            "ok_chain": intact,
            "ok_full_use": len(history) == min(room, attempted + len(history) - len(acknowledged)),
            "ok_killed": victim.exitcode == -signal.SIGKILL
            and all(worker.exitcode == 0 for worker in workers[1:]),
        }


def main() -> int:
    """Print the race's numbers; the exit code says whether every verdict holds."""
    result = measure()
    for name, value in result.items():
        print(f"{name:>20}  {value:.1f}" if isinstance(value, float) else f"{name:>20}  {value}")
    return 0 if all(value for name, value in result.items() if name.startswith("ok_")) else 1


if __name__ == "__main__":
    sys.exit(main())
