"""Known-bad twins: estimators, plans and sources with one classic mistake each. Fixtures only, never shipped."""

from __future__ import annotations

import dataclasses
import math
import os
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar
from unittest import mock

import numpy as np

from discreet import PrivateLinearSVC, PrivateLogisticRegression
from discreet.estimators import linear
from discreet.mechanisms.additive import GaussianNoise
from discreet.mechanisms.samplers.entropy import Entropy, fresh_entropy, insecure_noise
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.records.bounds import Bounds
from discreet.solvers import base
from discreet.solvers.minimizers.minimizer import Objective, minimize
from discreet.solvers.perturbation.objective import ObjectivePerturbation, ObjectivePerturbationPlan


def solver_with(plan_kind):
    """The objective perturbation solver, except that its plans are of another kind."""

    @dataclass(frozen=True)
    class Twin(ObjectivePerturbation):
        name: ClassVar[str] = plan_kind.__name__

        def plan(self, problem, guarantee):
            honest = super().plan(problem, guarantee)
            return plan_kind(**{f.name: getattr(honest, f.name) for f in dataclasses.fields(honest)})

    return Twin()


class HalfNoise(ObjectivePerturbationPlan):
    """Charges for one noise scale and draws half of it."""

    @cached_property
    def objective_noise(self):
        return GaussianNoise(self.stddev / 2)


class SharedAcrossClasses(ObjectivePerturbationPlan):
    """Draws one noise vector and perturbs every class's objective with it."""

    def run(self, records, entropy, progress=None):
        noise = self.objective_noise.draw(self.problem.shape, entropy)
        return _finish(self, records, [noise] * len(records), entropy)


class ReseededPerClass(ObjectivePerturbationPlan):
    """Makes a source of its own per class, always from the same seed: as many draws as needed, all equal."""

    def run(self, records, entropy, progress=None):
        noises = []
        for _ in records:
            with insecure_noise(1234):
                noises.append(self.objective_noise.draw(self.problem.shape, fresh_entropy()))
        return _finish(self, records, noises, entropy)


class RetryUntilGood(ObjectivePerturbationPlan):
    """Draws again while the training loss is bad, and says nothing of it."""

    def run(self, records, entropy, progress=None):
        for _ in range(3):
            release = super().run(records, entropy, progress)
            if records[0].value_and_gradient(self.problem.loss, release.theta[0])[0] < records[0].n_samples:
                break
        return release


class NoOutputStage(ObjectivePerturbationPlan):
    """Releases what the optimizer found, as if it were the exact minimizer."""

    def run(self, records, entropy, progress=None):
        minima = []
        for part in records:
            noise = self.objective_noise.draw(self.problem.shape, entropy)
            minima.append(minimize(Objective(part, self.problem.loss, self.total_l2, noise), 1e-6).theta)
        return base.Release(np.stack(minima), entropy.secure)


class StopsEarly(ObjectivePerturbationPlan):
    """Does not verify its minimizer: one step and out, with the output noise of a good one."""

    def run(self, records, entropy, progress=None):
        minima = []
        for part in records:
            noise = self.objective_noise.draw(self.problem.shape, entropy)
            gradient = Objective(part, self.problem.loss, self.total_l2, noise).value_and_gradient(
                np.zeros(self.problem.shape)
            )[1]
            minima.append(-gradient / (self.total_l2 + 1.0))
        theta = self.output.release(np.stack(minima).ravel(), entropy).reshape(
            len(minima), *self.problem.shape
        )
        return base.Release(theta, entropy.secure)


class WeakRidge(ObjectivePerturbationPlan):
    """Regularizes a tenth as much as it charges for."""

    def run(self, records, entropy, progress=None):
        parts = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)} | {
            "total_l2": self.total_l2 / 10
        }
        return ObjectivePerturbationPlan(**parts).run(records, entropy, progress)


class PrivateTiming(ObjectivePerturbationPlan):
    """Consumes more randomness when the data is hard: a coin per misclassified record."""

    def run(self, records, entropy, progress=None):
        entropy.words(1 + int(np.sum(np.asarray(records[0].matrix)[:, 0] > 0)))
        return super().run(records, entropy, progress)


