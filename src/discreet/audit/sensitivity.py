"""Compare observed with declared: distances between neighbors' private inputs, and prices of runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from discreet._typing import Array
from discreet.audit.trace import PlannedRun, Trace, innermost
from discreet.audit.worst_pairs import adversarial_points
from discreet.mechanisms.recording import Call
from discreet.privacy import events
from discreet.privacy.accounting import accountants
from discreet.privacy.accounting.calibration import group_event
from discreet.problem import Problem
from discreet.records.base import Records
from discreet.solvers.base import GroupPromise
from discreet.solvers.gradients.row_centering import LeveledBounds
from discreet.solvers.minimizers.constrained import minimize_over, reachable_distance
from discreet.solvers.minimizers.minimizer import Objective

_ROUNDING = 1e-9  # of sums over the few records of a replay


@dataclass(frozen=True)
class Distance:
    """The observed distance between two neighbors' values, and its declared bound.

    ``is_input``: the values are inputs of a mechanism, not results.
    """

    where: str
    observed: float
    declared: float
    is_input: bool = False

    @property
    def ratio(self) -> float:
        """Observed over declared distance; above 1 the declared sensitivity is false."""
        return self.observed / self.declared if self.declared > 0 else math.inf * (self.observed > 0)

    @property
    def exceeded(self) -> bool:
        """Whether the declared sensitivity is false, beyond rounding."""
        return not self.observed <= self.declared * (1 + _ROUNDING)


def rows_of(charge: PlannedRun) -> int:
    """Return the number of records per protected unit, which multiplies declared sensitivities."""
    groups = getattr(charge.plan, "groups", None)
    return groups.rows if isinstance(groups, GroupPromise) else 1


def input_distances(first: Trace, second: Trace) -> list[Distance]:
    """Return distances between the private inputs of calls with a declared sensitivity, in order.

    This is sound because the second trace replayed the first one's answers. The output stage of an objective
    perturbation is not compared here: its sensitivity is conditional on the exact minimizer.
    """
    rows = [rows_of(charge) for charge in first.charges for _ in range(charge.first_call, charge.last_call)]
    rows = [1] * (len(first.calls) - len(rows)) + rows  # charges reach from the first of them to the end
    conditional = {
        index
        for run in [*first.runs, *first.charges]
        if perturbs_objective(innermost(run.plan))
        for index in _output_calls(run, first)
    }
    found = []
    for index, (a, b) in enumerate(zip(first.calls, second.calls, strict=False)):
        if index in conditional or a.value is None or b.value is None:
            continue
        if a.value.shape != b.value.shape:
            continue  # reported as a difference between calls
        change = a.value.astype(np.float64) - b.value.astype(np.float64)
        where = f"call {index} ({a.mechanism})"
        if a.sensitivity is not None:
            found.append(
                Distance(where, _norm(change, a.sensitivity.norm), rows[index] * a.sensitivity.value, True)
            )
        if a.score_range is not None and change.size:
            found.append(Distance(where, float(np.ptp(change)), rows[index] * a.score_range, True))
    return found


def gradient_distances(first: PlannedRun, second: PlannedRun, rows: int = 1) -> list[Distance]:
    """Compare the shift of the summed gradient at adversarial points with the problem's bound.

    ``rows`` records differ between the two data sets. The proofs of all gradient solvers start from this bound
    for one record.
    """
    problem = getattr(first.plan, "problem", None)
    if not isinstance(problem, Problem) or not _summable(first.records) or not _summable(second.records):
        return []
    declared = rows * problem.gradient_sensitivity(first.plan.guarantee.neighboring).value
    if not math.isfinite(declared):
        return []
    found = []
    for model, (a, b) in enumerate(zip(first.records, second.records, strict=True)):
        shifts = [
            _gradient(a, problem, point) - _gradient(b, problem, point)
            for point in adversarial_points(problem)
        ]
        worst = max(float(np.linalg.norm(shift)) for shift in shifts)
        # Allow for the rounding of a sum of n gradients.
        slack = 2.0**-50 * (a.n_samples + b.n_samples) * declared
        found.append(Distance(f"record gradient (model {model})", max(0.0, worst - slack), declared))
    return found


def perturbs_objective(plan: Any) -> bool:
    """Whether a plan adds noise to the objective and has an output stage (Theorem 4)."""
    return all(
        hasattr(plan, name) for name in ("total_l2", "objective_noise", "gradient_tolerance", "output")
    )


def objective_problems(run: PlannedRun, calls: list[Call]) -> list[str]:
    """Check the noise of an objective perturbation: one fresh draw per model, at the priced scale."""
    plan, problem = run.plan, run.plan.problem
    price = plan.record_event  # for one record; `price_problem` checks the price of a group
    draws = [call for call in calls[run.first_call : run.last_call] if call.value is None]
    wrong = []
    if len(draws) != problem.n_models:
        wrong.append(f"{len(draws)} noise vectors were drawn for {problem.n_models} perturbed objectives")
    if isinstance(price, events.Pure):
        return wrong + _pure_problems(plan, price, draws)
    parts = [leaf for leaf, _ in events.flatten(_core(price))]
    leaves = [leaf for leaf in parts if isinstance(leaf, events.ObjectivePerturbation)]
    if len(leaves) != 1:
        return [*wrong, f"a perturbed objective was charged as {price}"]
    unit = problem.bounds.feature_norm * (1.0 if problem.loss.family == "softmax" else problem.loss.lipschitz)
    priced = leaves[0].noise_multiplier * unit
    wrong += [
        f"noise of scale {draw.scale:.6g} was drawn where {priced:.6g} was charged for"
        for draw in draws
        if draw.scale < priced * (1 - _ROUNDING)
    ]
    priced_l2 = problem.bounds.feature_norm**2 / leaves[0].leverage
    if plan.total_l2 < priced_l2 * (1 - _ROUNDING):
        wrong.append(f"an l2 of {plan.total_l2:.6g} was used where {priced_l2:.6g} was charged for")
    return wrong


def _pure_problems(plan: Any, price: events.Pure, draws: list[Call]) -> list[str]:
    """Check that gamma-norm noise of scale s is charged at least sensitivity / s per model, without curvature."""
    shift = plan.problem.gradient_sensitivity(plan.guarantee.neighboring).value
    least = sum(shift / draw.scale for draw in draws)
    if least <= price.epsilon * (1 + _ROUNDING):
        return []
    return [f"the noise costs epsilon {least:.6g} or more, and {price.epsilon:.6g} was charged"]


def output_distances(first: PlannedRun, second: PlannedRun, a: Trace, b: Trace) -> list[Distance]:
    """Check the premise of the output stage: both approximate minimizers are close to the exact ones.

    An exact gradient of norm g means a distance of at most g / l2 to the exact minimizer; over a set the minimizer is
    computed again, to half the tolerance where rounding allows. Half a step of the objective's grid counts as gradient
    (docs/proofs/objective-perturbation.md, Theorem 4). The sum of both distances must not exceed the declared
    sensitivity of the output mechanism.
    """
    plan = first.plan
    releases = _output_calls(first, a)
    if len(releases) != 1 or _output_calls(second, b) != releases:
        return []
    release = a.calls[releases[0]]
    grid = plan.objective_noise.grid * math.sqrt(plan.problem.n_features * plan.problem.loss.n_outputs) / 2
    squares = 0.0
    for norm, other in zip(_leftovers(first, a), _leftovers(second, b), strict=True):
        squares += (norm + other + 2 * grid) ** 2
    assert release.sensitivity is not None
    return [Distance("output stage", math.sqrt(squares) / plan.total_l2, release.sensitivity.value)]


def price_problem(run: PlannedRun, trace: Trace) -> str | None:
    """Return an error if the calls cost more than the charged event, otherwise None.

    Under subsampling each call must match the charge: the same number of calls, noise multipliers and sampling rates.
    The price of a choice among tries is not a composition, and is not checked here.
    """
    plan = run.plan
    own = trace.calls[run.first_call : run.last_call]
    made = [call.event for call in own if call.event is not None]
    perturbed = perturbs_objective(innermost(plan))  # priced as a whole, by its own proof
    if (perturbed and rows_of(run) == 1) or not made or chooses(plan.event):
        return None
    if rows_of(run) == 1 and _subsampled(plan.event):
        charged: Counter[events.Event] = Counter()
        for leaf, count in events.flatten(_core(plan.event)):
            charged[_ideal(leaf)] += count
        ran = Counter(_sampled_events(run, trace))
        return None if ran == charged else f"the run made {dict(ran)}, the charge says {dict(charged)}"
    promise = plan.guarantee
    of_one_record = plan.record_event if perturbed else events.Composed(tuple(made))
    all_calls = group_event(of_one_record, rows_of(run))
    if all_calls is None:  # without an exact price for several records, the plan uses the general conversion
        return None
    tolerated = accountants.epsilon(plan.event, promise.delta, promise.neighboring)
    total = accountants.epsilon(all_calls, promise.delta, promise.neighboring)
    if total <= tolerated * (1 + _ROUNDING):
        return None
    return f"the run cost epsilon {total:.6g} at delta {promise.delta:.3g}, the charge is {tolerated:.6g}"


def _sampled_events(run: PlannedRun, trace: Trace) -> Iterator[events.Event]:
    """Yield the events of a run's calls, each on the sample drawn just before it, if any."""
    for index in range(run.first_call, run.last_call):
        event = trace.calls[index].event
        if event is not None:
            event = _core(event)
            for sample in trace.samples:
                event = events.Subsampled(event, sample.rate) if sample.before == index else event
            yield event


