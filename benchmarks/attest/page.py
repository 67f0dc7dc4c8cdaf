"""The page of an attestation: one verdict, what was tried, what was not; the rows are folded below."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from discreet.card.attestation import failures
from discreet.display.page import Page


def page(body: Mapping[str, Any]) -> str:
    """The page as HTML, which needs no network."""
    out = Page(f"discreet {body['version']}", "Attestation")
    wrong = list(failures(body))
    if wrong:
        count = "1 finding" if len(wrong) == 1 else f"{len(wrong)} findings"
        out.verdict(f"{count}: do not rely on this version.", wrong[0], "bad")
    else:
        out.verdict(
            "Nothing that was tried contradicts a claim of this version.",
            "Every claimed epsilon follows from its event. Every broken twin that was tried was noticed.",
            "good",
        )
    out.text(
        f"Made {body['made']} with Python {body['python']}, commit {body['commit']}, {body['mode']} run. "
        "Check it against an installed package: discreet attest attestation.json"
    )
    if wrong:
        out.heading("What is wrong")
        out.items(wrong)
    out.heading("What was tried")
    out.table(["what", "how much", "result"], list(_tried(body)))
    out.heading("What was not tried")
    out.items(body["not_tested"])
    out.heading("Rows")
    for title, part in _PARTS.items():
        with out.folded(title):
            part(out, body)
    return out.html()


def _tried(body: Mapping[str, Any]) -> Iterator[list[str]]:
    """One line for each kind of evidence: what, how much, and what came of it."""
    replays, exact, attacks, tests = (body[part] for part in ("replays", "exact", "attacks", "tests"))
    yield ["claims priced from their events", str(len(body["claims"])), "each follows from its event"]
    yield [
        "lemmas behind the constants",
        str(len(body["lemmas"])),
        f"{tests['passed']} tests passed, {tests['failed']} failed",
    ]
    near = sum(line["ratio"] >= 0.95 for line in replays)
    yield [
        "replays on neighboring data sets",
        str(len(replays)),
        f"{_of('passed', replays)} passed, {near} reach 0.95 of the declared distance",
    ]
    yield [
        "laws computed exactly",
        str(len(exact)),
        f"{_of('passed', exact)} within the claim, {_twins(exact)}",
    ]
    yield [
        "programs attacked in this run: new or changed ones"
        if body["mode"] == "short"
        else "programs attacked in this run",
        str(len(attacks)),
        f"{_of('sound', attacks)} within the claim, {_twins(attacks)}",
    ]
    if stored := body.get("stored"):
        yield [
            f"programs attacked before, {stored['first']} to {stored['last']}",
            str(stored["rows"]),
            f"{stored['sound']} within the claim, {stored['caught']} half-noise twins caught",
        ]
    for tool in dict.fromkeys(line["tool"] for line in body["outside"]):
        lines = [line for line in body["outside"] if line["tool"] == tool]
        yield [f"{tool}, a tool of others", str(len(lines)), _verdicts(lines)]
    yield ["writers of a ledger killed in this run", str(body["kills"]["kills"]), _killed(body["kills"])]
    yield ["hostile inputs in this run", str(body["fuzz"]["cases"]), _fuzzed(body["fuzz"])]
    figures = body.get("figures", {})
    if kills := figures.get("kills"):
        yield [f"writers killed, {kills['when']}", str(kills["kills"]), _killed(kills)]
    if inputs := figures.get("inputs"):
        yield [f"hostile inputs, {inputs['when']}", str(inputs["cases"]), _fuzzed(inputs)]
    yield ["builds of the wheel from clean clones", *_built(body["wheel"])]


def _of(what: str, lines: Sequence[Mapping[str, Any]]) -> int:
    return sum(bool(line[what]) for line in lines)


def _twins(lines: Sequence[Mapping[str, Any]]) -> str:
    return f"{_of('caught', lines)} half-noise twins caught"


def _verdicts(lines: Sequence[Mapping[str, Any]]) -> str:
    counts = {verdict: sum(line["verdict"] == verdict for line in lines) for verdict in _VERDICTS}
    words = [f"{count} {_VERDICTS[verdict]}" for verdict, count in counts.items() if count]
    noticed = sum(line.get("caught") is True for line in lines)
    return ", ".join([*words, *([f"{noticed} half-noise twins caught"] if noticed else [])])


def _killed(found: Mapping[str, Any]) -> str:
    return (
        f"{found['acknowledged']} charges acknowledged, {found['lost']} lost, {found['damaged']} ledgers damaged, "
        f"{found['beyond_cap']} times beyond the cap"
    )


def _fuzzed(found: Mapping[str, Any]) -> str:
    return (
        f"{sum(found['refused'].values())} refused, {sum(found['accepted'].values())} accepted, "
        f"{found['n_surprises']} surprises"
    )


def _built(wheel: Mapping[str, Any]) -> list[str]:
    if "skipped" in wheel:
        return ["0", wheel["skipped"]]
    return [str(len(wheel["builds"])), "identical" if wheel["identical"] else "THEY DIFFER"]


def _claims(out: Page, body: Mapping[str, Any]) -> None:
    rows = [
        [
            claim["subject"],
            claim["relation"],
            _number(claim["epsilon"]),
            _yes(seen["passed"]),
            _number(seen["ratio"]),
        ]
        for claim, seen in zip(body["claims"], body["replays"], strict=True)
    ]
    out.table(["subject", "relation", "epsilon at delta 0.01", "replay", "distance / declared"], rows)


def _lemmas(out: Page, body: Mapping[str, Any]) -> None:
    rows = [
        [name, str(len(use["proves"])), ", ".join(test.rpartition("/")[2] for test in use["tests"])]
        for name, use in body["lemmas"].items()
    ]
    out.table(["lemma", "constants", "tests"], rows)
    out.items([f"{name}: {digest}" for name, digest in body["proofs"].items()])


def _exact(out: Page, body: Mapping[str, Any]) -> None:
    header = ["subject", "claimed epsilon", "true epsilon", "largest true / claimed delta", "half noise"]
    names = ("claimed", "true", "ratio", "twin")
    out.table(header, [[line["subject"], *(_number(line[name]) for name in names)] for line in body["exact"]])


def _attacks(out: Page, body: Mapping[str, Any]) -> None:
    names = ("claimed", "pair", "shown", "half_noise")
    rows = [
        [line["subject"], line["relation"], *(_number(line[name]) for name in names), line["note"]]
        for line in body["attacks"]
    ]
    out.table(["subject", "relation", "claimed", "pair", "shown", "half noise", "note"], rows)


def _outside(out: Page, body: Mapping[str, Any]) -> None:
    names = ("claimed", "lowest", "highest")
    rows = [
        [
            line["tool"],
            line["subject"],
            line["verdict"],
            *(_number(line[name]) for name in names),
            line["note"],
        ]
        for line in body["outside"]
    ]
    out.table(["tool", "subject", "verdict", "ours", "at least", "at most", "note"], rows)


def _builds(out: Page, body: Mapping[str, Any]) -> None:
    kills, fuzz, wheel = body["kills"], body["fuzz"], body["wheel"]
    kinds = [[name, str(count)] for name, count in kills["kinds"].items()]
    out.table(["trouble of a killed writer", "times"], kinds)
    names = sorted({*fuzz["refused"], *fuzz["accepted"]})
    rows = [[name, *(str(fuzz[part].get(name, 0)) for part in ("refused", "accepted"))] for name in names]
    out.table(["hostile input", "refused", "accepted"], rows)
    if "builds" in wheel:
        out.items([f"{one['name']}: SHA-256 {one['sha256']}" for one in wheel["builds"]])
    out.items([f"{name} {version}" for name, version in body["packages"].items()])


_PARTS: Mapping[str, Callable[[Page, Mapping[str, Any]], None]] = {
    "Claims and replays": _claims,
    "Lemmas, their tests and the hashes of the proofs": _lemmas,
    "Exact audits": _exact,
    "Attacks": _attacks,
    "Tools of others": _outside,
    "Faults, builds and versions": _builds,
}
_VERDICTS: Mapping[str, str] = {"agrees": "agree", "contradicts": "CONTRADICT", "skipped": "skipped"}


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _yes(value: bool) -> str:
    return "passed" if value else "FAILED"
