"""What every solver is: a frozen set of public choices that plans, and a plan that runs.

``plan`` sees public facts only and fixes everything: noise, regularization, number of noisy steps, the event to be
charged. ``run`` is the only place where data meets noise.

How a Gaussian budget is split, and how far one record can move a sum of gradients at a point of a ball of public
radius, is also here. Squared Gaussian-DP parameters add up: a release that gets the share s of the sum has 1 / sqrt(s)
times the noise multiplier that a single release with the whole budget would have, which is the unit. Proofs:
docs/proofs/gradient-methods.md, sections 1 and 2.
"""

from __future__ import annotations

import difflib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Protocol, Self

from discreet._checks import ParameterError, ParameterTypeError, Setting
from discreet._typing import Array, Progress
from discreet.losses import Linear, Loss
from discreet.losses.base import MEANINGS, Theorem
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy import events
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.events import Composed, Event, Repeated, Subsampled
from discreet.privacy.guarantee import SLACK, Guarantee, Neighboring, Sensitivity
from discreet.privacy.page import ShowsPlan
from discreet.privacy.statement import plan_line, plan_text
from discreet.problem import Problem
from discreet.records.base import Records
from discreet.records.kernels.passes import gradient_rounding
from discreet.sets.balls import BallIntersection


@dataclass(frozen=True)
class Release:
    """What a run gives out: coefficients of every model, and whether their noise was secret."""

    theta: Array
    secure: bool


class Priced(Protocol):
    """A mechanism, as far as its price is concerned."""

    @property
    def event(self) -> Event: ...


@dataclass(frozen=True)
class PlannedRelease:
    """One line of a plan's bill.

    Attributes
    ----------
    mechanism : what adds the noise.
    name : what is released, in words.
    times : how often; None for once.
    sampling_rate : the probability with which a record takes part each time.
    """

    mechanism: Priced
    name: str
    times: int | None = None
    sampling_rate: float = 1.0

    @property
    def event(self) -> Event:
        """What the release costs, repetitions included."""
        one = self.mechanism.event
        if self.sampling_rate < 1:
            one = Subsampled(one, self.sampling_rate)
        return one if self.times is None else Repeated(one, self.times)


@dataclass(frozen=True)
class GroupPromise:
    """What a plan for single records promises about all rows of one person.

    Attributes
    ----------
    guarantee : the promise, whose unit is a user.
    rows : how many rows of one person are used at most.
    event : what a whole group is charged.
    """

    guarantee: Guarantee
    rows: int
    event: Event


@dataclass(frozen=True)
class Plan(ShowsPlan, ABC):
    """A calibrated run, frozen before any data is seen; printable.

    A subclass lists its ``releases`` and says in words ``how`` noise is added, the ``proof``, and the public
    ``numbers`` of the run. What is charged, stated and printed follows from them.

    Attributes
    ----------
    problem : the learning problem, in public numbers.
    record_guarantee : what is promised about a single record, which is what the noise is made for.
    reason : why solver="auto" chose this plan.
    groups : the promise about people with several rows, None where each person is one row.
    """

    problem: Problem
    record_guarantee: Guarantee
    reason: str = field(default="", kw_only=True)
    groups: GroupPromise | None = field(default=None, kw_only=True)

    # -- what a subclass says ------------------------------------------------------------------------------

    @property
    @abstractmethod
    def releases(self) -> tuple[PlannedRelease, ...]:
        """Everything that a run releases, in order."""

    @property
    @abstractmethod
    def how(self) -> str:
        """How the noise is added, in words."""

    @property
    @abstractmethod
    def proof(self) -> str:
        """The theorem behind the guarantee."""

    @property
    @abstractmethod
    def numbers(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""

    @abstractmethod
    def run(self, records: list[Records], entropy: Entropy, progress: Progress | None = None) -> Release:
        """Fit the models, one per element of ``records``; afterwards only the release may be looked at."""

    @property
    def sums_only(self) -> bool:
        """Whether a run asks for sums over all records only; then records may be kept in parts, anywhere."""
        return False

    @property
    def sizes(self) -> Mapping[str, str]:
        """Public sizes, as printed."""
        sizes = f"{self.problem.n_samples} x {self.problem.n_features} (intercept included)"
        return {"records x coefficients of one output": sizes}

    @property
    def remarks(self) -> Mapping[str, str]:
        """What else is printed."""
        return {}

    # -- what follows --------------------------------------------------------------------------------------

    @property
    def guarantee(self) -> Guarantee:
        """The promise: about one record, or about all rows of one person."""
        return self.record_guarantee if self.groups is None else self.groups.guarantee

    @property
    def record_event(self) -> Event:
        """What the run costs one record."""
        made = [release.event for release in self.releases]
        return made[0] if len(made) == 1 else Composed(tuple(made))

    @property
    def event(self) -> Event:
        """What is charged."""
        return self.record_event if self.groups is None else self.groups.event

    @property
    def mechanism(self) -> str:
        """How the noise is added, in words."""
        if self.groups is None:
            return self.how
        return f"{self.how}; at most {self.groups.rows} rows of every group"

    @property
    def theorem(self) -> str:
        """The theorem behind the guarantee."""
        return self.proof if self.groups is None else f"{self.proof}; group privacy (docs/proofs/groups.md)"

    @property
    def noise(self) -> Mapping[str, float | str]:
        """The public numbers of the run, and what is promised about one row of a group."""
        if self.groups is None:
            return self.numbers
        return {
            **self.numbers,
            "rows of one group": float(self.groups.rows),
            "epsilon of one row": self.record_guarantee.epsilon,
            "delta of one row": self.record_guarantee.delta,
        }

    def for_groups(self, promise: GroupPromise) -> Self:
        """The same run, with a promise about all rows of one person."""
        return replace(self, groups=promise)

    def __str__(self) -> str:
        text = plan_text(self, self.sizes, self.remarks)
        return f"{text}\n{plan_line('chosen by solver=auto', self.reason)}" if self.reason else text


class Solver(Protocol):
    """Public hyper-parameters of one algorithm."""

    name: ClassVar[str]
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]]  # how more than two classes are fitted by default

    def plan(self, problem: Problem, guarantee: Guarantee) -> Plan:
        """Calibrate against public facts; raise ``ValueError`` where the algorithm is not proved to apply."""
        ...


