"""Private quantiles: the exact law, the declared range of scores, the ledger, and bounds that are useful."""

import itertools
import math
import warnings

import numpy as np
import pytest
from scipy import stats

from discreet import (
    BudgetExceeded,
    Ledger,
    NoiseWarning,
    Numeric,
    Schema,
    SchemaError,
    insecure_noise,
    private_domains,
    private_norm_bound,
    private_quantiles,
)
from discreet.description.quantiles import QuantilePlan, wide_grid
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.mechanisms.selection import ExponentialMechanism
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Guarantee, Neighboring

GRID = (0.0, 1.0, 2.0, 3.0)
NULL = math.nan
LEVELS = [0.25, 0.5, 0.9]


def plan(level, relation=Neighboring.REPLACE_ONE, epsilon=1.0, **facts):
    return QuantilePlan(Guarantee(epsilon, 0.0, relation), (level,), GRID, **facts)


def law(made, values):
    level = made.levels[0]
    return made.selection(level).probabilities(made.scores(values, level))


def neighbors(relation):
    """All pairs of small data sets over a few values that the relation allows."""
    cells = (0.5, 1.5, 2.5, 9.0)
    for few in itertools.combinations_with_replacement(cells, 3):
        common = few * 4  # enough values for every level to lie among them
        for one in cells:
            if relation is Neighboring.REPLACE_ONE:
                for other in (*cells, NULL):
                    yield (*common, one), (*common, other)
            else:
                yield (*common, one), common if relation is Neighboring.ADD_REMOVE_ONE else (*common, NULL)


# --- privacy, by enumeration ---


@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.lemma("quantiles.md#theorem-1")
def test_log_ratios_range_over_epsilon_and_no_more(relation, level):
    """The exact laws of all pairs of small neighbors; some pair must come close, or noise is wasted."""
    made, widest = plan(level, relation), 0.0
    for first, second in neighbors(relation):
        ratios = np.log(law(made, first) / law(made, second))
        widest = max(widest, float(np.ptp(ratios)))
    assert widest <= 1.0 + 1e-6
    assert widest > 0.7


@pytest.mark.parametrize("relation", list(Neighboring))
def test_a_twin_with_half_the_range_breaks_its_promise(relation):
    made = plan(0.5, relation)
    honest = made.selection(0.5)
    twin = ExponentialMechanism(honest.score_range / 2, 1.0, len(GRID) - 1)
    widest = max(
        float(
            np.ptp(np.log(twin.probabilities(made.scores(a, 0.5)) / twin.probabilities(made.scores(b, 0.5))))
        )
        for a, b in neighbors(relation)
    )
    assert widest > 1.4


def test_groups_of_rows_scale_the_range():
    made = plan(0.5, Neighboring.REPLACE_ONE, rows=3)
    common = (1.5,) * 3
    worst = max(
        float(np.ptp(np.log(law(made, (*common, *first)) / law(made, (*common, *second)))))
        for first in itertools.product((0.5, 9.0, NULL), repeat=3)
        for second in itertools.product((0.5, 9.0, NULL), repeat=3)
    )
    assert 0.999 < worst <= 1.0 + 1e-6


def test_samples_follow_the_law():
    values, made = [0.5, 0.6, 1.5, 2.5, 2.6], plan(0.5)
    expected = law(made, values)
    source = fresh_entropy()
    drawn = [made.run([np.array(values)], source)[0, 0] for _ in range(4000)]
    counts = np.bincount(np.array(drawn, dtype=int), minlength=4)[1:]  # level 1/2: the right end
    assert stats.chisquare(counts, 4000 * expected).pvalue > 1e-7


def test_scores_are_exact_ranks():
    """Intervals [0, 1), [1, 2), [2, 3]: minus the ranks between them and rank 1 of 4, or 0.25 of 1."""
    made = plan(0.25)
    assert made.scores([0.5, 1.0, 1.5, 2.5], 0.25).tolist() == [0.0, 0.0, -2.0]
    assert made.scores([1.5, NULL, NULL, NULL], 0.25).tolist() == [-0.25, 0.0, -0.75]
    assert made.scores([-9.0, 9.0, 9.0, 9.0], 0.25).tolist() == [0.0, 0.0, 0.0]
    assert made.scores([9.0] * 4, 0.25).tolist() == [-1.0, -1.0, 0.0]


