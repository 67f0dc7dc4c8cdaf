"""Private prediction with expert advice: follow the regularized leader over the simplex.

In every step one of p actions is chosen, then the costs of all of them are learned. Only the chosen actions are
published. There are two methods: drawing an action from softmax(-costs so far / lambda), where the draw itself is
private, and Gaussian tree sums of the costs, better for few actions and long streams. Proofs: docs/proofs/online.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from discreet import _checks
from discreet._checks import ParameterError
from discreet._typing import Array
from discreet.estimators.parameters import REQUIRED, budget, estimator, exceeding, parameter
from discreet.mechanisms.samplers.entropy import SOURCE
from discreet.mechanisms.selection import ExponentialMechanism
from discreet.mechanisms.tree import TreeMechanism, softmax_index
from discreet.online.stream import (
    HorizonReached,
    PrivateStream,
    StreamPlan,
    people_of,
    public_horizon,
    resumed_tree,
)
from discreet.privacy import events
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.guarantee import Guarantee, Sensitivity
from discreet.records.open import check_people
from discreet.tables.reading import to_numbers

_MANY = 1000  # with more draws, exact composition is slow and gains less than 0.1 percent


@dataclass(frozen=True)
class FTRLPlan(StreamPlan):
    """What both methods share: the sizes, and the scale lambda of the regularizer.

    The bound on the regret is for streams that do not react to the actions.
    """

    guarantee: Guarantee
    n_actions: int
    horizon: int
    cost_bound: float

    @property
    def scale(self) -> float:
        """lambda."""
        raise NotImplementedError

    @property
    def best_scale(self) -> float:
        """lambda without privacy: R sqrt(T / (2 log p))."""
        return self.cost_bound * math.sqrt(self.horizon / (2 * math.log(self.n_actions)))

    def bound_of(self, step: int) -> float:
        """lambda log p + t R^2 / (2 lambda) (Theorem 1)."""
        return self.scale * math.log(self.n_actions) + step * self.cost_bound**2 / (2 * self.scale)


@dataclass(frozen=True)
class SamplingPlan(FTRLPlan):
    """Draw an action from softmax(-costs so far / lambda); every draw has bounded range ``epsilon``."""

    epsilon: float
    rows: int = 1

    theorem = "adaptive bounded-range composition (docs/proofs/online.md, Theorem 1)"

    @classmethod
    def of(
        cls, guarantee: Guarantee, n_actions: int, horizon: int, cost_bound: float, rows: int = 1
    ) -> SamplingPlan:
        """Choose the largest epsilon that the guarantee allows, or the best one for the regret if that is smaller."""
        if guarantee.delta > 0 and horizon > _MANY:
            rho = 1 / calibrate(lambda x: events.ZeroConcentrated(1 / x), guarantee)
            allowed = math.sqrt(8 * rho / horizon) * (1 - 1e-12)
        else:
            allowed = 1 / calibrate(lambda x: events.Repeated(events.BoundedRange(1 / x), horizon), guarantee)
        range_ = rows * guarantee.neighboring.contributions * 2 * cost_bound
        best = cls(guarantee, n_actions, horizon, cost_bound, allowed, rows).best_scale
        return cls(guarantee, n_actions, horizon, cost_bound, min(allowed, range_ / best), rows)

    @cached_property
    def draw(self) -> ExponentialMechanism:
        """One draw; scores are minus the sums of costs, which each step moves by at most R in either direction."""
        range_ = self.rows * self.guarantee.neighboring.contributions * 2 * self.cost_bound
        return ExponentialMechanism(range_, self.epsilon, self.n_actions)

    @property
    def quantum(self) -> float:
        """Costs are rounded to multiples of this power of two, so that their sums are exact in 53 bits."""
        bits = min(30, 51 - self.horizon.bit_length())
        return math.ldexp(1.0, math.frexp(self.cost_bound)[1] - 1 - bits)

    @property
    def scale(self) -> float:
        """lambda: the scale of a draw."""
        return self.draw.scale

    @property
    def event(self) -> events.Event:
        """A draw after each step; before the first there is nothing to protect."""
        return events.Repeated(self.draw.event, self.horizon)

    @property
    def mechanism(self) -> str:
        drawn = f"{self.horizon} actions of {self.n_actions}"
        return f"follow the regularized leader: {drawn} drawn by the exponential mechanism"

    @property
    def noise(self) -> Mapping[str, float | str]:
        return {
            "actions": float(self.n_actions),
            "epsilon of one draw": self.epsilon,
            "scale lambda": self.scale,
            "sampler": f"exact selection, {SOURCE}",
        }


@dataclass(frozen=True)
class TreePlan(FTRLPlan):
    """Sum costs under tree noise; everything after that is public."""

    noise_multiplier: float
    rows: int = 1

    theorem = "adaptive composition of the blocks that hold a step (docs/proofs/online.md, Theorem 2)"

    @classmethod
    def of(
        cls, guarantee: Guarantee, n_actions: int, horizon: int, cost_bound: float, rows: int = 1
    ) -> TreePlan:
        """Return the plan with the least noise that meets the guarantee."""
        if guarantee.delta == 0:
            raise ValueError(
                "Gaussian tree sums cannot give delta = 0; choose delta > 0 or method='sampling'"
            )

        def event(multiplier: float) -> events.Event:
            return TreeMechanism(Sensitivity(1.0), multiplier, n_actions, horizon).event

        return cls(guarantee, n_actions, horizon, cost_bound, calibrate(event, guarantee), rows)

    @cached_property
    def tree(self) -> TreeMechanism:
        """Each step of a person moves the sums by contributions x R in each of p entries."""
        moved = self.rows * self.guarantee.neighboring.contributions * self.cost_bound
        distance = moved * math.sqrt(self.n_actions)
        sensitivity = Sensitivity(distance * (1 + 2.0**-50))
        return TreeMechanism(sensitivity, self.noise_multiplier, self.n_actions, self.horizon)

    @property
    def scale(self) -> float:
        """lambda, as without privacy."""
        return self.best_scale

    def bound_of(self, step: int) -> float:
        """The same plus E max of the noise: stddev sqrt(2 levels log p) (Theorem 2)."""
        spread = self.tree.noise.effective_stddev * math.sqrt(2 * self.tree.levels * math.log(self.n_actions))
        return super().bound_of(step) + spread

    @property
    def event(self) -> events.Event:
        """One step is in one block of each length."""
        return self.tree.event

    @property
    def mechanism(self) -> str:
        return f"follow the regularized leader on Gaussian tree sums of the costs of {self.n_actions} actions"

    @property
    def noise(self) -> Mapping[str, float | str]:
        return {
            "actions": float(self.n_actions),
            "blocks that hold one step": float(self.tree.levels),
            "noise stddev of a block": self.tree.noise.effective_stddev,
            "scale lambda": self.scale,
            "sampler": f"exact discrete Gaussian, {SOURCE}",
        }


@estimator
class PrivateFTRL(PrivateStream):
    """Choose one of ``n_actions`` actions in every step, nearly as well as the best single action in hindsight.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    step, epoch : the current position in the stream.
    privacy_ : the `PrivacyStatement` about all actions of an epoch, once it has started.

    Notes
    -----
    Privacy: (epsilon, delta)-DP of the sequence of actions of an epoch, for costs that may depend on all earlier
    actions; unit: one step, or all steps of a person. The object itself, with its sums and weights, is not covered. The
    bound on the regret is for streams that do not react to the actions; privacy needs no such condition.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateFTRL
    >>> rng = np.random.default_rng(0)
    >>> learner = PrivateFTRL(n_actions=5, horizon=2000, epsilon=4.0)
    >>> total = 0.0
    >>> for _ in range(2000):
    ...     costs = rng.uniform(-1, 1, size=5) - np.array([0, 0, 0.5, 0, 0])
    ...     total += costs[learner.predict_one()]
    ...     learner = learner.learn_one(costs)
    >>> bool(total < -400), learner.step, learner.epoch
    (True, 2000, 1)
    """

    _kind: ClassVar[str] = "PrivateFTRL 1"

    n_actions: int = parameter(REQUIRED, "int", "Number of actions, p, at least 2.", positional=True)
    horizon: int = public_horizon("steps, T")
    epsilon: float = budget("all actions of an epoch together")
    delta: float | None = exceeding("horizon", '0 is possible for "sampling"')
    _: KW_ONLY
    cost_bound: float = parameter(
        1.0, "float", "Costs are clipped to [-cost_bound, cost_bound]. Choose it without looking at the data."
    )
    method: str = parameter(
        "auto",
        '{"auto", "sampling", "tree"}',
        'How actions are protected; "auto" is the one with the smaller bound on the regret.',
    )

    def plan(self) -> SamplingPlan | TreePlan:
        """Return what an epoch would run, cost and guarantee; no data is needed."""
        promise = self._guarantee()
        method = _checks.choice("method", self.method, ("auto", "sampling", "tree"))
        if self.horizon > 2**30:
            raise ParameterError(
                "horizon", f"must be at most 2**30, got {self.horizon}", "use shorter epochs"
            )
        bound = _checks.real("cost_bound", self.cost_bound, above=0)
        if not 1e-100 <= bound <= 1e100:
            raise ParameterError(
                "cost_bound", f"must lie between 1e-100 and 1e100, got {bound!r}", "rescale the costs"
            )
        n_actions = _checks.count("n_actions", self.n_actions, at_least=2)
        sizes = promise, n_actions, self.horizon, bound, self._rows
        plans: list[SamplingPlan | TreePlan] = []
        if method != "tree":
            plans.append(SamplingPlan.of(*sizes))
        if method == "tree" or (method == "auto" and promise.delta > 0):
            plans.append(TreePlan.of(*sizes))
        return min(plans, key=lambda plan: plan.regret)

    def learn_one(self, costs: ArrayLike, *, group: Any = None) -> Self:
        """Learn the costs of all actions in the current step. They are clipped to the bound; non-numbers count as 0.

        ``group`` is the id of the person whose step it is, with ``max_rows_per_group``.
        """
        with self._alone():
            clipped, person = self._clipped(costs), self._check_group(costs, group)
            plan = self._advance()
            if not self._counts(person):
                clipped = np.zeros_like(clipped)
            self._action: int | None = None
            if isinstance(plan, SamplingPlan):
                self._sums += np.trunc(clipped / plan.quantum).astype(np.int64)
            else:
                self._tree.add(clipped, self._source())
        return self

    def predict_one(self) -> int:
        """Return the action of the current step; the same one until its costs are learned."""
        with self._alone():
            plan = self._begun()
            if self._action is None:
                self._check_open()
                if self.step > plan.horizon:
                    raise HorizonReached(
                        "all steps of this stream have been used, and the last action was lost"
                    )
                self._reserve(self.step + 1)
                if isinstance(plan, SamplingPlan):
                    self._action = plan.draw.select(-self._sums * plan.quantum, self._source())
                else:
                    sums = self._before + self._tree.evened(self._source())
                    self._action = softmax_index(-sums, plan.scale, self._source())
                self._answered(self._action, last=self.step == plan.horizon)
            return self._action

    def partial_fit(self, costs: ArrayLike, *, groups: Any = None) -> Self:
        """Learn several steps, one per row, without choosing actions in between; ``groups`` names their people."""
        check_people(costs, groups)
        rows = to_numbers(costs)
        if rows.ndim != 2 or rows.shape[1] != self.n_actions:
            raise ParameterError(
                "costs", f"must have one row per step and {self.n_actions} columns, got {rows.shape}"
            )
        for row, group in zip(rows, people_of(groups, len(rows)), strict=True):
            self.learn_one(row, group=group)
        return self

    def play(self, stream: Iterable[Any]) -> Iterator[int]:
        """Yield an action for every element of a stream of costs, which may be endless; stops at the horizon.

        With at_horizon="restart" it continues epoch by epoch, each one charged. With ``max_rows_per_group`` the
        elements are pairs (costs, group).
        """
        for element in stream:
            costs, group = (element, None) if self.max_rows_per_group is None else element
            if self.step >= self.horizon and self.at_horizon == "refuse":
                return
            yield self.predict_one()
            self.learn_one(costs, group=group)

    def _clipped(self, costs: ArrayLike) -> Array:
        values = to_numbers(costs)
        if values.shape != (self.n_actions,):
            raise ParameterError(
                "costs", f"must hold one number per action, {self.n_actions}, got {values.shape}"
            )
        return np.clip(
            np.nan_to_num(values, posinf=math.inf, neginf=-math.inf), -self.cost_bound, self.cost_bound
        )

    def _fresh(self, plan: SamplingPlan | TreePlan) -> None:
        self._action = None
        self._before = np.zeros(plan.n_actions)
        if isinstance(plan, SamplingPlan):
            self._sums = np.zeros(plan.n_actions, dtype=np.int64)
        else:
            self._tree = plan.tree.start()

    def _secret_state(self) -> dict[str, Any]:
        if isinstance(self._plan, SamplingPlan):
            return {"action": self._action, "sums": self._sums.copy()}
        return {"action": self._action, "before": self._before, "tree": self._tree.secret_state()}

    def _restored(self, plan: SamplingPlan | TreePlan, state: dict[str, Any], lost: bool) -> None:
        self._fresh(plan)
        self._action = None if lost else state["action"]
        if isinstance(plan, SamplingPlan):
            self._sums = state["sums"]
            return
        self._tree, self._before = resumed_tree(plan.tree, state, lost)
