"""Tools of others on our promises: a second accountant, an oracle for noise, an auditor of scores, a recorder.

All of them are optional. What is not installed is skipped, with the reason in the report:

* ``dp-accounting`` (Google) prices every event again, with its privacy loss distributions, from above and from below.
* ``opendp`` says what noise of a given scale costs, and draws the same noise for comparison.
* ``jax-privacy`` bounds epsilon from the scores of our attacks with its ``CanaryScoreAuditor``.
* ``dp-recorder`` (not on the package index) replays our programs with its own ``Auditor``.

Run ``python -m benchmarks.attest.outside``.
"""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.audit_parts import parts
from discreet.audit import catalog
from discreet.audit.attack import gathered
from discreet.audit.subjects import DELTA, Subject
from discreet.mechanisms.additive import GaussianMechanism, GaussianNoise, LaplaceNoise
from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.privacy import events
from discreet.privacy.accounting import accountants
from discreet.privacy.accounting.repetition import TriesLaw
from discreet.privacy.events import Event
from discreet.privacy.guarantee import Neighboring, Sensitivity

INTERVAL = 1e-4  # of the losses that dp-accounting keeps apart
_LEANS = (0.5, 0.7, 0.85, 0.92, 0.97)
_ROOM = 1e-6  # relative; both sides search for their epsilons
_SURE = 1e-6  # the chance that an alarm is false


@dataclass(frozen=True)
class Outside:
    """What a tool said about one claim: "agrees", "contradicts", or "skipped" with the reason."""

    tool: str
    subject: str
    verdict: str
    claimed: float | None = None
    lowest: float | None = None
    highest: float | None = None
    caught: bool | None = None
    note: str = ""


class NoCounterpart(ValueError):
    """The tool has no word for this event."""


def installed(name: str) -> Any | None:
    """The module, or None."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


# -- dp-accounting ---------------------------------------------------------------------------------------------------


def second_opinion(
    event: Event, delta: float, relation: Neighboring = Neighboring.REPLACE_ONE
) -> tuple[float, float | None]:
    """The epsilon at ``delta`` by dp-accounting, from below and from above: what its discretization leaves open.

    Some events promise the price of the worst of many mechanisms. From below they cost at least as much as one of them
    that dp-accounting knows: the Gaussian mechanism, of a perturbed objective whose curvature says nothing, or of zCDP;
    one try; the dearest of several parts. From above its Rényi accountant prices what zCDP implies. Of what it knows
    nothing there, a perturbed objective above all, the second number is None.

    Raises
    ------
    NoCounterpart
        A part of the event has no counterpart there.
    """
    below = [
        _composed(plain, delta, relation, False, lean) for plain in _plain(event) for lean in _leans(plain)
    ]
    return max(below), _from_above(event, delta, relation)


def _from_above(event: Event, delta: float, relation: Neighboring) -> float | None:
    """What dp-accounting charges at most; None where it cannot tell."""
    match _core(event):
        case events.OneOf(events=parts):
            prices = [_from_above(part, delta, relation) for part in parts]
            return None if None in prices else max(price for price in prices if price is not None)
        case core if not _one_sided(core):
            return _composed(core, delta, relation, True)
        case events.RandomTries(event=inner, law="negative-binomial", shape=shape, scale=scale):
            return _from_rho(_rho(inner), delta, shape, TriesLaw("negative-binomial", shape, scale).mean)
        case core:
            return _from_rho(_rho(core), delta)


def _rho(event: Event) -> float | None:
    """A rho such that the event is rho-zCDP (Bun and Steinke, 2016); None where none is known."""
    match _core(event):
        case events.ZeroConcentrated(rho=rho):
            return rho
        case events.Gaussian(noise_multiplier=noise) | events.Laplace(noise_multiplier=noise):
            return 0.5 / noise**2
        case events.Pure(epsilon=epsilon):
            return epsilon**2 / 2
        case events.BoundedRange(epsilon=epsilon):
            return epsilon**2 / 8
        case events.Repeated(event=inner, times=times):
            return None if (one := _rho(inner)) is None else times * one
        case events.Grouped(event=inner, size=size):
            return None if (one := _rho(inner)) is None else size**2 * one
        case events.Composed(events=parts):
            every = list(map(_rho, parts))
            return None if None in every else sum(rho for rho in every if rho is not None)
        case events.OneOf(events=parts):
            every = list(map(_rho, parts))
            return None if None in every else max(rho for rho in every if rho is not None)
    return None


def _from_rho(rho: float | None, delta: float, shape: float = 0.0, tries: float = 0.0) -> float | None:
    """The price of zCDP by dp-accounting's Rényi accountant, and of its best of a random number of tries."""
    if rho is None:
        return None
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    told = dp_accounting.ZCDpEvent(rho)
    if tries:
        told = dp_accounting.dp_event.RepeatAndSelectDpEvent(told, tries, shape)
    return float(RdpAccountant().compose(told).get_epsilon(delta))