class OtherRandomness(ObjectivePerturbationPlan):
    """Adds noise from a generator nobody watches."""

    def run(self, records, entropy, progress=None):
        release = super().run(records, entropy, progress)
        return base.Release(release.theta + np.random.normal(size=release.theta.shape), release.secure)


def _finish(plan, records, noises, entropy):
    minima = [
        minimize(Objective(part, plan.problem.loss, plan.total_l2, noise), plan.gradient_tolerance).theta
        for part, noise in zip(records, noises, strict=True)
    ]
    theta = plan.output.release(np.stack(minima).ravel(), entropy).reshape(len(minima), *plan.problem.shape)
    return base.Release(theta, entropy.secure)


@dataclass(frozen=True)
class PrintedRule(ObjectivePerturbation):
    """Noise and regularization as printed by Talwar, Thakurta and Zhang, Algorithm 2.

    stddev = L sqrt(2 ln(1/delta)) / epsilon and l2 = 2 beta / epsilon: no factor for replacing a record, and the whole
    epsilon spent twice.
    """

    name: ClassVar[str] = "printed"

    def plan(self, problem, guarantee):
        scale = problem.loss.lipschitz * problem.bounds.feature_norm
        stddev = scale * math.sqrt(2 * math.log(1 / guarantee.delta)) / guarantee.epsilon
        l2 = 2 * problem.loss.smoothness * problem.bounds.feature_norm**2 / guarantee.epsilon
        output_mu = gaussian_mu(guarantee.epsilon, guarantee.delta) / 40
        return ObjectivePerturbationPlan(problem, guarantee, stddev, l2, output_mu)


# -- bounds -----------------------------------------------------------------------------------------------------


class UnclippedIntercept(Bounds):
    """Clips the row and adds the constant column afterwards."""

    def row_scales(self, X):
        return np.isfinite(X).all(axis=1).astype(np.float64) if self.intercept else super().row_scales(X)


class OneSided(Bounds):
    """Clips large entries and forgets that entries can be large and negative."""

    def row_scales(self, X):
        return super().row_scales(np.maximum(X, 0.0))


def with_bounds(kind, clip_first):
    """A logistic regression whose records are made by other bounds than its plan was calibrated for."""

    genuine = linear.as_records

    def careless(rows, labels, bounds, **options):
        if clip_first:
            rows = rows * Bounds(bounds.feature_norm, False).row_scales(rows)[:, None]
        return genuine(rows, labels, kind(bounds.feature_norm, bounds.intercept), **options)

    class Twin(PrivateLogisticRegression):
        def _fit(self, *data, **facts):
            with mock.patch.object(linear, "as_records", careless):
                super()._fit(*data, **facts)

    return Twin


class ScaledByTheData(PrivateLinearSVC):
    """Divides columns by their largest entry in the private data."""

    def _read(self, X, y):
        rows, targets = super()._read(X, y)
        return rows / np.nanmax(np.abs(rows), axis=0, initial=1e-3), targets


# -- what is published --------------------------------------------------------------------------------------------


class PublishesScore(PrivateLinearSVC):
    """Stores its accuracy on the private rows."""

    def fit(self, X, y):
        super().fit(X, y)
        self.training_accuracy_ = float(np.mean(self.predict(np.nan_to_num(X)) == y))
        return self


class KeepsRows(PrivateLinearSVC):
    """Stores one private row in an attribute that looks internal."""

    def fit(self, X, y):
        super().fit(X, y)
        self._example = np.array(X[0])
        return self


class WarnsAboutClipping(PrivateLinearSVC):
    """Tells how many rows were too long."""

    def fit(self, X, y):
        import warnings

        super().fit(X, y)
        warnings.warn(f"{int(np.sum(np.linalg.norm(X, axis=1) > 1))} rows were clipped", stacklevel=2)
        return self


# -- randomness ---------------------------------------------------------------------------------------------------


class OneByteSeed(Entropy):
    """A cipher keyed by a single byte of entropy: 256 different streams."""

    def _key(self):
        return os.urandom(1) * 48
