"""Base classes of solvers and plans, the registry of solvers, and shared sensitivity calculations.

A solver is a frozen set of public choices. ``Solver.plan`` sees public facts only and fixes everything: noise,
regularization, number of noisy steps, and the event to charge. ``Plan.run`` is the only place where data meets noise.

This module also bounds how far one record can move a sum of gradients on a ball of public radius. Proofs:
docs/proofs/gradient-methods.md, sections 1 and 2.
"""

from __future__ import annotations

import difflib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Protocol, Self

from discreet._checks import ParameterError, ParameterTypeError, Setting, with_python_numbers
from discreet._typing import Array, Progress
from discreet.losses import Linear, Loss
from discreet.losses.base import MEANINGS, Theorem
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.events import Composed, Event, Repeated, Subsampled
from discreet.privacy.guarantee import SLACK, Guarantee, Neighboring, Sensitivity
from discreet.privacy.page import ShowsPlan
from discreet.privacy.statement import plan_text
from discreet.problem import Problem
from discreet.records.base import Records
from discreet.records.bounds import gradient_rounding


@dataclass(frozen=True)
class Release:
    """The output of a run: the coefficients of every model, and whether the noise was secret."""

    theta: Array
    secure: bool


class Priced(Protocol):
    """A mechanism with a privacy event."""

    @property
    def event(self) -> Event: ...


@dataclass(frozen=True)
class PlannedRelease:
    """One release of a plan, with its price.

    Attributes
    ----------
    mechanism : the mechanism that adds the noise.
    name : description of what is released.
    times : number of repetitions; None for a single release.
    sampling_rate : probability that a record takes part in each repetition.
    """

    mechanism: Priced
    name: str
    times: int | None = None
    sampling_rate: float = 1.0

    @property
    def event(self) -> Event:
        """The privacy event of the release, including repetitions."""
        one = self.mechanism.event
        if self.sampling_rate < 1:
            one = Subsampled(one, self.sampling_rate)
        return one if self.times is None else Repeated(one, self.times)


@dataclass(frozen=True)
class GroupPromise:
    """The guarantee that a plan for single records gives for all rows of one person.

    Attributes
    ----------
    guarantee : the guarantee, with unit "user".
    rows : maximum number of rows used per person.
    event : the event charged for a whole group.
    """

    guarantee: Guarantee
    rows: int
    event: Event


@dataclass(frozen=True)
class Plan(ShowsPlan, ABC):
    """A calibrated run, frozen before any data is seen; printable.

    A subclass lists its ``releases``, describes ``how`` noise is added, names the ``proof``, and lists the public
    ``numbers`` of the run. The event, the statement and the printed plan follow from these.

    Attributes
    ----------
    problem : the learning problem, in public numbers.
    record_guarantee : the guarantee for a single record, to which the noise is calibrated.
    reason : why solver="auto" chose this plan.
    groups : the guarantee for people with several rows; None if each person is one row.
    """

    #: Why the result may be poor and what to use instead, from public numbers; empty without a doubt.
    doubt: ClassVar[str] = ""

    problem: Problem
    record_guarantee: Guarantee
    reason: str = field(default="", kw_only=True)
    groups: GroupPromise | None = field(default=None, kw_only=True)

    # -- defined by subclasses -----------------------------------------------------------------------------

    @property
    @abstractmethod
    def releases(self) -> tuple[PlannedRelease, ...]:
        """All releases of a run, in order."""

    @property
    @abstractmethod
    def how(self) -> str:
        """A description of how noise is added."""

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
        """Fit one model per element of ``records``. Only the release may be inspected afterwards."""

    @property
    def sums_only(self) -> bool:
        """Whether the run needs only sums over all records, so that records may be stored in parts."""
        return False

    @property
    def sizes(self) -> Mapping[str, str]:
        """Public sizes for the printed plan."""
        sizes = f"{self.problem.n_samples} x {self.problem.n_features} (intercept included)"
        return {"records x coefficients of one output": sizes}

    @property
    def remarks(self) -> Mapping[str, str]:
        """Additional lines of the printed plan."""
        return {}

    # -- derived -------------------------------------------------------------------------------------------

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee for one record, or for all rows of one person."""
        return self.record_guarantee if self.groups is None else self.groups.guarantee

    @property
    def record_event(self) -> Event:
        """The event of the run for one record."""
        made = [release.event for release in self.releases]
        return made[0] if len(made) == 1 else Composed(tuple(made))

    @property
    def event(self) -> Event:
        """The event to charge."""
        return self.record_event if self.groups is None else self.groups.event

    @property
    def mechanism(self) -> str:
        """A description of how noise is added."""
        if self.groups is None:
            return self.how
        return f"{self.how}; at most {self.groups.rows} rows of every group"

    @property
    def theorem(self) -> str:
        """The theorem behind the guarantee."""
        return self.proof if self.groups is None else f"{self.proof}; group privacy (docs/proofs/groups.md)"

    @property
    def noise(self) -> Mapping[str, float | str]:
        """The public numbers of the run and, with groups, the guarantee for a single row."""
        if self.groups is None:
            return self.numbers
        return {
            **self.numbers,
            "rows of one group": float(self.groups.rows),
            "epsilon of one row": self.record_guarantee.epsilon,
            "delta of one row": self.record_guarantee.delta,
        }

    def for_groups(self, promise: GroupPromise) -> Self:
        """Return the same plan with a guarantee for all rows of one person."""
        return replace(self, groups=promise)

    def __str__(self) -> str:
        chosen = {"chosen by solver=auto": self.reason} if self.reason else {}
        return plan_text(self, self.sizes, {**self.remarks, **chosen})


class Solver(Protocol):
    """Public hyper-parameters of one algorithm."""

    name: ClassVar[str]
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]]  # default for more than two classes

    def plan(self, problem: Problem, guarantee: Guarantee) -> Plan:
        """Calibrate from public facts; raise ``ValueError`` if the algorithm's proof does not apply."""
        ...


