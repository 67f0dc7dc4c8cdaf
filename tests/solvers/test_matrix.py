"""Solver x loss x set: every cell fits or is refused with a reason. All of it: ``python -m benchmarks.matrix``."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.matrix import cells

from discreet.privacy.guarantee import Neighboring


@pytest.fixture(scope="module")
def found():
    return list(cells((Neighboring.ZERO_OUT,)))


def test_no_cell_crashes(found):
    assert [cell for cell in found if cell.outcome == "CRASHED"] == []


def test_every_refusal_says_why_and_what_to_do(found):
    for cell in found:
        if cell.outcome == "refused":
            assert len(cell.reason) > 40, cell


def test_no_solver_ignores_the_set(found):
    fits = {cell.solver for cell in found if cell.outcome == "fits" and cell.geometry != "none"}
    assert fits == {"auto", "frank-wolfe", "frank-wolfe-dissertation", "mirror-descent"}


def test_every_solver_fits_something(found):
    assert {cell.solver for cell in found} == {cell.solver for cell in found if cell.outcome == "fits"}
