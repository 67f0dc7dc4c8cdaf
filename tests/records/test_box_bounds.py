"""Entries in [-1, 1], on both sides, dense and sparse; a cut on one side only is caught."""

import json
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.losses import Logistic
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds, BoxBounds

ENTRIES = st.floats(allow_nan=True, allow_infinity=True, width=64)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(ENTRIES, min_size=3, max_size=3), min_size=1, max_size=5), st.floats(1e-3, 1e3))
def test_every_record_is_in_the_box_in_exact_arithmetic(rows, column_bound):
    X = np.array(rows)
    bounds = BoxBounds.of(3, column_bound, intercept=True)
    for matrix in (X, bounds.clip(X), sp.csr_array(X), bounds.clip(sp.csr_array(X))):
        dense = matrix.toarray() if sp.issparse(matrix) else matrix
        for row, scale in zip(dense, bounds.row_scales(matrix), strict=True):
            assert 0 <= scale <= 1
            if scale > 0:
                assert all(abs(Fraction(float(v)) * Fraction(float(scale))) <= 1 for v in row)


def test_clipping_works_on_both_sides_and_keeps_sparsity():
    bounds = BoxBounds.of(3, 2.0, intercept=False)
    X = np.array([[1.0, -1e6, 0.0], [1e6, 0.5, -3.0]])
    expected = np.array([[0.5, -1.0, 0.0], [1.0, 0.25, -1.0]])
    assert np.array_equal(bounds.clip(X), expected)
    clipped = bounds.clip(sp.csr_matrix(X))
    assert sp.issparse(clipped)
    assert np.array_equal(clipped.toarray(), expected)
    assert clipped.nnz == 5


class OneSided(BoxBounds):
    """The broken twin of the papers: min(x, 1) leaves the negative side unbounded."""

    def _cut(self, entries):
        return np.minimum(entries / self.column_bound, 1.0)

    def row_scales(self, X):
        return np.ones(X.shape[0])


def gradient_change(bounds):
    """Largest change of a gradient entry when one record becomes a null record."""
    X = np.array([[-1e6, 0.2]])
    records = ArrayRecords(bounds.clip(X), [1.0], bounds)
    return np.abs(records.value_and_gradient(Logistic(), np.zeros(2))[1]).max()


def test_a_cut_on_one_side_only_is_caught():
    # Slope 1/2 at theta = 0, entries at most 1.
    assert gradient_change(BoxBounds.of(2, intercept=False)) <= 0.5
    one_sided = OneSided.of(2, intercept=False)
    assert gradient_change(one_sided) > 1e5


def test_duplicate_entries_cannot_slip_past_the_cut():
    doubled = sp.csr_array((np.array([0.8, 0.8]), np.array([1, 1]), np.array([0, 2])), shape=(1, 2))
    bounds = BoxBounds.of(2, intercept=False)
    assert np.array_equal(bounds.clip(doubled).toarray(), [[0.0, 1.0]])
    assert bounds.row_scales(doubled)[0] * 1.6 <= 1


def test_rows_that_are_no_numbers_are_null():
    bounds = BoxBounds.of(2)
    assert bounds.valid_rows(np.array([[np.nan, 0.0], [np.inf, 0.0], [1e300, 0.0], [5.0, 5.0]])).tolist() == [
        False, False, False, True,
    ]  # fmt: skip


def test_nothing_is_copied_without_need():
    X = np.full((4, 2), 0.5)
    assert BoxBounds.of(2).clip(X) is X
    with pytest.raises(ValueError, match="column_bound must lie"):
        BoxBounds.of(2, 0.0)


def test_the_euclidean_norm_that_follows_is_true():
    for p in (1, 7, 100_000):
        bounds = BoxBounds.of(p, intercept=True)
        assert Fraction(bounds.feature_norm) ** 2 >= p + 1
        assert bounds.feature_norm < np.sqrt(p + 1) * (1 + 1e-9)


@pytest.mark.parametrize("bounds", [Bounds(2.5, intercept=False), BoxBounds.of(7, column_bound=3.0)])
def test_bounds_come_back_from_plain_values(bounds):
    again = Bounds.from_dict(json.loads(json.dumps(bounds.to_dict())))
    assert again == bounds
    assert type(again) is type(bounds)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "sphere"},
        {"kind": None},
        {"intercept": 1},
        {"feature_norm": "1"},
        {"feature_norm": float("nan")},
        {"column_bound": "wide"},
        {"column_bound": 0.0},
        {"more": 1.0},
    ],
)
def test_malformed_bounds_are_refused(change):
    with pytest.raises(ValueError, match=r"must|have"):
        Bounds.from_dict(BoxBounds.of(3).to_dict() | change)
