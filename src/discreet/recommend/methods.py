"""All methods by name, and which one ``auto`` takes."""

from __future__ import annotations

from collections.abc import Callable

from discreet import _inputs
from discreet.recommend.als import AlternatingLeastSquares
from discreet.recommend.baselines import Cleansing, ProjectedGradient
from discreet.recommend.clicks import IMPLICIT
from discreet.recommend.frank_wolfe import FrankWolfe
from discreet.recommend.plan import MOST_ENTRIES, Facts, Method
from discreet.recommend.power import PowerIteration
from discreet.recommend.profile import ItemProfile
from discreet.recommend.subspace import Subspace

# From here on a direction with 3% of the rows' energy stands at twice the edge of the noise of a dense covariance.
_SPECTRAL_RATIO = 60.0
_CLICK_RATIO = 20.0  # 10%: clicks share their popular items, residuals of ratings do not

METHODS: dict[str, Callable[[], Method]] = {
    "bias": lambda: ItemProfile(slopes=False),
    "profile": ItemProfile,
    "subspace": Subspace,
    "svd": lambda: Subspace(centred=False),
    "power": PowerIteration,
    "oja": lambda: PowerIteration(averaging=True),
    "als": AlternatingLeastSquares,
    "frank-wolfe": FrankWolfe,
    "frank-wolfe-printed": lambda: FrankWolfe(printed=True),
    "pgd": ProjectedGradient,
    "cleansing": Cleansing,
}


def choose(method: str, facts: Facts) -> Method:
    """The named method, or what public numbers speak for: latent directions only where they rise above the noise."""
    name = _inputs.choice("method", method, ("auto", *METHODS))
    known = IMPLICIT if facts.implicit else METHODS
    if name not in ("auto", *known):
        raise ValueError(
            f"implicit feedback is fitted by method='auto' or one of {', '.join(map(repr, IMPLICIT))}, not {name!r}"
        )
    if name == "auto":
        dense = facts.n_items**2 <= MOST_ENTRIES
        latent = facts.spectral_ratio() >= (_CLICK_RATIO if facts.implicit else _SPECTRAL_RATIO)
        plain = "bias" if facts.implicit else "profile"
        name = plain if not latent else "subspace" if dense else "power"
    return known[name]()
