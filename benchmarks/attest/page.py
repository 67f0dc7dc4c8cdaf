"""The page of an attestation: one verdict, what was tried, what was not; all rows are folded below.

`summary` is the same without the rows, in Markdown, for benchmarks/results/attestation.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from discreet.card.attestation import failures
from discreet.display.page import Page

_RUNS = {
    "short": "short: every claim is attacked, for eight seconds at most",
    "full": "full: every claim is attacked, for as long as the table of audits asks",
}


def page(body: Mapping[str, Any], missing: Sequence[str] = ()) -> str:
    """The page as HTML, which needs no network; what is ``missing`` is wrong, too."""
    out = Page(f"discreet {body['version']}", "Attestation")
    wrong = [*failures(body), *missing]
    if wrong:
        many = "A check" if len(wrong) == 1 else f"{len(wrong)} checks"
        out.verdict(f"{many} FAILED.", "Do not rely on this version.", "bad")
        out.items(wrong)
    else:
        out.verdict(
            "Nothing that was tried contradicts a promise of this version.",
            "Attacks that fail are evidence, not proof: the proofs are mathematical, and people read them.",
            "good",
        )
    out.facts(
        {
            "Made": str(body["made"])[:16].replace("T", " "),
            "Run": _RUNS.get(body["mode"], body["mode"]),
            "Commit": str(body["commit"])[:12],
            "Python": body["python"],
            "To check it, run": "discreet attest attestation.json",
        }
    )
    out.heading("What was tried")
    out.table(("check", "what it does", "result"), list(_tried(body)), wrapped=True)
    out.heading("What was not tried")
    out.items(f"{text[0].upper()}{text[1:]}." for text in body["not_tested"])
    out.heading("All rows")
    for part in (_claims, _lemmas, _exact, _attacks, _outside, _builds):
        part(out, body)
    return out.html()


def summary(body: Mapping[str, Any], missing: Sequence[str] = ()) -> str:
    """What was tried, what was not and what is wrong, with the date."""
    wrong = [*failures(body), *missing]
    seconds = sum(body["seconds"].values())
    skipped = sum(line["verdict"] == "skipped" for line in body["outside"])
    notes = [line for line in body["attacks"] if line["note"]]
    lines = [
        "# Attestation",
        "",
        f"Written by `python -m benchmarks.attest --write`, {str(body['made'])[:10]}, commit "
        f"{str(body['commit'])[:12]}, Python {body['python']}; run: {body['mode']}; {seconds / 60:.0f} minutes.",
        "",
        f"Wrong: {len(wrong)}. Tools of others that were skipped: {skipped}.",
        *(["", *(f"* WRONG: {text}" for text in wrong)] if wrong else ()),
        *("", "| check | what it does | result |", "|---|---|---|"),
        *(f"| {' | '.join(row)} |" for row in _tried(body)),
        *("", "## Tools of others", "", *(f"* {text}" for text in _by_tool(body))),
        *("", "## Not tried", "", *(f"* {text}" for text in body["not_tested"])),
        *("", "## Seconds", "", "| part | seconds |", "|---|---|"),
        *(f"| {name} | {value:.0f} |" for name, value in body["seconds"].items()),
    ]
    if notes:
        lines += ["", "## Attacks of this run that fall short", ""]
        lines += [f"* {line['subject']}, {line['relation']}: {line['note']}" for line in notes]
    return "\n".join(lines) + "\n"


def _tried(body: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Every kind of check, in words, with its count."""
    replays, tests, kills, fuzz = (body[name] for name in ("replays", "tests", "kills", "fuzz"))
    near = sum(line["ratio"] >= 0.95 for line in replays)
    yield (
        "prices",
        "The epsilon of every claim is computed again from what was recorded.",
        f"{len(body['claims'])} claims",
    )
    yield (
        "replays",
        "Two data sets that differ in one record are run with the same noise. What differs must not exceed what "
        "the proof declares.",
        f"{_of(sum(line['passed'] for line in replays), len(replays))} passed; {near} reach 95% of the limit",
    )
    yield (
        "exact audits",
        "Where all outcomes can be listed, the true epsilon is computed. A copy with half of the noise must fail.",
        f"{_of(sum(line['passed'] for line in body['exact']), len(body['exact']))} passed; "
        f"{sum(line['caught'] for line in body['exact'])} copies caught",
    )
    yield (
        "attacks",
        "Someone who chose the data guesses from the output which data set it was, thousands of times. A copy with "
        "half of the noise must be caught.",
        f"{_of(sum(line['sound'] for line in body['attacks']), len(body['attacks']))} claims stand; "
        f"{sum(line['caught'] for line in body['attacks'])} copies caught",
    )
    counts = {verdict: sum(line["verdict"] == verdict for line in body["outside"]) for verdict in _VERDICTS}
    yield (
        "tools of others",
        "Programs that other people wrote price or test the same mechanisms.",
        ", ".join(f"{verdict}: {count}" for verdict, count in counts.items() if count) or "none",
    )
    figures = body.get("figures", {})
    yield (
        "lemmas",
        "Each statement that a constant rests on is exercised by tests.",
        f"{len(body['lemmas'])} lemmas; {tests['passed']} tests passed, {tests['failed']} failed",
    )
    yield (
        "killed ledgers",
        "Processes are killed while they write a ledger, and disks fill up.",
        _killed(kills),
    )
    if many := figures.get("kills"):
        yield ("killed ledgers, overnight", f"The same at length, {many['when']}.", _killed(many))
    yield (
        "hostile files",
        "Damaged and malicious inputs must be refused, or be harmless.",
        _fuzzed(fuzz),
    )
    if many := figures.get("inputs"):
        yield ("hostile files, overnight", f"The same at length, {many['when']}.", _fuzzed(many))
    wheel = body["wheel"]
    yield (
        "builds",
        "The package is built twice and must come out the same.",
        _built(wheel),
    )


