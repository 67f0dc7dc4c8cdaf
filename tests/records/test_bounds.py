"""The clip is exact: no record is longer than promised, in real arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.records.bounds import LARGEST_ENTRY, Bounds, without_duplicates
from discreet.solvers.gradients.row_centering import CenteredBounds, LeveledBounds


def exact_squared_norm(row, scale, intercept):
    """|s (x, 1)|^2 with every float taken as the real number it is."""
    total = sum((Fraction(float(x)) ** 2 for x in row), Fraction(int(intercept)))
    return Fraction(float(scale)) ** 2 * total


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("norm", [1.0, 0.1, 3.0, 2.0**-100, 2.0**100])
@pytest.mark.parametrize("d", [1, 2, 37, 400])
def test_exact_norms_stay_within_the_bound(norm, d, intercept):
    rng = np.random.default_rng(d)
    X = rng.standard_normal((60, d)) * np.exp(rng.normal(0, 3, (60, 1))) * norm
    X[0] = 0
    X[1] = norm / np.sqrt(d)  # right at the bound
    bounds = Bounds(norm, intercept)
    for matrix in (X, sp.csr_array(X), sp.csr_matrix(X)):
        for row, scale in zip(X, bounds.row_scales(matrix), strict=True):
            assert exact_squared_norm(row, scale, intercept) <= Fraction(norm) ** 2


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(-1e90, 1e90, allow_subnormal=True), min_size=1, max_size=6),
    st.booleans(),
    st.sampled_from([0.3, 1.0, 7.0]),
)
def test_exact_norm_for_any_row(row, intercept, norm):
    scale = Bounds(norm, intercept).row_scales(np.array([row]))[0]
    assert 0 < scale <= 1
    assert exact_squared_norm(row, scale, intercept) <= Fraction(norm) ** 2


def test_clipping_loses_almost_nothing():
    X = np.random.default_rng(0).standard_normal((50, 20)) * 100
    scales = Bounds(1.0, intercept=False).row_scales(X)
    np.testing.assert_allclose(scales * np.linalg.norm(X, axis=1), 1.0, rtol=1e-13)
    short = X / 1e4
    assert np.array_equal(Bounds(1.0, intercept=False).row_scales(short), np.ones(50))


def test_a_rule_without_the_shrink_would_fail():
    """The broken twin s = R / |x| breaks the promise on ordinary rows, so the exact test can fail."""
    X = np.random.default_rng(1).standard_normal((2000, 3))
    naive = 1.0 / np.linalg.norm(X, axis=1)
    assert any(exact_squared_norm(row, s, False) > 1 for row, s in zip(X, naive, strict=True))


def test_the_intercept_is_inside_the_clip():
    scale = Bounds(1.0, intercept=True).row_scales(np.zeros((1, 3)))[0]
    assert scale <= 1
    x = np.array([[1.0, 0.0]])
    inside, outside = Bounds(1.0, True).row_scales(x)[0], Bounds(1.0, False).row_scales(x)[0]
    assert inside == pytest.approx(np.sqrt(0.5), rel=1e-12)
    assert outside == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_large_entries_do_not_overflow(make):
    X = np.array([[1e90, -1e90, 0.0], [1e-200, 0.0, 0.0], [1e80, 1.0, 2.0], [LARGEST_ENTRY, 1.0, 1.0]])
    scales = Bounds(1.0, intercept=False).row_scales(make(X))
    assert scales[0] == pytest.approx(np.sqrt(0.5) * 1e-90, rel=1e-12)
    assert scales[1] == 1.0
    assert scales[2] == pytest.approx(1e-80, rel=1e-12)
    assert scales[3] > 0


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300, 1e91, np.nextafter(LARGEST_ENTRY, np.inf)])
def test_rows_that_are_not_measurements_have_scale_zero(make, bad):
    X = np.array([[0.1, bad, 3.0], [0.1, 0.2, 0.3]])
    bounds = Bounds()
    assert bounds.row_scales(make(X)).tolist()[0] == 0
    assert bounds.valid_rows(make(X)).tolist() == [False, True]


def test_float32_rows_are_measured_in_double_precision():
    X = np.random.default_rng(2).standard_normal((30, 9)).astype(np.float32) * 50
    for row, scale in zip(X, Bounds(2.0).row_scales(X), strict=True):
        assert exact_squared_norm(row, scale, True) <= 4


def test_entries_of_one_place_are_added_before_measuring():
    """0.8 + 0.8 in one place is a row of norm 1.6, whatever the matrix's flags say."""
    X = sp.csr_matrix(([0.8, 0.8, 0.1], [1, 1, 0], [0, 2, 3]), shape=(2, 3))
    X.has_canonical_format = True
    scales = Bounds(1.0, intercept=False).row_scales(X)
    assert scales[0] == pytest.approx(1 / 1.6)
    assert without_duplicates(X).nnz == 2
    assert X.nnz == 3  # the caller's matrix is left alone
    ordered = sp.csr_array(np.eye(3))
    assert without_duplicates(ordered) is ordered


@pytest.mark.parametrize("d", [8193, 70_000])
def test_a_wide_row_has_the_same_scale_alone_and_among_others(d):
    rows = np.random.default_rng(d).standard_normal((5, d))
    for bounds in (Bounds(1.0), LeveledBounds(1.0), CenteredBounds(1.0, center=np.linspace(-1, 1, d) / d)):
        together = bounds.row_scales(rows)
        alone = [bounds.row_scales(row[None])[0] for row in rows]
        assert together.tolist() == alone


def test_empty_rows_and_matrices():
    X = sp.csr_array((4, 5))
    assert Bounds(1.0, intercept=False).row_scales(X).tolist() == [1, 1, 1, 1]
    assert Bounds().row_scales(np.zeros((0, 5))).shape == (0,)
    assert Bounds().n_features(5) == 6


@pytest.mark.parametrize("norm", [0, -1.0, np.nan, np.inf, True, "1", 1e-40])
def test_unusable_bounds_are_refused(norm):
    with pytest.raises(ValueError, match="feature_norm"):
        Bounds(feature_norm=norm)