def refuse_pure(name: str, guarantee: Guarantee) -> None:
    """Gaussian noise needs delta > 0."""
    if guarantee.delta == 0:
        raise ParameterError(
            "solver",
            f"{name!r} adds Gaussian noise, which requires delta > 0",
            Setting("delta", purpose="greater than 0, for example 1 / n**2"),
            Setting("solver", "auto", "objective", purpose="for pure differential privacy"),
        )


def refuse_geometry(name: str, problem: Problem) -> None:
    """Refuse a constraint, for solvers that only minimize over all of space."""
    if problem.geometry is not None:
        raise ParameterError(
            "solver",
            f"{name!r} does not support `constraint` (got {type(problem.geometry).__name__})",
            Setting("solver", "frank-wolfe", "mirror-descent", "noisy-gd"),
        )


def require(name: str, problem: Problem, theorem: Theorem, *instead: str | Setting) -> None:
    """Refuse a loss about which too little is proved."""
    if theorem not in problem.loss.proved_for:
        raise ParameterError(
            "solver",
            f"{name!r} does not support the loss {problem.loss}: it needs {MEANINGS[theorem]}",
            *instead,
        )


_SOLVERS: dict[str, Callable[[], Solver]] = {}
#: Names that the papers use, and the solvers they mean here.
ALIASES: Mapping[str, str] = {
    "amp": "objective",
    "approximate-minima-perturbation": "objective",
    "hf-amp": "objective-dissertation",
    "objective-perturbation": "objective",
    "output-perturbation": "output",
    "exponential-sampling": "exponential",
    "exponential-mechanism": "exponential",
    "localization": "localized",
    "noisy-gradient-descent": "noisy-gd",
    "noisy-mirror-descent": "mirror-descent",
    "private-frank-wolfe": "frank-wolfe",
    "p-fw": "frank-wolfe",
    "p-psgd": "psgd",
    "permutation-sgd": "psgd",
    "p-sgd": "noisy-sgd",
    "dp-sgd": "noisy-sgd",
    "sgd": "noisy-sgd",
}


def register(name: str, make: Callable[[], Solver]) -> None:
    """Make a solver selectable by name."""
    _SOLVERS[name] = make


def resolve(solver: str | Solver) -> Solver:
    """The solver behind a name, or the solver itself."""
    if not isinstance(solver, str):
        if not hasattr(solver, "plan"):
            raise ParameterTypeError(
                "solver",
                f"must be a name or a discreet solver, got {solver!r}",
                f"choose one of {names()}",
            )
        return solver
    name = ALIASES.get(solver, solver)
    if name not in _SOLVERS:
        near = difflib.get_close_matches(solver, [*names(), *ALIASES], 1)
        guess = f" (did you mean {near[0]!r}?)" if near else ""
        raise ParameterError("solver", f"{solver!r} is unknown{guess}", f"choose one of {names()}")
    return _SOLVERS[name]()


