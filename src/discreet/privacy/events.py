"""Events: a frozen tree that describes what was run. Accountants price it.

An event describes the randomness of a mechanism in units of its sensitivity *under the relation it was calibrated
for*; pricing must name that relation. Events are append-only: a class is never removed and never changes its meaning,
because ledgers and model files outlive library versions.

`leaves_of` turns a tree into what accountants need: ideal leaves with multiplicities, and the error of inexact
sampling.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

from discreet.privacy.guarantee import Neighboring

DEEPEST = 100


@dataclass(frozen=True)
class Event:
    """Base of all events; comparable, hashable, and preserved exactly by ``to_dict`` / ``from_dict``."""

    kinds: ClassVar[dict[str, type[Event]]] = {}
    depth: ClassVar[int] = 0  # of the deepest nesting inside; set by those that hold events

    def __init_subclass__(cls) -> None:
        Event.kinds[cls.__name__] = cls

    def to_dict(self) -> dict[str, Any]:
        """Return the event as plain JSON-ready values."""
        fields: dict[str, Any] = {"kind": type(self).__name__}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Event):
                value = value.to_dict()
            elif isinstance(value, tuple):
                value = [part.to_dict() for part in value]
            fields[field.name] = value
        return fields

    @staticmethod
    def from_dict(fields: dict[str, Any]) -> Event:
        """Rebuild an event; unknown or malformed descriptions raise ``ValueError``."""
        try:
            values = dict(fields)
            kind = Event.kinds[values.pop("kind")]
            for name, value in values.items():
                if isinstance(value, dict):
                    values[name] = Event.from_dict(value)
                elif isinstance(value, list):
                    values[name] = tuple(Event.from_dict(part) for part in value)
            return kind(**values)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the description of a privacy event: {fields!r}") from error
        except RecursionError:
            raise ValueError(f"events can be nested at most {DEEPEST} deep, these are deeper") from None


def _nest(outer: Event, *parts: Event) -> None:
    """Record the depth of ``outer`` and raise if it holds anything but events, or is too deep for recursion."""
    for part in parts:
        if not isinstance(part, Event):
            raise ValueError(f"{type(outer).__name__} must hold events, got {part!r:.80}")
    depth = 1 + max((part.depth for part in parts), default=0)
    if depth > DEEPEST:
        raise ValueError(
            f"events can be nested at most {DEEPEST} deep; put parts side by side, in one Composed"
        )
    object.__setattr__(outer, "depth", depth)


_LARGEST_MU = 1e150  # its square is finite


def _is_number(value: Any) -> bool:
    """Whether this is a number, and not a whole one that no float can hold."""
    return isinstance(value, float) or (type(value) is int and value.bit_length() < 1024)


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not _is_number(value) or not value > 0:
            raise ValueError(f"{name} must be a number greater than 0, got {value!r}")


def _check_fraction(**values: float) -> None:
    for name, value in values.items():
        if not _is_number(value) or not 0 <= value <= 1:
            raise ValueError(f"{name} must lie between 0 and 1, got {value!r}")


def _check_count(**values: int) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


@dataclass(frozen=True)
class NonPrivate(Event):
    """Something with no guarantee at all."""


@dataclass(frozen=True)
class Gaussian(Event):
    """Gaussian noise of ``noise_multiplier`` times the L2 sensitivity: (1 / noise_multiplier)-Gaussian DP."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        _check_positive(noise_multiplier=self.noise_multiplier)


@dataclass(frozen=True)
class Laplace(Event):
    """Laplace noise, each coordinate of scale ``noise_multiplier`` times the L1 sensitivity."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        _check_positive(noise_multiplier=self.noise_multiplier)


@dataclass(frozen=True)
class Pure(Event):
    """Any epsilon-DP mechanism."""

    epsilon: float

    def __post_init__(self) -> None:
        _check_positive(epsilon=self.epsilon)


@dataclass(frozen=True)
class Approximate(Event):
    """Any (epsilon, delta)-DP mechanism about which nothing more is known."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not self.epsilon >= 0:
            raise ValueError(f"epsilon must be at least 0, got {self.epsilon!r}")
        _check_fraction(delta=self.delta)


@dataclass(frozen=True)
class BoundedRange(Event):
    """An exponential mechanism whose log-likelihood ratio ranges over an interval of length ``epsilon``."""

    epsilon: float

    def __post_init__(self) -> None:
        _check_positive(epsilon=self.epsilon)


@dataclass(frozen=True)
class ZeroConcentrated(Event):
    """Any rho-zCDP mechanism (for instance discrete Gaussian noise of any scale)."""

    rho: float

    def __post_init__(self) -> None:
        _check_positive(rho=self.rho)


Family = Literal["logistic", "monotone", "general", "softmax"]


