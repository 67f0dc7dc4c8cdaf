"""Solver x loss x set: every cell fits, dense and CSR alike, or is refused with a reason.

All of it, for all relations: ``python -m benchmarks.matrix``.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks import matrix

from discreet import geometries
from discreet.privacy.guarantee import Neighboring
from discreet.solvers import base

# A third of the pairs of loss and set will do for these; every loss and every set is among them.
SLOW = {"auto", "exponential", "localized", "mirror-descent", "mirror-descent-talwar", "noisy-gd",
        "noisy-gd-dissertation", "noisy-sgd"}  # fmt: skip
GAUSSIAN = {"noisy-gd", "noisy-sgd", "mirror-descent", "psgd", "newton", "objective-dissertation"}


@pytest.mark.parametrize("delta", [1e-4, 0.0], ids=["delta", "pure"])
@pytest.mark.parametrize("solver", base.names())
def test_every_cell_fits_or_is_refused_with_a_reason(solver, delta):
    every = 3 if solver in SLOW else 1
    found = list(matrix.cells((Neighboring.ZERO_OUT,), delta, [solver], every))
    assert len(found) == len(matrix.losses()) * len(matrix.geometries()) // every
    assert {cell.loss for cell in found} == set(matrix.losses())
    assert {cell.geometry for cell in found} == set(matrix.geometries())
    assert [
        cell for cell in found if cell.outcome == "CRASHED"
    ] == []  # or left its set, or CSR rows disagree
    assert [cell for cell in found if cell.outcome == "refused" and len(cell.reason) <= 40] == []
    fits = any(cell.outcome == "fits" for cell in found)
    if delta > 0 or solver in ("objective", "output"):
        assert fits
    elif solver in GAUSSIAN:
        assert not fits


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_every_set_is_in_the_matrix(n_outputs):
    protocols = ("Array", "Geometry", "Polytope")
    tried = {type(geometry).__name__ for geometry in matrix.geometries(n_outputs).values()} - {"NoneType"}
    assert tried == set(geometries.__all__) - set(protocols)


def test_models_that_differ_are_no_fit(monkeypatch):
    """CSR rows that a run reads otherwise than dense ones are found, whatever the noise."""

    class Twisted(matrix.ArrayRecords):
        def __init__(self, X, *others):
            super().__init__(X if isinstance(X, np.ndarray) else X * 0.9, *others)

    monkeypatch.setattr(matrix, "ArrayRecords", Twisted)
    monkeypatch.setattr(matrix, "geometries", lambda _: {"none": None})
    found = list(matrix.cells((Neighboring.ZERO_OUT,), 1e-4, ["output", "objective", "noisy-gd", "newton"]))
    faults = [cell.reason for cell in found if cell.outcome != "refused"]
    assert len(faults) > 20
    assert all("differ by" in fault for fault in faults), faults