def believed(solver: str | Solver | None, inside: object = None, loss: object = None) -> tuple[str, ...]:
    """Name a solver, a set and a loss that are not from discreet: nothing here proves what they declare.

    Parameters
    ----------
    solver : as an estimator was given it; None for its own.
    inside : the set of the coefficients, if there is one.
    loss : the loss, if the user chose it.
    """
    facts = []
    if loss is not None and _foreign(loss):
        facts.append(
            f"loss not from discreet ({_named(loss)}): its bounds and what it claims to be proved are believed (given "
            "by the user)"
        )
    if solver is not None and _foreign(found := resolve(solver)):
        facts.append(
            f"solver not from discreet ({_named(found)}): its event and its noise are believed (given by the user)"
        )
    while isinstance(inside, BallIntersection) and not _foreign(
        inside
    ):  # is as good as the set it is part of
        inside = inside.base
    if inside is not None and _foreign(inside):
        facts.append(
            f"set not from discreet ({_named(inside)}): its radius, diameter, vertices and projections are believed "
            "(given by the user)"
        )
    return tuple(facts)


def _foreign(thing: object) -> bool:
    return type(thing).__module__.partition(".")[0] != "discreet"


def _named(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def names() -> list[str]:
    """Names of all solvers."""
    return sorted(_SOLVERS)


_MARGIN = 1 + 2.0**-30  # so that an epsilon found by search, to a finite precision, is not above the promise


def calibrated_unit(event: Callable[[float], events.Event], guarantee: Guarantee) -> float:
    """The least unit with which the event of all releases meets the guarantee."""
    return calibrate(event, guarantee) * _MARGIN


def multiplier(unit: float, share: float) -> float:
    """The noise multiplier of a release that gets this share."""
    return unit / math.sqrt(share)


def share_event(unit: float, share: float, size: int) -> events.Event:
    """What a release of ``size`` numbers with this share costs."""
    return events.Discretized(events.Gaussian(multiplier(unit, share)), size)


def gradient_sensitivity(
    loss: Loss, feature_norm: float, radius: float, neighboring: Neighboring
) -> Sensitivity:
    """L2 sensitivity of the summed gradient at a fixed theta with |theta| <= ``radius``, in real arithmetic.

    >>> from discreet.losses import HuberHinge, Logistic
    >>> gradient_sensitivity(HuberHinge(), 1.0, 10.0, Neighboring.REPLACE_ONE).value
    2.0
    >>> round(gradient_sensitivity(Logistic(), 1.0, 1.0, Neighboring.ZERO_OUT).value, 4)
    0.7311
    """
    reach = feature_norm * radius
    worst = loss.derivative_bound(reach) if neighboring.contributions == 1 else loss.gradient_gap(reach)
    return Sensitivity(worst * feature_norm)


def computed_gradient_sensitivity(
    loss: Loss, n_samples: int, n_features: int, feature_norm: float, radius: float, neighboring: Neighboring
) -> Sensitivity:
    """The same for gradients summed in floating point, at any theta that was projected on the ball.

    Each of two sums may be off by the rounding bound, and a computed projection may leave the ball by a few units
    in the last place (docs/proofs/rounding.md, docs/proofs/gradient-methods.md section 2). Where the derivative jumps,
    the side of the corner is decided on the rounded prediction: a function of the record, its place and theta alone,
    so that only the summation rounds ("Corners" in section 2); so it is with gradients that a user's function gives.
    """
    outer = radius * SLACK
    exact = gradient_sensitivity(loss, feature_norm, outer, neighboring).value
    summed: Loss = loss
    if not (loss.linear and math.isfinite(loss.smoothness)):
        if not (neighboring.size_is_public or loss.placeless):
            raise ParameterError(
                "neighboring",
                f"must not be add-remove-one for {type(loss).__name__}, whose derivative jumps: the other rows change "
                "places, their predictions may round differently, and every record at the corner could move the "
                "gradient at once"
                if loss.linear
                else "must not be add-remove-one for gradients of batches: the other rows change places",
                "use HuberHinge instead of Hinge" if loss.linear else "pass GradientLoss(batch=False)",
                Setting("neighboring", "replace-one", "zero-out"),
            )
        summed = Linear(loss.lipschitz)
    rounding = gradient_rounding(summed, n_samples, n_features, feature_norm, outer)
    return Sensitivity((exact + 2.0 * rounding) * SLACK)


def gradient_mechanism(
    problem: Problem,
    field: Loss,
    radius: float,
    neighboring: Neighboring,
    noise_multiplier: float,
    row_error: float = 0.0,
) -> GaussianMechanism:
    """The noisy sum of gradients of all models, at points of the ball; K models have sqrt(K) times the sensitivity.

    ``row_error`` is how far a record may be from what it would be without rounding, for records made of others
    (docs/proofs/gradient-methods.md, section 7).
    """
    one = computed_gradient_sensitivity(
        field, problem.n_samples, problem.n_features, problem.bounds.feature_norm, radius, neighboring
    )
    value = one.value
    if row_error > 0:
        each = (field.lipschitz + field.smoothness * radius * problem.bounds.feature_norm) * row_error
        value += 2.02 * problem.n_samples * each
    every = Sensitivity(value * math.sqrt(problem.n_models))
    return GaussianMechanism(every, noise_multiplier, problem.n_coefficients)