@dataclass(frozen=True)
class ObjectivePerturbation(Event):
    """Gaussian objective perturbation of a generalized linear model, with its noisy output stage.

    family : "logistic"; "monotone" (the derivative of a record's loss never changes sign, as for SVM losses);
        "general" (any GLM loss); "softmax" (multinomial logistic).
    noise_multiplier : standard deviation of the linear term over (Lipschitz constant x feature bound), or over the
        feature bound for a softmax. The relation's factor of two is applied by the profile, not here.
    leverage : feature bound squared over the total l2 coefficient (sum scale).
    smoothness : sup of the loss's second derivative in the raw prediction (ignored by logistic and softmax).
    output_mu : Gaussian-DP parameter of the output stage that covers the inexact minimizer.
    n_outputs : number of classes of a softmax; number of independently perturbed models otherwise.
    """

    family: Family
    noise_multiplier: float
    leverage: float
    smoothness: float
    output_mu: float
    n_outputs: int = 1

    def __post_init__(self) -> None:
        if self.family not in ("logistic", "monotone", "general", "softmax"):
            raise ValueError(f"unknown family of objective perturbation: {self.family!r}")
        _check_positive(
            noise_multiplier=self.noise_multiplier,
            leverage=self.leverage,
            smoothness=self.smoothness,
            n_outputs=self.n_outputs,
        )
        if self.n_outputs % 1 != 0:
            raise ValueError(f"n_outputs must be a whole number of at least 1, got {self.n_outputs!r}")
        if not (_is_number(self.output_mu) and 0 <= self.output_mu <= _LARGEST_MU):
            raise ValueError(f"output_mu must lie between 0 and {_LARGEST_MU:g}, got {self.output_mu!r}")


@dataclass(frozen=True)
class Approximated(Event):
    """``event`` run with a distribution within ``total_variation`` of the ideal one, on every data set.

    Adds (1 + e^epsilon) x total_variation to delta.
    """

    event: Event
    total_variation: float

    def __post_init__(self) -> None:
        _check_fraction(total_variation=self.total_variation)
        _nest(self, self.event)


@dataclass(frozen=True)
class Discretized(Event):
    """``event`` with its Gaussian variates, ``variates`` in number, drawn from discrete Gaussians.

    Each has a standard deviation of at least 2^30 grid steps, and is added to a value on the grid.
    """

    event: Event
    variates: int

    def __post_init__(self) -> None:
        _check_count(variates=self.variates)
        _nest(self, self.event)


@dataclass(frozen=True)
class Subsampled(Event):
    """``event`` on a random subset: ``scheme`` "poisson" keeps every record with probability ``rate``."""

    event: Event
    rate: float
    scheme: Literal["poisson"] = "poisson"

    def __post_init__(self) -> None:
        _check_fraction(rate=self.rate)
        if self.scheme != "poisson":
            raise ValueError(f"unknown sampling scheme {self.scheme!r}; known: 'poisson'")
        _nest(self, self.event)


@dataclass(frozen=True)
class Repeated(Event):
    """``event``, repeated ``times`` times, adaptively and with fresh randomness."""

    event: Event
    times: int

    def __post_init__(self) -> None:
        _check_count(times=self.times)
        _nest(self, self.event)


