"""Records of bins: no longer than declared, and sums that are the same however rows are cut and ordered."""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from discreet.additive import records as module
from discreet.additive import stages
from discreet.additive.bins import Bins
from discreet.additive.pairs import PairTable, pair_coordinates
from discreet.additive.records import (
    BinnedRecords,
    Codes,
    Coordinates,
    coordinates,
    gram_rounding,
    kernel_root,
    root_steps,
    steps,
    sum_rounding,
    with_line,
)
from discreet.additive.stages import (
    ResidualMechanism,
    Stage,
    class_slopes,
    count_slopes,
    no_offset,
    target_slopes,
)
from discreet.mechanisms.additive import half_vector
from discreet.privacy.guarantee import Neighboring
from tests.additive.rows import binned, rows_of

SIZES, N = (9, 4, 3), 700


def some(seed=0, n=N):
    rng = np.random.default_rng(seed)
    bins = [Bins(np.arange(1.0, size), np.empty(0, dtype=np.int64), np.ones(size), size) for size in SIZES]
    made = coordinates(bins, [True, False, True])
    codes = [rng.integers(-1, size, n) for size in SIZES]
    matrix = rng.normal(size=(made.width, made.width))
    return made, codes, matrix / np.linalg.norm(matrix, 2)


def exact_rows(records):
    """All records in exact arithmetic: vectors of their bins added up, times the scale."""
    vectors = [[Fraction(float(entry)) for entry in vector] for vector in records.vectors]
    rows = []
    for block_rows, hot in records.blocks():
        for row, place in enumerate(range(block_rows.start, block_rows.stop)):
            own = hot.indices[hot.indptr[row] : hot.indptr[row + 1]]
            scale = Fraction(float(records.scales[place]))
            rows.append(
                [scale * sum(entries) for entries in zip(*(vectors[one] for one in own), strict=True)]
            )
    return rows


@pytest.mark.parametrize("norm", [1.0, 0.3, 0.01])
@pytest.mark.lemma("additive-models.md#lemma-1")
def test_no_record_is_longer_than_declared(norm):
    made, codes, matrix = some(n=60)
    plain = binned(made, codes)
    assert np.allclose(
        np.array(exact_rows(plain), dtype=float), rows_of(made, codes), rtol=2 / root_steps(60), atol=0
    )
    for records, most in ((plain, 1.0), (plain.images(matrix, norm), norm)):
        squares = [sum(entry**2 for entry in row) for row in exact_rows(records)]
        assert max(squares) <= Fraction(most) ** 2
        assert max(squares) > (most * (1 - 1e-3)) ** 2 or max(records.scales) > 1 - 1e-3
        whole = records.scales * root_steps(60)
        assert np.array_equal(whole, np.round(whole))


@pytest.mark.lemma("additive-models.md#lemma-1")
def test_no_record_is_longer_than_declared_where_vectors_cancel_or_differ_in_size():
    rng, longest = np.random.default_rng(6), Fraction(0)
    for trial in range(60):
        norm, height = 10.0 ** rng.uniform(-4, 0), sum(SIZES) + len(SIZES) + 1
        vectors = rng.normal(size=(height, 4)) * 10.0 ** rng.uniform(-9, 1, size=(height, 1))
        if trial % 2:
            vectors[SIZES[0] + 1 : SIZES[0] + 1 + SIZES[1]] = -vectors[0] * (
                1 + 1e-9 * rng.normal(size=(SIZES[1], 1))
            )
        codes = [np.append(0, rng.integers(-1, size, 3)) for size in SIZES]
        kept = Codes.of(SIZES, [codes], stored=False)
        records = BinnedRecords(kept, vectors, 4, np.ones(4))._within(norm)
        longest = max(sum(entry**2 for entry in row) / Fraction(norm) ** 2 for row in exact_rows(records))
        assert longest <= 1
    assert longest > 1 - 1e-4


@pytest.mark.lemma("additive-models.md#lemma-2")
def test_sums_are_the_same_however_rows_are_cut_ordered_and_stored(monkeypatch):
    made, codes, matrix = some()
    labels = np.random.default_rng(1).integers(0, 2, N).astype(float)
    mechanism = ResidualMechanism(0.4, N, made.width, len(SIZES) + 1, 0.5, Neighboring.REPLACE_ONE, 1e-9)
    kept = []
    monkeypatch.setattr(
        type(mechanism.gaussian), "release", lambda self, value, entropy: kept.append(value) or value
    )
    theta = np.linspace(-1, 1, made.width)[:, None]
    found = set()
    for height in (N, 64, 7):
        monkeypatch.setattr(module, "HEIGHT", height)
        for order in (np.arange(N), np.arange(N)[::-1], np.random.default_rng(2).permutation(N)):
            for stored in (False, True):
                own = [code[order] for code in codes]
                parts = [[code[:300] for code in own], [code[300:] for code in own]]
                kept_codes = Codes.of(SIZES, parts, stored=stored)
                assert kept_codes.matrix.dtype == np.uint8
                records = BinnedRecords.of(made, kept_codes, np.arange(N)[order] == 5, N).images(matrix, 0.5)
                mechanism.release_sums(records, theta, class_slopes(labels[order], 1, no_offset), None)
                found.add((records.gram().tobytes(), kept[-1].tobytes()))
    assert len(found) == 1


