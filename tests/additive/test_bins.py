"""Bins: the release of histograms at its worst neighbors, merging, and cells that are functions of their own row."""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet import Binned, Boolean, Categorical, Numeric, SchemaError
from discreet.additive.bins import HistogramMechanism, default_bins, merged, most_bins
from discreet.additive.columns import Column, read_columns
from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.privacy.guarantee import Neighboring

COLUMNS = (
    Column("age", Numeric(0.0, 10.0)),
    Column("ward", Categorical(tuple("abcdef"))),
    Column("smoker", Boolean()),
)
REPLACE, DROP = Neighboring.REPLACE_ONE, Neighboring.ZERO_OUT


def mechanism(relation=REPLACE, columns=COLUMNS, noise=1.0, n=1000, n_bins=6):
    return HistogramMechanism(columns, n, n_bins, relation, noise)


def cells(*records):
    """Cells by column of records; None is a missing cell."""
    kinds = [np.float64, np.int64, np.int64]
    nones = [math.nan, -1, -1]
    return [
        np.array([none if record[j] is None else record[j] for record in records], dtype=kind)
        for j, (kind, none) in enumerate(zip(kinds, nones, strict=True))
    ]


def histograms(made, *records):
    return made.histograms(cells(*records), np.zeros(len(records), dtype=bool))


RECORDS = [
    (age, ward, smoker) for age in (None, 0.0, 9.0) for ward in (None, 0, 5) for smoker in (None, 0, 1)
]


@pytest.mark.lemma("additive-models.md#theorem-1")
def test_the_worst_neighbors_attain_the_declared_sensitivity():
    made = mechanism()
    distances = [
        np.linalg.norm(histograms(made, a) - histograms(made, b))
        for a, b in itertools.combinations(RECORDS, 2)
    ]
    declared = mechanism(REPLACE).sensitivity.value
    assert max(distances) == pytest.approx(math.sqrt(2 * (1 + 1 + 1 / 16)), rel=1e-12)
    assert 0.999999 < max(distances) / declared <= 1
    alone = max(np.linalg.norm(histograms(made, a)) for a in RECORDS)
    assert 0.999999 < alone / mechanism(DROP).sensitivity.value <= 1


def test_a_twin_that_charges_for_numeric_columns_alone_is_caught():
    """Categories are looked at too; sqrt(2) for the one range is less than what two records differ by."""
    made = mechanism()
    worst = np.linalg.norm(histograms(made, (0.0, 0, 0)) - histograms(made, (9.0, 5, 1)))
    assert worst > math.sqrt(2 * sum(column.is_range for column in COLUMNS)) * 1.1


def test_null_records_are_in_no_histogram():
    made = mechanism()
    null = np.array([False, True])
    both = made.histograms(cells((0.0, 0, 0), (9.0, 5, 1)), null)
    assert np.array_equal(both, histograms(made, (0.0, 0, 0)))


@given(
    counts=st.lists(st.floats(-50, 1e4), min_size=12, max_size=200),
    n_bins=st.integers(2, 32),
)
@settings(max_examples=200, deadline=None)
def test_merging_keeps_its_public_limit(counts, n_bins):
    cuts = merged(np.array(counts), n_bins)
    assert 1 <= len(cuts) <= most_bins(n_bins) - 1
    assert np.all(np.diff(cuts) > 0)
    assert cuts[0] > 0
    assert cuts[-1] < len(counts)


def test_equal_masses_give_equal_bins_and_a_heavy_cell_its_own():
    assert merged(np.ones(12), 6).tolist() == [2, 4, 6, 8, 10]
    heavy = np.ones(12)
    heavy[5] = 100.0
    cuts = merged(heavy, 4)
    assert 6 in cuts


def test_bins_of_a_long_tail_follow_the_mass():
    rng = np.random.default_rng(0)
    values = np.minimum(rng.exponential(0.5, 20_000), 10.0)
    made = mechanism(columns=(Column("x", Numeric(0.0, 10.0)),), noise=1e-6, n=20_000, n_bins=8)
    with insecure_noise(0):
        (bins,) = made.release([([values], np.zeros(len(values), dtype=bool))], fresh_entropy())
    found = np.bincount(bins.codes(values), minlength=bins.n_bins)
    assert np.allclose(found, bins.counts, atol=1e-3)
    assert found[:-1].max() < 2 * 20_000 / 8
    assert np.all(np.diff(bins.edges) > 0)


