"""Solvers by name."""

import pytest

import discreet.solvers  # noqa: F401  (registers all of them)
from discreet.solvers import base


@pytest.mark.parametrize("name", sorted(base.ALIASES))
def test_names_of_the_papers_mean_solvers(name):
    assert base.resolve(name) == base.resolve(base.ALIASES[name])
    assert name not in base.names()  # each solver is listed once


def test_a_misspelled_solver_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'frank-wolfe'"):
        base.resolve("frank-wolf")
