"""Records of bins: no longer than declared, and sums that are the same however rows are cut and ordered."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.special import expit

from discreet.additive import records as module
from discreet.additive.bins import Bins
from discreet.additive.coordinates import coordinates
from discreet.additive.records import BinnedRecords, Codes, gram_rounding, root_steps, steps
from discreet.additive.stages import ResidualMechanism, class_slopes, count_slopes, no_offset
from discreet.losses import Logistic
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


@pytest.mark.lemma("additive-models.md#lemma-2")
def test_sums_are_the_same_however_rows_are_cut_ordered_and_stored(monkeypatch):
    made, codes, matrix = some()
    labels = np.random.default_rng(1).integers(0, 2, N).astype(float)
    mechanism = ResidualMechanism(Logistic(), 0.4, N, made.width, 0.5, 8.0, Neighboring.REPLACE_ONE, 1e-9)
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
    assert sum(one**2 for one in error) <= Fraction(gram_rounding(50, made.width)) ** 2
    assert gram_rounding(10**7, 200) < 1e-3


def test_a_residual_depends_on_its_own_row_alone_to_the_last_bit():
    """Wherever the row lies in a block, and however many others there are."""
    rng = np.random.default_rng(3)
    raw, codes, counts = (
        rng.normal(size=(1000, 4)) * 3,
        rng.integers(0, 4, 1000).astype(float),
        rng.random(1000),
    )
    for slopes, width in (
        (class_slopes(codes, 4, no_offset), 4),
        (class_slopes((codes > 1).astype(float), 1, no_offset), 1),
        (count_slopes(counts, 2.0, no_offset), 1),
    ):
        own = np.ascontiguousarray(raw[:, :width])
        whole = slopes(own, slice(None))
        for start, stop in ((0, 1), (3, 4), (1, 18), (995, 1000), (7, 400)):
            part = slopes(np.ascontiguousarray(own[start:stop]), slice(start, stop))
            assert np.array_equal(part, whole[start:stop])
    assert expit(0.0) == 0.5


def test_steps_keep_sums_of_whole_numbers_exact():
    for n_samples in (1, 2, 3, 1000, 2**20 - 1, 2**20, 10**9):
        assert n_samples * steps(n_samples) <= 2**52
        assert n_samples * root_steps(n_samples) ** 2 <= 2**52
