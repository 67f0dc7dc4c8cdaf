"""The plan of an additive model: bins, then shapes of columns, then a few pairs; one bill for all of it.

Proofs: docs/proofs/additive-models.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from discreet import _checks
from discreet._checks import ParameterError
from discreet._typing import Array, Integers, Progress
from discreet.additive import bands
from discreet.additive import bins as binning
from discreet.additive import pairs as pairing
from discreet.additive.bins import Bins, HistogramMechanism
from discreet.additive.columns import Cells, Column
from discreet.additive.pairs import COARSE, MOST_CATEGORIES, PairSelection
from discreet.additive.records import BinnedRecords, Codes, Coordinates, coordinates
from discreet.additive.shapes import AdditiveModel, PairShape, Shape, predictions
from discreet.additive.stages import (
    Offset,
    Slopes,
    Stage,
    Task,
    class_slopes,
    count_slopes,
    no_offset,
    target_slopes,
)
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.privacy import events
from discreet.privacy.accounting.calibration import calibrated_unit, multiplier, share_event
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.solvers import base

_BINS = 0.07  # of the squared Gaussian-DP parameter
_SELECTION, _PAIRS = 0.03, 0.30  # where there are pairs
_PAIR_SIGNAL, _MOST_PAIRS = 800.0, 3  # of the public rule for their number
_FINE_SIGNAL = 3 * _PAIR_SIGNAL  # from here on, ordered columns stay finer in pairs with columns of few bins
# Of coefficients, in units of half the range of targets, or of the logarithm of counts.
_PRIORS: Mapping[Task, tuple[float, float]] = {
    "classes": (4.0, 1.0),
    "target": (0.3, 0.1),
    "count": (0.3, 0.1),
}
# Of residuals, in units of half the range of targets or counts.
_PAIR_CLIPS: Mapping[Task, float] = {"classes": 0.5, "target": 0.3, "count": 0.4}
_SCALES = (
    0.5,
    0.3,
)  # standard deviation of residuals before either stage, in units of half the range of targets


@dataclass(frozen=True)
class AdditiveProblem:
    """What is public about an additive model.

    Attributes
    ----------
    columns : names and domains.
    task, n_classes : what is predicted: classes, a target between bounds, or a count.
    n_samples : public number of records, or an upper bound.
    n_pairs : how many pairs of columns get a shape.
    max_bins : how many bins a range is merged to, about; None for the public rule.
    n_iterations : noisy gradients of a stage; None for the default.
    reach : of counts, the largest absolute logarithm of a predicted mean.
    """

    columns: tuple[Column, ...]
    task: Task
    n_samples: int
    n_classes: int = 2
    n_pairs: int = 0
    max_bins: int | None = None
    n_iterations: int | None = None
    reach: float = 1.0

    @property
    def half_range(self) -> float:
        """Of targets and counts; 1 for classes."""
        return math.exp(self.reach) / 2 if self.task == "count" else 1.0

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return len(self.columns)

    @property
    def n_outputs(self) -> int:
        """Raw predictions of one record."""
        return self.n_classes if self.task == "classes" and self.n_classes > 2 else 1


@dataclass(frozen=True)
class AdditiveRelease:
    """What a run gives out: a model, and whether its noise was secret."""

    model: AdditiveModel
    secure: bool


def default_pairs(signal: float, n_columns: int) -> int:
    """How many pairs get a shape: none where records times the Gaussian-DP parameter are too few to pay for them.

    >>> default_pairs(500.0, 10), default_pairs(1000.0, 10), default_pairs(1000.0, 2), default_pairs(1000.0, 1)
    (0, 3, 1, 0)
    """
    return min(_MOST_PAIRS, math.comb(n_columns, 2)) if signal >= _PAIR_SIGNAL else 0


@dataclass(frozen=True)
class AdditiveFit:
    """The method, for `plan_for_groups` and for `plan`.

    Attributes
    ----------
    chooses_pairs : take the number of pairs from `default_pairs` instead of the problem.
    """

    chooses_pairs: bool = False

    def plan(self, problem: AdditiveProblem, guarantee: Guarantee) -> AdditivePlan:
        """Split the budget, calibrate all releases together."""
        if guarantee.delta == 0:
            raise ParameterError(
                "delta", "must be greater than 0: additive models add Gaussian noise", "for example 1 / n**2"
            )
        budget = gaussian_mu(guarantee.epsilon, guarantee.delta)
        signal = problem.n_samples * budget / guarantee.neighboring.contributions
        if self.chooses_pairs:
            problem = replace(problem, n_pairs=default_pairs(signal, problem.n_features))
        _checks.count("pairs", problem.n_pairs, at_least=0)
        if problem.n_pairs and problem.n_features < 2:
            raise ParameterError("pairs", "must be 0 where there is one column")
        n_bins = binning.default_bins(signal)
        if problem.max_bins is not None:
            n_bins = _checks.count("max_bins", problem.max_bins, at_least=2)
        if problem.n_iterations is not None:
            _checks.count("n_iterations", problem.n_iterations)
        layout = Layout(problem, guarantee.neighboring, n_bins, 1.0)
        unit = calibrated_unit(lambda unit: replace(layout, unit=unit).event, guarantee)
        return AdditivePlan(problem, guarantee, replace(layout, unit=unit))


@dataclass(frozen=True)
class Layout:
    """How the budget is split, for a noise multiplier ``unit`` of one release with all of it."""

    problem: AdditiveProblem
    neighboring: Neighboring
    n_bins: int
    unit: float

    @property
    def event(self) -> events.Event:
        """What everything costs, whatever bins and pairs are chosen."""
        problem = self.problem
        cells = binning.most_cells(problem.columns)
        made = [share_event(self.unit, _BINS, cells), self.main.event]
        if problem.n_pairs:
            made += [events.Repeated(self.selection.event, problem.n_pairs), self.second.event]
        return events.Composed(tuple(made))

    @cached_property
    def histograms(self) -> HistogramMechanism:
        """The release that chooses bins."""
        problem = self.problem
        noise = multiplier(self.unit, _BINS)
        return HistogramMechanism(problem.columns, problem.n_samples, self.n_bins, self.neighboring, noise)

    @property
    def main(self) -> Stage:
        """The shapes of columns."""
        share = 1 - _BINS - (_SELECTION + _PAIRS if self.problem.n_pairs else 0.0)
        width = 1 + sum(self._most_bins(one) + int(one.ordered) for one in self.problem.columns)
        return self._stage(share, width, 0)

    @property
    def selection(self) -> PairSelection:
        """The choice of pairs: all choices together have the zCDP parameter of a Gaussian release of their share."""
        problem = self.problem
        epsilon = 2 * math.sqrt(_SELECTION / problem.n_pairs) / self.unit
        clip = _PAIR_CLIPS[problem.task] * problem.half_range
        return PairSelection(problem.n_pairs, problem.n_samples, clip, self.neighboring, epsilon)

    @property
    def second(self) -> Stage:
        """The shapes of pairs."""
        return self._stage(_PAIRS, self.problem.n_pairs * self.most_pair_cells, 1)

    @property
    def most_pair_cells(self) -> int:
        """The most cells that a pair's table can have, whatever bins and pairs are chosen."""
        sizes = sorted(
            min(self._most_bins(one), COARSE if one.ordered else MOST_CATEGORIES)
            for one in self.problem.columns
        )
        return math.prod(sizes[-2:])

    @property
    def filled_pair_cells(self) -> int:
        """How many cells of a table finer bins of an ordered column may fill: none where there is little signal."""
        signal = self.problem.n_samples / self.unit / self.neighboring.contributions
        return min(COARSE**2, self.most_pair_cells) if signal >= _FINE_SIGNAL else 0

    def _stage(self, share: float, width: int, place: int) -> Stage:
        problem = self.problem
        return Stage(
            problem.task,
            problem.n_samples,
            width,
            problem.n_pairs if place else problem.n_features + 1,
            problem.n_outputs,
            self.neighboring,
            self.unit,
            share,
            _PRIORS[problem.task][place] * (problem.reach**2 if problem.task == "count" else 1.0),
            _SCALES[place] * problem.half_range,
            problem.n_iterations,
            problem.reach,
            name=("columns", "pairs")[place],
        )

    def _most_bins(self, one: Column) -> int:
        if not one.is_range:
            return one.n_levels
        return binning.most_bins(self.n_bins) + int(one.marks_missing)


