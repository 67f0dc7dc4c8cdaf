"""A private linear model that learns from a stream, one record at a time, and may be published after every step.

    theta_{t+1} = argmin over |theta| <= B of <noisy sum of gradients so far, theta> + (lambda / 2) |theta|^2:

follow the regularized leader on tree-aggregated gradients. Records are used once, in order of arrival; no sampling is
assumed. Proofs: docs/proofs/online.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _checks
from discreet._checks import ParameterError
from discreet._typing import Array
from discreet.estimators.parameters import REQUIRED, budget, estimator, exceeding, norm_bound, parameter
from discreet.losses import HuberRegression, Logistic, Loss
from discreet.mechanisms.samplers.entropy import SOURCE
from discreet.mechanisms.tree import TreeMechanism
from discreet.online.stream import PrivateStream, StreamPlan, people_of, public_horizon, resumed_tree
from discreet.privacy import events
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.guarantee import Guarantee, Sensitivity
from discreet.records.bounds import Bounds
from discreet.records.open import check_people, refuse_source
from discreet.tables.reading import as_cells, to_numbers


@dataclass(frozen=True)
class OnlineLinearPlan(StreamPlan):
    """A calibrated stream of gradients; its regret is against every fixed model of norm at most ``radius``."""

    guarantee: Guarantee
    loss: Loss
    feature_norm: float
    n_features: int
    horizon: int
    radius: float
    noise_multiplier: float
    rows: int = 1

    mechanism = "follow the regularized leader on tree-aggregated gradients under Gaussian noise"
    theorem = (
        "adaptive composition of the blocks that hold a record (docs/proofs/online.md, Theorems 2 and 3)"
    )

    @cached_property
    def tree(self) -> TreeMechanism:
        """A record's gradient has norm at most L R, plus a billionth for its rounding. Those of a person add up."""
        distance = self.rows * self.guarantee.neighboring.contributions * self.gradient_norm
        return TreeMechanism(Sensitivity(distance), self.noise_multiplier, self.n_features, self.horizon)

    @property
    def gradient_norm(self) -> float:
        """Largest norm of a computed gradient."""
        return self.loss.lipschitz * self.feature_norm * (1 + 1e-9)

    @property
    def drift(self) -> float:
        """Bound on what a step adds to the regret, times lambda: G^2 / 2 + G E |noise| (Theorem 3)."""
        g = self.gradient_norm
        spread = self.tree.noise.effective_stddev * math.sqrt(self.tree.levels * self.n_features)
        return g * g / 2 + g * spread

    @property
    def scale(self) -> float:
        """lambda, which minimizes the bound at the horizon."""
        return math.sqrt(2 * self.horizon * self.drift) / self.radius

    def bound_of(self, step: int) -> float:
        """lambda B^2 / 2 + t (G^2 / 2 + G E |noise|) / lambda."""
        return self.scale * self.radius**2 / 2 + step * self.drift / self.scale

    @property
    def event(self) -> events.Event:
        """One record is in one block of each length."""
        return self.tree.event

    @property
    def noise(self) -> Mapping[str, float | str]:
        return {
            "blocks that hold one record": float(self.tree.levels),
            "noise stddev of a block": self.tree.noise.effective_stddev,
            "scale lambda": self.scale,
            "sampler": f"exact discrete Gaussian, {SOURCE}",
        }


