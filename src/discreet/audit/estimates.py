"""Lower bounds on epsilon from attack scores: functions of arrays, each with a stated confidence.

They hold for every attack; a poor attack gives a small bound, never a false one. ``delta`` is that of the claim,
``confidence`` the probability that the returned number is a lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import log1p, logsumexp, ndtr, ndtri, xlogy
from scipy.stats import beta, binom

from discreet._typing import Array
from discreet.privacy.accounting.gaussian import gaussian_epsilon

_MOST = 50.0  # largest epsilon that is searched for


@dataclass(frozen=True)
class LowerBound:
    """A statistical lower bound.

    Attributes
    ----------
    epsilon : the bound, at least 0.
    delta : at which it holds.
    confidence : probability that it is one.
    method : how it was computed, and its assumptions.
    details : rates, thresholds and counts.
    """

    epsilon: float
    delta: float
    confidence: float
    method: str
    details: dict[str, float]

    def __str__(self) -> str:
        sure = f"confidence {self.confidence:.7g}; {self.method}"
        return f"epsilon >= {self.epsilon:.4g} at delta {self.delta:g} ({sure})"


def clopper_pearson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return one-sided exact bounds (low, high) on a success probability, each with the stated confidence.

    >>> low, high = clopper_pearson(0, 100, 0.95)
    >>> low, round(high, 4)  # 1 - 0.05^(1/100)
    (0.0, 0.0295)
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"need 0 <= successes <= trials and trials >= 1, got {successes} of {trials}")
    _check_confidence(confidence)
    low = 0.0 if successes == 0 else float(beta.ppf(1 - confidence, successes, trials - successes + 1))
    high = 1.0 if successes == trials else float(beta.ppf(confidence, successes + 1, trials - successes))
    return low, high


def threshold_bound(
    first: ArrayLike, second: ArrayLike, delta: float, confidence: float = 0.95, *, joint: bool = False
) -> LowerBound:
    """Bound epsilon by a threshold test: chosen on the first 30% of the runs, judged on the others.

    Under (epsilon, delta)-DP every event S has P(S | first) <= e^epsilon P(S | second) + delta, and the same with the
    data sets exchanged. Choose an event {score > t} or {score < t} and an order of the data sets; the held-out runs,
    independent of the choice, bound its probabilities p and q, and

        epsilon >= log((p - delta) / q)    for every plausible (p, q).

    Parameters
    ----------
    first, second : scores of independent runs on the two data sets, in the order in which they were run.
    joint : False for Clopper-Pearson bounds on p and q, each with half of the error (exact, as in the literature); True
        for one Chernoff region of both, { n kl(p', p) + m kl(q', q) <= c } with (1 + c) e^-c the error: each term
        exceeds x with probability at most e^-x, so their sum is dominated by a Gamma(2) variable. At high confidence
        the region is smaller than the box.
    """
    a, b = _scores(first, second)
    a_choice, a_test = _parts(a)
    b_choice, b_test = _parts(b)
    swap, above, level = _best_event(a_choice, b_choice, delta, confidence)
    p_scores, q_scores = (b_test, a_test) if swap else (a_test, b_test)
    p_hits, q_hits = _hits(p_scores, above, level), _hits(q_scores, above, level)
    details = {
        "threshold": level,
        "p": p_hits / len(p_scores),
        "q": q_hits / len(q_scores),
        "swapped": float(swap),
        "above": float(above),
    }
    if joint:
        epsilon = _joint_epsilon(p_hits, len(p_scores), q_hits, len(q_scores), delta, confidence)
        return LowerBound(epsilon, delta, confidence, "held-out threshold, joint Chernoff region", details)
    p_low, q_high = _box(p_hits, len(p_scores), q_hits, len(q_scores), confidence)
    epsilon = _log_ratio(p_low - delta, q_high)
    return LowerBound(epsilon, delta, confidence, "held-out threshold, Clopper-Pearson", details)


def gaussian_bound(first: ArrayLike, second: ArrayLike, delta: float, confidence: float = 0.95) -> LowerBound:
    """Bound mu of a mu-Gaussian-DP mechanism from below, and convert it to an epsilon.

    A mu-GDP mechanism admits no test with ndtri(1 - q) + ndtri(p) > mu for its rates q (false alarms) and p (hits)
    (Dong, Roth and Su, 2022, Definition 2.6). With held-out threshold and Clopper-Pearson bounds this bounds mu from
    below. The epsilon is that of the mu-GDP curve at ``delta``: a lower bound for mechanisms WHOSE TRADE-OFF CURVE IS
    GAUSSIAN (a Gaussian mechanism), and otherwise a description, not a bound (Nasr et al., 2023).
    """
    a, b = _scores(first, second)
    a_choice, a_test = _parts(a)
    b_choice, b_test = _parts(b)
    # The middle of the two samples balances both errors, where mu is estimated best.
    level = float(np.median(np.concatenate([a_choice, b_choice])))
    swap = bool(np.mean(b_choice) > np.mean(a_choice))
    p_scores, q_scores = (b_test, a_test) if swap else (a_test, b_test)
    hits = _hits(p_scores, True, level), _hits(q_scores, True, level)
    p_low, q_high = _box(hits[0], len(p_scores), hits[1], len(q_scores), confidence)
    mu = 0.0 if p_low <= 0 or q_high >= 1 else max(0.0, float(ndtri(p_low) - ndtri(q_high)))
    details = {"mu": mu, "threshold": level, "p_low": p_low, "q_high": q_high}
    method = "Gaussian trade-off curve assumed, Clopper-Pearson"
    return LowerBound(gaussian_epsilon(mu, delta), delta, confidence, method, details)


def loss_bound(
    losses: ArrayLike, delta: float, confidence: float = 0.95, *, reverse: ArrayLike | None = None
) -> LowerBound:
    """Bound from exact privacy losses log(p(output) / q(output)), outputs drawn from p, by betting against the claim.

    delta(epsilon) = E (1 - exp(epsilon - loss))_+ is the mean of a number v in [0, 1]. If it is at most ``delta``, a
    gambler who multiplies the wealth by 1 + stake (v - delta) at every loss does not gain on average, for any stake in
    [0, 1 / delta): the wealth ever reaches 1 / (1 - confidence) with probability at most 1 - confidence (Ville, 1939).
    The bound is the largest epsilon at which it did. Wealth is divided over stakes fixed in advance and decreases with
    epsilon, so one bet covers all epsilons. The bound holds for any stopping rule: docs/proofs/audit.md, Theorem 2.

    Parameters
    ----------
    losses : independent losses, in the order of the runs. Infinite ones are allowed and count as 1.
    reverse : losses log(q(output) / p(output)) of outputs drawn from q. The claim is about both directions: a third of
        the wealth is bet on each direction, and a third on both together.

    Examples
    --------
    >>> loss_bound([0.9, 1.1, -0.2, 1.3] * 50, delta=0.01).epsilon > 0.9
    True
    """
    ways = [np.asarray(part, dtype=np.float64).ravel() for part in (losses, reverse) if part is not None]
    for way in ways:
        if way.size < 4 or np.isnan(way).any():
            raise ValueError(f"need at least 4 losses, none of them nan, got {way.size}")
    _check_confidence(confidence)
    needed = -float(log1p(-confidence))

    def excess(epsilon: float) -> float:
        return _log_wealth([_tail(way, epsilon) for way in ways], delta) - needed

    epsilon = _crossing(excess, 1e-8)
    details = {f"mean {k + 1}": float(np.mean(_tail(way, epsilon))) for k, way in enumerate(ways)}
    return LowerBound(epsilon, delta, confidence, "exact likelihood ratios, betting", details)


def one_run_p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Return a bound on the probability, under (epsilon, delta)-DP, of this many correct guesses in a single run.

    Each of m canaries is included or not (or is one of two records) by its own fair coin. After one run the auditor
    guesses r of the coins, and v guesses are right. If the run is (epsilon, delta)-DP in each coin, then

        P(at least v right) <= f(v) + 2 m delta max_{1 <= i <= v} (f(v - i) - f(v)) / i,   f(v) = P(B >= v),

    with B binomial of r trials and success probability e^epsilon / (1 + e^epsilon) (Steinke, Nasr and Jagielski, 2023,
    Theorem 5.2). For delta = 0 the proof is in docs/proofs/audit.md; the term in delta is quoted.

    >>> one_run_p_value(100, 10, 10, epsilon=0.0, delta=0.0) == 2.0**-10
    True
    """
    if not 0 <= correct <= guesses <= canaries or canaries < 1:
        raise ValueError(f"need correct <= guesses <= canaries, got {correct}, {guesses}, {canaries}")
    if epsilon < 0 or not 0 <= delta <= 1:
        raise ValueError(f"need epsilon >= 0 and delta in [0, 1], got {epsilon}, {delta}")
    chance = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(correct - 1, guesses, chance))
    if delta == 0 or correct == 0:
        return min(1.0, tail)
    below = np.arange(1, correct + 1)
    gains = np.cumsum(binom.pmf(correct - below, guesses, chance)) / below
    return float(min(1.0, tail + 2 * canaries * delta * np.max(gains)))


