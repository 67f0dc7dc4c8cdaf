"""The invented cohort: the same people everywhere, realistic, and learnable but not trivially so."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from discreet.tables.cohort import CARE_LEVELS, CARE_SCHEMA, COHORT_SCHEMA, make_cohort
from discreet.tables.schema import Categorical, Numeric


@pytest.fixture(scope="module")
def cohort():
    return make_cohort()


def test_same_seed_same_people():
    assert make_cohort(500).equals(make_cohort(500))
    assert not make_cohort(500).equals(make_cohort(500, seed=1))


def test_size_and_columns(cohort):
    assert cohort.num_rows == 50_000
    assert cohort.column_names == [*COHORT_SCHEMA.columns, "readmitted", "care_level"]
    kinds = {domain.kind for domain in COHORT_SCHEMA.columns.values()}
    assert kinds == {"numeric", "categorical", "boolean"}
    for bad in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="n_people"):
            make_cohort(bad)


def test_values_live_in_their_domains_with_gaps(cohort):
    for name, domain in COHORT_SCHEMA.columns.items():
        values = cohort.column(name).drop_null().to_pylist()
        if isinstance(domain, Numeric):
            inside = np.mean((np.array(values) >= domain.lower) & (np.array(values) <= domain.upper))
            assert inside > 0.98, name
            assert np.std(values) > 0.05 * (domain.upper - domain.lower), name
        elif isinstance(domain, Categorical):
            assert set(values) == set(domain.categories), name
    assert 0 < cohort.column("glucose").null_count < 5000
    outside = np.array(cohort.column("days_in_hospital").to_pylist()) > 30
    assert outside.any()


def test_outcome_is_learnable_but_not_trivial(cohort):
    rows, labels = COHORT_SCHEMA.encode(cohort)
    assert 0.25 <= np.mean(labels == "yes") <= 0.35
    assert np.linalg.norm(rows, axis=1).max() <= COHORT_SCHEMA.row_norm_bound
    model = LogisticRegression(max_iter=2000).fit(rows[:40_000], labels[:40_000])
    assert 0.80 <= model.score(rows[40_000:], labels[40_000:]) <= 0.88


def test_three_levels_of_care(cohort):
    rows, labels = CARE_SCHEMA.encode(cohort)
    shares = [np.mean(labels == level) for level in CARE_LEVELS]
    assert min(shares) > 0.1
    model = LogisticRegression(max_iter=200, tol=1e-3).fit(rows[:10_000], labels[:10_000])
    assert model.score(rows[40_000:], labels[40_000:]) > max(shares) + 0.1
