"""What the command ``discreet`` and ``python -m discreet`` run."""

from __future__ import annotations

import signal
import sys


def run() -> int:
    """Run the command line; an interruption before or after its work ends it without a traceback."""
    # A shell's background jobs ignore interruptions, and go on doing so.
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeded:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from discreet.cli import main

    try:
        if heeded:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return main()
    except KeyboardInterrupt:
        return 130
    finally:
        if heeded:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(run())
