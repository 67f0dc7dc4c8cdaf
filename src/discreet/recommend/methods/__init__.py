"""The methods of matrix completion by name; `IMPLICIT` has those for implicit feedback."""

from __future__ import annotations

from collections.abc import Callable

from discreet.recommend.methods.als import AlternatingLeastSquares
from discreet.recommend.methods.clicks import IMPLICIT
from discreet.recommend.methods.frank_wolfe import FrankWolfe
from discreet.recommend.methods.power import PowerIteration
from discreet.recommend.methods.profile import ItemProfile
from discreet.recommend.methods.subspace import Cleansing, ProjectedGradient, Subspace
from discreet.recommend.plan import Method

__all__ = ["IMPLICIT", "METHODS"]

METHODS: dict[str, Callable[[], Method]] = {
    "bias": lambda: ItemProfile(slopes=False),
    "profile": ItemProfile,
    "subspace": Subspace,
    "svd": lambda: Subspace(centered=False),
    "power": PowerIteration,
    "oja": lambda: PowerIteration(averaging=True),
    "als": AlternatingLeastSquares,
    "frank-wolfe": FrankWolfe,
    "frank-wolfe-oja": lambda: FrankWolfe(oja=True),
    "frank-wolfe-printed": lambda: FrankWolfe(printed=True),
    "pgd": ProjectedGradient,
    "cleansing": Cleansing,
}