def _plain(event: Event) -> list[Event]:
    """Mechanisms that cost no more and that dp-accounting may know: one of several parts, one try, a person's rows."""
    match _core(event):
        case events.Repeated(event=inner, times=times):
            return [events.Repeated(plain, times) for plain in _plain(inner)]
        case events.Composed(events=parts):
            return [events.Composed(chosen) for chosen in itertools.product(*map(_plain, parts))]
        case events.OneOf(events=parts):
            return [plain for part in parts for plain in _plain(part)]
        case events.RandomTries(event=inner):
            return _plain(inner)
        case events.Grouped(event=inner, size=size):
            return [weaker(plain, 1 / size) for plain in _plain(inner)]
        case leaf:
            return [leaf]


def _one_sided(event: Event) -> bool:
    """Whether a part is priced for more than the mechanism that is compared."""
    core = _core(event)
    if isinstance(core, events.Repeated):
        return _one_sided(core.event)
    if isinstance(core, events.Composed):
        return any(map(_one_sided, core.events))
    return isinstance(core, _ANY_OF_MANY)


_ANY_OF_MANY = (
    events.Grouped,
    events.ObjectivePerturbation,
    events.OneOf,
    events.RandomTries,
    events.ZeroConcentrated,
)


def _leans(event: Event) -> tuple[float, ...]:
    ranged = any(isinstance(_core(leaf), events.BoundedRange) for leaf, _ in events.flatten(event))
    return _LEANS if ranged else (0.5,)


def _composed(event: Event, delta: float, relation: Neighboring, above: bool, lean: float = 0.5) -> float:
    total = None
    for leaf, count in events.flatten(event):
        part, times = _distribution(_core(leaf), relation, above, lean)
        many = part if count * times == 1 else part.self_compose(count * times)
        total = many if total is None else total.compose(many)
    assert total is not None
    return float(total.get_epsilon_for_delta(delta))


def _distribution(leaf: Event, relation: Neighboring, above: bool, lean: float) -> tuple[Any, int]:
    """Losses of a leaf, and how often it is run.

    Below the price of a bounded range, those of one pair whose larger loss is ``lean`` of it.
    """
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    options: dict[str, Any] = {"pessimistic_estimate": above, "value_discretization_interval": INTERVAL}
    match leaf:
        case events.Gaussian(noise_multiplier=noise):
            return pld.from_gaussian_mechanism(noise, **options, use_connect_dots=above), 1
        case events.ZeroConcentrated(rho=rho):
            return pld.from_gaussian_mechanism(math.sqrt(0.5 / rho), **options, use_connect_dots=above), 1
        case events.ObjectivePerturbation(family=family, noise_multiplier=noise, n_outputs=outputs):
            # A record far on the wrong side has the steepest slope and no curvature, in every model at once.
            softmax = family == "softmax"
            shift = relation.contributions * (math.sqrt(2.0) if softmax else 1.0)
            gaussian = pld.from_gaussian_mechanism(noise / shift, **options, use_connect_dots=above)
            return gaussian, 1 if softmax else outputs
        case events.Laplace(noise_multiplier=noise):
            return pld.from_laplace_mechanism(noise, **options, use_connect_dots=above), 1
        case events.Subsampled(event=inner, rate=rate) if isinstance(core := _core(inner), events.Gaussian):
            options |= {"sampling_prob": rate, "use_connect_dots": above}
            return pld.from_gaussian_mechanism(core.noise_multiplier, **options), 1
        case events.BoundedRange(epsilon=epsilon) if not above:
            return _two_points(lean * epsilon, (1 - lean) * epsilon, options), 1
        case events.Approximate(epsilon=epsilon, delta=slack) if above:
            promise = common.DifferentialPrivacyParameters(epsilon, slack)
            return pld.from_privacy_parameters(promise, INTERVAL), 1
        case (
            events.Pure(epsilon=epsilon)
            | events.BoundedRange(epsilon=epsilon)
            | events.Approximate(epsilon=epsilon)
        ):
            return _two_points(epsilon, epsilon, options), 1
    raise NoCounterpart(f"dp-accounting has no counterpart of {type(leaf).__name__}")


