"""Every search ends: passes are counted against the bound that its plan states, states that repeat are caught.

Each program of `releases` runs on very different data with equal answers of all mechanisms. What the library does after
the charge, call by call, is then the same, except where a plan states a bound on its passes, or where teachers that the
user has chosen train on their chunks.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import releases
from test_silence import HOSTILE, exchanged

import discreet
from discreet import release
from discreet.audit.trace import trace
from discreet.losses import (
    Hinge,
    HuberHinge,
    HuberRegression,
    Linear,
    Logistic,
    Poisson,
    Quantile,
    Softmax,
    Squared,
)
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.records.clipped_rows import ClippedRows
from discreet.sets import Box, GroupedL1Ball, L1Ball, L2Ball, Simplex
from discreet.solvers import base
from discreet.solvers.minimizers import constrained, entropic, lbfgs_newton, minimizer
from discreet.solvers.minimizers.constrained import minimize_over, smallest_distance
from discreet.solvers.minimizers.minimizer import Objective, minimize
from discreet.solvers.sampling.expected_tries import find_center
from discreet.solvers.vertices.simplex_sampling import SimplexSampling

BOUNDS = Bounds(1.0, intercept=False)
N = 64


class Cycle(Exception):
    """A search has come back to a state in which it was before."""


class TooMany(Exception):
    """A search has made more passes than it may."""


class Watched(ArrayRecords):
    """Records that count passes, and notice two evaluations in a row that were made before: the state of a search by
    gradients follows from its last two points, so it would go on like this for ever."""

    most = 10**9
    n_passes = 0
    cycles = False

    def _pass(self):
        self.n_passes += 1
        if self.n_passes > self.most:
            raise TooMany(f"{self.n_passes} passes")

    def value_and_gradient(self, loss, theta):
        self._pass()
        if self.cycles:
            pair = getattr(self, "last", b""), theta.tobytes()
            seen = self.__dict__.setdefault("seen", set())
            if pair in seen:
                raise Cycle(f"pass {self.n_passes} repeats an earlier one")
            seen.add(pair)
            self.last = pair[1]
        return super().value_and_gradient(loss, theta)

    def gradient(self, loss, theta):
        return self.value_and_gradient(loss, theta)[1]

    def weighted_sum(self, *arguments):
        self._pass()
        return super().weighted_sum(*arguments)

    def gram(self, *arguments):
        self._pass()
        return super().gram(*arguments)

    def hessian(self, *arguments, **options):
        self._pass()
        return super().hessian(*arguments, **options)

    def mean_class_hessian(self, *arguments, **options):
        self._pass()
        return super().mean_class_hessian(*arguments, **options)

    def hessian_product(self, loss, theta):
        self._pass()
        product = super().hessian_product(loss, theta)

        def counted(vector):
            self._pass()
            return product(vector)

        return counted


def watched(X, y, bounds=BOUNDS, most=10**9, cycles=False):
    records = Watched(X, y, bounds)
    records.most, records.cycles = most, cycles
    return records


# -- hostile public settings --------------------------------------------------------------------------------------

ROWS = {
    "equal rows": lambda: np.tile([1.0, 0.0], (N, 1)),
    "equal rows but one": lambda: np.vstack([[0.4, 0.0], np.tile([1.0, 0.0], (N - 1, 1))]),
    "two kinds of rows": lambda: np.tile([[1.0, 0.0], [0.6, 0.8]], (N // 2, 1)),
    "nearly parallel rows": lambda: np.tile([[1.0, 1e-7], [1.0, -1e-7]], (N // 2, 1)),
    "tiny rows": lambda: np.full((N, 2), 1e-150),
    "zeros": lambda: np.zeros((N, 2)),
    "Gaussian rows": lambda: np.random.default_rng(0).normal(size=(N, 2)),
}
CONCENTRATED = ("equal rows", "equal rows but one", "nearly parallel rows", "Gaussian rows")
LABELS = {
    "equal": lambda: np.ones(N),
    "one differs": lambda: np.append(-1.0, np.ones(N - 1)),
    "alternating": lambda: np.tile([1.0, -1.0], N // 2),
}
#: Steep and flat losses; the last ones hold labels to [0, 1] or [-1, 1].
LOSSES = [
    Logistic(),
    HuberHinge(0.5),
    HuberHinge(1e-3),
    HuberHinge(1e-6),
    HuberRegression(1e-3),
    Quantile(0.9),
    Squared(2.0, 1.0),
    Poisson(8.0, 10.0),
    Linear(),
]
SETS = [
    L2Ball(20.0, 2),
    L2Ball(0.5, 2),
    L2Ball(1e-9, 2),
    L1Ball(20.0, 2),
    L1Ball(1.0, 2),
    Simplex(1.0, 2),
    Simplex(30.0, 2),
    Box((-20.0, -20.0), (20.0, 20.0)),
    Box((0.0, 1.0), (0.5, 1.0)),
    Box((1e6, -1e6), (1e6 + 1, 1e6)),
    GroupedL1Ball(20.0, 2, 2),
    GroupedL1Ball(1.0, 2, 1),
]
#: Registered solvers that search for minimizers of strongly convex objectives, and a guarantee that each can give.
SOLVERS = {
    "output": Guarantee(50.0, 0.0),
    "output-jain-thakurta": Guarantee(1.0, 1e-6),
    "objective": Guarantee(1.0, 1e-6),
    "objective-dissertation": Guarantee(50.0, 1e-6),
}


def labels_for(loss, name):
    labels = LABELS[name]()
    return (labels + 1) / 2 if isinstance(loss, Poisson) else labels


def problem_of(loss, l2, geometry=None):
    bound = None if loss.family in ("logistic",) or isinstance(loss, HuberHinge) else 1.0
    return Problem(loss, BOUNDS, N, 2, l2=l2, geometry=geometry, label_bound=bound)


def run(plan, rows, labels, most):
    records = watched(ROWS[rows](), labels_for(plan.problem.loss, labels), most=most)
    plan.run([records], fresh_entropy())
    return records.n_passes


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.lemma("rounding.md#theorem")
def test_searches_in_all_of_space_end_within_the_bound_of_their_plan(loss, solver):
    """So early that steps of a fixed length, which are slow where the loss is steep, are never needed."""
    for l2 in (1e-12, 1e-4, 1e6) if solver == "output" else (1e-4,):
        plan = base.resolve(solver).plan(problem_of(loss, l2), SOLVERS[solver])
        assert plan.passes_bound > lbfgs_newton.FAST_PASSES
        for rows in ROWS:
            for labels in LABELS:
                assert run(plan, rows, labels, most=plan.passes_bound) <= lbfgs_newton.FAST_PASSES


@pytest.mark.parametrize(("solver", "ridges"), [("output", (1e-15, 0.02, 1e6)), ("objective", (0.02,))])
@pytest.mark.parametrize("geometry", SETS, ids=str)
@pytest.mark.lemma("constrained-minimizers.md#theorem-2")
def test_searches_over_sets_end_within_the_bound_of_their_plan(geometry, solver, ridges):
    """So early that plain steps, the part of the bound that is proved, are never needed."""
    for loss in LOSSES:
        for l2 in ridges:
            plan = base.resolve(solver).plan(problem_of(loss, l2, geometry), SOLVERS[solver])
            condition = minimizer.largest_curvature(loss, N, 1.0, plan.total_l2) / plan.total_l2
            if 1e6 < condition < 2.0**47:
                continue  # a matter of minutes, not of endings
            fast, sure = lbfgs_newton.steady_passes(min(condition, 2.0**47))
            assert plan.passes_bound == fast + sure
            for rows in ROWS:
                assert run(plan, rows, "one differs", most=fast) <= fast


@pytest.mark.parametrize(
    "geometry", [Simplex(1.0, 2), Simplex(30.0, 2), L1Ball(1.0, 2), L1Ball(1e3, 2)], ids=str
)
@pytest.mark.parametrize("n_draws", [1, 100])
def test_entropic_searches_end_within_the_bound_of_their_plan(n_draws, geometry):
    for loss in LOSSES:
        plan = SimplexSampling(n_draws=n_draws).plan(problem_of(loss, None, geometry), Guarantee(1.0, 1e-6))
        for rows in ROWS:
            assert run(plan, rows, "one differs", most=plan.passes_bound) <= plan.passes_bound


@pytest.mark.parametrize("geometry", [None, SETS[0]], ids=str)
def test_pure_searches_end_within_the_bound_of_their_plan(geometry):
    for loss in LOSSES:
        plan = base.resolve("objective").plan(problem_of(loss, 1e-6, geometry), Guarantee(1.0, 0.0))
        for rows in ROWS:
            assert run(plan, rows, "one differs", most=plan.passes_bound) <= plan.passes_bound


@pytest.mark.parametrize("solver", ["exponential", "localized"])
@pytest.mark.parametrize(
    "geometry", [L2Ball(1.0, 2), L1Ball(1.0, 2), Simplex(1.0, 2), Box((-1.0,) * 2, (1.0, 0.5))], ids=str
)
def test_searches_before_exact_tries_end_within_the_bound_of_their_plan(geometry, solver, monkeypatch):
    """The center of the envelope is searched for; the tries under it are exact and never capped."""
    passes, one = [], ClippedRows._map
    monkeypatch.setattr(ClippedRows, "_map", lambda records, task: passes.append(1) or one(records, task))
    for loss in (Logistic(), HuberHinge(1e-6), Squared(2.0, 1.0), Hinge()):
        if solver == "localized" and isinstance(loss, Hinge):
            continue  # has no minimizer that could be verified
        plan = base.resolve(solver).plan(problem_of(loss, 0.1, geometry), Guarantee(1.0, 0.0))
        limits = plan.domain.limits
        if solver == "localized":
            limits = *plan.gibbs(np.array(plan.domain.ball.center)).balls, *limits[1:]
        for rows in CONCENTRATED:
            records = ArrayRecords(ROWS[rows](), labels_for(loss, "one differs"), BOUNDS)
            energy = plan.domain.energy(records, loss, plan.rate, plan.l2)
            passes.clear()
            find_center(energy, limits, plan.shape.tilt_floor)
            assert 0 < len(passes) <= plan.passes_bound


def test_every_solver_that_searches_is_tested():
    """A plan that searches states a bound; one that is registered later must join the lists above."""
    stating = set()
    for name in set(base.names()) - {"auto"}:  # which chooses one of the others
        for l2, delta in ((0.1, 1e-6), (None, 1e-6), (0.1, 0.0)):
            try:
                plan = base.resolve(name).plan(
                    problem_of(HuberHinge(0.5), l2, L1Ball(1.0, 2)), Guarantee(1.0, delta)
                )
            except ValueError:
                continue
            if hasattr(plan, "passes_bound"):
                stating.add(name)
    assert stating == {*SOLVERS, "simplex-sampling", "exponential", "localized"}


# -- everything registered --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def steps_counted():
    """Calls of the library's functions by this thread after the first charge, by function, and plans that were run."""
    calls, plans, source = Counter(), [], str(Path(discreet.__file__).parent)
    charge, run = release.charge, release.run

    def heard(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(source):
            calls[frame.f_code] += 1

    def charged(*arguments):
        sys.setprofile(heard)
        return charge(*arguments)

    def noted(plan, *arguments):
        plans.append(plan)
        return run(plan, *arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(release, "charge", charged)
        patched.setattr(release, "run", noted)
        try:
            yield calls, plans
        finally:
            sys.setprofile(None)


def steps_of(program, data, answers):
    with steps_counted() as (calls, plans):
        run = trace(program, data, answers=answers)
    assert run.error is None
    return calls, plans


def different_data():
    """Data sets that have next to nothing in common but that rows are valid: those that are not may be left out."""
    X, y = releases.ordinary(0)
    yield X, y
    yield exchanged((X, y), *HOSTILE["of all sizes"])
    yield np.full(X.shape, 0.5) * [1.0, 0.0], np.full(len(y), 0.5)
    yield np.where(X > 0, 0.5, -0.5), np.where(X[:, 0] > 0, 1.0, -1.0)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", sorted(set(releases.PROGRAMS) - set(releases.TRANSFERS)))
def test_every_release_takes_the_same_steps_on_all_data(name):
    """Or its plan states how many passes a search may make: no other loop may wait for the data."""
    program = releases.PROGRAMS[name]
    answers = trace(program, releases.ordinary(0)).calls  # and what is made once in a process is made
    expected = None
    for data in different_data():
        calls, plans = steps_of(program, data, answers)
        stated = [
            plan.passes_bound * plan.problem.n_models for plan in plans if hasattr(plan, "passes_bound")
        ]
        if stated:
            assert calls[ClippedRows._map.__code__] <= sum(stated)
        else:
            expected = expected or calls
            assert calls == expected


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_search_without_a_bound_is_noticed(monkeypatch):
    def searching(data):
        model = releases.median(data)
        for _ in range(int((data[0] > 0).sum())):
            Bounds(1.0)
        return model

    monkeypatch.setitem(releases.PROGRAMS, "PrivateMedian", searching)
    with pytest.raises(AssertionError):
        test_every_release_takes_the_same_steps_on_all_data("PrivateMedian")


def test_softmax_searches_end_within_the_bound_of_their_plan():
    for l2 in (1e-12, 1.0):
        for geometry in (None, L2Ball(20.0, 6)):
            problem = Problem(Softmax(3), BOUNDS, N, 2, l2=l2, geometry=geometry)
            plan = base.resolve("output").plan(problem, Guarantee(1.0, 1e-6))
            records = watched(ROWS["two kinds of rows"](), np.arange(N) % 3, most=plan.passes_bound)
            plan.run([records], fresh_entropy())
            assert records.n_passes <= plan.passes_bound


# -- steep losses, concentrated rows ------------------------------------------------------------------------------


def steep(first, n=1000, width=1e-3, cycles=True):
    """n equal rows but one: near the corner of a narrow Huber hinge the last digit of theta moves the gradient."""
    X, y = np.tile([1.0, 0.0], (n, 1)), np.ones(n)
    X[0, 0], y[0] = first, -1.0
    return Objective(watched(X, y, cycles=cycles), HuberHinge(width), 0.01 * n)


@pytest.mark.parametrize("first", [0.0, 0.1, 0.2, 0.3, 0.4])
@pytest.mark.parametrize("geometry", [SETS[0], SETS[3], SETS[7]], ids=str)
def test_no_search_over_a_set_returns_to_where_it_was(geometry, first):
    """The release must exist for every data set: one that a neighbor lacks tells them apart."""
    goal = steep(first)
    least = smallest_distance(goal.loss, goal.records.n_samples, 2, 1.0, goal.l2, 0.0, geometry)
    minimize_over(goal, geometry, least)


@pytest.mark.parametrize("first", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("width", [1e-6, 1e-4])
@pytest.mark.parametrize("l2", [0.01, 100.0])
def test_neighbors_take_about_as_long(first, width, l2):
    """Where the derivative jumps, chords alone would creep: thousands of passes for one neighbor, tens for another."""
    goal = steep(first, width=width, cycles=False)
    goal.l2, goal.records.most = l2, 400
    minimize(goal, max(1e-4, goal.smallest_tolerance()))


@pytest.mark.parametrize("width", [1e-3, 1e-2])
@pytest.mark.parametrize("geometry", [SETS[0], SETS[3], SETS[7]], ids=str)
def test_neighbors_over_a_set_take_about_as_long(geometry, width):
    passes = []
    for first in (0.0, 0.1, 0.4, 1.0):
        goal = steep(first, width=width, cycles=False)
        least = smallest_distance(goal.loss, goal.records.n_samples, 2, 1.0, goal.l2, 0.0, geometry)
        minimize_over(goal, geometry, max(least, 1e-6))
        passes.append(goal.records.n_passes)
    assert max(passes) < 1.5 * min(passes)


def test_a_certificate_that_ignores_how_theta_is_stored_is_caught(monkeypatch):
    """Without the rounded normal, the last digits of theta count times the size of the set: no floor covers them."""
    monkeypatch.setattr(constrained, "rounded_normal", lambda geometry, point, vector: vector)
    caught = 0
    for first in (0.0, 0.1, 0.2, 0.3, 0.4):
        goal, ball = steep(first), SETS[0]
        least = smallest_distance(goal.loss, goal.records.n_samples, 2, 1.0, goal.l2, 0.0, ball)
        try:
            minimize_over(goal, ball, least)
        except Cycle:
            caught += 1
    assert caught


def test_a_tolerance_below_the_floor_is_caught(monkeypatch):
    """Plain steps end in a cycle far above it: the floor is there for a reason."""
    monkeypatch.setattr(minimizer, "_reachable", lambda *sizes: 0.0)
    monkeypatch.setattr(Objective, "rounding", lambda self, norm: 0.0)
    plain_only(monkeypatch)
    goal = steep(0.1, n=50, width=0.01)
    goal.l2 = 50.0
    with pytest.raises(Cycle):
        minimize(goal, goal.smallest_tolerance() * 1e-4)


# -- the part that is proved, alone -------------------------------------------------------------------------------


def plain_only(monkeypatch):
    """Steps of a fixed length without momentum, and nothing before them."""
    passes = lbfgs_newton.steady_passes
    for module in (lbfgs_newton, constrained, minimizer):
        monkeypatch.setattr(module, "steady_passes", lambda condition: (0, passes(condition)[1]))
    monkeypatch.setattr(minimizer, "lbfgs", lambda search, point, precondition: point)
    monkeypatch.setattr(minimizer, "newton", lambda search, point, exact: point)


MODERATE = [
    (HuberHinge(0.02), 40.0),
    (HuberHinge(1e-4), 1e4),
    (Logistic(), 0.4),
    (Squared(2.0, 1.0), 2.0),
    (Linear(), 1e-3),
]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("loss", "l2"), MODERATE, ids=str)
def test_plain_steps_reach_the_least_tolerance_in_all_of_space(monkeypatch, loss, l2, rows):
    plain_only(monkeypatch)
    for linear in (np.zeros(2), np.array([300.0, -4.0])):
        records = watched(ROWS[rows](), labels_for(loss, "one differs"))
        goal = Objective(records, loss, l2, linear)
        records.most = minimizer.most_passes(loss, N, 1.0, l2) - lbfgs_newton.FAST_PASSES + 1
        minimize(goal, minimizer._reachable(*goal.sizes))


@pytest.mark.parametrize("rows", CONCENTRATED)
@pytest.mark.parametrize("geometry", SETS, ids=str)
def test_plain_steps_reach_the_least_tolerance_over_sets(monkeypatch, rows, geometry):
    plain_only(monkeypatch)
    for loss, l2 in MODERATE:
        records = watched(ROWS[rows](), labels_for(loss, "one differs"))
        goal = Objective(records, loss, l2, np.array([300.0, -4.0]) if geometry in SETS[::2] else np.zeros(2))
        records.most = constrained.most_passes_over(loss, N, 1.0, l2)
        minimize_over(goal, geometry, constrained.reachable_distance(*goal.sizes, geometry))


@pytest.mark.nightly
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("n_draws", [1, 30])
def test_mirror_descent_reaches_the_least_tolerance(monkeypatch, rows, n_draws):
    monkeypatch.setattr(entropic, "_shrunk", lambda objective, point, tolerance, rounding: point)
    for loss, _ in MODERATE:
        for geometry in (Simplex(1.0, 2), L1Ball(3.0, 2)):
            plan = SimplexSampling(n_draws=n_draws).plan(
                problem_of(loss, None, geometry), Guarantee(1.0, 1e-6)
            )
            c, records = plan.constants, watched(ROWS[rows](), labels_for(loss, "one differs"))
            records.most = plan.passes_bound
            goal = entropic.EntropicObjective(records, loss, geometry, plan.entropy, c.total_smoothness)
            span = 2 * N * c.slope * c.half_range
            least = entropic.reachable(c.total_smoothness, plan.entropy, c.residual_rounding, span)
            entropic.minimize(goal, least, c.residual_rounding)


# -- what is not a number -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("geometry", SETS, ids=str)
def test_no_certificate_is_given_for_what_is_not_a_number(geometry):
    goal = steep(0.1, n=20, cycles=False)
    center, nan = geometry.center(), np.array([np.nan, 0.0])
    for before, gradient, after in ((nan, center, center), (center, nan, center), (center, center, nan)):
        bound = constrained.distance_bound(goal, geometry, before, gradient, after, goal.curvature)
        assert not bound < geometry.diameter(2.0)
