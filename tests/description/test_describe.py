"""Descriptions: exact without noise, sensitivities at the worst neighbors, laws of estimates, intervals that cover."""

import itertools
import json
import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import trapezoid

from discreet import (
    Binned,
    Boolean,
    BudgetExceeded,
    Categorical,
    Guarantee,
    Ledger,
    Numeric,
    Schema,
    SchemaError,
    Target,
    Text,
    describe,
    insecure_noise,
)
from discreet.audit.replay import replay
from discreet.description.columns import SPLITS, Places, Scale, columns_of
from discreet.description.describe import plan_description
from discreet.description.estimates import Counts, Law, count, quantile, ratio
from discreet.description.plan import Counted, DescriptionPlan
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.recording import Recorder, recorded_by
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.guarantee import Neighboring, PrivacyWarning
from discreet.release import PLATFORM_ASSUMPTIONS, release_digest
from discreet.tables.reading import TableError, column

pytestmark = pytest.mark.filterwarnings(f"ignore::{PrivacyWarning.__module__}.PrivacyWarning")

HARDLY_PRIVATE = {"epsilon": 1e6, "delta": 0.5}
SCHEMA = Schema(
    {
        "age": Numeric(0, 100),
        "income": Numeric(0, 1e6, logarithmic=True),
        "visits": Binned((1, 5)),
        "ward": Categorical(("north", "south")),
        "smoker": Boolean(),
        "note": Text(16),
    },
    Target("stay", bounds=(0, 30)),
)