def _two_points(up: float, down: float, options: dict[str, Any]) -> Any:
    """Losses of ``up`` and -``down``: randomized response, where both are equal."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    first = -math.expm1(-down) / -math.expm1(-up - down)
    second = first * math.exp(-up)
    return pld.from_two_probability_mass_functions(
        {0: math.log(second), 1: math.log1p(-second)}, {0: math.log(first), 1: math.log1p(-first)}, **options
    )


def _core(event: Event) -> Event:
    """Without the wrappers for noise on a grid, which costs less than either accountant can see."""
    while isinstance(event, events.Discretized | events.Approximated):
        event = event.event
    return event


def priced_again(name: str, event: Event, delta: float, relation: Neighboring) -> Outside:
    """Our price within theirs; and the twin that claims it with half of the noise outside."""
    tool = "dp-accounting"
    if installed("dp_accounting") is None:
        return Outside(tool, name, "skipped", note="dp-accounting is not installed")
    try:
        low, high = second_opinion(event, delta, relation)
        twin = max(second_opinion(weaker(plain), delta, relation)[0] for plain in _plain(event))
    except NoCounterpart as missing:
        return Outside(tool, name, "skipped", note=str(missing))
    ours = accountants.epsilon(event, delta, relation)
    highest = math.inf if high is None else high
    agrees = low * (1 - _ROOM) - INTERVAL <= ours <= highest * (1 + _ROOM) + INTERVAL
    verdict = "agrees" if agrees else "contradicts"
    note = "from below only" if high is None else ""
    return Outside(tool, name, verdict, ours, low, high, caught=twin > ours, note=note)


def weaker(event: Event, share: float = 0.5) -> Event:
    """The same event with a share of its noise."""
    parts = []
    for leaf, count in events.flatten(_core(event)):
        parts.append(events.Repeated(_weaker_leaf(_core(leaf), share), count))
    return events.Composed(tuple(parts))


def _weaker_leaf(leaf: Event, share: float) -> Event:
    if isinstance(leaf, events.Gaussian | events.Laplace | events.ObjectivePerturbation):
        return dataclasses.replace(leaf, noise_multiplier=leaf.noise_multiplier * share)
    if isinstance(leaf, events.ZeroConcentrated):
        return events.ZeroConcentrated(leaf.rho / share**2)
    if isinstance(leaf, events.Pure | events.BoundedRange):
        return type(leaf)(leaf.epsilon / share)
    if isinstance(leaf, events.Approximate):
        return events.Approximate(leaf.epsilon / share, min(1.0, leaf.delta / share))
    if isinstance(leaf, events.Subsampled):
        return events.Subsampled(_weaker_leaf(_core(leaf.event), share), leaf.rate)
    raise NoCounterpart(f"no twin of {type(leaf).__name__} is known here")


def all_events() -> Iterator[tuple[str, Event, Neighboring]]:
    """Every event that the catalog of audits charges, equal ones once."""
    seen = set()
    for subjects in parts().values():
        for subject in subjects:
            if subject.event not in seen:
                seen.add(subject.event)
                yield f"{subject.name}, {subject.relation.value}", subject.event, subject.relation


# -- OpenDP ----------------------------------------------------------------------------------------------------------


def noise_oracle(draws: int = 20_000) -> Iterator[Outside]:
    """Scales of noise against OpenDP's privacy maps, and draws of both against each other."""
    tool = "opendp"
    if installed("opendp") is None:
        yield Outside(tool, "noise", "skipped", note="opendp is not installed")
        return
    from scipy.stats import ks_2samp

    for name, noise, map_of, stranger in _oracles():
        claimed, told = map_of
        with insecure_noise(3):
            ours = noise.draw_integers(draws, fresh_entropy()).astype(np.float64)
        theirs = np.array([stranger() for _ in range(draws)], dtype=np.float64)
        same = float(ks_2samp(ours, theirs).pvalue)
        half = float(ks_2samp(np.round(ours / 2), theirs).pvalue)
        agrees = abs(told - claimed) <= 1e-6 * claimed and same > _SURE
        note = f"draws of both differ with p = {same:.3g}"
        yield Outside(
            tool, name, "agrees" if agrees else "contradicts", claimed, told, told, half < _SURE, note
        )