def _ideal(leaf: events.Event) -> events.Event:
    """Return a leaf without wrappers, but with its sampling."""
    leaf = _core(leaf)
    return replace(leaf, event=_core(leaf.event)) if isinstance(leaf, events.Subsampled) else leaf


def _subsampled(event: events.Event) -> bool:
    return any(isinstance(leaf, events.Subsampled) for leaf, _ in events.flatten(_core(event)))


def chooses(event: events.Event) -> bool:
    """Whether an event is a choice among several runs."""
    chosen = events.OneOf | events.RandomTries
    return any(isinstance(_core(leaf), chosen) for leaf, _ in events.flatten(_core(event)))


def claim_problem(plan: Any) -> str | None:
    """Return an error if the charged event does not imply the stated guarantee, otherwise None."""
    promise = plan.guarantee
    delta = accountants.delta(plan.event, promise.epsilon, promise.neighboring)
    if delta <= promise.delta * (1 + _ROUNDING):
        return None
    return f"delta is {delta:.3g} at epsilon {promise.epsilon:g}, the guarantee says {promise.delta:.3g}"


def _leftovers(run: PlannedRun, trace: Trace) -> list[float]:
    """Return, for every model, l2 times the distance from the output stage's input to the perturbed minimizer."""
    plan, problem = run.plan, run.plan.problem
    own = trace.calls[run.first_call : run.last_call]
    draws = [np.asarray(call.output) for call in own if call.value is None]
    points = own[_output_calls(run, trace)[0] - run.first_call].value.reshape(
        problem.n_models, *problem.shape
    )
    if problem.geometry is not None:
        return [
            plan.total_l2 * float(np.linalg.norm(point - _minimizer(part, plan, noise)))
            for part, point, noise in zip(run.records, points, draws, strict=False)
        ]
    return [
        float(np.linalg.norm(_gradient(part, problem, point) + plan.total_l2 * point + noise))
        for part, point, noise in zip(run.records, points, draws, strict=False)
    ]