def test_rare_categories_share_a_bin():
    made = mechanism(noise=1e-6, n=5000)
    records = [(1.0, ward, 0) for ward in [0] * 500 + [1] * 400 + [2] * 1]
    with insecure_noise(0):
        _, ward, smoker = made.release(
            [(cells(*records), np.zeros(len(records), dtype=bool))], fresh_entropy()
        )
    assert ward.n_bins == 3
    assert ward.places.tolist() == [0, 1, 2, 2, 2, 2]
    assert ward.counts.round().tolist() == [500, 400, 1]
    assert smoker.n_bins == 2


def test_logarithmic_grids_are_fine_where_values_are_small():
    edges = Column("gain", Numeric(0.0, 99_999.0, logarithmic=True)).grid(10)
    assert edges == pytest.approx(100_000 ** (np.arange(1, 10) / 10) - 1)
    huge = Column("huge", Numeric(-1.5e308, 1.5e308)).grid(4)
    assert np.isfinite(huge).all()


def test_the_default_number_of_bins_grows_with_the_signal():
    assert [default_bins(signal) for signal in (1.0, 100.0, 1000.0, 1e6)] == [6, 7, 15, 32]


TABLE = {
    "age": ["1", "7.5", None, "5", "12"],
    "ward": ["a", "moon", "c", None, "f"],
    "smoker": ["yes", "no", "1", None, "0"],
}


def test_cells_depend_on_their_own_row_alone():
    found, bad = read_columns(COLUMNS, TABLE, strict=True)
    assert not bad.any()
    assert found[1].tolist() == [0, -1, 2, -1, 5]
    assert found[2].tolist() == [1, 0, 1, -1, 0]
    for other in ("3", "", "999"):
        changed = TABLE | {"age": [*TABLE["age"][:4], other]}
        again, _ = read_columns(COLUMNS, changed, strict=True)
        for a, b in zip(found, again, strict=True):
            assert np.array_equal(a[:4], b[:4], equal_nan=True)


def test_cells_without_a_meaning_are_refused_or_marked():
    spoiled = TABLE | {"age": ["1", "old", None, "5", "12"]}
    with pytest.raises(SchemaError, match="'age'"):
        read_columns(COLUMNS, spoiled, strict=True)
    _, bad = read_columns(COLUMNS, spoiled, strict=False)
    assert bad.tolist() == [False, True, False, False, False]


def test_declared_intervals_and_marked_missing_cells():
    columns = (Column("a", Binned((1.0, 2.0))), Column("b", Numeric(0.0, 1.0, missing_feature=True)))
    table = {"a": pa.array([0.5, 1.0, None, 9.0]), "b": pa.array([0.2, None, 0.9, 0.4])}
    found, _ = read_columns(columns, table, strict=True)
    assert found[0].tolist() == [0, 1, -1, 2]
    made = HistogramMechanism(columns, 4, 2, DROP, 1e-6)
    with insecure_noise(0):
        first, second = made.release([(found, np.zeros(4, dtype=bool))], fresh_entropy())
    assert first.counts.round().tolist() == [1, 1, 1]
    assert second.codes(found[1])[1] == second.n_bins == second.size - 1
    assert second.counts[-1] == pytest.approx(1, abs=1e-3)


def test_many_cells_where_bins_stay_clear_of_noise():
    """Cells whose noise within one full bin is a third of that bin: (n / (3 m sd))^2 per bin, m of them."""
    made = mechanism(columns=(Column("x", Numeric(0.0, 10.0)),), noise=150.0, n=20_000, n_bins=10)
    stddev = made.gaussian.stddev
    assert made.n_cells == int(10 * (20_000 / (30 * stddev)) ** 2) == 98
    assert mechanism(noise=1e6).n_cells == 12
    assert mechanism(noise=1e-9).n_cells == 200