# --- promises ---


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_many_quantiles_share_one_promise(delta):
    made = QuantilePlan(Guarantee(1.0, delta), (0.1, 0.5, 0.9), GRID, n_columns=4)
    assert accountants.epsilon(made.event, delta, Neighboring.REPLACE_ONE) <= 1.0
    assert accountants.epsilon(made.event, delta, Neighboring.REPLACE_ONE) > 0.98
    single = made.selection(0.5).epsilon
    assert single == pytest.approx(1 / 12, rel=1e-9) if delta == 0 else single > 1 / 12


def test_the_ledger_is_charged_first_and_the_statement_says_what_was_spent(tmp_path):
    ledger = Ledger(tmp_path / "a.ledger", epsilon=1.0, delta=1e-6)
    values = np.arange(100.0)
    found = private_quantiles(values, 0.5, candidates=np.arange(0, 100, 5.0), epsilon=0.7, ledger=ledger)
    assert 0.69 < ledger.spent().epsilon <= 0.7
    assert found.privacy_.event == ledger.history()[0].event
    assert "exponential mechanism" in str(found.privacy_)
    with pytest.raises(BudgetExceeded):
        private_quantiles(values, 0.5, candidates=GRID, epsilon=0.7, ledger=ledger)
    with insecure_noise(1):
        assert not private_quantiles(values, 0.5, candidates=GRID, epsilon=0.7).privacy_.secure


def test_user_level_quantiles_bound_every_group():
    """One person with half of all rows cannot pull the median."""
    values = np.concatenate([np.arange(200.0) % 50, np.full(400, 1000.0)])
    ids = np.concatenate([np.arange(200), np.full(400, -1)])
    found = private_quantiles(
        values, 0.5, candidates=np.arange(0, 1001, 5.0), epsilon=20.0, groups=ids, max_rows_per_group=1
    )
    assert 15 <= found.values[0, 0] <= 35
    assert found.privacy_.guarantee.unit == "user"


# --- usefulness ---


def test_ranks_are_within_the_stated_error():
    rng = np.random.default_rng(2)
    values = rng.exponential(size=20_000)
    grid = np.linspace(0, 20, 2001)
    made = QuantilePlan(Guarantee(0.5), tuple(LEVELS), tuple(grid))
    found = made.run([values], fresh_entropy())[0]
    allowed = made.rank_error(1e-7) + 20_000 * 0.012  # and one step of the grid
    for level, value in zip(LEVELS, found, strict=True):
        assert abs(np.sum(values < value) - level * 20_000) <= allowed


def test_norm_bound_and_domains_find_the_scale_of_the_data():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20_000, 9)) * 50
    bound = private_norm_bound(X, level=0.9, epsilon=1.0).values[0, 0]
    covered = np.mean(np.sqrt((X**2).sum(axis=1) + 1) <= bound)
    assert 0.88 < covered < 1.0
    assert bound < 400
    table = {"small": rng.normal(0, 1e-2, 20_000).tolist(), "large": rng.uniform(1e5, 2e5, 20_000).tolist()}
    table["small"][7] = None
    domains, statement = private_domains(table, {"small": None, "large": None}, epsilon=1.0)
    assert -0.2 < domains["small"].lower < 0 < domains["small"].upper < 0.2
    assert 5e4 < domains["large"].lower < domains["large"].upper < 4e5
    assert statement.epsilon == 1.0
    assert Schema({**domains, "age": Numeric(0, 1)}).n_features == 3


@pytest.mark.parametrize(("n", "enough"), [(2000, False), (5000, False), (60_000, True)])
def test_too_few_records_are_warned_about_before_the_charge(n, enough, tmp_path):
    ledger = Ledger(tmp_path / "budget", 1.0, 1e-6)
    table = {"age": np.arange(n) % 100}
    with warnings.catch_warnings():
        warnings.simplefilter("error", NoiseWarning)
        if enough:
            assert private_domains(table, {"age": None}, epsilon=0.2)[0]["age"].upper < 200
            return
        with pytest.raises(NoiseWarning, match=r"About 175\d\d records would do"):
            private_domains(table, {"age": None}, epsilon=0.2, ledger=ledger)
        assert len(ledger.history()) == 0
        # The number of rows is private here: nothing may depend on it, not even a warning.
        private_domains(table, {"age": None}, epsilon=0.2, neighboring="add-remove-one")


