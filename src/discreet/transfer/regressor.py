"""Private transfer for numbers: a student learns the noisy mean of the teachers' bounded predictions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from joblib import delayed
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin, clone

from discreet import _checks
from discreet._typing import Array, Integers
from discreet.estimators.parameters import REQUIRED, budget, estimator, exceeding, parameter
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.events import Discretized, Event, Gaussian
from discreet.privacy.guarantee import SLACK, Guarantee, Sensitivity
from discreet.privacy.page import ShowsPlan
from discreet.release import carry_out
from discreet.transfer import base
from discreet.transfer.students import TransferModel
from discreet.transfer.teachers import assign, chunk_rows, chunk_seed, in_batches, isolated, seeded, take

_STEPS = 1 << 20  # a teacher's prediction is rounded to this many steps between the bounds
_LEAST_ROWS = 50


@dataclass(frozen=True)
class MeanPlan(ShowsPlan):
    """The mean prediction of disjoint teachers, with Gaussian noise, for all questions at once.

    Privacy
    -------
    One record changes the predictions of ``changed`` teachers, each by at most the width of the bounds: L2
    sensitivity ``changed`` x width x sqrt(n_queries) of the sums, which are integer numbers of steps.
    """

    guarantee: Guarantee
    n_samples: int
    n_queries: int
    n_teachers: int
    low: float
    high: float
    noise_multiplier: float
    changed: int

    mechanism = "teachers on disjoint chunks, mean of their bounded predictions with Gaussian noise"
    theorem = "Gaussian mechanism (Balle and Wang, 2018); docs/proofs/sparse-vector.md, section 9"

    @property
    def event(self) -> Event:
        return self._mechanism.event

    @property
    def noise(self) -> Mapping[str, float | str]:
        return {
            "noise standard deviation of a mean": self.stddev,
            "teachers one unit can move": float(self.changed),
        }

    @property
    def stddev(self) -> float:
        """Standard deviation of the noise on every mean, in the units of y."""
        return self._mechanism.stddev / _STEPS / self.n_teachers * (self.high - self.low)

    @cached_property
    def _mechanism(self) -> GaussianMechanism:
        steps = self.changed * _STEPS * math.sqrt(self.n_queries) * SLACK
        return GaussianMechanism(Sensitivity(steps), self.noise_multiplier, self.n_queries)

    def run(self, sums: Integers, entropy: Entropy) -> Array:
        """Return the noisy means, clipped to the bounds: the only place where predictions meet noise."""
        noisy = self._mechanism.release(sums.astype(np.float64), entropy)
        means = self.low + noisy / _STEPS / self.n_teachers * (self.high - self.low)
        return np.clip(means, self.low, self.high)

    def __str__(self) -> str:
        promise = self.guarantee
        return "\n".join(
            [
                f"Plan: {self.mechanism}",
                f"  {'guarantee':<38}({promise.epsilon:g}, {promise.delta:.3g}), {promise.neighboring.value}",
                f"  {base.counted(promise) + ', questions':<38}{self.n_samples}, {self.n_queries}",
                f"  {'teachers':<38}{self.n_teachers}",
                f"  {'noise on every label':<38}{self.stddev:.4g}, on a scale of {self.high - self.low:.4g}",
            ]
        )


@estimator
class PrivateTransferRegressor(RegressorMixin, base.TransferParameters, TransferModel):  # type: ignore[misc]
    """Any regressor, made private: disjoint teachers predict public rows, a student learns their noisy mean.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    student_ : the trained model.
    labels_ : the released mean of every public row.
    privacy_, plan_ : the privacy statement and the plan.

    Notes
    -----
    Privacy: One Gaussian release of all means together; see :class:`MeanPlan`. A chunk without records, a model that
    fails or a prediction that is not a number counts as the middle of the bounds.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> rng = np.random.default_rng(0)
    >>> X, public = rng.uniform(size=(50000, 1)), rng.uniform(size=(100, 1))
    >>> model = PrivateTransferRegressor(Ridge(1e-3), (0.0, 1.0), delta=1e-6).fit(X, X[:, 0], public)
    >>> bool(abs(model.predict([[0.5]])[0] - 0.5) < 0.1)
    True
    """

    estimator: Any = base.teachers_model("regressor")
    bounds: tuple[float, float] = parameter(
        REQUIRED, "(float, float)", "Public range of y; predictions are clipped to it.", positional=True
    )
    student: Any = parameter(
        None, "regressor", "Trained on the labeled public rows; None uses ``estimator``.", positional=True
    )
    n_teachers: int | str = base.teachers_count("limits the noise on every label to 5% of the range")
    epsilon: float = budget("one fit")
    delta: float | None = exceeding("n_samples")

    def plan(self, n_samples: int, n_queries: int, *, by_group: bool = False) -> MeanPlan:
        """Return what a fit on data of this shape would run and cost; no data is needed. ``by_group`` counts users."""
        chosen = base.settings(self, None, n_samples, by_group)
        n_queries = _checks.count("n_queries", n_queries)
        low, high = _checks.interval("bounds", self.bounds)
        if chosen.guarantee.delta == 0:
            raise ValueError("Gaussian noise needs delta > 0; choose for instance delta = 1 / n_samples**2")
        multiplier = calibrate(lambda x: Discretized(Gaussian(x), n_queries), chosen.guarantee)
        most = max(2, chosen.size // _LEAST_ROWS)
        wanted = math.ceil(chosen.changed * math.sqrt(n_queries) * multiplier / 0.05)
        count = min(most, max(2, wanted)) if self.n_teachers == "auto" else self.n_teachers
        count = _checks.count("n_teachers", count, at_least=2)
        if count > chosen.size:
            counted = base.counted(chosen.guarantee)
            raise ValueError(
                f"n_teachers={count} is more than the {chosen.size} {counted}; use fewer teachers"
            )
        return MeanPlan(
            chosen.guarantee, chosen.size, n_queries, count, low, high, multiplier, chosen.changed
        )

    def fit(
        self, X: Any, y: ArrayLike, X_public: Any, *, groups: ArrayLike | None = None
    ) -> PrivateTransferRegressor:
        """Train teachers on (X, y), label ``X_public`` privately, and train the student."""
        seed = _checks.seed(self.random_state)
        inputs = base.read_inputs(X, y, X_public, groups)
        target = np.asarray(inputs.y, dtype=np.float64)
        n_rows, by_group = inputs.X.shape[0], groups is not None
        chosen = base.settings(self, inputs.n_units, self.n_samples, by_group)
        plan = self.plan(chosen.size, inputs.queries.shape[0], by_group=by_group)
        target = np.clip(
            np.where(np.isfinite(target), target, (plan.low + plan.high) / 2), plan.low, plan.high
        )
        _rehearse(self.estimator, inputs.queries, plan)

        def sums(entropy: Entropy) -> Integers:
            chunks = assign(n_rows, groups, plan.n_teachers, entropy)
            return _sums(self.estimator, inputs, target, chunks, plan, seed, self.n_jobs)

        carried = carry_out(
            plan, sums, self.ledger, type(self).__name__, published=lambda labels: {"labels_": labels}
        )
        self.labels_, self.plan_ = carried.release, plan
        self.released_ = {"labels_": self.labels_.copy()}
        stated = base.assumptions(None, chosen.size, plan.guarantee, label_private=False)
        bounds: dict[str, float | str] = {
            "y from": plan.low,
            "y to": plan.high,
            "teachers": float(plan.n_teachers),
        }
        self.privacy_ = base.state(carried, bounds, stated)
        base.note_columns(self, inputs.queries)
        student = self.estimator if self.student is None else self.student
        try:
            self.student_ = clone(student).fit(inputs.queries, self.labels_)
        except Exception as error:
            error.add_note(
                "The labels are paid for and kept in labels_: train another student on X_public and them, which costs "
                "nothing."
            )
            raise
        return self

    def predict(self, X: Any) -> Array:
        """Return the student's predictions."""
        return np.asarray(super().predict(X), dtype=np.float64)