def _oracles() -> Iterator[tuple[str, Any, tuple[float, float], Callable[[], float]]]:
    """Names, our noise, our price and theirs of a shift by one scale, and their sampler."""
    dp: Any = importlib.import_module("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.atom_domain(T="i64"), dp.absolute_distance(T="i64")  # shorter integers would cut the tails off
    laplace = LaplaceNoise(1.0)
    scale = laplace.effective_scale / laplace.grid
    shift = int(scale)
    theirs = dp.m.make_laplace(*space, scale=scale)
    yield "LaplaceNoise", laplace, (shift / scale, theirs.map(d_in=shift)), lambda: theirs(0)
    gaussian = GaussianNoise(1.0)
    sigma = gaussian.effective_stddev / gaussian.grid
    shift = int(sigma)
    measured = dp.m.make_gaussian(*space, scale=sigma)
    yield "GaussianNoise", gaussian, ((shift / sigma) ** 2 / 2, measured.map(d_in=shift)), lambda: measured(0)


# -- JAX Privacy -----------------------------------------------------------------------------------------------------


def scored(subject: Subject, runs: int = 10_000) -> Outside:
    """The scores of our attack, on the promise and on its half-noise twin, judged by a ``CanaryScoreAuditor``.

    Its two ways to a threshold share the chance of error. Where scores have many values, some of the runs choose it;
    where they have few, as those of a choice between two candidates, all of them are tried on all of the runs.
    """
    tool = "jax-privacy"
    module = installed("jax_privacy.auditing")
    if module is None:
        return Outside(tool, subject.name, "skipped", note="jax-privacy is not installed")
    ours = accountants.epsilon(subject.event, DELTA, subject.relation)

    def bound(share: float, seed: int) -> float:
        found = gathered(subject, runs, seed=seed, share=share)
        assert found.scores is not None
        auditor = module.CanaryScoreAuditor(*found.scores)
        ways = (module.Split(0.3, seed=0), module.Bonferroni())
        return max(
            float(auditor.epsilon_clopper_pearson(_SURE / len(ways), DELTA, threshold_strategy=way))
            for way in ways
        )

    low, twin = bound(1.0, 11), bound(0.5, 12)
    verdict = "agrees" if low <= ours else "contradicts"
    note = f"{runs} runs; half of the noise costs at least {twin:.4f}"
    return Outside(tool, subject.name, verdict, ours, low, None, caught=twin > ours, note=note)


# -- dp-recorder -----------------------------------------------------------------------------------------------------


def recorded(program: Callable[[Any], Any], first: Any, second: Any, recorder: Any | None = None) -> Outside:
    """Record ``program`` on one data set and replay it on the other with dp-recorder's ``Auditor``.

    Every call of `GaussianMechanism.release` becomes a primitive of the recorder, with its declared sensitivity.
    ``recorder`` is the module ``dp_recorder.auditing.audit_primitives``, or one like it.
    """
    tool, name = "dp-recorder", getattr(program, "__name__", "program")
    recorder = recorder or installed("dp_recorder.auditing.audit_primitives")
    if recorder is None:
        return Outside(
            tool, name, "skipped", note="dp-recorder is not installed (it is not on the package index)"
        )
    honest = GaussianMechanism.release

    @recorder.audit_spec(  # type: ignore[untyped-decorator]
        kind="gaussian", input_arg="value", sensitivity_arg="sensitivity", metric_fn=_l2
    )
    def primitive(value: Any, sensitivity: float, mechanism: Any, entropy: Any) -> Any:
        return honest(mechanism, value, entropy)

    def release(self: GaussianMechanism, value: Any, entropy: Any) -> Any:
        return primitive(value=value, sensitivity=self.sensitivity.value, mechanism=self, entropy=entropy)

    auditor = recorder.Auditor()
    try:
        GaussianMechanism.release = release  # type: ignore[method-assign,assignment]
        for begin, data in ((auditor.set_record, first), (auditor.set_replay, second)):
            begin()
            with insecure_noise(0), auditor:
                program(data)
        auditor.validate_records()
    except Exception as found:  # its own kinds of errors are its findings
        return Outside(tool, name, "contradicts", note=f"{type(found).__name__}: {found}")
    finally:
        GaussianMechanism.release = honest  # type: ignore[method-assign]
    return Outside(tool, name, "agrees")


def _l2(one: Any, two: Any) -> float:
    return float(np.linalg.norm(np.ravel(np.asarray(one) - np.asarray(two))))


def mean_of(data: Any) -> Any:
    """A sum in [0, 1] with noise for a sensitivity of 1: the program that recorders are tried on."""
    mechanism = GaussianMechanism(Sensitivity(1.0), 2.0, 1)
    return mechanism.release([float(np.clip(data, 0.0, 1.0).sum())], fresh_entropy())


# -- all of them -----------------------------------------------------------------------------------------------------


def everything(charges: Iterable[tuple[str, Event, Neighboring]] | None = None) -> list[Outside]:
    """What every tool says; of the events, the ``charges``, by default those of the catalog."""
    found = [priced_again(name, event, DELTA, relation) for name, event, relation in charges or all_events()]
    found += noise_oracle()
    found += [scored(subject) for subject in catalog.mechanisms() if subject.name in _SCORED]
    found.append(recorded(mean_of, np.array([1.0, 0.5]), np.array([0.0, 0.5])))
    return found


_SCORED = ("GaussianMechanism", "LaplaceMechanism", "ExponentialMechanism")


def as_dicts(found: Iterable[Outside]) -> list[dict[str, Any]]:
    """The rows for a file."""
    return [asdict(line) for line in found]


if __name__ == "__main__":
    rows = everything()
    for line in rows:
        between = f"{line.claimed} in [{line.lowest}, {line.highest}]"
        print(f"{line.tool:14} {line.verdict:12} {line.subject}: {between} {line.note}")
    raise SystemExit(any(line.verdict == "contradicts" or line.caught is False for line in rows))
