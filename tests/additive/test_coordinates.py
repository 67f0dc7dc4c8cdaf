"""Coordinates: no record is longer than 1, exactly; shapes are the tables times the coefficients."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from discreet.additive.bins import Bins
from discreet.additive.coordinates import Coordinates, coordinates, kernel_root, with_line
from discreet.additive.pairs import PairTable, pair_coordinates
from tests.additive.rows import rows_of


def bins(n_bins, missing=False):
    size = n_bins + missing
    return Bins(np.arange(1.0, n_bins), np.empty(0, dtype=np.int64), np.ones(size), n_bins, missing)


def exact_square(row):
    return sum(Fraction(float(entry)) ** 2 for entry in row)


@pytest.mark.parametrize("sizes", [(2,), (32, 3), (7, 2, 31, 40), (1, 5)])
@pytest.mark.lemma("additive-models.md#theorem-2")
def test_no_record_is_longer_than_1(sizes):
    """In exact arithmetic of the floating-point entries, at the longest row of every column."""
    made = coordinates([bins(size) for size in sizes], [place % 2 == 0 for place in range(len(sizes))])
    longest = [int(np.square(table).sum(axis=1).argmax()) for table in made.tables]
    (row,) = rows_of(made, [np.array([code]) for code in longest])
    assert exact_square(row) > 1 - 1e-9 or 1 in sizes  # a single bin has no line
    assert exact_square(row) <= 1
    assert made.norm <= 1


def test_a_line_outside_the_norm_is_caught():
    root, _ = kernel_root(9)
    twin = np.column_stack([root, np.linspace(-1, 1, 9)])
    assert np.linalg.norm(twin, axis=1).max() == pytest.approx(math.sqrt(2))
    assert np.linalg.norm(with_line(9)[0], axis=1).max() <= 1 + 1e-12


def test_products_of_rows_are_the_kernel():
    root, effective = kernel_root(10)
    places = np.arange(10)
    expected = np.exp(-np.abs(places[:, None] - places) / 1.0)
    assert np.allclose(root @ root.T, expected, atol=1e-8)
    assert 1 < effective < 10


def test_missing_cells_add_nothing_or_have_a_place_of_their_own():
    made = coordinates([bins(4), bins(3, missing=True)], [True, False])
    rows = rows_of(made, [np.array([-1, 2]), np.array([1, 3])])
    assert not rows[0, made.parts[0]].any()
    assert np.flatnonzero(rows[1, made.parts[1]]).tolist() == [3]
    assert np.linalg.norm(rows, axis=1).max() <= 1


def test_shapes_and_records_give_the_same_predictions():
    rng = np.random.default_rng(0)
    made = coordinates([bins(6), bins(3)], [True, False])
    codes = [rng.integers(0, 6, 50), rng.integers(0, 3, 50)]
    theta = rng.normal(size=(made.width, 2))
    shapes, constant = made.shapes(theta)
    together = constant + shapes[0][codes[0]] + shapes[1][codes[1]]
    assert np.allclose(together, rows_of(made, codes) @ theta)


def test_records_of_pairs_have_norm_1():
    coarse = np.arange(5), np.arange(4)
    tables = [PairTable((0, 1), coarse, (True, False)), PairTable((0, 2), coarse, (True, True))]
    made = pair_coordinates(tables)
    cells = list(itertools.product(range(20), range(20)))
    rows = rows_of(made, [np.array([a for a, _ in cells]), np.array([b for _, b in cells])])
    norms = np.linalg.norm(rows, axis=1)
    assert np.allclose(norms, 1)
    assert norms.max() <= 1
    assert isinstance(made, Coordinates)
