"""Record a program on one data set, replay it on a neighbor, and compare everything that must agree.

Differential privacy of a program follows from a few facts about each mechanism call: given equal earlier answers, the
inputs of neighbors are within the declared sensitivity; the noise is the noise that was charged; and only answers reach
the outside. A replay checks these facts on two given data sets. It finds errors and proves nothing; finding bad
neighbors is up to the caller.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from discreet.audit import sensitivity
from discreet.audit.sensitivity import Distance
from discreet.audit.trace import PlannedRun, Program, Trace, difference, frozen, noise_of, trace

#: The checks of a replay, by the name under which findings are reported.
CHECKS = {
    "plan": "the plan, and with it the price, does not depend on the data",
    "repeatable": "the same data and seed give the same run: there is no other randomness",
    "calls": "number, order, scale, shape and declared sensitivity of the calls do not depend on the data",
    "distance": "private inputs differ by no more than was declared",
    "words": "the use of random words does not depend on the data",
    "state": "given equal answers, everything published is equal, bit for bit",
    "warnings": "warnings do not depend on the data",
    "errors": "errors do not depend on the data, and the program runs",
    "reuse": "no noise is used twice",
    "noise": "perturbed objectives draw the noise that was charged for",
    "price": "the calls cost no more than what was charged",
    "claim": "the charge implies the printed guarantee",
    "recorded": "a plan that charges something makes at least one call that was recorded",
}


@dataclass(frozen=True)
class Finding:
    """A check that failed."""

    check: str
    message: str

    def __str__(self) -> str:
        return f"{self.check}: {self.message}"


@dataclass(frozen=True)
class Replay:
    """The outcome of one replay.

    Attributes
    ----------
    findings : failed checks.
    distances : every observed distance with its declared bound.
    """

    findings: tuple[Finding, ...]
    distances: tuple[Distance, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not self.findings

    @property
    def failed_checks(self) -> set[str]:
        """Names of the failed checks."""
        return {finding.check for finding in self.findings}

    @property
    def worst_ratio(self) -> float:
        """The largest observed over declared distance; near 1, the pair is a worst case."""
        return max((distance.ratio for distance in self.distances), default=0.0)

    @property
    def worst_input_ratio(self) -> float | None:
        """The same over inputs of mechanisms only; None if no input has a declared sensitivity."""
        return max((d.ratio for d in self.distances if d.is_input), default=None)

    def __str__(self) -> str:
        lines = [f"replay: {'passed' if self.passed else f'{len(self.findings)} findings'}"]
        lines += [f"  {finding}" for finding in self.findings]
        lines += [
            f"  {d.where:<34} observed {d.observed:.6g}  declared {d.declared:.6g}  ratio {d.ratio:.4f}"
            for d in self.distances
        ]
        return "\n".join(lines)


def replay(program: Program, first: Any, second: Any, *, seed: int = 0, skip: Collection[str] = ()) -> Replay:
    """Run ``program`` on two neighboring data sets with equal answers of all mechanisms, and compare.

    Parameters
    ----------
    program : function of the data that returns what it publishes; see `discreet.audit.trace.fitting` for an estimator.
    first, second : neighboring data sets under the relation of the program's guarantee.
    seed : seed of the (insecure) noise.
    skip : names of checks to leave out, for documented exceptions; see `CHECKS`.

    Privacy
    -------
    None: the noise is seeded and private inputs are kept. Use synthetic data, or data that you may inspect.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateLinearSVC
    >>> from discreet.audit.trace import fitting
    >>> X, y = np.array([[3.0, 4.0], [0.1, 0.2]]), np.array([1, 0])
    >>> other = np.array([[-3.0, -4.0], [0.1, 0.2]])
    >>> found = replay(fitting(PrivateLinearSVC(1.0, 1e-2, classes=[0, 1])), (X, y), (other, y))
    >>> found.passed, 0.95 < found.worst_ratio <= 1.0
    (True, True)
    """
    unknown = set(skip) - set(CHECKS)
    if unknown:
        raise ValueError(f"skip names unknown checks {sorted(unknown)}; there are {sorted(CHECKS)}")
    one = trace(program, first, seed=seed)
    two = trace(program, second, seed=seed, answers=one.calls, samples=one.samples)
    findings = [] if "repeatable" in skip else _compare_repeat(one, trace(program, first, seed=seed))
    findings += _compare(one, two) + _compare_runs(one, two) + _compare_charges(one, two)
    distances = sensitivity.input_distances(one, two) + _run_distances(one, two)
    findings += [
        Finding("distance", f"{d.where}: observed {d.observed:.6g}, declared {d.declared:.6g}")
        for d in distances
        if d.exceeded
    ]
    return Replay(tuple(finding for finding in findings if finding.check not in skip), tuple(distances))


def _compare(one: Trace, two: Trace) -> list[Finding]:
    """Compare what must be equal in both traces."""
    found = []
    if len(one.calls) != len(two.calls):
        found.append(_differ("calls", f"{len(one.calls)} calls", len(two.calls)))
    for index, (a, b) in enumerate(zip(one.calls, two.calls, strict=False)):
        if a.public != b.public:
            found.append(_differ("calls", f"call {index} is {a.public}", b.public))
    for a_run, b_run in zip(one.runs, two.runs, strict=False):
        exempt = any(call.exact_tries for call in one.calls[a_run.first_call : a_run.last_call])
        if _words(a_run, one) != _words(b_run, two) and not exempt:
            found.append(Finding("words", f"{sum(a_run.words)} random words against {sum(b_run.words)}"))
    if one.error != two.error:
        found.append(_differ("errors", one.error, two.error))
    elif one.error is not None:
        found.append(Finding("errors", f"the program failed on both data sets: {one.error}"))
    if one.warnings != two.warnings:
        found.append(_differ("warnings", one.warnings, two.warnings))
    if one.error is None and two.error is None and (where := difference(one.state, two.state)) is not None:
        found.append(Finding("state", f"{where} depends on the data beyond the mechanisms' answers"))
    if repeated := _repeated(one):
        found.append(Finding("reuse", f"calls {repeated} added the same noise"))
    return found


def _words(run: PlannedRun, made: Trace) -> list[int]:
    """Return the requests for random words; if the number of records is private, without those of sampling."""
    words = list(run.words)
    if not run.plan.guarantee.neighboring.size_is_public:
        for sample in made.samples:
            if run.first_call <= sample.before < run.last_call:
                words.remove(sample.size)
    return words


def _compare_runs(one: Trace, two: Trace) -> list[Finding]:
    """Check that plans are equal and recorded, and that perturbed objectives use the noise that was charged."""
    found = []
    for a, b in zip(one.runs, two.runs, strict=False):
        found += _compare_plans(a, b) or _recorded(a, one, a.last_call)
        if sensitivity.perturbs_objective(a.plan):
            found += [Finding("noise", text) for text in sensitivity.objective_problems(a, one.calls)]
    return found


def _run_distances(one: Trace, two: Trace) -> list[Distance]:
    """Return distances between gradients and minimizers that are not inputs of a mechanism."""
    distances: list[Distance] = []
    rows = max((sensitivity.rows_of(charge) for charge in one.charges), default=1)
    for a, b in zip(one.runs, two.runs, strict=False):
        if not _same_plan(a.plan, b.plan):
            continue
        distances += sensitivity.gradient_distances(a, b, rows)
        if sensitivity.perturbs_objective(a.plan):
            distances += sensitivity.output_distances(a, b, one, two)
    return distances


def _compare_charges(one: Trace, two: Trace) -> list[Finding]:
    """Check that charges are equal, recorded, and cover their calls; without charges, that plans cover their runs."""
    if not one.charges:
        return [found for run in one.runs for found in _priced(run, one)]
    found = []
    chosen = any(sensitivity.chooses(charge.plan.event) for charge in one.charges)
    for a, b in zip(one.charges, two.charges, strict=False):
        found += [] if one.runs else _compare_plans(a, b)
        found += _recorded(a, one, len(one.calls))
        found += [] if chosen else _priced(a, one)
    return found


def _same_plan(one: Any, two: Any) -> bool:
    def facts(plan: Any) -> Any:
        return frozen([plan.event, plan.guarantee, getattr(plan, "problem", None)])

    return bool(facts(one) == facts(two))


def _compare_repeat(one: Trace, again: Trace) -> list[Finding]:
    same = [a.public for a in one.calls] == [b.public for b in again.calls] and all(
        np.array_equal(np.asarray(a.output), np.asarray(b.output))
        for a, b in zip(one.calls, again.calls, strict=True)
    )
    if same and one.state == again.state and one.error == again.error:
        return []
    return [Finding("repeatable", "two runs on the same data with the same seed differ: unseen randomness")]


def _compare_plans(a: PlannedRun, b: PlannedRun) -> list[Finding]:
    if _same_plan(a.plan, b.plan):
        return []
    return [_differ("plan", a.plan.event, b.plan.event)]


def _differ(check: str, one: object, two: object) -> Finding:
    return Finding(check, f"{one} on one data set, {two} on the other")


def _recorded(run: PlannedRun, one: Trace, last_call: int) -> list[Finding]:
    if one.calls[run.first_call : last_call] or one.error is not None:
        return []
    return [Finding("recorded", f"{type(run.plan).__name__} made no call that was recorded")]


def _priced(run: PlannedRun, one: Trace) -> list[Finding]:
    """Check a plan and its calls without the neighbor."""
    problems = {"price": sensitivity.price_problem(run, one), "claim": sensitivity.claim_problem(run.plan)}
    return [Finding(check, problem) for check, problem in problems.items() if problem]


def _repeated(one: Trace) -> list[tuple[int, int]]:
    """Return pairs of calls that added the same noise, up to scale and rounding.

    Independent draws agree to within 4e-9 of their scale with probability below 4e-9 per pair and coordinate.
    """
    noises = []
    for index, call in enumerate(one.calls[:200]):
        noise = noise_of(call)
        if noise is not None and noise.size and noise.dtype.kind == "f":
            noises.append((index, noise.ravel() / call.scale))
    return [
        (i, j)
        for (i, a), (j, b) in itertools.combinations(noises, 2)
        if np.allclose(a[: b.size], b[: a.size], rtol=0.0, atol=4e-9)
    ]