def refuse_pure(name: str, guarantee: Guarantee) -> None:
    """Raise if delta = 0: Gaussian noise needs delta > 0."""
    if guarantee.delta == 0:
        raise ParameterError(
            "solver",
            f"{name!r} adds Gaussian noise, which requires delta > 0",
            Setting("delta", purpose="greater than 0, for example 1 / n**2"),
            Setting("solver", "auto", "objective", purpose="for pure differential privacy"),
        )


def refuse_geometry(name: str, problem: Problem) -> None:
    """Raise if the problem has a constraint, for solvers that do not support one."""
    if problem.geometry is not None:
        raise ParameterError(
            "solver",
            f"{name!r} does not support `constraint` (got {type(problem.geometry).__name__})",
            Setting("solver", "frank-wolfe", "mirror-descent", "noisy-gd"),
        )


def require(name: str, problem: Problem, theorem: Theorem, *solvers: str, hint: str = "") -> None:
    """Raise if the theorem is not proved for the loss; suggest ``hint``, or one of the ``solvers``."""
    if theorem not in problem.loss.proved_for:
        raise ParameterError(
            "solver",
            f"{name!r} does not support the loss {problem.loss}: it needs {MEANINGS[theorem]}",
            hint,
            Setting("solver", *solvers),
        )


_SOLVERS: dict[str, Callable[[], Solver]] = {}
#: Names used in papers, and the solvers they correspond to here.
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
    """Register a solver under a name."""
    _SOLVERS[name] = make


def resolve(solver: str | Solver) -> Solver:
    """Return the solver with this name, or ``solver`` itself; with Python's numbers in place of NumPy's."""
    if not isinstance(solver, str):
        if not hasattr(solver, "plan"):
            raise ParameterTypeError(
                "solver",
                f"must be a name or a discreet solver, got {solver!r}",
                f"choose one of {names()}",
            )
        return with_python_numbers(solver)
    name = ALIASES.get(solver, solver)
    if name not in _SOLVERS:
        near = difflib.get_close_matches(solver, [*names(), *ALIASES], 1)
        guess = f" (did you mean {near[0]!r}?)" if near else ""
        if solver in _ELSEWHERE:
            raise ParameterError(
                "solver",
                f"{solver!r} is one of scikit-learn's, which have no privacy",
                "leave it out: the choice follows from public numbers (docs/solvers.md)",
            )
        raise ParameterError("solver", f"{solver!r} is unknown{guess}", f"choose one of {names()}")
    return _SOLVERS[name]()


_ELSEWHERE = (
    *("lbfgs", "liblinear", "newton-cg", "newton-cholesky", "sag", "saga"),
    *("svd", "cholesky", "lsqr", "sparse_cg", "highs"),
)


def names() -> list[str]:
    """Return the names of all solvers."""
    return sorted(_SOLVERS)


def gradient_sensitivity(
    loss: Loss, feature_norm: float, radius: float, neighboring: Neighboring
) -> Sensitivity:
    """Return the L2 sensitivity of the summed gradient at a fixed theta with |theta| <= ``radius``, in real arithmetic.

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
    """Return the sensitivity of gradients summed in floating point, at any theta projected onto the ball.

    Each of the two sums may be off by the rounding bound, and a computed projection may leave the ball by a few units
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
    rounding: float = 0.0,
) -> GaussianMechanism:
    """Return the mechanism for gradient sums of all K models on the ball, with sqrt(K) times the sensitivity.

    ``row_error`` bounds the rounding error of a record that was computed from others (docs/proofs/gradient-methods.md,
    section 7), and ``rounding`` further errors of one model's sum.
    """
    one = computed_gradient_sensitivity(
        field, problem.n_samples, problem.n_features, problem.bounds.feature_norm, radius, neighboring
    )
    value = one.value
    if row_error > 0:
        each = (field.lipschitz + field.smoothness * radius * problem.bounds.feature_norm) * row_error
        value += 2.02 * problem.n_samples * each
    value += 2 * rounding
    every = Sensitivity(value * math.sqrt(problem.n_models))
    return GaussianMechanism(every, noise_multiplier, problem.n_coefficients)