def test_columns_of_words_are_refused_before_the_charge(tmp_path):
    ledger = Ledger(tmp_path / "budget", 9.0, 1e-6)
    table = {"note": ["3", None, "secret"] * 2000}
    with pytest.raises(SchemaError, match=r"column 'note' .* row 2 ") as caught:
        private_domains(table, {"note": None}, epsilon=5.0, ledger=ledger)
    assert "secret" not in str(caught.value)
    with pytest.raises(SchemaError, match=r"column 'day' holds values of type"):
        private_domains(
            {"day": np.array(["2020-01-01"], dtype="M8[D]")}, {"day": None}, epsilon=5.0, ledger=ledger
        )
    assert len(ledger.history()) == 0
    domains, _ = private_domains(table, {"note": None}, epsilon=5.0, bad_rows="null", ledger=ledger)
    assert domains["note"].lower < 3 < domains["note"].upper


@pytest.mark.parametrize("bad_rows", ["error", "null"])
def test_rows_without_an_id_are_refused_or_count_nowhere(bad_rows, tmp_path):
    values = np.append(np.arange(2000.0), [1e9] * 5000)
    ids = np.array([*map(str, range(2000)), *[None] * 5000], dtype=object)
    ledger = Ledger(tmp_path / "bounds.ledger", epsilon=50.0, delta=0.0, unit="user")
    options = {
        "epsilon": 20.0,
        "groups": ids,
        "max_rows_per_group": 1,
        "bad_rows": bad_rows,
        "ledger": ledger,
    }
    calls = [
        lambda: private_domains({"x": values}, {"x": None}, **options)[0]["x"].upper,
        lambda: private_quantiles(values, 0.9, candidates=wide_grid(), **options).values[0, 0],
    ]
    for call in calls:
        if bad_rows == "null":
            assert call() < 1e4
            continue
        with pytest.raises(ValueError, match="groups has no id in"):
            call()
        assert len(ledger.history()) == 0


def test_a_constant_column_still_gets_an_interval():
    domains, _ = private_domains({"x": [5.0] * 2000}, {"x": np.arange(0, 10, 1.0)}, epsilon=5.0)
    assert domains["x"].lower <= 5.0 <= domains["x"].upper
    assert domains["x"].lower < domains["x"].upper


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"levels": 0.0}, "between 0 and 1"),
        ({"levels": 1.0}, "between 0 and 1"),
        ({"candidates": [3, 2, 1]}, "increasing"),
        ({"candidates": [1]}, "at least two"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"neighboring": "other"}, "neighboring"),
        ({"X": [1.0, math.nan]}, "not numbers"),
        ({"X": np.zeros((2, 2, 2))}, "shape"),
        ({"max_rows_per_group": 2}, "pass groups"),
    ],
)
def test_wrong_arguments_are_explained(arguments, message):
    given = {"X": [1.0, 2.0], "levels": 0.5, "candidates": GRID, "epsilon": 1.0} | arguments
    with pytest.raises((ValueError, TypeError), match=message):
        private_quantiles(given.pop("X"), given.pop("levels"), **given)


def test_wide_grid_is_symmetric_and_increasing():
    grid = wide_grid()
    assert np.array_equal(grid, -grid[::-1])
    assert np.all(np.diff(grid) > 0)


def test_the_statement_of_domains_names_values_of_every_column():
    table = {"age": np.linspace(20, 60, 500), "income": np.linspace(1e3, 1e5, 500)}
    grids = {"age": np.linspace(0, 120, 41), "income": np.linspace(0, 1e6, 41)}
    _, statement = private_domains(table, grids, coverage=0.5, epsilon=5.0)
    assert statement.bounds["smallest candidate of age"] == 0
    assert statement.bounds["largest candidate of age"] == 120
    assert statement.bounds["largest candidate of income"] == 1e6
    assert "smallest candidate" not in statement.bounds