@dataclass(frozen=True)
class AdditivePlan(base.Plan):
    """A calibrated fit of an additive model."""

    problem: AdditiveProblem  # type: ignore[assignment]
    layout: Layout

    def __post_init__(self) -> None:
        _ = self.releases  # what can fail does so now, before a charge

    @cached_property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        """Everything that a run releases, in order; at its largest, for the widest records."""
        layout = self.layout
        made = [base.PlannedRelease(layout.histograms, "histograms"), *layout.main.releases]
        if self.problem.n_pairs:
            made.append(base.PlannedRelease(layout.selection, "choice of pairs", self.problem.n_pairs))
            made += layout.second.releases
        return tuple(made)

    @property
    def how(self) -> str:
        """How the noise is added, in words."""
        text = (
            "Gaussian noise on the histograms of all columns, on the second moment of their coordinates, twice, and on "
            f"{self.layout.main.steps} sums of clipped residuals"
        )
        if self.problem.n_pairs:
            text += f"; {self.problem.n_pairs} pairs by the exponential mechanism, fitted in the same way"
        return text

    @property
    def proof(self) -> str:
        """The theorem behind the guarantee."""
        return (
            "sensitivity of histograms (Theorem 1), of second moments and of clipped residual sums (Theorem 3), and of "
            "scores of pairs (Theorem 4), adaptive composition (Theorem 5); docs/proofs/additive-models.md"
        )

    @property
    def numbers(self) -> Mapping[str, float | str]:
        """The public numbers of the run; the largest noise there can be, for records that are not shrunk."""
        layout = self.layout
        numbers: dict[str, float | str] = {
            "histogram noise stddev": layout.histograms.gaussian.stddev,
            "histogram sensitivity": layout.histograms.sensitivity.value,
            "cells of a range": float(layout.histograms.n_cells),
            "bins of a range, about": float(layout.n_bins),
        }
        stages = [layout.main, *([layout.second] if self.problem.n_pairs else [])]
        for stage in stages:
            for place in range(2):
                name = f"second moment noise stddev, {stage.name}, look {place + 1} (sum scale)"
                numbers[name] = stage.look(place, stage.most_features, 1.0).gaussian.stddev
            largest = stage.residuals(stage.most_features, 1.0, stage.largest_cap).gaussian
            numbers[f"largest gradient noise stddev, {stage.name} (sum scale)"] = largest.stddev
            numbers[f"noisy steps, {stage.name}"] = float(stage.steps)
        if self.problem.n_pairs:
            numbers["epsilon of the choice of a pair"] = layout.selection.epsilon
        return {**numbers, "sampler": f"exact discrete Gaussian, {SOURCE}"}

    @property
    def sizes(self) -> Mapping[str, str]:
        """Public sizes, as printed."""
        problem = self.problem
        return {
            "records x columns": f"{problem.n_samples} x {problem.n_features}",
            "coordinates of a record, at most": str(self.layout.main.most_features),
        }

    def run(  # type: ignore[override]
        self, cells: Cells, entropy: Entropy, progress: Progress | None = None
    ) -> AdditiveRelease:
        """Choose bins, fit the shapes of columns, then choose and fit pairs."""
        problem, layout = self.problem, self.layout
        bins = layout.histograms.release(cells.blocks(), entropy)
        ordered = [one.ordered for one in problem.columns]
        parts = (
            [np.where(null, -1, one.codes(values)) for one, values in zip(bins, columns, strict=True)]
            for columns, null in cells.blocks()
        )
        codes = Codes.of([one.size for one in bins], parts, stored=cells.stored)
        made = coordinates(bins, ordered)
        records = BinnedRecords.of(made, codes, cells.null, problem.n_samples)
        rate = _MeanRate(made.mean(bins), problem.reach) if problem.task == "count" else None
        theta, trace = layout.main.traced(records, self._slopes(cells, no_offset), entropy, rate)
        values, intercept = made.shapes(theta)
        widths = self._margins(made, bins, theta, trace)
        shapes = [
            Shape(column, one, value, np.zeros(problem.n_outputs), width)
            for column, one, value, width in zip(problem.columns, bins, values, widths, strict=True)
        ]
        pairs: tuple[PairShape, ...] = ()
        if problem.n_pairs:
            pairs = self._pairs(
                bins,
                codes,
                cells,
                lambda rows: predictions(intercept, shapes, (), list(codes.matrix[rows].T)),
                entropy,
                rate,
            )
        centered = [shape.centered() for shape in shapes]
        intercept = intercept + sum(mean for _, mean in centered)
        model = AdditiveModel(intercept, tuple(shape for shape, _ in centered), pairs)
        return AdditiveRelease(model, entropy.secure)

    def _margins(
        self, made: Coordinates, bins: Sequence[Bins], theta: Array, trace: bands.Trace
    ) -> Sequence[Array | None]:
        """Noise bands around shapes of one output; none around those of several classes, which were not measured."""
        if self.problem.n_outputs > 1:
            return [None] * len(bins)
        main, theta = self.layout.main, theta[:, 0]
        middle = bands.prediction_center(made, bins, theta) if self.problem.task == "count" else 0.0
        slope = main.slope(trace, middle)
        return bands.margins(made, bins, theta, self.problem.n_samples, slope, trace)

    def _pairs(
        self,
        bins: Sequence[Bins],
        codes: Codes,
        cells: Cells,
        offset: Offset,
        entropy: Entropy,
        rate: _MeanRate | None,
    ) -> tuple[PairShape, ...]:
        """Pairs that explain what the shapes of columns left over, and their shapes."""
        layout = self.layout
        slopes = self._slopes(cells, offset)
        clip = layout.selection.clip

        def left_over() -> Iterator[tuple[Sequence[Integers], Array]]:
            for rows, block in codes.blocks():
                residuals = slopes(np.zeros((len(block), self.problem.n_outputs)), rows)
                sizes = np.linalg.norm(residuals, axis=1)
                residuals *= (np.where(cells.null[rows], 0.0, clip) / np.maximum(sizes, clip))[:, None]
                yield list(block.T), residuals

        ordered = [one.ordered for one in self.problem.columns]
        tables = pairing.candidates(bins, ordered, layout.filled_pair_cells)
        chosen = layout.selection.choose(tables, left_over(), entropy)
        if not chosen:
            return ()
        made = pairing.pair_coordinates(chosen)
        parts = ([table.cells(list(block.T)) for table in chosen] for _, block in codes.blocks())
        both = Codes.of([math.prod(table.sizes) for table in chosen], parts, stored=cells.stored)
        records = BinnedRecords.of(made, both, cells.null, self.problem.n_samples)
        found = None if rate is None else rate.found  # pairs leave the mean of the predicted means as it is
        theta = layout.second.run(
            records, slopes, entropy, None if found is None else lambda theta, square: found
        )
        values, _ = made.shapes(theta)
        return tuple(
            PairShape(table.columns, table.coarse, value.reshape(*table.sizes, -1))
            for table, value in zip(chosen, values, strict=True)
        )

    def _slopes(self, cells: Cells, offset: Offset) -> Slopes:
        if self.problem.task == "target":
            return target_slopes(cells.labels, offset)
        if self.problem.task == "count":
            return count_slopes(cells.labels, self.problem.reach, offset)
        return class_slopes(cells.labels, self.problem.n_outputs, offset)


class _MeanRate:
    """The mean of predicted means, as released counts of bins and the released second moment show it.

    Raw predictions count as normal: their mean is exp(mean + variance / 2). ``found`` is the last answer.
    """

    def __init__(self, mean_row: Array, reach: float) -> None:
        self._row, self._reach, self.found = mean_row, reach, 1.0

    def __call__(self, theta: Array, square: float) -> float:
        mean = float(self._row @ theta[:, 0])
        log = mean + max(square - mean**2, 0.0) / 2
        self.found = math.exp(min(self._reach, max(-self._reach, log)))
        return self.found
