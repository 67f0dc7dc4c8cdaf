"""Pairs: scores move by no more than the clip, the right pair is found, and choices are charged as what they are."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from discreet import PrivateAdditiveClassifier
from discreet.additive.bins import Bins
from discreet.additive.columns import Column
from discreet.additive.pairs import COARSE, PairSelection, candidates
from discreet.additive.plan import AdditiveFit, AdditiveProblem
from discreet.additive.records import steps
from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.privacy import events
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.tables.domains import Boolean, Categorical, Numeric

REPLACE, DROP = Neighboring.REPLACE_ONE, Neighboring.ZERO_OUT
CLIP = 0.3


def bins(n_bins, ordered=True, missing=False):
    places = np.empty(0, dtype=np.int64) if ordered else np.arange(n_bins)
    return Bins(np.arange(1.0, n_bins), places, np.ones(n_bins + missing), n_bins, missing)


def test_wide_columns_are_made_coarse_or_left_out():
    tables = candidates([bins(30), bins(40, ordered=False), bins(4, missing=True)], [True, False, True])
    (table,) = tables
    assert table.columns == (0, 2)
    assert table.sizes == (COARSE, 4)
    assert table.coarse[1].tolist() == [0, 1, 2, 3, -1]
    cells = table.cells([np.array([0, 29, 3]), np.array([0, 0, 0]), np.array([1, 3, 4])])
    assert cells.tolist() == [1, 47, -1]


def test_ordered_columns_stay_finer_beside_few_bins_but_tables_stay_small():
    several = [bins(30), bins(16), bins(4, missing=True), bins(20, ordered=False), bins(2, ordered=False)]
    ordered = [True, True, True, False, False]
    sizes = {one.columns: one.sizes for one in candidates(several, ordered, COARSE**2)}
    assert sizes[0, 1] == (COARSE, COARSE)
    assert sizes[0, 2] == (30, 4)
    assert sizes[0, 3] == (COARSE, 20)
    assert sizes[1, 4] == (16, 2)
    assert sizes[2, 4] == (4, 2)
    assert {one.columns: one.sizes for one in candidates(several, ordered, 40)}[0, 4] == (20, 2)
    assert candidates([bins(30), bins(2)], [True, True], 40)[0].coarse[0].max() == 19
    fine = candidates(several, ordered, COARSE**2)[1].coarse
    assert [part.tolist()[-1] for part in fine] == [29, -1]


@pytest.mark.parametrize("relation", [REPLACE, DROP])
@pytest.mark.parametrize("n_samples", [100, 3000, 100_000])
def test_no_table_of_a_pair_is_wider_than_what_was_charged(relation, n_samples):
    """Finer bins fill tables, and the second stage is charged for its widest record before bins are known."""
    domains = Numeric(0, 1), Numeric(0, 1), Boolean(), Categorical(("a", "b", "c")), Numeric(0, 1)
    for width in range(2, len(domains) + 1):
        columns = tuple(Column(f"x{place}", domain) for place, domain in enumerate(domains[-width:]))
        problem = AdditiveProblem(columns, "classes", n_samples, n_pairs=1)
        layout = AdditiveFit().plan(problem, Guarantee(1.0, 1e-6, relation)).layout
        ordered = [one.ordered for one in columns]
        most = [
            bins(layout._most_bins(one) - one.marks_missing, one.is_range, one.marks_missing)
            for one in columns
        ]
        tables = candidates(most, ordered, layout.filled_pair_cells)
        assert max(np.prod(one.sizes) for one in tables) <= layout.most_pair_cells
        assert layout.second.most_features == layout.most_pair_cells


@pytest.mark.parametrize("relation", [REPLACE, DROP])
@pytest.mark.lemma("additive-models.md#theorem-4")
def test_scores_move_by_no_more_than_declared_and_as_far(relation):
    selection = PairSelection(1, 2, CLIP, relation, 1.0)
    tables = candidates([bins(3), bins(2), bins(2)], [True] * 3)
    rest = [0, 0, 0, CLIP]
    records = [
        (*cells, psi)
        for cells in itertools.product(range(3), range(2), range(2))
        for psi in (-CLIP, 0.0, CLIP / 2, CLIP)
    ]

    def scores(*data):
        codes = [np.array([one[place] for one in data]) for place in range(3)]
        return selection.scores(tables, [(codes, np.array([[one[3]] for one in data]))])

    alone = scores(rest)
    if relation is DROP:
        moves = [scores(rest, record) - alone for record in records]
    else:
        found = [scores(rest, record) for record in records]
        moves = [a - b for a in found for b in found]
    spread = max(float(np.ptp(move)) for move in moves)
    largest = max(float(np.abs(move).max()) for move in moves)
    assert largest == pytest.approx(relation.contributions * CLIP)
    assert spread <= selection.score_range
    assert spread / selection.score_range > 0.5


@pytest.mark.parametrize("relation", [REPLACE, DROP])
@pytest.mark.lemma("additive-models.md#theorem-4")
def test_computed_scores_of_many_records_are_exact_but_for_their_norm(relation):
    n = 3000
    rng = np.random.default_rng(4)
    tables = candidates([bins(3), bins(2), bins(4)], [True] * 3)
    codes, residuals = [rng.integers(0, size, n) for size in (3, 2, 4)], rng.uniform(-CLIP, CLIP, (n, 2)) / 2
    selection = PairSelection(1, n, CLIP, relation, 1.0)
    found = set()
    for order in (np.arange(n), np.arange(n)[::-1], rng.permutation(n)):
        for height in (n, 100):
            parts = [order[start : start + height] for start in range(0, n, height)]
            blocks = [([code[rows] for code in codes], residuals[rows]) for rows in parts]
            found.add(selection.scores(tables, blocks).tobytes())
    assert len(found) == 1
    scores = np.frombuffer(found.pop())
    for table, score in zip(tables, scores, strict=True):
        cells = table.cells(codes)
        sums = [
            sum((Fraction(one) for one in output[cells == cell]), Fraction(0))
            for output in residuals.T
            for cell in range(cells.max() + 1)
        ]
        exact = math.sqrt(sum(one**2 for one in sums))
        assert abs(score - exact) <= n * CLIP / steps(n) * 2 + 1e-15 * exact
    exact = 2 * relation.contributions * CLIP
    assert exact < selection.score_range < exact * (1 + 1e-11)


def test_scores_of_residuals_that_are_not_cut_are_caught(monkeypatch):
    """Their last bits depend on the order of the records."""
    rng = np.random.default_rng(4)
    codes, residuals = [rng.integers(0, 3, 3000) for _ in range(2)], rng.uniform(-CLIP, CLIP, (3000, 1))
    selection = PairSelection(1, 3000, CLIP, REPLACE, 1.0)
    monkeypatch.setattr("discreet.additive.pairs.steps", lambda n: 2.0**60)  # more than sums have digits for
    tables, found = candidates([bins(3)] * 2, [True] * 2), set()
    for _ in range(20):
        order = rng.permutation(3000)
        found.add(float(selection.scores(tables, [([code[order] for code in codes], residuals[order])])[0]))
    assert len(found) > 1


def test_the_pair_that_explains_residuals_is_found():
    rng = np.random.default_rng(0)
    codes = [rng.integers(0, 4, 3000) for _ in range(4)]
    residuals = np.where((codes[1] > 1) == (codes[3] > 1), CLIP, -CLIP)[:, None]
    tables = candidates([bins(4)] * 4, [True] * 4)
    selection = PairSelection(2, 3000, CLIP, REPLACE, 1.0)
    blocks = [([code[rows] for code in codes], residuals[rows]) for rows in (slice(0, 7), slice(7, None))]
    with insecure_noise(0):
        chosen = selection.choose(tables, [(codes, residuals)], fresh_entropy())
    assert chosen[0].columns == (1, 3)
    assert chosen[1].columns != (1, 3)
    with insecure_noise(0):
        assert len(PairSelection(9, 3000, CLIP, REPLACE, 1.0).choose(tables, blocks, fresh_entropy())) == 6


def problem(n_pairs):
    columns = tuple(Column(name, Numeric(0.0, 1.0)) for name in "abcd")
    return AdditiveProblem(columns, "classes", 5000, n_pairs=n_pairs)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_choices_are_charged_as_bounded_range(epsilon):
    guarantee = Guarantee(epsilon, 1e-6, REPLACE)
    plan = AdditiveFit().plan(problem(3), guarantee)
    leaves = events.flatten(plan.event)
    (choice,) = [(leaf, times) for leaf, times in leaves if isinstance(leaf, events.BoundedRange)]
    assert choice == (events.BoundedRange(plan.layout.selection.epsilon), 3)
    price = accountants.delta(plan.event, epsilon, REPLACE)
    assert 0.98e-6 < price <= 1e-6


def test_no_pairs_no_choices():
    plan = AdditiveFit().plan(problem(0), Guarantee(1.0, 1e-6))
    assert not any(isinstance(leaf, events.BoundedRange) for leaf, _ in events.flatten(plan.event))


@pytest.mark.parametrize(("n_samples", "found"), [(6_700, 0), (6_800, 3)])
def test_the_default_number_of_pairs_is_a_public_rule(n_samples, found):
    model = PrivateAdditiveClassifier(1.0, 1e-6, feature_bounds=(-1, 1), classes=[0, 1])
    assert model.plan(n_samples, 4).problem.n_pairs == found
    assert model.plan(n_samples, 2).problem.n_pairs == min(found, 1)
    assert model.plan(n_samples, 1).problem.n_pairs == 0
    rising = PrivateAdditiveClassifier(**model.get_params() | {"monotonic": {"x0": 1}})
    assert rising.plan(10 * n_samples, 4).problem.n_pairs == 0  # a pair could break what was asked for
