"""Solver x loss x set: every cell fits or is refused with a reason. All of it: ``python -m benchmarks.matrix``."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.matrix import cells

from discreet.privacy.guarantee import Neighboring

GAUSSIAN = {"noisy-gd", "noisy-sgd", "mirror-descent", "psgd", "newton", "objective-dissertation"}


@pytest.mark.parametrize("delta", [1e-4, 0.0], ids=["delta", "pure"])
def test_every_cell_fits_or_is_refused_with_a_reason(delta):
    """One test per delta, so that no cell is tried twice."""
    found = list(cells((Neighboring.ZERO_OUT,), delta))
    assert [cell for cell in found if cell.outcome == "CRASHED"] == []  # or left its set
    assert [cell for cell in found if cell.outcome == "refused" and len(cell.reason) <= 40] == []
    fits = {cell.solver for cell in found if cell.outcome == "fits"}
    if delta > 0:
        assert fits == {cell.solver for cell in found}
    else:
        assert {"objective", "output"} <= fits
        assert not fits & GAUSSIAN
