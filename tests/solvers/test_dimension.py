"""Zero columns: Gaussian noise keeps its accuracy, pure noise loses it (``python -m benchmarks.dimension``)."""

import pytest

from benchmarks.dimension import METHODS, measure, printed


@pytest.fixture(scope="module")
def table():
    return measure(repeats=4, n_samples=3000, columns=(10, 10_000))


@pytest.mark.parametrize("method", METHODS)
def test_what_a_thousandfold_of_empty_columns_costs(table, method):
    """Standard errors are near 0.3% (Gaussian) and 3% (pure); the limits are five of them away from the means."""
    few, many = (table[method][p][0] for p in (10, 10_000))
    assert few > 0.8
    lost = few - many
    assert lost > 0.08 if "pure" in method else abs(lost) < 0.04


def test_the_table_names_every_method(table):
    text = printed(table)
    assert all(method in text for method in METHODS)
    assert "10000 columns" in text
