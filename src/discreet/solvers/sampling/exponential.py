"""The exponential mechanism over a set of coefficients, sampled exactly: pure epsilon with delta = 0.

A theta of the set, by default of a ball |theta| <= B, is released with probability proportional to

    exp(-rate (sum of losses + l2 |theta|^2 / 2)).

Neighbors' sums of losses differ by a function of theta whose range over the set is a public number, and epsilon is the
rate times that range. Proofs: docs/proofs/exponential-sampling.md.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import ClassVar, Literal

import numpy as np

from discreet._checks import ParameterError, Setting
from discreet._typing import Array, Progress
from discreet.mechanisms.gibbs import Envelope, GibbsMechanism
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.mechanisms.selection import ExponentialMechanism
from discreet.privacy import events
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.guarantee import SHRINK, Guarantee
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.base import Records
from discreet.sets import L2Ball
from discreet.solvers import base
from discreet.solvers.certificates import (
    Certificate,
    label_bound,
    released,
    sampled_point,
    stated,
    with_bounded_labels,
)
from discreet.solvers.sampling import envelopes, expected_tries
from discreet.solvers.sampling.domains import Domain, check_exact, domain_of
from discreet.solvers.sampling.envelopes import Energy, Limit, Shape, energy_range
from discreet.solvers.sampling.expected_tries import find_center, most_passes

Method = Literal["auto", "rejection", "grid"]

_GRID_FEATURES = 3
_MOST_FEATURES = 500  # above this, even a synthetic table takes long and sampling longer
_GRID_WORK = 4e8  # maximum number of record-coefficient products of an enumeration
_REACH = 1.45  # times (epsilon n / p)^(1/3); chosen for its accuracy on one public table
_SHRINK = 0.9  # ratio of successive default radii
_SMALLEST_REACH = 0.5
_CRAMPED = 0.7  # of the best radius; below it a plan suggests another solver
_FLAT = 1.0  # raw predictions of a row spread evenly over all columns, below which a default ball is refused
_TICK = 0.01  # seconds; releases leave at this times a power of two


@dataclass(frozen=True)
class ExponentialSampling:
    """Release a random theta of a set, with smaller losses more likely. The distribution is exact and delta is 0.

    Without a ``constraint`` the set is a ball. An `L2Ball`, `Box`, `L1Ball` or `Simplex` is drawn from as it is; the
    last three are a small part of the ball around them where there are many columns, and are practical for about six.

    Parameters
    ----------
    radius : bound on the norm of every model's coefficients; None for a rule that uses public numbers only. Larger
        balls contain better models but need more noise and many more tries. A problem with its own set overrides it.
        If only a ball far below that rule is practical, a smooth loss is refused, since ``solver="objective"`` serves
        it better under pure epsilon.
    method : "rejection" (exact sampling on a very fine grid), "grid" (evaluates every point of a coarse grid; at most 3
        coefficients), or "auto": rejection if it is practical.
    most_tries : a plan expected to take more tries than this on synthetic data of the same shape is refused. By default
        the hardest of several tables counts: even rows, one category, repeated rows, with various labels.
    structured : whether the columns of the synthetic rows decrease in weight, as in many tables of categories and
        measurements. Larger balls are then practical for such tables; on others a run might never end.
    clock : whether a release waits until the elapsed time is 0.01 seconds times a power of two, so that the time
        reveals less about the number of tries.

    Privacy
    -------
    Pure epsilon, every relation, for every convex loss of one linear prediction with bounded labels. A delta > 0 is
    allowed but gains nothing for a single model. The released coefficients have exactly the stated distribution. The
    time of a fit depends on the data and is not covered (docs/proofs/exponential-sampling.md, section 6).

    References
    ----------
    McSherry and Talwar (2007); Bassily, Smith and Thakurta (2014), Algorithm 2; Dong, Durfee and Rogers (2020).
    """

    name: ClassVar[str] = "exponential"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "one-vs-rest"
    radius: float | None = None
    method: Method = "auto"
    most_tries: float = 2e4
    structured: bool = False
    clock: bool = True

    def plan(self, problem: Problem, guarantee: Guarantee) -> ExponentialPlan:
        """Choose the ball and the rate; refuse what is not proved or would take too long."""
        refuse_problem(self.name, problem)
        given = None if problem.geometry is None else domain_of(self.name, problem.geometry)
        if self.method not in ("auto", "rejection", "grid"):
            raise ParameterError("method", f"must be 'auto', 'rejection' or 'grid', got {self.method!r}")
        if self.method == "grid" and problem.n_features > _GRID_FEATURES:
            raise ValueError(
                f"method='grid' evaluates every point of a grid and supports at most {_GRID_FEATURES} coefficients; "
                f"this problem has {problem.n_features}; use method='rejection'"
            )
        epsilon = epsilon_of_one(problem, guarantee)
        wanted = self._radius() if given is None else given.ball.radius
        radii = _default_radii(problem, epsilon) if wanted is None else [wanted]
        enumeration = ExponentialPlan(
            problem, guarantee, radii[0], epsilon, "grid", self.clock, self.structured
        )
        if self.method == "grid":
            return enumeration
        plan = _largest_practical(replace(enumeration, method="rejection"), radii, self.most_tries)
        if plan.expected_tries <= self.most_tries:
            if wanted is None and math.isfinite(problem.loss.smoothness):
                plan.refuse_doubt()
            return plan
        if self.method == "auto" and problem.n_features <= _GRID_FEATURES:
            return enumeration
        raise ParameterError(
            "most_tries",
            f"is {self.most_tries:.3g}, but exact sampling from {plan.where} would take about "
            f"{plan.expected_tries:.2g} tries on a table of {problem.n_samples} x {problem.n_features}",
            "choose a smaller radius, as in solver=ExponentialSampling(radius=1.0)"
            if given is None
            else "choose a smaller set or fewer columns",
            Setting("solver", "objective", "localized", purpose="(pure as well)"),
        )

    def _radius(self) -> float | None:
        if self.radius is not None and not 1e-6 <= self.radius <= 1e6:
            raise ParameterError("radius", f"must lie between 1e-6 and 1e6, got {self.radius!r}")
        return self.radius


@dataclass(frozen=True)
class ExponentialPlan(base.Plan):
    """A calibrated draw from the exponential mechanism, one per model.

    ``epsilon`` is the price of one model; ``radius`` is that of the ball, or of one around the set.
    """

    radius: float
    epsilon: float
    method: Literal["rejection", "grid"] = "rejection"
    clock: bool = True
    structured: bool = False

    def __post_init__(self) -> None:
        if self.method == "rejection":  # raise now, before any charge, if anything can fail
            check_exact(ExponentialSampling.name, self.domain, self.gibbs.grid)

    @cached_property
    def domain(self) -> Domain:
        """The set from which coefficients are drawn."""
        geometry = self.problem.geometry
        if geometry is None:
            return Domain(L2Ball(self.radius, self.problem.n_features))
        return domain_of(ExponentialSampling.name, geometry)

    @property
    def energy_range(self) -> float:
        """How much more one record can move the sum of losses at one theta than at another."""
        problem, domain = self.problem, self.domain
        return (
            energy_range(
                problem.loss,
                problem.n_samples,
                domain.roundings(problem.n_features),
                domain.reach(problem),
                label_bound(problem),
                self.record_guarantee.neighboring,
            )
            + 2.0**-48 * self.l2 * domain.geometry.radius(2.0) ** 2
        )

    @property
    def rate(self) -> float:
        """The factor of the sum of losses in the exponent: epsilon over the range."""
        return self.epsilon / self.energy_range * SHRINK

    @property
    def l2(self) -> float:
        """The public regularization (sum scale)."""
        return 0.0 if self.problem.l2 is None else self.problem.l2 * self.problem.n_samples

    @cached_property
    def gibbs(self) -> GibbsMechanism:
        """The exact sampler."""
        return GibbsMechanism(self.epsilon, (self.domain.ball,), self.shape.grid, self.domain.region)

    @property
    def shape(self) -> Shape:
        """Public facts about the energy."""
        return shape_of(self.problem, self.radius, self.rate, self.l2)

    @cached_property
    def points(self) -> Array:
        """Candidates of an enumeration: a cubic grid in the set, as fine as the work limit allows."""
        p = self.domain.size
        wanted = min(2e4, max(1e3, _GRID_WORK / (self.problem.n_samples * p)))
        per_axis = max(3, int((wanted * 2**p / _ball_volume(p)) ** (1 / p)) | 1)
        axis = np.linspace(-self.radius, self.radius, per_axis) * SHRINK
        cube = np.stack(np.meshgrid(*[axis] * p, indexing="ij"), axis=-1).reshape(-1, p)
        points = (cube + np.array(self.domain.ball.center))[
            np.square(cube).sum(axis=1) <= self.radius**2 * SHRINK
        ]
        inside: Array = points[self.domain.contains(points)]
        return inside

    @cached_property
    def selection(self) -> ExponentialMechanism:
        """The selection among the points of an enumeration."""
        return ExponentialMechanism(self.energy_range, self.epsilon, len(self.points))

    @property
    def expected_tries(self) -> float:
        """Forecast for all models together; 0 for an enumeration."""
        if self.method == "grid":
            return 0.0
        return self.problem.n_models * expected_tries.set_tries(self.shape, self.domain, self.structured)

    def takes_at_most(self, tries: float) -> bool:
        """Whether the forecast is at most ``tries``; cheaper than the full forecast if it is not."""
        models = self.problem.n_models
        return (
            models * expected_tries.set_tries(self.shape, self.domain, self.structured, tries / models)
            <= tries
        )

    @property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        models = self.problem.n_models
        one = self.gibbs if self.method == "rejection" else self.selection
        return (base.PlannedRelease(one, "coefficients of one model", None if models == 1 else models),)

    @property
    def how(self) -> str:
        how = "exact rejection sampling" if self.method == "rejection" else "enumeration of a grid"
        models = f", {self.problem.n_models} one-vs-rest models" if self.problem.n_models > 1 else ""
        where = "a ball" if self.problem.geometry is None else type(self.problem.geometry).__name__
        return f"exponential mechanism on {where} by {how}{models}"

    @property
    def where(self) -> str:
        """The set, in words."""
        if self.problem.geometry is None:
            return f"the ball of radius {self.radius:.3g}"
        return f"this {type(self.problem.geometry).__name__}, within {self.radius:.3g} of its center,"

    @property
    def proof(self) -> str:
        plain = "bounded range (Theorem 1) and exact sampling (Theorem 2)"
        where = "" if self.domain.region is None else ", in a set (Theorem 10)"
        return f"{plain}{where}; docs/proofs/exponential-sampling.md"

    @property
    def numbers(self) -> Mapping[str, float | str]:
        return {
            "radius of the ball": self.radius,
            "epsilon of one model": self.epsilon,
            "range of one record's effect": self.energy_range,
            "temperature (sum scale)": 1 / self.rate,
            "total l2 (sum scale)": self.l2,
            "expected tries": self.expected_tries,
            "sampler": f"exact, {SOURCE}",
        }

    def run(self, records: list[Records], entropy: Entropy, progress: Progress | None = None) -> base.Release:
        """Draw every model. ``progress`` gets the number of models done and the public forecast, not the tries."""
        began = time.monotonic()
        theta = np.empty((len(records), self.problem.n_features))
        for model, draw in enumerate(self.prepared(records)):
            theta[model] = self.domain.coefficients(draw(entropy)[None])[0]
            if progress is not None:
                progress(model + 1, self.expected_tries)
        if self.clock:
            wait_for_tick(began)
        return released(theta, entropy.secure, self.certificate)

    @cached_property
    def certificate(self) -> Certificate | None:
        """Bound on the excess risk over the ball; None for an enumeration, whose grid is coarse."""
        if self.method == "grid":
            return None
        domain = self.domain
        return sampled_point(
            self.problem,
            self.rate,
            self.gibbs.grid,
            size=domain.size,
            norm=domain.geometry.radius(2.0),
            outer=domain.ball.radius,
            inner=domain.inner_radius,
        )

    def prepared(self, records: list[Records]) -> list[Callable[[Entropy], Array]]:
        """Return one repeatable draw per model, in coordinates of the draw; prepared once, on first use."""
        prepare = self._enumerated if self.method == "grid" else self._sampled
        return [prepare(part.in_memory()) for part in with_bounded_labels(records, self.problem)]

    def _sampled(self, records: ArrayRecords) -> Callable[[Entropy], Array]:
        energy = self.domain.energy(records, self.problem.loss, self.rate, self.l2)
        build = cache(lambda: envelope_of(energy, self.domain.limits, self.gibbs.grid, self.shape.tilt_floor))
        return lambda entropy: self.gibbs.release(energy, build, entropy)

    def _enumerated(self, records: ArrayRecords) -> Callable[[Entropy], Array]:
        energy = self.domain.energy(records, self.problem.loss, 1.0, self.l2)
        scores = cache(lambda: np.array([-energy(point) for point in self.points]))
        return lambda entropy: np.array(self.points[self.selection.select(scores(), entropy)])

    @property
    def passes_bound(self) -> int:
        """Bound on the passes over the records per model before the first try; tries are exact and never capped."""
        if self.method == "grid":
            return len(self.points)
        return most_passes(self.domain.size, len(self.domain.limits))

    @property
    def remarks(self) -> Mapping[str, str]:
        more = {"pure": "delta = 0, whatever delta was asked for", **stated(self.certificate)}
        if self.method == "rejection":
            other = "of the hardest kinds" if self.structured else "with structure"
            tries = expected_tries.set_tries(self.shape, self.domain, not self.structured)
            more[f"expected tries, rows {other}"] = f"{tries:.3g}"
        return {**more, "radius": self.doubt} if self.doubt else more

    @property
    def doubt(self) -> str:  # type: ignore[override]  # a constant for other plans
        """Why the result may be poor, from public numbers; empty without a doubt."""
        worthwhile = _default_radii(self.problem, self.epsilon)[0]
        if self.problem.geometry is not None or self.radius >= _CRAMPED * worthwhile:
            return ""
        return (
            f"the radius is {self.radius:.3g}, although {worthwhile:.3g} would be worth its noise: exact sampling "
            "would take too long on rows of the hardest kinds, and so small a ball may hold little but the majority "
            "class. For tables of categories and measurements pass solver=ExponentialSampling(structured=True)"
        )

    def refuse_doubt(self) -> None:
        """Raise if the default ball had to be so small that a pure minimizer is the better choice."""
        sizes = self.shape
        if self.doubt and self.radius * sizes.feature_norm < _FLAT * math.sqrt(sizes.n_features):
            raise ParameterError(
                "solver",
                f"{ExponentialSampling.name!r} has no good default here: {self.doubt}",
                Setting("solver", "auto", "objective", purpose="(pure with delta=0 as well)"),
                "declare a radius, as in solver=ExponentialSampling(radius=1.0)",
            )


def envelope_of(energy: Energy, limits: Sequence[Limit], grid: float, tilt_floor: float) -> Envelope:
    """Find the center of the mass and build a Gaussian envelope above it."""
    center = find_center(energy, limits, tilt_floor)
    return envelopes.build(energy, limits, grid, center, tilt_floor)


def shape_of(problem: Problem, radius: float, rate: float, l2: float) -> Shape:
    """Return public facts about the energy of one model."""
    sizes = problem.n_samples, problem.n_features, problem.bounds.feature_norm
    return Shape(problem.loss, *sizes, label_bound(problem) or 0.0, radius, rate, l2)


def refuse_problem(name: str, problem: Problem) -> None:
    """Raise if the proofs do not apply to the problem."""
    if problem.loss.n_outputs > 1:
        raise ParameterError(
            "solver",
            f"{name!r} draws models of one output",
            Setting("multi_class", "ovr", purpose="to fit the classes one against the rest"),
            Setting("solver", "objective", purpose="for a softmax under pure epsilon"),
        )
    if problem.n_features > _MOST_FEATURES:
        raise ParameterError(
            "solver",
            f"{name!r} is practical up to {_MOST_FEATURES} coefficients, and this problem has {problem.n_features}",
            Setting("solver", "objective", purpose="(pure as well)"),
        )
    base.require(name, problem, "single-peaked", "objective")
    if label_bound(problem) is None:
        raise ValueError(
            f"solver {name!r} needs bounded targets for {problem.loss}: declare label_bound, to which they are clipped"
        )


def epsilon_of_one(problem: Problem, guarantee: Guarantee) -> float:
    """Return the epsilon of one of several models: an equal share, or more if delta > 0 allows tighter composition."""
    models = problem.n_models
    share = guarantee.epsilon / models * (1 - 2.0**-45 * (models > 1))
    if guarantee.delta == 0 or models == 1:
        return share
    noise = calibrate(lambda x: events.Repeated(events.BoundedRange(1 / x), models), guarantee)
    return max(share, 1 / noise)


def _default_radii(problem: Problem, epsilon: float) -> list[float]:
    """Return candidate radii, largest first; more records relative to the noise allow larger balls."""
    norm = problem.bounds.feature_norm
    reach = _REACH * (epsilon * problem.n_samples / problem.n_features) ** (1 / 3)
    reach = min(max(reach, _SMALLEST_REACH), 12.0)
    reach = min(reach, problem.loss.prediction_bound)
    reaches = [reach]
    while reaches[-1] * _SHRINK >= min(_SMALLEST_REACH, reach):
        reaches.append(reaches[-1] * _SHRINK)
    return [reach / norm for reach in reaches]


def _largest_practical(plan: ExponentialPlan, radii: list[float], most_tries: float) -> ExponentialPlan:
    """Return the plan with the largest radius whose forecast is low enough, by bisection; the smallest if none is."""
    first, last = 0, len(radii) - 1
    middle = 0  # the first radius is usually low enough
    while first < last:
        if replace(plan, radius=radii[middle]).takes_at_most(most_tries):
            last = middle
        else:
            first = middle + 1
        middle = (first + last) // 2
    return replace(plan, radius=radii[first])


def wait_for_tick(began: float) -> None:
    """Sleep until the time since ``began`` is a public tick times a power of two, which hides the exact time."""
    elapsed = time.monotonic() - began
    ticks = max(0, math.ceil(math.log2(max(elapsed, 1e-9) / _TICK)))
    time.sleep(max(0.0, _TICK * 2.0**ticks - elapsed))


def _ball_volume(p: int) -> float:
    return float(math.pi ** (p / 2) / math.gamma(p / 2 + 1))


base.register(ExponentialSampling.name, ExponentialSampling)