@dataclass(frozen=True)
class Composed(Event):
    """All of ``events``, adaptively and with fresh randomness."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        _nest(self, *self.events)


@dataclass(frozen=True)
class OneOf(Event):
    """A run in which two neighbors differ in only one of ``events``; which one does not depend on the data.

    Examples are parts that read disjoint records, or one part drawn by a public lottery. The profile of the run is at
    most the largest profile of a part (docs/proofs/selection.md, section 1). Priced at ``delta`` under ``neighboring``.
    """

    events: tuple[Event, ...]
    delta: float
    neighboring: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        if not self.events:
            raise ValueError("OneOf needs at least one event")
        _check_fraction(delta=self.delta)
        object.__setattr__(self, "neighboring", str(self.neighboring))
        _nest(self, *self.events)


@dataclass(frozen=True)
class RandomTries(Event):
    """``event`` run a random, secret number of times, with only the best-scored output released.

    ``event`` prices output and score of one run together. The number of runs follows ``law``: "negative-binomial",
    truncated to K >= 1, with ``shape`` eta (0 logarithmic, 1 geometric) and 1 - gamma = exp(-1 / scale); or "poisson",
    given K >= 1, with ``scale`` its mean before truncation. Priced at ``delta`` under ``neighboring`` by
    docs/proofs/selection.md, section 3.
    """

    event: Event
    law: Literal["negative-binomial", "poisson"]
    shape: float
    scale: float
    delta: float
    neighboring: str

    def __post_init__(self) -> None:
        if self.law not in ("negative-binomial", "poisson"):
            raise ValueError(f"unknown law of the number of tries: {self.law!r}")
        _check_positive(scale=self.scale)
        _check_fraction(shape=self.shape, delta=self.delta)
        object.__setattr__(self, "neighboring", str(self.neighboring))
        _nest(self, self.event)


@dataclass(frozen=True)
class Grouped(Event):
    """``event`` for people with ``size`` records each, all of which change at once (docs/proofs/groups.md)."""

    event: Event
    size: int

    def __post_init__(self) -> None:
        _check_count(size=self.size)
        _nest(self, self.event)


def flatten(event: Event, times: int = 1) -> list[tuple[Event, int]]:
    """Return the leaves of an event tree with their multiplicities; equal leaves are merged.

    >>> flatten(Composed((Repeated(Gaussian(2.0), 3), Gaussian(2.0), Pure(1.0))))
    [(Gaussian(noise_multiplier=2.0), 4), (Pure(epsilon=1.0), 1)]
    """
    counts: dict[Event, int] = {}
    stack = [(event, times)]
    while stack:
        node, count = stack.pop(0)
        if isinstance(node, Repeated):
            stack.insert(0, (node.event, count * node.times))
        elif isinstance(node, Composed):
            stack[:0] = [(part, count) for part in node.events]
        else:
            counts[node] = counts.get(node, 0) + count
    return list(counts.items())


MOST_RUNS = 10**30  # maximum number of runs of one mechanism, or of Gaussian variates


@dataclass(frozen=True)
class Leaves:
    """The mechanisms of an event, each with its number of runs.

    counts : distinct ideal leaves (no ``Repeated``, ``Composed``, ``Approximated`` or ``NonPrivate``).
    total_variation : distance between the distribution of the whole run and the ideal one, on every data set.
    variates : number of Gaussian variates drawn on a grid instead of the reals.
    private : False if any part has no guarantee.
    relations : relations under which parts were priced in advance; they have no price under others.
    """

    counts: tuple[tuple[Event, int], ...] = ()
    total_variation: float = 0.0
    variates: int = 0
    private: bool = True
    relations: frozenset[Neighboring] = frozenset()

    def __post_init__(self) -> None:
        if max([self.variates, *(times for _, times in self.counts)]) > MOST_RUNS:
            raise ValueError("no more than 10**30 runs of one mechanism can be priced; repeat it less often")


@lru_cache(maxsize=4096)
def leaves_of(event: Event) -> Leaves:
    """Split an event tree into leaves; parts that reveal nothing are dropped.

    Total variations add up over parts and repetitions: two runs, each within t of its ideal, are together within 2t
    (``docs/proofs/composition.md``, section 7).

    >>> leaves_of(Repeated(Composed((Approximated(Gaussian(2.0), 1e-15), Pure(0.5))), 2))
    Leaves(counts=((Gaussian(noise_multiplier=2.0), 2), (Pure(epsilon=0.5), 2)), total_variation=2e-15,
           variates=0, private=True, relations=frozenset())
    """
    match event:
        case Repeated(event=inner, times=times):
            return _repeated(leaves_of(inner), times)
        case Composed(events=parts):
            return _together([leaves_of(part) for part in parts])
        case Approximated(event=inner, total_variation=slip):
            found = leaves_of(inner)
            return replace(found, total_variation=found.total_variation + slip)
        case Discretized(event=inner, variates=variates):
            found = leaves_of(inner)
            return replace(found, variates=found.variates + variates)
        case Subsampled(event=Approximated() | Discretized() as inner):
            # A mixture of distributions, each within t or a factor of its ideal, is as close to the mixture of the
            # ideals.
            return leaves_of(replace(inner, event=replace(event, event=inner.event)))
        case Subsampled(rate=0):
            return Leaves()
        case Subsampled(event=inner, rate=1):
            return leaves_of(inner)
        case OneOf() | RandomTries():
            # It calls accountants, which call this module.
            from discreet.privacy.accounting.repetition import summarized

            relations = frozenset({Neighboring(event.neighboring)})
            return replace(leaves_of(summarized(event)), relations=relations)
        case NonPrivate() | Pure(epsilon=math.inf) | BoundedRange(epsilon=math.inf):
            return Leaves(private=False)
        case Approximate(epsilon=math.inf) | Approximate(delta=1):
            return Leaves(private=False)
        case Gaussian(noise_multiplier=math.inf) | Laplace(noise_multiplier=math.inf):
            return Leaves()
        case Approximate(epsilon=0, delta=0):
            return Leaves()
        case _:
            return Leaves(((event, 1),))


def _repeated(leaves: Leaves, times: int) -> Leaves:
    return replace(
        leaves,
        counts=tuple((leaf, runs * times) for leaf, runs in leaves.counts),
        total_variation=leaves.total_variation * times,
        variates=leaves.variates * times,
    )


def _together(parts: list[Leaves]) -> Leaves:
    counts: dict[Event, int] = {}
    for leaf, runs in (count for part in parts for count in part.counts):
        counts[leaf] = counts.get(leaf, 0) + runs
    return Leaves(
        tuple(counts.items()),
        math.fsum(part.total_variation for part in parts),
        sum(part.variates for part in parts),
        all(part.private for part in parts),
        frozenset().union(*(part.relations for part in parts)),
    )