def _rehearse(estimator: Any, queries: Any, plan: MeanPlan) -> None:
    """Train once on public rows with synthetic targets, so that a broken estimator is noticed free of charge."""
    rows = np.arange(min(queries.shape[0], max(2, plan.n_samples // plan.n_teachers)))
    public = take(queries, rows)
    try:
        with isolated(0):
            seeded(estimator, 0).fit(public, np.linspace(plan.low, plan.high, len(rows))).predict(public)
    except Exception as error:
        raise ValueError(
            f"the estimator {type(estimator).__name__} fails on {len(rows)} public rows with made-up targets "
            f"({type(error).__name__}: {error}); it would fail for the teachers as well. Nothing was charged."
        ) from error


def _sums(
    estimator: Any,
    inputs: base.Inputs,
    target: Array,
    chunks: Integers,
    plan: MeanPlan,
    seed: np.random.SeedSequence,
    n_jobs: int | None,
) -> Integers:
    """Return sums over teachers of their predictions, each in integer steps between the bounds."""

    def task(batch: range) -> Any:
        return delayed(_predicted_sum)(
            estimator,
            [(take(inputs.X, part), target[part]) for part in chunk_rows(chunks, batch)],
            inputs.queries,
            plan,
            [chunk_seed(seed, number) for number in batch],
        )

    total = np.zeros(plan.n_queries, dtype=np.int64)
    for steps in in_batches(task, plan.n_teachers, n_jobs, len(chunks)):
        total += steps
    return total


def _predicted_sum(
    estimator: Any, records: Sequence[tuple[Any, Array]], queries: Any, plan: MeanPlan, seeds: Sequence[int]
) -> Integers:
    total = np.zeros(plan.n_queries, dtype=np.int64)
    for (X, y), seed in zip(records, seeds, strict=True):
        total += _predicted(estimator, X, y, queries, plan.low, plan.high, seed)
    return total


def _predicted(
    estimator: Any, X: Any, y: Array, queries: Any, low: float, high: float, seed: int
) -> Integers:
    """Return one teacher's predictions in integer steps; the middle if there is none."""
    values = np.full(queries.shape[0], 0.5)
    if len(y):
        try:
            with isolated(seed):
                found = seeded(estimator, seed).fit(X, y).predict(queries)
                values = (np.asarray(found, dtype=np.float64).reshape(-1) - low) / (high - low)
        except Exception:  # the content of the chunk must not decide whether this program continues
            values = np.full(queries.shape[0], 0.5)
    if values.shape != (queries.shape[0],):
        values = np.full(queries.shape[0], 0.5)
    values = np.clip(np.where(np.isfinite(values), values, 0.5), 0.0, 1.0)
    return np.asarray(np.rint(values * _STEPS), dtype=np.int64)