def _built(wheel: Mapping[str, Any]) -> str:
    if "skipped" in wheel:
        return "not run"
    if not wheel["identical"]:
        return "they DIFFER"
    made = wheel["builds"][0]
    return f"one file, {made['name']}, SHA-256 {made['sha256']}"


def _killed(kills: Mapping[str, Any]) -> str:
    return (
        f"{kills['kills']:,} times; {kills['lost']} charges lost, {kills['beyond_cap']} times beyond the cap"
    )


def _fuzzed(fuzz: Mapping[str, Any]) -> str:
    return f"{fuzz['cases']:,} inputs; {fuzz['n_surprises']} surprises"


def _of(part: int, whole: int) -> str:
    return f"all {whole}" if part == whole else f"{part} of {whole}"


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
    with out.folded(f"Claims and replays: {len(rows)}"):
        out.table(["subject", "relation", "epsilon at delta 0.01", "replay", "distance / declared"], rows)


def _lemmas(out: Page, body: Mapping[str, Any]) -> None:
    rows = [
        [name, str(len(use["proves"])), ", ".join(test.rpartition("/")[2] for test in use["tests"])]
        for name, use in body["lemmas"].items()
    ]
    with out.folded(f"Lemmas: {len(rows)}"):
        out.table(["lemma", "constants", "tests"], rows)
    out.notes("Hashes of the proofs", [f"{name}: {digest}" for name, digest in body["proofs"].items()])


def _exact(out: Page, body: Mapping[str, Any]) -> None:
    header = ["subject", "claimed epsilon", "true epsilon", "largest true / claimed delta", "half noise"]
    names = ("claimed", "true", "ratio", "twin")
    rows = [[line["subject"], *(_number(line[name]) for name in names)] for line in body["exact"]]
    with out.folded(f"Exact audits: {len(rows)}"):
        out.table(header, rows)


def _attacks(out: Page, body: Mapping[str, Any]) -> None:
    names = ("claimed", "pair", "shown", "half_noise")
    rows = [
        [line["subject"], line["relation"], *(_number(line[name]) for name in names), line["note"]]
        for line in body["attacks"]
    ]
    with out.folded(f"Attacks: {len(rows)}"):
        out.table(["subject", "relation", "claimed", "worst pair", "shown", "half noise", "note"], rows)


def _by_tool(body: Mapping[str, Any]) -> list[str]:
    by_tool = []
    for tool in dict.fromkeys(line["tool"] for line in body["outside"]):
        lines = [line for line in body["outside"] if line["tool"] == tool]
        counts = {verdict: sum(line["verdict"] == verdict for line in lines) for verdict in _VERDICTS}
        caught = sum(line.get("caught") is True for line in lines)
        words = [f"{verdict} {count}" for verdict, count in counts.items() if count]
        by_tool.append(f"{tool}: " + ", ".join(words + [f"{caught} half-noise copies caught"] * (caught > 0)))
    return by_tool


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
    with out.folded(f"Tools of others: {len(rows)}"):
        out.items(_by_tool(body))
        out.table(["tool", "subject", "verdict", "ours", "at least", "at most", "note"], rows)


def _builds(out: Page, body: Mapping[str, Any]) -> None:
    kills, fuzz, wheel = body["kills"], body["fuzz"], body["wheel"]
    kinds = ", ".join(f"{name} {count}" for name, count in kills["kinds"].items())
    with out.folded("Faults and builds"):
        out.text(
            f"{kills['kills']} times writers of a ledger were killed ({kinds}): {kills['acknowledged']} charges "
            f"acknowledged, {kills['lost']} lost, {kills['damaged']} ledgers damaged, {kills['beyond_cap']} times "
            f"beyond the cap; {kills['seconds']:.0f} s."
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
            out.text(f"Two builds: {_built(wheel)}.")
    out.notes("Versions", [f"{name} {version}" for name, version in body["packages"].items()])


_VERDICTS: Sequence[str] = ("agrees", "contradicts", "skipped")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _yes(value: bool) -> str:
    return "passed" if value else "FAILED"
