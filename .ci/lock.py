"""Write a requirements file with hashes from downloaded wheels: names, versions and hashes, and no addresses.

    python .ci/lock.py wheels > requirements.txt

Several wheels of one version (of other systems and Python versions) become several hashes of one line, of which pip
takes the one that fits. Wheels of two versions of one package are refused.
"""

import hashlib
import re
import sys
from pathlib import Path


def locked(folder: Path) -> str:
    """The lines of all wheels in a folder, by name."""
    found: dict[str, tuple[str, set[str]]] = {}
    for wheel in sorted(folder.glob("*.whl")):
        name, version = wheel.name.split("-")[:2]
        name = re.sub(r"[-_.]+", "-", name).lower()
        known, hashes = found.setdefault(name, (version, set()))
        if known != version:
            raise SystemExit(f"{name} is there as {known} and as {version}; keep one of them")
        hashes.add(hashlib.sha256(wheel.read_bytes()).hexdigest())
    if not found:
        raise SystemExit(f"there are no wheels in {str(folder)!r}; `pip download --dest` fetches them")
    lines = []
    for name, (version, hashes) in sorted(found.items()):
        parts = [f"{name}=={version}", *(f"--hash=sha256:{digest}" for digest in sorted(hashes))]
        lines.append(" \\\n    ".join(parts))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    sys.stdout.write(locked(Path(sys.argv[1])))