@pytest.mark.lemma("additive-models.md#lemma-2")
def test_sums_are_those_of_the_exact_records_within_the_bound():
    made, codes, matrix = some(n=50)
    records = binned(made, codes).images(matrix, 0.4)
    rows = exact_rows(records)
    exact = sum(np.outer(row, row) for row in np.array(rows, dtype=object))
    error = [
        Fraction(float(one)) - other for one, other in zip(records.gram().ravel(), exact.ravel(), strict=True)
    ]
    assert sum(one**2 for one in error) <= Fraction(gram_rounding(50, made.width, len(SIZES) + 1)) ** 2
    assert gram_rounding(10**7, 800, 16) < 1e-4


@pytest.mark.parametrize("classes", [2, 4, 9, 130])
def test_a_residual_depends_on_its_own_row_alone_to_the_last_bit(classes):
    """Wherever the row lies in a block, however many others there are, and whatever they hold."""
    rng = np.random.default_rng(3)
    raw = rng.normal(size=(1000, classes)) * rng.choice([0.1, 3, 300], size=(1000, 1))
    codes, counts = rng.integers(0, classes, 1000).astype(float), rng.random(1000)
    width = classes if classes > 2 else 1
    made = [class_slopes(codes, width, lambda rows: 0.3 + raw[rows, :1])]
    if classes == 2:
        made += [count_slopes(counts, 2.0, no_offset), target_slopes(counts, no_offset)]
    for slopes in made:

        def found(start, stop, slopes=slopes):
            residuals = slopes(np.ascontiguousarray(raw[start:stop, :width]), slice(start, stop))
            sums = np.sqrt(np.square(residuals).sum(axis=1)), np.linalg.norm(residuals, axis=1)
            return np.column_stack([residuals, *sums])

        whole = found(0, 1000)
        for start, stop in ((0, 1), (3, 4), (1, 18), (995, 1000), (7, 400)):
            assert np.array_equal(found(start, stop), whole[start:stop])


class Twin:
    """NumPy with some functions exchanged."""

    def __init__(self, **changed):
        self.__dict__.update(changed)

    def __getattr__(self, name):
        return getattr(np, name)


def added(relation, records, residuals, cap=0.5, norm=0.5):
    """What is released of these records, without noise."""
    kept = []

    class Silent(ResidualMechanism):
        @property
        def gaussian(self):
            return type(
                "Noise", (), {"stddev": 1.0, "release": lambda _, value, __: kept.append(value) or value}
            )()

    outputs = residuals.shape[1]
    size, width = records.n_samples, records.n_features
    made = Silent(cap, size, width, len(SIZES) + 1, norm, relation, 1.0, outputs)
    made.release_sums(records, np.zeros((width, outputs)), lambda raw, rows: residuals[rows], None)
    return kept[0]


def distances(relation, norm=0.5):
    """How far single records move the sums, over what the theorem allows; residuals of all sizes, in all directions."""
    made, codes, matrix = some(n=60)
    rng = np.random.default_rng(5)
    for outputs in (1, 3):
        found = []
        for place in range(60):
            records = binned(made, [code[place : place + 1] for code in codes], 60).images(matrix, norm)
            direction = rng.normal(size=(1, outputs))
            if place % 2:  # along which entries that are rounded up add up
                direction = np.sign(direction)
            residuals = rng.choice([0.05, 0.3, 0.37, 0.45, 0.5, 1.0]) * direction / np.linalg.norm(direction)
            found.append(added(relation, records, residuals, 0.5, norm))
        if relation.contributions == 1:
            yield from (np.linalg.norm(one) / (0.5 * norm) for one in found)
        else:
            yield from (np.linalg.norm(one - other) / norm for one in found for other in found)


def few_steps(monkeypatch):
    for owner in (module, stages):
        monkeypatch.setattr(owner, "root_steps", lambda n: 4.0)
    monkeypatch.setattr(stages, "steps", lambda n: 16.0)


@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.lemma("additive-models.md#theorem-3")
def test_rounding_to_whole_numbers_moves_no_record_further(monkeypatch, relation):
    few_steps(monkeypatch)
    assert 0.9 < max(distances(relation)) <= 1 + 1e-12


