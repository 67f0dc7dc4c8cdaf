"""Records that stay where they are while sums over them are transformed."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from discreet.audit.replay import replay
from discreet.audit.trace import running
from discreet.losses import Logistic, Softmax
from discreet.mechanisms.additive import half_vector
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds, gamma, summation_rounding
from discreet.records.clipped_rows import COMPILED_FROM
from discreet.records.partitioned import LocalParts, PartitionedRecords
from discreet.solvers.gradients.descent import Descent
from discreet.solvers.second_order.coordinates import (
    Reshaping,
    in_coordinates,
    mapped,
    moment_mechanism,
    shrunk,
    singles,
)
from discreet.solvers.second_order.newton import NoisyNewton

SIZES = [(300, 11), (9000, 40)]


def reshaping(p, norm=0.4, seed=0, kept=2):
    """Two looks that shrink a few directions each."""
    rng = np.random.default_rng(seed)

    def one():
        basis, _ = np.linalg.qr(rng.normal(size=(p, p)))
        return (basis * np.r_[rng.uniform(0.05, 0.6, kept), np.ones(p - kept)]) @ basis.T

    return Reshaping(one() @ one(), norm, 1.0, p)


def table(n, p, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p - 1)) * rng.uniform(0.1, 2, p - 1) + rng.normal(size=p - 1) * 0.3
    X[5] = 0.0
    X[6] *= 1e80
    return X, np.where(rng.random(n) < 0.5, 1.0, -1.0)


@pytest.mark.parametrize(("n", "p"), SIZES)
@pytest.mark.lemma("gradient-methods.md#theorem-7")
def test_images_of_shrunk_records_are_within_the_norm_in_exact_arithmetic(n, p):
    X, y = table(n, p)
    X[7] = 1e-3
    shape = reshaping(p)
    rows = ArrayRecords(X, y, Bounds(1.0))
    kept = shrunk(rows, shape, n)
    assert kept is not None
    assert kept.matrix is rows.matrix
    matrix = [[Fraction(float(entry)) for entry in column] for column in shape.matrix.T]
    clipped = 0
    for row in (5, 6, 7, *range(20, 40)):
        scale = Fraction(float(kept.scales[row]))
        record = [scale * Fraction(float(entry)) for entry in X[row]] + [scale]
        square = sum(sum(a * b for a, b in zip(column, record, strict=True)) ** 2 for column in matrix)
        assert square <= Fraction(shape.norm) ** 2
        if kept.scales[row] < rows.scales[row]:
            clipped += 1
            assert float(square) == pytest.approx(shape.norm**2, rel=1e-7)
    assert clipped > 10


@pytest.mark.parametrize(("n", "p"), SIZES)
def test_a_factor_is_a_function_of_its_own_row_to_the_last_bit(n, p):
    X, y = table(n, p)
    shape, bounds = reshaping(p), Bounds(1.0)
    factors = shrunk(ArrayRecords(X, y, bounds), shape, n).scales
    null = np.zeros(n, dtype=bool)
    null[::17] = True
    holes = X.copy()
    holes[null] = np.nan
    some = shrunk(ArrayRecords(holes, y, bounds, null), shape, n).scales
    assert np.array_equal(some, np.where(null, 0.0, factors))
    moved = np.arange(n - 1, 10, -1)  # other places, and fewer rows
    fewer = ArrayRecords(X[moved], y[moved], bounds)
    assert np.array_equal(shrunk(fewer, shape, n).scales, factors[moved])
    fortran = ArrayRecords(np.asfortranarray(X), y, bounds, n_threads=3)
    assert np.array_equal(shrunk(fortran, shape, n).scales, factors)
    thin = sparse.random_array((n, p - 1), density=0.2, format="csr", rng=np.random.default_rng(2))
    whole = shrunk(ArrayRecords(thin, y, bounds), shape, n).scales
    fewer = ArrayRecords(thin[moved], y[moved], bounds)
    assert np.array_equal(shrunk(fewer, shape, n).scales, whole[moved])


@pytest.mark.parametrize(
    ("loss", "cap"), [(Logistic(), None), (Logistic(), 0.6), (Softmax(3), None)], ids=str
)
@pytest.mark.parametrize(("n", "p"), SIZES)
def test_transformed_sums_are_those_of_mapped_records(n, p, loss, cap):
    """Gradients and second moments, within the rounding that their mechanisms pay for."""
    X, y = table(n, p)
    X[6] = 1.0
    labels = y if loss.n_outputs == 1 else np.arange(n) % 3.0
    rows, shape = ArrayRecords(X, labels, Bounds(1.0)), reshaping(p)
    kept, images = in_coordinates(rows, shape, n)
    copies = mapped(rows, shape.matrix, shape.norm)
    assert images is shape
    problem = Problem(loss, Bounds(1.0), n, p)
    plan = NoisyNewton(radius=5.0, cap=cap).plan(problem, Guarantee(1.0, 1e-9))
    point = np.random.default_rng(3).normal(size=(1, *problem.shape))
    point *= 5.0 / np.linalg.norm(point)
    here = images.images(np.stack([kept.gradient(plan.field, images.coefficients(point)[0])]))[0]
    there = copies.gradient(plan.field, point[0])
    plain = 2 * shape.norm * plan.field.lipschitz
    paid = plan.gradients(shape.norm).sensitivity.value - plain
    assert np.linalg.norm(here - there) <= paid
    assert np.linalg.norm(here - there) < 1e-9 * n
    again = moment_mechanism(problem, Neighboring.REPLACE_ONE, 1.0, shape.norm, shrunk=True)
    factors = kept.scales.astype(np.longdouble)[:, None]
    exact = factors * np.hstack([X, np.ones((n, 1))]) @ shape.matrix.astype(np.longdouble)
    moved = np.linalg.norm((shape.matrix.T @ kept.gram() @ shape.matrix - exact.T @ exact).astype(float))
    assert moved <= again.rounding


def test_the_rounding_of_rows_of_the_old_norm_is_paid_for():
    problem = Problem(Logistic(), Bounds(1.0), 10**6, 50)
    plain = moment_mechanism(problem, Neighboring.REPLACE_ONE, 1.0, 0.3).gaussian.sensitivity.value
    paid = moment_mechanism(
        problem, Neighboring.REPLACE_ONE, 1.0, 0.3, shrunk=True
    ).gaussian.sensitivity.value
    assert paid - plain >= 2 * summation_rounding(10**6, 1.0)


def test_errors_of_the_released_triangle_are_paid_for():
    """All of an error may lie in the triangle that is released, where its norm is sqrt(2) times that in the matrix."""
    error = np.triu(np.ones((50, 50)), 1)
    assert np.linalg.norm(half_vector(error)) == pytest.approx(np.sqrt(2) * np.linalg.norm(error))
    n, p = 10**6, 50
    problem = Problem(Logistic(), Bounds(1.0), n, p)
    made = moment_mechanism(problem, Neighboring.REPLACE_ONE, 1.0, 0.3, shrunk=True)
    products = 2.1 * gamma(p + 2) * (np.sqrt(p) + 1) * n
    assert made.rounding >= np.sqrt(2) * (summation_rounding(n, 1.0) + products)


def test_a_map_of_many_directions_is_taken_row_by_row():
    X, y = table(300, 11)
    rows, shape = ArrayRecords(X, y, Bounds(1.0)), reshaping(11, kept=6)
    copies, images = in_coordinates(rows, shape, 300)
    assert images is None
    assert np.array_equal(copies.matrix, mapped(rows, shape.matrix, shape.norm).matrix)


@pytest.mark.parametrize("relation", [Neighboring.ZERO_OUT, Neighboring.REPLACE_ONE])
def test_records_that_keep_their_length_are_caught(relation, monkeypatch):
    X, y = table(300, 11)
    other, turned, null = X.copy(), y.copy(), np.arange(300) == 0
    X[0], other[0], turned[0] = 2.0, np.linspace(-2, 2, 10), -y[0]
    bounds = Bounds(1.0)
    exchanged = relation is Neighboring.REPLACE_ONE
    pair = ArrayRecords(X, y, bounds), ArrayRecords(other, turned, bounds, None if exchanged else null)
    plan = NoisyNewton(n_iterations=3).plan(
        Problem(Logistic(), bounds, 300, 11), Guarantee(3.0, 1e-6, relation)
    )
    found = replay(running(plan), *([one] for one in pair))
    assert found.passed, str(found)
    monkeypatch.setattr(ArrayRecords, "shortened", lambda records, *arguments: records)
    assert replay(running(plan), *([one] for one in pair)).failed_checks == {"distance"}


def test_rows_in_parts_stay_where_they_are():
    X, y = table(9000, 40)
    bounds, shape = Bounds(1.0), reshaping(40)
    parts = [ArrayRecords(X[:4000], y[:4000], bounds), ArrayRecords(X[4000:], y[4000:], bounds)]
    apart = PartitionedRecords(LocalParts(parts), [4000, 5000], 39, False, bounds, y)
    point = np.linspace(-1, 1, 40)
    one = shrunk(ArrayRecords(X, y, bounds), shape, 9000).gradient(Logistic(), point)
    assert np.allclose(shrunk(apart, shape, 9000).gradient(Logistic(), point), one, rtol=1e-12, atol=1e-12)


def test_singles_are_bounded_rows_of_their_own():
    X, y = table(9000, 40)
    X[8, 0] = 1e80
    rows = ArrayRecords(X, y, Bounds(1.0), np.arange(9000) == 9)
    rounded = singles(rows, 9000)
    assert rounded.matrix.dtype == np.float32
    assert np.isfinite(rounded.matrix).all()
    assert rounded.scales[9] == 0
    norms = np.linalg.norm(
        rounded.scales[:, None] * np.c_[rounded.matrix.astype(float), np.ones(9000)], axis=1
    )
    assert norms.max() <= 1.0
    usual = np.r_[0:6, 10:9000]
    assert np.allclose(rounded.scales[usual], rows.scales[usual], rtol=1e-6)
    few = ArrayRecords(X[:100], y[:100], Bounds(1.0))
    assert singles(few, 100) is few
    # to the last bit, in any order and number of rows, and however they are stored
    moved = np.arange(8999, 9, -1)
    for made in (X[moved], np.asfortranarray(X[moved]), np.repeat(X[moved], 2, axis=1)[:, ::2]):
        other = singles(ArrayRecords(made, y[moved], Bounds(1.0)), 9000)
        assert np.array_equal(other.matrix, rounded.matrix[moved])
        assert np.array_equal(other.scales, rounded.scales[moved])


@pytest.mark.parametrize("declared", [6000, 7000])
def test_the_declared_number_of_rows_decides_how_rows_are_changed(declared):
    """Under add-remove-one nobody knows whether there are so many that code is compiled: no row may show it."""
    n, p = -(-COMPILED_FROM // 40), 41
    X, y = table(n, p)
    shape, bounds = reshaping(p), Bounds(1.0)
    many, few = ArrayRecords(X, y, bounds), ArrayRecords(X[:-1], y[:-1], bounds)
    assert many.n_samples * many.n_columns >= COMPILED_FROM > few.n_samples * few.n_columns
    factors = shrunk(many, shape, declared).scales
    assert np.array_equal(shrunk(few, shape, declared).scales, factors[:-1])
    assert singles(many, declared).matrix.dtype == singles(few, declared).matrix.dtype


@pytest.mark.parametrize("time", [30.0, 150.0, 300.0])
def test_fifty_steps_have_the_noise_and_the_bias_of_a_hundred(time):
    """For quadratics of any curvature, at one flow time, with the same budget for all gradients together."""

    def noise_and_bias(steps, curvature):
        descent = Descent.lasting(time, 1.0, steps, 0.3, 1e9)
        noise = np.random.default_rng(0).normal(size=(steps, 4000)) * np.sqrt(steps)
        drawn = iter(noise)
        noisy = descent.run(np.zeros((1, 4000)), lambda at: curvature * at + next(drawn))
        exact = descent.run(np.ones((1, 1)), lambda at: curvature * at)
        return float(noisy.std()), float(exact[0, 0])

    for curvature in (0.001, 0.01, 0.03, 0.1, 0.3, 0.9):
        (few, near), (many, far) = noise_and_bias(50, curvature), noise_and_bias(100, curvature)
        assert few == pytest.approx(many, rel=0.08)
        assert near == pytest.approx(far, abs=0.03)