@estimator
class PrivateOnlineLinearModel(PrivateStream):
    """A linear classifier or regressor that learns privately from a stream of records.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_, intercept_ : the current model, public.
    average_ : public average of the models before each step, intercept last. For independent records, the regret bound
        divided by the number of steps bounds its excess risk.
    step, epoch, privacy_ : as for `PrivateFTRL`.

    Notes
    -----
    Privacy: (epsilon, delta)-DP of the sequence of all models of an epoch, for records that may depend on earlier
    models; unit: one record, or all records of a person. A record that is not finite, or whose label is unknown, is a
    null record: it is counted but adds nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateOnlineLinearModel
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.7, 0.7, size=(4000, 2))
    >>> y = np.where(X[:, 0] > X[:, 1], "yes", "no")
    >>> model = PrivateOnlineLinearModel(2, horizon=4000, epsilon=4.0, classes=["no", "yes"])
    >>> for row, label in zip(X, y):
    ...     model = model.learn_one(row, label)
    >>> str(model.predict_one([0.5, -0.5])), str(model.predict_one([-0.5, 0.5]))
    ('yes', 'no')
    """

    _kind: ClassVar[str] = "PrivateOnlineLinearModel 1"
    n_features: int = parameter(REQUIRED, "int", "Number of features of a record, public.", positional=True)
    horizon: int = public_horizon("records")
    epsilon: float = budget("all models of an epoch together")
    delta: float | None = exceeding("horizon")
    _: KW_ONLY
    classes: Any = parameter(
        None, "list of two labels", "The public label set of a classifier (logistic loss)."
    )
    target_bounds: tuple[float, float] | None = parameter(
        None,
        "(float, float)",
        "Lowest and highest target of a regressor (squared loss, linear beyond the width of the bounds). Exactly one "
        "of ``classes`` and ``target_bounds`` is needed.",
    )
    radius: float = parameter(
        5.0, "float", "Largest norm of the coefficients, for targets scaled to [-1, 1]."
    )
    feature_bound: float = norm_bound()
    fit_intercept: bool = parameter(True, "bool", "Whether records have a constant 1.")

    def plan(self) -> OnlineLinearPlan:
        """Return what an epoch would run, cost and guarantee; no data is needed."""
        promise = self._guarantee()
        if promise.delta == 0:
            raise ValueError("Gaussian tree sums cannot give delta = 0; choose delta > 0")
        if (self.classes is None) == (self.target_bounds is None):
            raise ValueError(
                "declare classes=[..., ...] for a classifier or target_bounds=(lowest, highest) for a regressor, and "
                "not both, because they cannot be read from a stream"
            )
        if self.classes is not None and len({*np.asarray(self.classes).tolist()}) != 2:
            raise ParameterError("classes", f"must list two different labels, got {self.classes!r}")
        loss: Loss = Logistic() if self.classes is not None else HuberRegression(2.0)
        if self.target_bounds is not None:
            self._scaling()
        bounds = self._bounds()
        size = bounds.n_features(_checks.count("n_features", self.n_features))
        radius = _checks.real("radius", self.radius, above=0)

        def event(multiplier: float) -> events.Event:
            return TreeMechanism(Sensitivity(1.0), multiplier, size, self.horizon).event

        multiplier = calibrate(event, promise)
        return OnlineLinearPlan(
            promise, loss, bounds.feature_norm, size, self.horizon, radius, multiplier, self._rows
        )

    def learn_one(self, x: ArrayLike, y: Any, *, group: Any = None) -> Self:
        """Learn from one record and its label or target; ``group`` is its person, with ``max_rows_per_group``."""
        with self._alone():
            row, person = self._row(x), self._check_group(x, group)
            label = self._label(y)
            plan = self._advance()
            if not self._counts(person):
                label = None
            theta = self._theta
            self.average_: Array = self.average_ + (theta - self.average_) / self.step
            scale = float(self._bounds().row_scales(row)[0])
            gradient = np.zeros(plan.n_features)
            if scale > 0 and label is not None:
                record = self._record(row, scale)
                slope = float(plan.loss.derivative(label, float(record @ theta)))
                gradient = slope * record
            self._tree.add(gradient, self._source())
            self._move(plan)
            self._answered(self._theta, last=self.step == plan.horizon)
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, *, groups: Any = None) -> Self:
        """Learn from several records, in order; ``groups`` names their people."""
        refuse_source("X", X)
        check_people(X, groups)
        rows, labels = to_numbers(X), as_cells(y)
        if rows.ndim != 2 or rows.shape[1] != self.n_features or labels.shape != (len(rows),):
            raise ParameterError(
                "X",
                f"must have {self.n_features} columns and y one label per row, got {rows.shape} "
                f"and {labels.shape}",
            )
        people = people_of(groups, len(rows))
        for row, label, group in zip(rows, labels, people, strict=True):
            self.learn_one(row, label, group=group)
        return self

    def predict_one(self, x: ArrayLike) -> Any:
        """Return the label or target that the current model predicts for one record."""
        with self._alone():
            self._begun()
            row = self._row(x)
            record = self._record(row, float(self._bounds().row_scales(row)[0]))
            raw = float(record @ self._theta)
            if self.classes is not None:
                return self._labels()[int(raw > 0)]
            middle, half_width = self._scaling()
            return middle + half_width * min(1.0, max(-1.0, raw))

    @property
    def coef_(self) -> Array:
        """Coefficients for clipped records and targets scaled to [-1, 1]."""
        self._begun()
        return self._theta[: self.n_features].copy()

    @property
    def intercept_(self) -> float:
        """The intercept, on the same scale."""
        self._begun()
        return float(self._theta[-1]) if self.fit_intercept else 0.0

    def _bounds(self) -> Bounds:
        return Bounds(_checks.real("feature_bound", self.feature_bound, above=0), bool(self.fit_intercept))

    def _labels(self) -> NDArray[Any]:
        return np.unique(np.asarray(self.classes))

    def _scaling(self) -> tuple[float, float]:
        assert self.target_bounds is not None
        low, high = _checks.interval("target_bounds", self.target_bounds)
        return low / 2 + high / 2, high / 2 - low / 2

    def _row(self, x: ArrayLike) -> Array:
        row = to_numbers(x)
        if row.shape != (self.n_features,):
            raise ValueError(f"a record has {self.n_features} features, got an array of shape {row.shape}")
        return row[None, :]

    def _record(self, row: Array, scale: float) -> Array:
        entries = np.append(row[0], 1.0) if self.fit_intercept else row[0]
        return np.where(scale > 0, entries, 0.0) * scale

    def _label(self, y: Any) -> float | None:
        """Return the label in the form of the loss; None if invalid. Never raises, so it never quotes a label."""
        if as_cells(y).shape != ():
            return None
        if self.classes is not None:
            places = [place for place, label in enumerate(self._labels()) if label == y]
            return None if len(places) != 1 else (-1.0, 1.0)[places[0]]
        if self.target_bounds is None:
            return None
        middle, half_width = self._scaling()
        value = float(to_numbers(y))
        return min(1.0, max(-1.0, (value - middle) / half_width)) if math.isfinite(value) else None

    def _move(self, plan: OnlineLinearPlan) -> None:
        theta = -(self._before + self._tree.prefix()) / plan.scale
        norm = float(np.linalg.norm(theta))
        self._theta = theta if norm <= plan.radius else theta * (plan.radius / norm)

    def _fresh(self, plan: OnlineLinearPlan) -> None:
        self._tree = plan.tree.start()
        self._before = np.zeros(plan.n_features)
        self._theta = np.zeros(plan.n_features)
        self.average_ = np.zeros(plan.n_features)

    def _secret_state(self) -> dict[str, Any]:
        return {"before": self._before, "average": self.average_, "tree": self._tree.secret_state()}

    def _restored(self, plan: OnlineLinearPlan, state: dict[str, Any], lost: bool) -> None:
        self._fresh(plan)
        self.average_ = state["average"]
        self._tree, self._before = resumed_tree(plan.tree, state, lost)
        self._move(plan)