@pytest.mark.parametrize(
    ("owner", "changed"),
    [
        (stages, {"trunc": lambda values: np.copysign(np.ceil(np.abs(values)), values)}),
        (stages, {"ceil": np.floor}),
        (module, {"floor": np.ceil}),
    ],
)
def test_rounding_the_other_way_is_caught(monkeypatch, owner, changed):
    """Weights away from 0, companions down, or scales up."""
    few_steps(monkeypatch)
    monkeypatch.setattr(owner, "np", Twin(**changed))
    assert max(distances(Neighboring.ADD_REMOVE_ONE)) > 1.01


@pytest.mark.parametrize(
    ("owner", "changed"), [(stages, {"trunc": np.positive}), (module, {"floor": np.positive})]
)
def test_weights_that_are_not_whole_are_caught(monkeypatch, owner, changed):
    """Their sums depend on the order of the records."""
    made, codes, matrix = some()
    residuals = np.random.default_rng(1).normal(size=(N, 1))
    found = set()
    monkeypatch.setattr(owner, "np", Twin(**changed))
    for order in (np.arange(N), np.arange(N)[::-1]):
        records = binned(made, [code[order] for code in codes], N).images(matrix, 0.5)
        sums = added(Neighboring.ZERO_OUT, records, residuals[order])
        found.add((records.gram().tobytes(), sums.tobytes()))
    assert len(found) == 2


def squared(one, other):
    return sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(one, other, strict=True))


def neighbors(relation, n, seed):
    """Two data sets as places of rows, and which of these are null; there are fewer rows than n."""
    rng = np.random.default_rng(seed)
    rows, other = rng.permutation(n)[: n - 1], int(rng.integers(n - 1))
    null = np.zeros(n - 1, dtype=bool)
    if relation is Neighboring.ADD_REMOVE_ONE:
        return (rows, null), (np.delete(rows, other), null[1:])
    if relation is Neighboring.ZERO_OUT:
        return (rows, null), (rows, np.arange(n - 1) == other)
    exchanged = rows.copy()
    exchanged[other] = n - 1 if n - 1 not in rows else rows[0]
    return (rows, null), (exchanged, null)


@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.lemma("additive-models.md#lemma-2")
def test_computed_sums_of_neighbors_are_within_the_declared_sensitivity(relation, outputs):
    n, norm, cap = 120, 0.5, 0.5
    made, codes, matrix = some(n=n)
    residuals = np.random.default_rng(7).normal(size=(n, outputs)) * 0.4
    stage = Stage("classes", n, made.width, len(SIZES) + 1, outputs, relation, 1.0, 1.0, 1.0)
    for seed in range(12):
        sums, moments = [], []
        for rows, null in neighbors(relation, n, seed):
            kept = Codes.of(SIZES, [[code[rows] for code in codes]], stored=False)
            records = BinnedRecords.of(made, kept, null, n).images(matrix, norm)
            sums.append(added(relation, records, residuals[rows], cap, norm))
            moments.append(half_vector(records.gram()))
        gradient = stage.residuals(made.width, norm, cap).gaussian.sensitivity.value
        assert 0 < squared(*sums) <= Fraction(gradient) ** 2
        assert (
            0 < squared(*moments) <= Fraction(stage.look(1, made.width, norm).gaussian.sensitivity.value) ** 2
        )


@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.lemma("additive-models.md#lemma-2")
def test_sums_of_weights_are_exact_and_their_products_with_the_vectors_within_the_bound(outputs):
    made, codes, matrix = some(n=200)
    residuals = np.random.default_rng(8).normal(size=(200, outputs))
    records = binned(made, codes).images(matrix, 0.4)
    sums = added(Neighboring.ZERO_OUT, records, residuals)[:-1].reshape(outputs, -1)
    bins = dataclasses.replace(records, vectors=np.eye(len(records.vectors)))
    weights = added(Neighboring.ZERO_OUT, bins, residuals)[:-1].reshape(outputs, -1)
    vectors = [[Fraction(entry) for entry in vector] for vector in records.vectors]
    exact = [
        [
            sum(Fraction(one) * entry for one, entry in zip(own, column, strict=True))
            for column in zip(*vectors, strict=True)
        ]
        for own in weights
    ]
    error = sum(squared(one, other) for one, other in zip(sums, exact, strict=True))
    assert 0 < error <= Fraction(0.5 * sum_rounding(200, made.width, len(SIZES) + 1)) ** 2


def test_steps_keep_sums_of_whole_numbers_exact():
    for n_samples in (1, 2, 3, 1000, 2**20 - 1, 2**20, 10**9):
        assert n_samples * steps(n_samples) <= 2**52
        assert n_samples * root_steps(n_samples) ** 2 <= 2**52


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