def _minimizer(records: Any, plan: Any, noise: Array) -> Array:
    objective = Objective(records, plan.problem.loss, plan.total_l2, noise)
    geometry = plan.problem.geometry
    closely = max(plan.gradient_tolerance / plan.total_l2 / 2, reachable_distance(*objective.sizes, geometry))
    return minimize_over(objective, geometry, closely)


def _output_calls(run: PlannedRun, trace: Trace) -> list[int]:
    return [index for index in range(run.first_call, run.last_call) if trace.calls[index].value is not None]


def _summable(records: Any) -> bool:
    return isinstance(records, list) and all(isinstance(part, Records) for part in records)


def _gradient(records: Any, problem: Problem, theta: Array) -> Array:
    gradient = np.asarray(records.value_and_gradient(problem.loss, theta)[1], dtype=np.float64)
    bounds = problem.bounds  # leveled bounds limit the norm of images, and only images are released
    return bounds.images(gradient[None])[0] if isinstance(bounds, LeveledBounds) else gradient


def _core(event: events.Event) -> events.Event:
    """Return an event without the wrappers that state how exactly it was sampled."""
    while isinstance(event, events.Discretized | events.Approximated):
        event = event.event
    return event


def _norm(vector: Array, order: float) -> float:
    return float(np.linalg.norm(vector.ravel(), order)) if vector.size else 0.0