def table_of(n, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.gamma(9, 5, size=n)
    return {
        "age": np.where(rng.random(n) < 0.1, np.nan, age),
        "income": np.exp(rng.normal(10, 1, size=n)),
        "visits": rng.integers(0, 9, size=n),
        "ward": rng.choice(["north", "south", "moon", ""], size=n),
        "smoker": rng.choice(["yes", "no", None], size=n),
        "note": rng.choice(["seen twice", ""], size=n),
        "stay": rng.uniform(-5, 40, size=n),
    }


# -- without noise ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exact():
    table = table_of(3000)
    return table, describe(table, SCHEMA, pairs=[("ward", "smoker"), ("age", "ward")], **HARDLY_PRIVATE)


def test_counts_are_those_of_the_table(exact):
    table, found = exact
    ward, smoker = np.asarray(table["ward"]), np.asarray(table["smoker"])
    for cell, label in {"north": "north", "south": "south", "(other)": "moon", "(missing)": ""}.items():
        assert found["ward"].histogram[cell].value == pytest.approx((ward == label).sum(), abs=0.1)
    visits = [one.value for one in found["visits"].histogram.counts]
    expected = [
        (table["visits"] < 1).sum(),
        ((table["visits"] >= 1) & (table["visits"] < 5)).sum(),
        (table["visits"] >= 5).sum(),
        0,
    ]
    assert visits == pytest.approx(expected, abs=0.1)
    assert found["smoker"].histogram["true"].value == pytest.approx((smoker == "yes").sum(), abs=0.1)
    assert found["smoker"].missing.value == pytest.approx((smoker == None).sum(), abs=0.1)  # noqa: E711
    assert found["note"].histogram["text"].value == pytest.approx((table["note"] != "").sum(), abs=0.1)
    both = found.tables["ward", "smoker"]["south", "true"]
    assert both.value == pytest.approx(((ward == "south") & (smoker == "yes")).sum(), abs=0.1)
    assert len(found["note"].histogram) == 2
    assert found.rows.value == found.rows.lower == 3000


@pytest.mark.parametrize("name", ["age", "income", "stay"])
def test_numbers_are_those_of_the_clipped_values(name, exact):
    table, found = exact
    domain = SCHEMA.columns.get(name, Numeric(0, 30))
    values = np.clip(table[name][~np.isnan(table[name])], domain.lower, domain.upper)
    one = found[name]
    assert one.mean.value == pytest.approx(values.mean(), abs=1e-4 * domain.upper)
    assert one.missing.value == pytest.approx(np.isnan(table[name]).sum(), abs=0.1)
    counts = [part.value for part in one.histogram.counts[:-1]]
    assert counts == pytest.approx(np.histogram(values, one.histogram.edges)[0], abs=0.1)
    for level, part in one.quantiles.items():
        assert part.lower <= np.quantile(values, level, method="inverted_cdf") <= part.upper
        widest = 2 * np.diff(columns_of(SCHEMA, dict.fromkeys(SCHEMA.needed, 16))[1].edges).max()
        assert part.upper - part.lower <= (widest if name == "income" else 2 * domain.upper / 256)


# -- sensitivity -----------------------------------------------------------------------------------------------------


def sums(plan, table):
    """The exact numbers that the plan would add noise to."""
    recorder, places = Recorder(), [part.read(column(table, part.name))[0] for part in plan.columns]
    with insecure_noise(0), recorded_by(recorder):
        plan.run(Counted.of(plan.columns, plan.pairs, places), fresh_entropy())
    return recorder.calls[0].value


def apart(plan, one, other):
    """How far they are apart in the norm of the declared sensitivity."""
    return float(np.linalg.norm(one - other, plan.sensitivity.norm))


def planned(relation, delta, max_rows=1, logarithmic=False):
    schema = Schema(
        {"a": Numeric(0, 1, logarithmic=logarithmic), "w": Categorical(("n", "s")), "b": Boolean()}
    )
    columns = columns_of(schema, {"a": 4})
    unit = "record" if max_rows == 1 else "user"
    return DescriptionPlan(Guarantee(1.0, delta, relation, unit), columns, ((0, 1), (1, 2)), max_rows)


ENDS = {"a": [0.0], "w": ["n"], "b": [True]}, {"a": [1.0], "w": ["s"], "b": [False]}
NOBODY = {"a": np.zeros(0), "w": np.zeros(0, str), "b": np.zeros(0, bool)}
BLANK = {"a": [math.nan], "w": [None], "b": [None]}


@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("max_rows", [1, 3])
@pytest.mark.lemma("describe.md#theorem-2")
def test_the_sensitivity_is_attained_at_the_ends_of_every_domain(relation, delta, max_rows):
    plan = planned(relation, delta, max_rows)
    first, second = ({name: cells * max_rows for name, cells in table.items()} for table in ENDS)
    blank = {name: cells * max_rows for name, cells in BLANK.items()}
    other = {Neighboring.REPLACE_ONE: second, Neighboring.ZERO_OUT: blank}.get(relation, NOBODY)
    far = apart(plan, sums(plan, first), sums(plan, other))
    assert far <= plan.sensitivity.value
    assert far == pytest.approx(plan.sensitivity.value, rel=1e-4)


@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("logarithmic", [False, True])
@pytest.mark.lemma("describe.md#lemma-1")
def test_no_two_rows_are_farther_apart(relation, delta, logarithmic):
    plan = planned(relation, delta, logarithmic=logarithmic)
    edges = plan.columns[0].edges
    numbers = [
        *edges[::7],
        *np.nextafter(edges[1::9], 0),
        *np.nextafter(edges[2::9], 1),
        math.nan,
        -math.inf,
        5.0,
    ]
    rows = [sums(plan, {"a": [a], "w": [w], "b": [True]}) for a, w in itertools.product(numbers, ["n", ""])]
    others = [sums(plan, {"a": [a], "w": ["s"], "b": [None]}) for a in numbers]
    if relation is not Neighboring.REPLACE_ONE:
        others = [sums(plan, NOBODY)]
    if relation is Neighboring.ZERO_OUT:
        others.append(sums(plan, BLANK))
    farthest = max(apart(plan, one, other) for one, other in itertools.product(rows, others))
    assert 0.98 * plan.sensitivity.value < farthest <= plan.sensitivity.value


def test_sums_are_exact_whole_multiples():
    (part,) = columns_of(Schema({"a": Numeric(-3, 8)}), {"a": 5})
    values = np.random.default_rng(0).uniform(-4, 9, size=1000)
    places, _ = part.read(column({"a": values}, "a"))
    sums = part.sums(part.tally(places))
    assert np.array_equal(sums * 2**21, np.rint(sums * 2**21))
    halves = [part.sums(part.tally(places.take(np.arange(k, 1000, 2)))) for k in range(2)]
    assert np.array_equal(halves[0] + halves[1], sums)
    counts = np.bincount(places.codes, minlength=5 * SPLITS + 1)
    assert np.array_equal(part.design @ counts, sums[:-1])
    center = sums[-2] / 0.5 + sums[-1] / part.remainder_weight
    assert center == pytest.approx((np.clip(values, -3, 8) / 5.5 - 2.5 / 5.5).sum(), abs=1000 * 2.0**-20)


def test_missing_cells_and_huge_numbers_have_places():
    (part,) = columns_of(Schema({"a": Numeric(0, 1)}), {"a": 2})
    places, malformed = part.read(column({"a": [None, "x", "inf", "-1e300", "0.5"]}, "a"))
    assert places.codes.tolist() == [32, 32, 31, 0, 16]
    assert malformed.tolist() == [False, True, False, False, False]
    assert places.excess[:2].tolist() == [0, 0]


# -- the audit -------------------------------------------------------------------------------------------------------


def program(values):
    schema = Schema({"a": Numeric(0, 1), "b": Boolean()})
    table = {"a": values, "b": values > 0.5}
    return describe(table, schema, epsilon=1.0, delta=1e-2, bins=2, pairs=[("a", "b")])


PAIR = np.array([0.0, 0.5, 0.5, 0.5]), np.array([1.0, 0.5, 0.5, 0.5])


def test_a_replay_finds_the_whole_distance_and_nothing_wrong():
    found = replay(program, *PAIR)
    assert found.passed, str(found)
    assert found.worst_ratio == pytest.approx(1.0, abs=1e-3)


def test_a_twin_with_half_the_noise_is_caught(monkeypatch):
    honest = DescriptionPlan.release.func

    def halved(plan):
        full = honest(plan)
        return GaussianMechanism(full.sensitivity, full.noise_multiplier / 2, full.size)

    monkeypatch.setattr(DescriptionPlan, "release", property(halved))
    monkeypatch.setattr(DescriptionPlan, "event", property(lambda plan: honest(plan).event))
    assert "price" in replay(program, *PAIR).failed_checks


def test_a_twin_that_forgets_the_sums_is_caught(monkeypatch):
    monkeypatch.setattr(Scale, "apart", lambda part, norm: 2.0)
    assert "distance" in replay(program, *PAIR).failed_checks


# -- laws ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("total", [None, 900.0])
def test_least_squares_has_the_stated_law(total):
    (part,) = columns_of(Schema({"a": Numeric(0, 1)}), {"a": 2})
    rng = np.random.default_rng(0)
    counts = rng.multinomial(900, np.full(33, 1 / 33)).astype(float)
    noisy = part.design @ counts + 3.0 * rng.normal(size=(4000, len(part.design)))
    places = rng.integers(0, 2, size=(4, 33)).astype(float)
    fitted = Counts.fitted(part.design, noisy[0], total)
    _, variances = fitted.sums(places)
    found = (noisy @ fitted.weights.T + fitted.offset) @ places.T - places @ counts
    assert np.abs(found.mean(axis=0)).max() < 4.5 * math.sqrt(9 * variances.max() / 4000)
    assert found.var(axis=0) == pytest.approx(9 * variances, rel=0.1)
    if total is not None:
        assert fitted.values.sum() == pytest.approx(900)
    ends = Counts.fitted(part.design, part.design @ counts, None).values
    assert ends == pytest.approx(counts)


def test_intervals_without_noise_are_those_of_textbooks():
    law, z = Law(0.0, 0.95, population=True), stats.norm.ppf(0.975)
    one, n, p = count(180.0, 0.0, law, 200, None), 200, 0.9
    center = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    assert (one.lower / n, one.upper / n) == pytest.approx((center - half, center + half))  # Wilson
    assert count(7.0, 4.0, Law(1.0, 0.95), 10, 9.0).upper == 9.0
    value, lower, upper = ratio((50.0, 100.0), (4.0, 0.0, 0.0), Law(1.0, 0.95))
    assert (value, upper - 0.5, 0.5 - lower) == pytest.approx((0.5, 2 * z / 100, 2 * z / 100))
    assert ratio((50.0, 1.0), (4.0, 0.0, 4.0), Law(1.0, 0.95))[1:] == (-1.0, 1.0)
    assert math.isnan(ratio((50.0, -1.0), (4.0, 0.0, 4.0), Law(1.0, 0.95))[0])


def test_quantiles_of_few_rows_are_unknown_and_increase():
    edges, design = np.arange(9.0), np.eye(9)
    clean = Counts.fitted(design, np.array([0, 4, 0, 0, 2, 0, 4, 0, 5.0]), None)
    found = [quantile(clean, edges, level, Law(1e-9, 0.95)) for level in (0.1, 0.4, 0.5, 0.9)]
    assert [one.value for one in found] == sorted(one.value for one in found)
    assert (found[0].lower, found[0].upper) == (1.0, 2.0)
    assert found[2].lower == 4.0
    assert found[1].lower <= 2.0 <= 4.0 <= found[1].upper  # anything between the fourth and the fifth of ten
    nobody = quantile(Counts.fitted(design, -np.ones(9), None), edges, 0.5, Law(1.0, 0.95))
    assert math.isnan(nobody.value)
    assert (nobody.lower, nobody.upper) == (0.0, 8.0)


@pytest.mark.parametrize("n_cells", [1, 2, 3, 8, 40])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
def test_sums_of_laplace_noise_stay_within_the_stated_reach(n_cells, confidence):
    """Exact tails of sums of equal weights, by inverting the characteristic function."""
    law = Law(2.0, confidence, gaussian=False)
    reach = law.reach * math.sqrt(2.0 * n_cells)
    t = np.linspace(1e-6, 400.0, 800_001)
    inside = 2 / math.pi * trapezoid(np.sin(t * reach) / t * (1 + t * t) ** -float(n_cells), t)
    assert inside >= confidence - 2e-3


# -- coverage --------------------------------------------------------------------------------------------------------

SETTINGS = {
    "table": {"epsilon": 1.0, "delta": 1e-6},
    "population": {"epsilon": 1.0, "delta": 1e-6, "intervals": "population"},
    "Laplace": {"epsilon": 1.0, "delta": 0.0},
    "size unknown": {"epsilon": 1.0, "delta": 1e-6, "neighboring": "add-remove-one", "n_samples": 999},
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_intervals_cover(setting):
    """200 small tables; 0.95 less 3.5 standard errors."""
    options, repetitions, n = SETTINGS[setting], 200, 400
    schema = Schema({"a": Numeric(0, 1), "w": Categorical(("n", "s"))})
    rng, hits = np.random.default_rng(8), []
    for seed in range(repetitions):
        a = np.where(rng.random(n) < 0.2, np.nan, rng.beta(2, 3, size=n))
        w = rng.choice(["n", "s"], p=[0.7, 0.3], size=n)
        with insecure_noise(seed):
            found = describe({"a": a, "w": w}, schema, bins=4, quantiles=[0.25, 0.5], **options)
        present = a[~np.isnan(a)]
        truth = [
            present.mean(),
            np.isnan(a).sum(),
            (w == "n").sum(),
            ((present >= 0.25) & (present < 0.5)).sum(),
        ]
        truth += [np.quantile(present, level, method="inverted_cdf") for level in (0.25, 0.5)]
        if setting == "population":
            law = stats.beta(2, 3)
            share = 0.8 * (law.cdf(0.5) - law.cdf(0.25))
            truth = [0.4, 0.2 * n, 0.7 * n, share * n, law.ppf(0.25), law.ppf(0.5)]
        part = found["a"]
        shown = [part.mean, part.missing, found["w"].histogram["n"], part.histogram.counts[1]]
        shown += [*part.quantiles.values(), found.rows]
        hits.append([one.lower <= true <= one.upper for one, true in zip(shown, [*truth, n], strict=True)])
    assert np.mean(hits, axis=0).min() >= 0.95 - 3.5 * math.sqrt(0.05 * 0.95 / repetitions)
    assert np.mean(hits) < 0.999


# -- people, ledgers, refusals ---------------------------------------------------------------------------------------


def test_a_group_column_makes_it_about_people(tmp_path):
    schema = Schema({"a": Numeric(0, 1)}, group="who")
    table = {"a": np.linspace(0, 1, 90), "who": np.repeat(np.arange(30), 3)}
    with pytest.raises(ValueError, match="max_rows_per_group must be declared"):
        describe(table, schema)
    ledger = Ledger(tmp_path / "people.db", 1.0, 1e-3, unit="user")
    found = describe(table, schema, epsilon=1.0, delta=1e-3, max_rows_per_group=2, ledger=ledger)
    assert found.privacy_.guarantee.unit == "user"
    assert found.privacy_.paid.released == release_digest(found.released_)
    assert found.rows.noise > 0  # how many rows people have is private
    clear = describe(table, schema, max_rows_per_group=2, **HARDLY_PRIVATE)
    assert clear.rows.value == pytest.approx(60, abs=0.1)
    record = describe(table, Schema({"a": Numeric(0, 1)}), epsilon=1.0, delta=1e-3)
    assert found["a"].missing.noise > 1.9 * record["a"].missing.noise
    with pytest.raises(BudgetExceeded):
        describe(table, schema, epsilon=1.0, delta=1e-3, max_rows_per_group=2, ledger=ledger)
    assert len(ledger.history()) == 1


def test_what_has_no_meaning_is_refused_or_missing():
    schema = Schema({"a": Numeric(0, 1), "b": Boolean()})
    table = {"a": ["0.5"] * 50 + ["word"], "b": [True] * 51}
    with pytest.raises(SchemaError, match="first in row 50"):
        describe(table, schema)
    found = describe(table, schema, bad_rows="null", **HARDLY_PRIVATE)
    assert found["a"].missing.value == pytest.approx(1, abs=0.1)
    assert found["b"].histogram["true"].value == pytest.approx(51, abs=0.1)
    with pytest.raises(TableError, match="rows"):
        describe({"a": [0.5], "b": [True, False]}, schema)
    with pytest.raises(TableError, match="no rows"):
        describe({"a": np.zeros(0), "b": np.zeros(0, bool)}, schema)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pairs": [("age", "age")]}, "two different columns"),
        ({"pairs": [("age", "moon")]}, "two different columns"),
        ({"bins": 65}, "at most 64"),
        ({"bins": {"ward": 3}}, "no numeric column"),
        ({"quantiles": [1.0]}, "strictly between 0 and 1"),
        ({"confidence": 1.0}, "strictly between 0 and 1"),
        ({"intervals": "both"}, "intervals must be one of"),
        ({"neighboring": "add-remove-one"}, "n_samples is required"),
    ],
)
def test_refusals_before_the_charge(options, message, tmp_path):
    ledger = Ledger(tmp_path / "b.db", 5.0, 1e-2)
    with pytest.raises(ValueError, match=message):
        describe(table_of(50), SCHEMA, ledger=ledger, **options)
    assert not ledger.history()


