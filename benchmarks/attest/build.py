"""The wheel, built twice from clean clones, and the bill of materials of the environment.

Both builds take the time of the last commit as theirs (``SOURCE_DATE_EPOCH``), so that two machines get one file.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def wheels(python: str = sys.executable, isolated: bool = True) -> dict[str, Any]:
    """Names and hashes of two builds, and whether they are one; or the reason why nothing was built."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            built = [_built(Path(folder) / str(place), python, isolated) for place in (1, 2)]
    except (subprocess.CalledProcessError, OSError) as error:
        words = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        return {"skipped": f"no wheel could be built here: {words[-1] if words else error}"}
    return {"builds": built, "identical": built[0] == built[1]}


def _built(folder: Path, python: str, isolated: bool) -> dict[str, str]:
    clone = folder / "clone"
    _run("git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone))
    moment = _run("git", "-C", str(clone), "log", "-1", "--format=%ct").strip()
    options = ["--no-deps", "--no-cache-dir", *([] if isolated else ["--no-build-isolation"])]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": moment}
    environment.pop("PYTHONPATH", None)
    _run(python, "-m", "pip", "wheel", "--quiet", *options, "-w", str(folder), str(clone), env=environment)
    wheel = next(folder.glob("*.whl"))
    return {"name": wheel.name, "sha256": digest(wheel.read_bytes())}


def digest(content: bytes) -> str:
    """SHA-256, as it is written."""
    return hashlib.sha256(content).hexdigest()


def _run(*command: str, env: dict[str, str] | None = None) -> str:
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout


def commit() -> str | None:
    """The commit of the checkout, with a plus sign if files were changed; None outside of one."""
    try:
        changed = _run("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no").strip()
        return _run("git", "-C", str(ROOT), "rev-parse", "HEAD").strip() + ("+" if changed else "")
    except (subprocess.CalledProcessError, OSError):
        return None


def bill_of_materials() -> dict[str, Any]:
    """Every package that discreet needs, with its version here, as CycloneDX 1.6."""
    found: dict[str, importlib.metadata.Distribution] = {}
    names = ["discreet"]
    while names:
        name = names.pop()
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        names += [_normal(text) for text in found[name].requires or () if "extra ==" not in text]
    parts = [_component(name, found[name]) for name in sorted(found)]
    own = next((part for part in parts if part["name"] == "discreet"), None)
    others = [part for part in parts if part is not own]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, "\n".join(part["bom-ref"] for part in parts))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": own} if own else {},
        "components": others,
        "dependencies": [
            {"ref": part["bom-ref"], "dependsOn": sorted(_needed(found, part["name"], parts))}
            for part in parts
        ],
    }


def _component(name: str, package: importlib.metadata.Distribution) -> dict[str, Any]:
    license = package.metadata.json.get("license_expression")
    reference = f"pkg:pypi/{name}@{package.version}"
    return {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": package.version,
        "purl": reference,
        **({"licenses": [{"expression": license}]} if license else {}),
    }


def _needed(found: dict[str, Any], name: str, parts: list[dict[str, Any]]) -> set[str]:
    references = {part["name"]: part["bom-ref"] for part in parts}
    wanted = {_normal(text) for text in found[name].requires or () if "extra ==" not in text}
    return {references[other] for other in wanted if other in references}


def _normal(requirement: str) -> str:
    """The name in a requirement, as package indexes write it."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", match.group() if match else requirement).lower()
