"""Private quantiles of columns and of row norms: bounds for data whose range is not public, paid for like any release.

Prefer declared bounds, which cost nothing. Otherwise the exponential mechanism, sampled exactly, chooses a quantile
from a public grid of candidates. Proofs: ``docs/proofs/quantiles.md``.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from discreet import _checks
from discreet._checks import ParameterError, ParameterTypeError, Setting, calm
from discreet._typing import Array
from discreet.estimators.groups import bounded_rows, read_people
from discreet.estimators.linear import NoiseWarning
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.mechanisms.selection import ExponentialMechanism
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.events import BoundedRange, Event, Repeated
from discreet.privacy.guarantee import Guarantee, Neighboring, relation_of
from discreet.privacy.statement import PrivacyStatement
from discreet.records.open import check_people, refuse_source
from discreet.release import (
    NOT_COVERED,
    PLATFORM_ASSUMPTIONS,
    Budget,
    Carried,
    Published,
    carry_out,
    unit_assumption,
)
from discreet.tables.domains import Numeric, SchemaError, read_numbers
from discreet.tables.reading import column, to_numbers

if TYPE_CHECKING:
    from discreet.privacy.ledger.ledger import Ledger


_LEVEL_BITS = 20  # levels are multiples of 2^-20, so that every score is an exact float64
_MOST_ROWS = 2**32


def wide_grid(smallest: float = 2.0**-10, largest: float = 2.0**30, per_octave: int = 2) -> Array:
    """Return candidates for a column whose order of magnitude is unknown: 0 and powers of both signs.

    Parameters
    ----------
    smallest, largest : float
        Absolute values of the candidates nearest to 0 and farthest from it.
    per_octave : int, default 2
        Number of candidates between consecutive powers of two.

    Returns
    -------
    array
        The candidates in increasing order.

    Notes
    -----
    Privacy: no data is read. A finer grid costs little: errors grow with the logarithm of its size.

    Examples
    --------
    >>> wide_grid(1.0, 4.0, per_octave=1)
    array([-4., -2., -1.,  0.,  1.,  2.,  4.])
    """
    low = _checks.real("smallest", smallest, above=0)
    high = _checks.real("largest", largest, above=low)
    steps = math.ceil(math.log2(high / low) * _checks.count("per_octave", per_octave))
    powers = np.geomspace(low, high, steps + 1)
    return np.concatenate([-powers[::-1], [0.0], powers])


@dataclass(frozen=True)
class QuantilePlan:
    """Quantiles at ``levels`` of ``n_columns`` columns, each chosen from ``candidates``; public facts only.

    Privacy
    -------
    The score of an interval between two candidates is minus its distance from the quantile, in ranks. Range of the
    differences of scores: 2 under replace-one, otherwise 2 max(level, 1 - level), times ``rows`` for groups of rows.
    Event: one ``BoundedRange`` per quantile.
    """

    guarantee: Guarantee
    levels: tuple[float, ...]
    candidates: tuple[float, ...]
    n_columns: int = 1
    rows: int = 1

    theorem = "exponential mechanism of bounded range on exact scores; docs/proofs/quantiles.md"

    @cached_property
    def _epsilon(self) -> float:
        """Epsilon of one choice, so that all choices together meet the guarantee."""
        if self._choices == 1 and self.guarantee.delta == 0:
            return self.guarantee.epsilon
        return 1.0 / calibrate(lambda multiplier: self._event(1.0 / multiplier), self.guarantee)

    @property
    def _choices(self) -> int:
        return self.n_columns * len(self.levels)

    def _event(self, epsilon: float) -> Event:
        return Repeated(BoundedRange(epsilon), self._choices)

    def selection(self, level: float) -> ExponentialMechanism:
        """Return the mechanism that chooses the quantile at one level."""
        share = 1.0 if self.guarantee.neighboring is Neighboring.REPLACE_ONE else max(level, 1 - level)
        return ExponentialMechanism(2 * share * self.rows, self._epsilon, len(self.candidates) - 1)

    @property
    def event(self) -> Event:
        return self._event(self._epsilon)

    @property
    def mechanism(self) -> str:
        return (
            f"{self._choices} quantile(s), each chosen among {len(self.candidates)} public candidates by the "
            "exponential mechanism"
        )

    @property
    def noise(self) -> Mapping[str, float | str]:
        return {
            "epsilon of one quantile": self._epsilon,
            "values by which a rank is off, at most (95%)": self.rank_error(),
            "sampler": f"exact exponential mechanism, {SOURCE}",
        }

    def rank_error(self, beta: float = 0.05) -> float:
        """Bound the error in ranks of all quantiles, beyond the grid, with probability at least 1 - beta."""
        scale = max(self.selection(level).scale for level in self.levels)
        return scale * math.log(len(self.candidates) * self._choices / beta)

    def scores(self, values: ArrayLike, level: float) -> Array:
        """Return minus the number of ranks between each interval and the quantile, exactly; NaN is ignored."""
        known = np.asarray(values, dtype=np.float64)
        known = np.sort(known[~np.isnan(known)])
        # Values outside the candidates belong to the outer intervals.
        below = np.searchsorted(known, np.array(self.candidates[1:-1]), side="left")
        excess = np.concatenate([[0], below, [len(known)]]) - level * len(known)
        return np.asarray(-np.maximum(np.maximum(excess[:-1], -excess[1:]), 0.0))

    def run(self, columns: Sequence[Array], entropy: Entropy) -> Array:
        """Return one row of quantiles per column, in increasing order."""
        grid = np.array(self.candidates)
        chosen = [
            [
                # The outer end of the interval, so that two quantiles enclose the values between them.
                grid[self.selection(level).select(self.scores(values, level), entropy) + int(level >= 0.5)]
                for level in self.levels
            ]
            for values in columns
        ]
        return np.sort(np.array(chosen), axis=1)


@dataclass(frozen=True)
class Quantiles:
    """Released quantiles and their guarantee.

    values : one row per column, one entry per level, in increasing order.
    privacy_ : the `PrivacyStatement`; print it.
    """

    values: Array
    privacy_: PrivacyStatement

    @property
    def released_(self) -> dict[str, Any]:
        """The released values; the ledger stores their digest (`release_digest`)."""
        return {"values": self.values}


@calm()
def private_quantiles(
    X: ArrayLike,
    levels: float | Sequence[float],
    *,
    candidates: ArrayLike | None = None,
    epsilon: float,
    delta: float = 0.0,
    neighboring: str = "replace-one",
    bad_rows: str = "error",
    groups: Any = None,
    max_rows_per_group: int | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
) -> Quantiles:
    """Release quantiles of every column under differential privacy.

    Parameters
    ----------
    X : values of one column, or an array of shape (n_samples, n_columns).
    levels : one level or several, between 0 and 1; rounded to multiples of 2**-20.
    candidates : public values to choose from, required; for instance ``numpy.linspace(0, 120, 241)`` or `wide_grid`.
        The answer is the candidate below the quantile for levels below 1/2, and the one above it for others.
    epsilon, delta : budget of all quantiles together; delta may be 0.
    neighboring : {"replace-one", "add-remove-one", "zero-out"}
    bad_rows : "error" raises an error for NaN and for rows without an id in ``groups``; "null" ignores them.
    groups, max_rows_per_group : as in ``fit`` of the estimators; the guarantee then covers all rows of a group.
    ledger : budget to charge before any data is used.

    Returns
    -------
    Quantiles
        ``values`` of shape (n_columns, n_levels); the statement is ``privacy_``.

    Notes
    -----
    Privacy: (epsilon, delta)-DP of the returned values; event: one ``BoundedRange`` per quantile. Not covered: the
    running time.

    Examples
    --------
    >>> import numpy as np
    >>> ages = np.random.default_rng(0).normal(40, 10, size=5000)
    >>> found = private_quantiles(ages, [0.05, 0.5, 0.95], candidates=np.linspace(0, 120, 241), epsilon=1.0)
    >>> bool(abs(found.values[0] - [23.5, 40, 56.5]).max() < 3), found.privacy_.epsilon
    (True, 1.0)
    """
    if candidates is None:
        raise ParameterError(
            "candidates",
            "must list the public values to choose from, because the values in the data are private",
            "pass candidates=numpy.linspace(0, 120, 241), for example for ages",
            "pass candidates=discreet.wide_grid() if nothing is known",
        )
    options = epsilon, delta, neighboring, bad_rows, groups, max_rows_per_group, ledger
    return _quantiles(lambda values: {"values": values}, X, levels, candidates, *options)


def _quantiles(
    published: Published[Array],
    X: ArrayLike,
    levels: float | Sequence[float],
    candidates: ArrayLike,
    epsilon: float,
    delta: float = 0.0,
    neighboring: str = "replace-one",
    bad_rows: str = "error",
    groups: Any = None,
    max_rows_per_group: int | None = None,
    ledger: Budget = None,
    bounds: Mapping[str, float] | None = None,
) -> Quantiles:
    """Release quantiles and bind the charge to the numbers that ``published`` makes of them.

    bounds : ends of the candidates by name, for the statement; None for the ends of ``candidates``.
    """
    strict = _checks.choice("bad_rows", bad_rows, ("error", "null")) == "error"
    refuse_source("X", X)
    check_people(X, groups)
    table = to_numbers(X)
    if table.ndim not in (1, 2) or table.size == 0 or len(table) > _MOST_ROWS:
        raise ParameterError(
            "X", f"must hold one column or a table of numbers with rows, got shape {table.shape}"
        )
    table = table.reshape(len(table), -1)
    if strict and (none := np.isnan(table).any(axis=1)).any():
        raise ParameterError(
            "X",
            f"holds values that are not numbers, the first in row {int(np.argmax(none))} (counted from 0)",
            "correct them",
            Setting("bad_rows", "null", purpose="to ignore such rows"),
        )
    relation = relation_of(neighboring)
    rows = _checks.count_or_none("max_rows_per_group", max_rows_per_group)
    slots = bounded_rows(groups, rows, len(table), strict=strict, padded=False)
    if slots is not None:
        table = table[slots.rows]
    promise = Guarantee(
        _checks.real("epsilon", epsilon, above=0),
        _checks.real("delta", delta),
        relation,
        "record" if rows is None else "user",
    )
    plan = QuantilePlan(promise, _levels(levels), _candidates(candidates), table.shape[1], rows or 1)
    if slots is None and relation.size_is_public:
        _warn_if_few(plan, len(table))
    carried = carry_out(plan, list(table.T), ledger, "private_quantiles", published=published)
    ends = {"smallest candidate": plan.candidates[0], "largest candidate": plan.candidates[-1]}
    return Quantiles(carried.release, _statement(plan, carried, ends if bounds is None else bounds))


@calm()
def private_norm_bound(
    X: ArrayLike,
    *,
    level: float = 0.95,
    candidates: ArrayLike | None = None,
    intercept: bool = True,
    **options: Any,
) -> Quantiles:
    """Release a norm bound that about a fraction ``level`` of rows satisfy: a private quantile of Euclidean norms.

    Use ``values[0, 0]`` as the ``feature_bound`` of an estimator, which scales longer rows down to it.

    Parameters
    ----------
    X : array of shape (n_samples, n_features).
    level : fraction of rows that should be within the bound.
    candidates : public norms to choose from; None for quarter octaves from 2**-10 to 2**30.
    intercept : whether the norms include the intercept's 1, as ``feature_bound`` does.
    options : epsilon, delta, neighboring, bad_rows, groups, max_rows_per_group, ledger as for `private_quantiles`.

    Returns
    -------
    Quantiles
        Its ``values`` have shape (1, 1).

    Notes
    -----
    Privacy: that of `private_quantiles`, because a row's norm depends on that row alone.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(5000, 4)) * 100
    >>> bool(250 < private_norm_bound(X, epsilon=0.5).values[0, 0] < 400)
    True
    """
    refuse_source("X", X)
    check_people(X, options.get("groups"))
    table = to_numbers(X)
    if table.ndim != 2:
        raise ParameterError("X", f"must have rows and columns, got shape {table.shape}")
    with np.errstate(all="ignore"):
        norms = np.sqrt(np.square(table).sum(axis=1) + float(bool(intercept)))
    grid = wide_grid(per_octave=4) if candidates is None else candidates
    positive = np.asarray(grid, dtype=np.float64)
    return private_quantiles(norms, level, candidates=positive[positive > 0], **options)


@calm()
def private_domains(
    table: Any,
    candidates: Mapping[str, ArrayLike | None],
    *,
    coverage: float = 0.98,
    bad_rows: str = "error",
    **options: Any,
) -> tuple[dict[str, Numeric], PrivacyStatement]:
    """Release numeric domains for a `Schema`, for columns without public bounds.

    Parameters
    ----------
    table : pyarrow Table, pandas or polars DataFrame, or dictionary of columns.
    candidates : public candidates of each column; None for `wide_grid`. All columns need the same number of them.
    coverage : fraction of the values that should lie within the bounds; the others are clipped, half of them on each
        side. Missing cells are ignored.
    bad_rows : "error" raises an error for cells that are not numbers and for rows without an id in ``groups``; "null"
        ignores them.
    options : epsilon, delta, neighboring, groups, max_rows_per_group, ledger as for `private_quantiles`.

    Returns
    -------
    tuple of dict and PrivacyStatement
        The domain of every column, and one statement for all of them.

    Notes
    -----
    Privacy: that of `private_quantiles`, for all columns together.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> table = {"income": np.exp(rng.normal(10, 1, size=5000))}
    >>> domains, statement = private_domains(table, {"income": None}, epsilon=1.0)
    >>> domains["income"].lower < 5000 < 100_000 < domains["income"].upper, statement.epsilon
    (True, 1.0)
    """
    refuse_source("table", table)
    if not isinstance(candidates, Mapping) or not candidates:
        raise ParameterTypeError(
            "candidates",
            f"must map columns to their public candidates, got {candidates!r}",
            'pass {"income": None}, for example, where None means the candidates of discreet.wide_grid()',
        )
    share = _checks.real("coverage", coverage, above=0)
    if not share < 1:
        raise ParameterError(
            "coverage", f"must be less than 1, got {share!r}, because the largest value is private"
        )
    grids = {name: _candidates(wide_grid() if grid is None else grid) for name, grid in candidates.items()}
    if len({len(grid) for grid in grids.values()}) > 1:
        raise ValueError("all columns need the same number of candidates")
    strict = _checks.choice("bad_rows", bad_rows, ("error", "null")) == "error"
    # The mechanism needs ranks among candidates only, so each column can have a grid of its own.
    ranks = np.column_stack(
        [_ranks(_values(table, name, strict), np.array(grid)) for name, grid in grids.items()]
    )
    if strict and options.get("groups") is not None:
        read_people(options["groups"], len(ranks), strict=True)
    places = np.arange(len(next(iter(grids.values()))), dtype=np.float64)
    tail = (1 - share) / 2
    # Invalid cells have raised an error by now; those that are left are missing and are ignored.
    found = _quantiles(
        lambda values: domain_bounds(_domains(grids, values)),
        ranks,
        [tail, 1 - tail],
        places,
        bad_rows="null",
        bounds={
            f"{which} candidate of {name}": grid[place]
            for name, grid in grids.items()
            for which, place in (("smallest", 0), ("largest", -1))
        },
        **options,
    )
    return _domains(grids, found.values), found.privacy_


def _domains(grids: Mapping[str, tuple[float, ...]], places: Array) -> dict[str, Numeric]:
    """Return the domain of every column, from the positions of its two quantiles among the candidates."""
    domains = {}
    for (name, grid), (low, high) in zip(grids.items(), places.astype(int), strict=True):
        # Noise can make both ends equal: add one candidate on each side.
        first, last = (low, high) if low < high else (max(0, low - 1), min(len(grid) - 1, high + 1))
        domains[name] = Numeric(grid[first], grid[last])
    return domains


def domain_bounds(domains: Mapping[str, Numeric]) -> dict[str, Any]:
    """Return the released numbers of `private_domains`; the ledger stores their digest (`release_digest`)."""
    return {name: (domain.lower, domain.upper) for name, domain in domains.items()}


def _values(table: Any, name: str, strict: bool) -> Array:
    """Return the numbers of a column, NaN for missing and invalid cells; ``strict`` refuses invalid ones."""
    try:
        values, malformed = read_numbers(column(table, name))
    except SchemaError as error:
        raise SchemaError(f"column {name!r} {error}; only numbers have bounds") from None
    if strict and malformed.any():
        raise SchemaError(
            f"column {name!r} has cells that are not numbers, the first in row {int(np.argmax(malformed))} (counted "
            "from 0); a column of words is Categorical or Text, and has no bounds",
            "correct them",
            "leave them empty",
            Setting("bad_rows", "null", purpose="to ignore such rows"),
        )
    return values


def _warn_if_few(plan: QuantilePlan, n_samples: int) -> None:
    """Warn, from public facts only, if the noise in ranks can move a quantile past the end of the data.

    All candidates beyond the last value have the same score, so such a quantile can be any of them.
    """
    tail = min(min(level, 1 - level) for level in plan.levels)
    needed = math.ceil(plan.rank_error() / tail)
    if n_samples < needed:
        warnings.warn(
            f"the quantiles will be mostly noise: at epsilon = {plan.guarantee.epsilon:g} ranks can be off by "
            f"{plan.rank_error():.0f}, and only {tail * n_samples:.0f} of {n_samples} records lie beyond the outer "
            f"quantile. About {needed} records would do, or a larger epsilon, fewer columns or candidates, or levels "
            "nearer to 1/2",
            NoiseWarning,
            stacklevel=3,
        )


def _ranks(values: Array, grid: Array) -> Array:
    """Return values on a scale where the candidates are 0, 1, 2, ...; the order relative to them is the same."""
    places = np.searchsorted(grid, values, side="right") - 0.5
    exact = np.searchsorted(grid, values, side="left")
    on_grid = grid[np.minimum(exact, len(grid) - 1)] == values
    return np.where(np.isnan(values), np.nan, np.where(on_grid, exact.astype(np.float64), places))


def _levels(levels: float | Sequence[float]) -> tuple[float, ...]:
    values = tuple(levels) if np.iterable(levels) else (levels,)
    unit = 2**_LEVEL_BITS
    rounded = tuple(round(_checks.real("levels", value) * unit) / unit for value in values)
    if not rounded or not all(0 < level < 1 for level in rounded):
        raise ParameterError("levels", f"must lie between 0 and 1, both excluded, got {levels!r}")
    return rounded


def _candidates(candidates: ArrayLike) -> tuple[float, ...]:
    grid = np.asarray(candidates, dtype=np.float64)
    if grid.ndim != 1 or len(grid) < 2 or not np.isfinite(grid).all() or not np.all(np.diff(grid) > 0):
        raise ParameterError(
            "candidates",
            "must be a public, increasing list of at least two finite numbers, for example "
            "numpy.linspace(0, 120, 241), or discreet.wide_grid()",
        )
    return tuple(grid.tolist())


def _statement(plan: QuantilePlan, carried: Carried[Array], ends: Mapping[str, float]) -> PrivacyStatement:
    return carried.state(
        bounds={**ends, "rows per unit": float(plan.rows)},
        assumptions=(
            "the candidates were chosen without looking at the private data (given by the user)",
            unit_assumption(plan.guarantee),
            *PLATFORM_ASSUMPTIONS,
        ),
        not_covered=NOT_COVERED,
    )