def test_a_plan_says_what_the_release_will_be():
    plan = plan_description(SCHEMA, 2000, epsilon=0.5, pairs=[("ward", "smoker")], bins={"age": 8})
    found = describe(table_of(2000), SCHEMA, epsilon=0.5, pairs=[("ward", "smoker")], bins={"age": 8})
    assert found.privacy_.event == plan.event
    assert len(found.released) == sum(plan.sizes)
    assert "two-way tables of ward x smoker" in plan.mechanism
    assert set(PLATFORM_ASSUMPTIONS) < set(found.privacy_.assumptions)
    with pytest.raises(ValueError, match="max_rows_per_group"):
        plan_description(Schema({"a": Boolean()}, group="who"), 100)


# -- what people see -------------------------------------------------------------------------------------------------


def test_text_dictionary_and_pages(tmp_path):
    schema = Schema({"a<b": Numeric(0, 1), "w": Categorical(("<script>", "s\x1b[8m"))})
    found = describe(
        {"a<b": np.full(60, 0.5), "w": ["<script>"] * 60},
        schema,
        epsilon=1.0,
        delta=1e-3,
        pairs=[("a<b", "w")],
    )
    text = str(found)
    assert "95% intervals for the numbers of this table" in text
    assert "quantile 0.5" in text
    assert "\x1b" not in text
    assert json.loads(json.dumps(found.to_dict()))["columns"]["a<b"]["kind"] == "numeric"
    shown = found._repr_html_()
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown
    pytest.importorskip("altair")
    found.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "A private table in numbers" in page
    assert "&lt;script&gt;" in page
    assert isinstance(found.released, np.ndarray)


def test_places_of_some_rows():
    places = Places(np.arange(4), np.arange(4) * 10)
    assert places.take(np.array([2, 0])).excess.tolist() == [20, 0]
    assert Places(np.arange(4)).take(np.array([1])).excess is None
