"""The page of an attestation: claims, lemmas, audits, tools of others, faults, builds, what was not tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from discreet.display.page import Page


def page(body: Mapping[str, Any]) -> str:
    """The page as HTML, which needs no network."""
    out = Page(f"Attestation of discreet {body['version']}")
    out.text(
        f"Made {body['made']} with Python {body['python']}, commit {body['commit']}, {body['mode']} run."
    )
    out.text("Check it against an installed package with: discreet attest attestation.json")
    _claims(out, body)
    _lemmas(out, body)
    _exact(out, body)
    _attacks(out, body)
    _outside(out, body)
    _builds(out, body)
    out.heading("What was not tested")
    out.notes(f"{len(body['not_tested'])} things", body["not_tested"])
    return out.html()


def _claims(out: Page, body: Mapping[str, Any]) -> None:
    out.heading("Claims and replays")
    passed = sum(line["passed"] for line in body["replays"])
    near = sum(line["ratio"] >= 0.95 for line in body["replays"])
    out.text(
        f"{len(body['claims'])} claims were priced; {passed} of {len(body['replays'])} replays on worst neighbors "
        f"passed, {near} of them at 0.95 or more of the declared distance."
    )
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
    out.heading("Lemmas")
    tests = body["tests"]
    out.text(f"Tests that name a lemma: {tests['passed']} passed, {tests['failed']} failed.")
    rows = [
        [name, str(len(use["proves"])), ", ".join(test.rpartition("/")[2] for test in use["tests"])]
        for name, use in body["lemmas"].items()
    ]
    out.table(["lemma", "constants", "tests"], rows)
    out.notes("Hashes of the proofs", [f"{name}: {digest}" for name, digest in body["proofs"].items()])


def _exact(out: Page, body: Mapping[str, Any]) -> None:
    out.heading("Exact audits")
    caught = sum(line["caught"] for line in body["exact"])
    out.text(
        f"{len(body['exact'])} laws were listed or summed; {caught} half-noise twins break their claims."
    )
    header = ["subject", "claimed epsilon", "true epsilon", "largest true / claimed delta", "half noise"]
    names = ("claimed", "true", "ratio", "twin")
    out.table(header, [[line["subject"], *(_number(line[name]) for name in names)] for line in body["exact"]])


def _attacks(out: Page, body: Mapping[str, Any]) -> None:
    out.heading("Attacks")
    caught = sum(line["caught"] for line in body["attacks"])
    out.text(f"{len(body['attacks'])} rows were attacked; {caught} half-noise twins were caught.")
    names = ("claimed", "pair", "shown", "half_noise")
    rows = [
        [line["subject"], line["relation"], *(_number(line[name]) for name in names), line["note"]]
        for line in body["attacks"]
    ]
    out.table(["subject", "relation", "claimed", "pair", "shown", "half noise", "note"], rows)


def _outside(out: Page, body: Mapping[str, Any]) -> None:
    out.heading("Tools of others")
    for tool in dict.fromkeys(line["tool"] for line in body["outside"]):
        lines = [line for line in body["outside"] if line["tool"] == tool]
        counts = {verdict: sum(line["verdict"] == verdict for line in lines) for verdict in _VERDICTS}
        out.text(f"{tool}: " + ", ".join(f"{verdict} {count}" for verdict, count in counts.items() if count))
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
    out.heading("Faults and builds")
    kills, fuzz, wheel = body["kills"], body["fuzz"], body["wheel"]
    kinds = ", ".join(f"{name} {count}" for name, count in kills["kinds"].items())
    out.text(
        f"{kills['kills']} times writers of a ledger were killed ({kinds}): {kills['acknowledged']} charges "
        f"acknowledged, {kills['lost']} lost, {kills['damaged']} ledgers damaged, {kills['beyond_cap']} times beyond "
        f"the cap; {kills['seconds']:.0f} s."
    )
    out.text(
        f"{fuzz['cases']} fuzzed inputs and hostile files: {sum(fuzz['refused'].values())} refused, "
        f"{sum(fuzz['accepted'].values())} accepted, {fuzz['n_surprises']} surprises; {fuzz['seconds']:.0f} s."
    )
    names = sorted({*fuzz["refused"], *fuzz["accepted"]})
    rows = [[name, *(str(fuzz[part].get(name, 0)) for part in ("refused", "accepted"))] for name in names]
    out.table(["input", "refused", "accepted"], rows)
    if "skipped" in wheel:
        out.text(wheel["skipped"])
    else:
        same = "are the same file" if wheel["identical"] else "DIFFER"
        out.text(
            f"Two builds of {wheel['builds'][0]['name']} {same}: SHA-256 {wheel['builds'][0]['sha256']}."
        )
    out.notes("Versions", [f"{name} {version}" for name, version in body["packages"].items()])


_VERDICTS: Sequence[str] = ("agrees", "contradicts", "skipped")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _yes(value: bool) -> str:
    return "passed" if value else "FAILED"
