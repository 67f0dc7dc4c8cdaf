"""Attestations: a file of what was recomputed about a version of this package, and its check.

``make attest`` in a checkout writes the file: claims with their events, lemmas with their hashes and tests, exact
audits, replays, attacks, other tools, kills, builds, versions, and what was not tested. `verify_attestation` checks it
against the installed package: code and proofs must be the attested ones, every claimed epsilon must follow from its
event, no row may have failed, and no row may be missing or charged differently. The package lists the rows of its
attestation, with digests of their events.

A file does not prove who wrote it. Run ``make attest`` to reproduce it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import discreet
from discreet._files import read_file
from discreet.card.card import no_constant, no_duplicates
from discreet.privacy import proofs
from discreet.privacy.accounting import accountants
from discreet.privacy.events import Event
from discreet.privacy.guarantee import Neighboring

FORMAT = "discreet-attestation"
VERSION = 1
_LARGEST = 1 << 26  # bytes
_ROUNDING = 1e-9
#: Lists of rows, and the fields that must be true in each row.
ROWS: Mapping[str, tuple[str, ...]] = {
    "exact": ("passed", "caught"),
    "replays": ("passed",),
    "attacks": ("sound", "caught"),
}
#: The same for numbers: the first must be at most the second; a string names a field of the row.
ORDERED: Mapping[str, tuple[tuple[str | float, str | float], ...]] = {
    "exact": (("ratio", 1.0), ("claimed", "twin")),
    "replays": ((0.95, "ratio"), ("ratio", 1.0)),
    "attacks": (("shown", "claimed"), ("claimed", "half_noise")),
}
#: Every claim and exact audit in an attestation of this version: part, subject, relation and, for claims, delta and a
#: digest of the event.
LIST = Path(__file__).with_name("attested_rows.tsv")
#: Least numbers of kills and hostile inputs, by the mode of the run.
TRIED: Mapping[str, Mapping[str, int]] = {
    "short": {"kills": 1_000, "fuzz": 10_000},
    "full": {"kills": 10_000, "fuzz": 100_000},
}
SECOND = "dp-accounting"
#: Other tools; each has rows, possibly only the reason why it was skipped.
TOOLS = (SECOND, "opendp", "jax-privacy", "dp-recorder")
_Key = tuple[str, str]


class AttestationError(ValueError):
    """The file is not an attestation, or is damaged."""


@dataclass(frozen=True)
class Attested:
    """The result of checking an attestation.

    Attributes
    ----------
    version, made : version of the attested package, and date.
    counts : number of rows of each kind.
    problems : failed checks; empty if the file matches the installed package.
    not_tested : what was not tested, according to the file.
    """

    version: str
    made: str
    counts: Mapping[str, int]
    problems: tuple[str, ...]
    not_tested: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __str__(self) -> str:
        lines = [f"Attestation of discreet {self.version}, made {self.made}"]
        lines += [f"  {name:<22}{count}" for name, count in self.counts.items()]
        lines += [f"  not tested: {text}" for text in self.not_tested]
        lines += [f"  WRONG: {text}" for text in self.problems]
        if self.passed:
            lines.append(
                "The installed code and proofs are those that were attested; every claim was recomputed."
            )
        return "\n".join(lines)


def sealed(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a file with this body."""
    return {"format": FORMAT, "format_version": VERSION, "body": dict(body), "digest": _digest(body)}


def verify_attestation(path: str | os.PathLike[str]) -> Attested:
    """Read an attestation and check it against the installed package.

    Raises
    ------
    AttestationError
        The file is not an attestation, or was damaged.
    """
    body = _read(path)
    problems = [
        *_changed("code", body["sources"], sources()),
        *_changed("proofs", body["proofs"], proof_hashes()),
        *_dear(body["claims"]),
        *failures(body),
        *missing(body),
    ]
    counts = {name: len(body[name]) for name in ("claims", "lemmas", *ROWS, "outside")}
    return Attested(
        str(body["version"]), str(body["made"]), counts, tuple(problems), tuple(map(str, body["not_tested"]))
    )


def sources() -> dict[str, str]:
    """Return the SHA-256 of every source file of the installed package."""
    folder = Path(discreet.__file__).parent
    return {path.relative_to(folder).as_posix(): _hash(path) for path in sorted(folder.rglob("*.py"))}