def one_run_bound(
    scores: ArrayLike, included: ArrayLike, delta: float, confidence: float = 0.95, guesses: int | None = None
) -> LowerBound:
    """Bound epsilon from one run with many canaries; only those with the most extreme scores are guessed.

    Parameters
    ----------
    scores : one number per canary, larger where it seems included.
    included : the truth, by independent fair coins that nothing else depends on.
    guesses : number of guesses in all, half at each end; fixed before the run (default: a fifth of the canaries).
    """
    values, truth = np.asarray(scores, dtype=np.float64).ravel(), np.asarray(included, dtype=bool).ravel()
    if values.size != truth.size or values.size < 2:
        raise ValueError(f"need one score and one truth per canary, got {values.size} and {truth.size}")
    _check_confidence(confidence)
    each = max(1, (values.size // 5 if guesses is None else guesses) // 2)
    order = np.argsort(values, kind="stable")
    right = int(np.sum(truth[order[-each:]])) + int(np.sum(~truth[order[:each]]))

    def excess(epsilon: float) -> float:
        return (1 - confidence) - one_run_p_value(values.size, 2 * each, right, epsilon, delta)

    epsilon = _crossing(excess, 1e-10)
    details = {"canaries": float(values.size), "guesses": float(2 * each), "correct": float(right)}
    return LowerBound(epsilon, delta, confidence, "many canaries in one run", details)


def _crossing(excess: Callable[[float], float], tolerance: float) -> float:
    """Return a number from 0 to `_MOST`, safely below where a decreasing function becomes negative."""
    if excess(0.0) <= 0:
        return 0.0
    if excess(_MOST) > 0:
        return _MOST
    return max(0.0, float(brentq(excess, 0.0, _MOST, xtol=tolerance)) - 10 * tolerance)


def _box(p_hits: int, n: int, q_hits: int, m: int, confidence: float) -> tuple[float, float]:
    """Return a lower bound on p and an upper bound on q, each with half of the error."""
    share = 1 - (1 - confidence) / 2
    return clopper_pearson(p_hits, n, share)[0], clopper_pearson(q_hits, m, share)[1]


def _best_event(a: Array, b: Array, delta: float, confidence: float) -> tuple[bool, bool, float]:
    """Return the event and order of data sets with the best expected bound on the held-out runs.

    Only few runs choose, so their tails are averaged with normal ones; this affects power only.
    """
    levels = np.unique(np.quantile(np.concatenate([a, b]), np.linspace(0.002, 0.998, 250)))
    share, heldout = 1 - (1 - confidence) / 2, len(a) * 7 / 3
    best, chosen = -1.0, (False, True, float(levels[0]))
    for swap in (False, True):
        for above in (True, False):
            p, q = (_smooth_rates(scores, above, levels) for scores in ((b, a) if swap else (a, b)))
            p_low = beta.ppf(1 - share, np.maximum(p * heldout, 1e-9), (1 - p) * heldout + 1)
            q_high = beta.ppf(share, q * heldout + 1, np.maximum((1 - q) * heldout, 1e-9))
            ratio = np.where(p_low > delta, (p_low - delta) / q_high, 0.0)
            place = int(np.argmax(ratio))
            if ratio[place] > best:
                best, chosen = float(ratio[place]), (swap, above, float(levels[place]))
    return chosen


def _smooth_rates(scores: Array, above: bool, levels: Array) -> Array:
    """Estimate how often scores are above (or below) each level: the mean of empirical and normal tails.

    For scores with few distinct values, only the empirical tail.
    """
    ordered, sign = np.sort(scores), 1.0 if above else -1.0
    below = np.searchsorted(ordered, levels, side="right" if above else "left") / len(ordered)
    seen = np.asarray((1 - below) if above else below)
    if len(np.unique(ordered)) < len(ordered) / 2:
        return seen
    spread = float(np.std(scores)) or 1.0
    normal = ndtr(sign * (float(np.mean(scores)) - levels) / spread)
    return np.asarray(0.5 * seen + 0.5 * normal)


def _hits(scores: Array, above: bool, level: float) -> int:
    return int(np.sum(scores > level if above else scores < level))


def _log_ratio(numerator: float, denominator: float) -> float:
    return max(0.0, math.log(numerator / denominator)) if numerator > 0 else 0.0


def _tail(losses: Array, epsilon: float) -> Array:
    return -np.expm1(np.minimum(epsilon - losses, 0.0))


def _log_wealth(ways: Sequence[Array], delta: float) -> float:
    """Return the log wealth of bets on means above ``delta``: on each direction, and on both together."""
    top = 0.9 / max(delta, 1e-6)
    halvings = math.ceil(math.log2(20 * top))  # down to a stake of 1/20
    stakes = top * 2.0 ** -np.arange(halvings + 1)
    each = [
        float(logsumexp(np.log1p(np.multiply.outer(stakes, values - delta)).sum(axis=1)))
        - math.log(len(stakes))
        for values in ways
    ]
    if len(each) == 1:
        return each[0]
    return float(logsumexp([*each, sum(each)])) - math.log(len(each) + 1)


def _kl_low(mean: float, budget: float) -> float:
    """Return the smallest m <= mean with kl(mean, m) <= budget."""
    if mean <= 0:
        return 0.0
    if mean >= 1:
        return math.exp(-budget)

    def excess(m: float) -> float:
        return float(xlogy(mean, mean / m) + xlogy(1 - mean, (1 - mean) / (1 - m))) - budget

    if budget <= 0:
        return mean
    floor = 1e-300
    return float(brentq(excess, floor, mean, xtol=1e-15)) if excess(floor) > 0 else 0.0


def _joint_epsilon(p_hits: int, n: int, q_hits: int, m: int, delta: float, confidence: float) -> float:
    """Return the smallest log((p - delta) / q) over the confidence region, by a scan of its boundary.

    Between two points of the scan p and q are monotone, so the smaller p with the larger q is a safe bound.
    """
    budget = float(brentq(lambda c: math.log1p(c) - c - float(log1p(-confidence)), 1e-12, 1e4))
    splits = np.linspace(0.0, budget, 257)
    p_low = np.array([_kl_low(p_hits / n, spent / n) for spent in splits])
    q_high = np.array([1 - _kl_low(1 - q_hits / m, (budget - spent) / m) for spent in splits])
    return min(_log_ratio(p - delta, q) for p, q in zip(p_low[1:], q_high[:-1], strict=True))


def _parts(values: Array) -> tuple[Array, Array]:
    middle = max(1, int(0.3 * len(values)))
    return values[:middle], values[middle:]


def _scores(first: Any, second: Any) -> tuple[Array, Array]:
    a, b = (np.asarray(scores, dtype=np.float64).ravel() for scores in (first, second))
    if min(a.size, b.size) < 4 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError(f"need at least 4 finite scores of each data set, got {a.size} and {b.size}")
    return a, b


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}")