def proof_hashes() -> dict[str, str]:
    """Return the SHA-256 of every file of proofs; empty if they are not installed."""
    folder = proofs.home()
    return {} if folder is None else {path.name: _hash(path) for path in sorted(folder.glob("*.md"))}


def claim(subject: str, event: Event, delta: float, relation: Neighboring) -> dict[str, Any]:
    """Return one claim with everything needed to recompute it."""
    return {
        "subject": subject,
        "relation": relation.value,
        "event": event.to_dict(),
        "delta": delta,
        "epsilon": accountants.epsilon(event, delta, relation),
    }


def digest(value: Any) -> str:
    """Return a digest of plain values, with numbers rounded to six digits so that platforms agree."""

    def rounded(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: rounded(part) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return [rounded(part) for part in value]
        return f"{value:.6g}" if isinstance(value, float) else value

    return hashlib.sha256(json.dumps(rounded(value), sort_keys=True).encode()).hexdigest()[:12]


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _digest(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    name = repr(str(path))
    if Path(path).stat().st_size > _LARGEST:
        raise AttestationError(f"{name} is too large for an attestation")
    parse = partial(json.loads, parse_constant=no_constant, object_pairs_hook=no_duplicates)
    try:
        found = parse(read_file(path))
        body, known = found["body"], (found["format"], found["format_version"]) == (FORMAT, VERSION)
        damaged = found["digest"] != _digest(body)
        whole = all(
            isinstance(body[part], dict) for part in ("sources", "proofs", "lemmas", "wheel", "kills", "fuzz")
        )
        whole &= all(isinstance(body[part], list) for part in ("claims", *ROWS, "outside", "not_tested"))
        whole &= all(isinstance(row, dict) for part in ("claims", *ROWS, "outside") for row in body[part])
        whole &= {"version", "made"} <= set(body)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise AttestationError(f"{name} is not an attestation: {error}") from None
    if not known:
        raise AttestationError(f"{name} is not an attestation of a kind that this version knows")
    if damaged or not whole:
        raise AttestationError(f"{name} is damaged: its contents are not those that were sealed")
    return dict(body)


def _changed(what: str, attested: Mapping[str, str], here: Mapping[str, str]) -> Iterator[str]:
    different = sorted(name for name in {*attested, *here} if attested.get(name) != here.get(name))
    if different:
        yield f"the installed {what} are not those that were attested: {_few(different)}"


def _few(names: list[str]) -> str:
    return "; ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# -- required rows -----------------------------------------------------------------------------------------------------


def list_of(body: Mapping[str, Any]) -> str:
    """Return the list of rows for this body; ``python -m benchmarks.attest --write`` stores it in the package."""
    lines = [("claims", *_key(row), *_charge(row)) for row in body["claims"]]
    lines += [("exact", *_key(row), "", "") for row in body["exact"]]
    return "".join("\t".join(line) + "\n" for line in sorted(lines))


def _charge(row: Mapping[str, Any]) -> _Key:
    return str(row.get("delta")), digest(row.get("event"))


def charged(claims: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Event, Neighboring]]:
    """Yield every event of the claims once, with the subject and relation of its first row."""
    seen = set()
    for row in claims:
        event = Event.from_dict(row["event"])
        if event not in seen:
            seen.add(event)
            yield row["subject"], event, Neighboring(row["relation"])


def missing(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield rows that this version requires and the body lacks, and rows that this version does not know."""
    lines = [line.split("\t") for line in LIST.read_text("utf-8").splitlines()]
    for part, like in (
        ("claims", "claims"),
        ("replays", "claims"),
        ("attacks", "claims"),
        ("exact", "exact"),
    ):
        wanted = Counter((subject, relation) for listed, subject, relation, *_ in lines if listed == like)
        yield from _uneven(part, Counter(map(_key, body[part])), wanted)
    charges = {(subject, relation): (delta, event) for _, subject, relation, delta, event in lines}
    for row in body["claims"]:
        if charges.get(_key(row), _charge(row)) != _charge(row):
            yield f"claims: {', '.join(_key(row))} is charged differently by this version"
    lemmas = Counter({(lemma, ""): 1 for names in proofs.PROVED_BY.values() for lemma in names})
    yield from _uneven("lemmas", Counter((lemma, "") for lemma in body["lemmas"]), lemmas)
    yield from _not_asked(body)
    for part, count in (("kills", "kills"), ("fuzz", "cases")):
        least, tried = TRIED.get(str(body.get("mode")), TRIED["full"])[part], body[part].get(count)
        if not (isinstance(tried, int) and tried >= least):
            yield f"{part}: {tried} of {least} were tried"


def _key(row: Mapping[str, Any]) -> _Key:
    return str(row.get("subject")), str(row.get("relation", ""))


def _uneven(part: str, found: Counter[_Key], wanted: Counter[_Key]) -> Iterator[str]:
    for words, keys in (("are missing", wanted - found), ("are unknown", found - wanted)):
        if keys:
            names = sorted(", ".join(filter(None, key)) for key in keys)
            yield f"{part}: {len(names)} of {wanted.total()} rows {words}: {_few(names)}"


def _not_asked(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield tools without rows, and events that no second tool priced."""
    rows = [(str(row.get("tool")), str(row.get("subject"))) for row in body["outside"]]
    yield from (f"outside: no rows of {tool}" for tool in TOOLS if tool not in dict(rows))
    try:
        wanted = Counter((subject, "") for subject, _, _ in charged(body["claims"]))
    except (KeyError, TypeError, ValueError):
        return  # malformed events are reported elsewhere
    yield from _uneven(
        f"outside, {SECOND}", Counter((name, "") for tool, name in rows if tool == SECOND), wanted
    )


def _dear(claims: list[dict[str, Any]]) -> Iterator[str]:
    """Yield claims whose events cost more."""
    for row in claims:
        try:
            event, relation = Event.from_dict(row["event"]), Neighboring(row["relation"])
            cost = accountants.epsilon(event, float(row["delta"]), relation)
            false = not cost <= float(row["epsilon"]) * (1 + _ROUNDING)
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            yield f"no price can be computed for a claim: {error}"
            continue
        if false:
            yield f"{row.get('subject')} claims epsilon {row['epsilon']:g}, but its event costs {cost:g}"


def failures(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield failures that the body itself records."""
    prices = {_key(row): row.get("epsilon") for row in body["claims"]}
    for part, musts in ROWS.items():
        for row in body[part]:
            if part == "attacks":  # compare with the claim, not with what the row says
                row = {**row, "claimed": prices.get(_key(row))}
            wrong = [f"not {must}" for must in musts if row.get(must) is not True]
            wrong += [f"{low} above {high}" for low, high in ORDERED[part] if not _ordered(row, low, high)]
            yield from (f"{part}, {row.get('subject')}: {what}" for what in wrong)
    for part in ("claims", "lemmas", *ROWS):
        if not body[part]:
            yield f"{part}: nothing was tried"
    for row in body["outside"]:
        if row.get("verdict") not in ("agrees", "skipped") or row.get("caught") is False:
            yield f"{row.get('tool')} on {row.get('subject')}: {row.get('verdict')}, caught: {row.get('caught')}"
    for lemma, use in body["lemmas"].items():
        if not (isinstance(use, dict) and use.get("tests")):
            yield f"no test exercises {lemma}"
    if body["wheel"].get("identical") is not True and "skipped" not in body["wheel"]:
        yield "two builds of the wheel differ"
    if body["kills"].get("passed") is not True:
        yield "killed writers of a ledger lost charges, or spent beyond its cap"
    if body["fuzz"].get("passed") is not True:
        yield "some fuzzed inputs or hostile files gave neither a clear error nor a result"
    for name, figures in dict(body.get("figures") or {}).items():
        if not (isinstance(figures, dict) and figures.get("passed") is True):
            yield f"{name}, full run: something was lost, or gave neither a clear error nor a result"
    tests = body.get("tests")
    if not isinstance(tests, dict) or tests.get("failed") != 0:
        failed = tests.get("failed") if isinstance(tests, dict) else "all"
        yield f"{failed} tests of lemmas failed"


def _ordered(row: Mapping[str, Any], low: str | float, high: str | float) -> bool:
    """Whether both are numbers, the first at most the second."""
    numbers = [row.get(what) if isinstance(what, str) else what for what in (low, high)]
    first, second = (number if isinstance(number, int | float) else math.nan for number in numbers)
    return first <= second * (1 + _ROUNDING)
