"""A fitted recommender as plain arrays, and back: what a file format needs, without pickles.

The arrays are the released item side and the catalogue: nothing of any user, so they may be published as far as the
privacy statement says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.recommend.local import (
    ClickModel,
    DescentModel,
    ItemModel,
    PopularityModel,
    ProjectionModel,
    ReplayModel,
    RidgeModel,
)

Arrays = dict[str, NDArray[Any]]

KIND, ITEMS, METHOD = "kind", "items", "method"
# The only models a file can ask for, with the sizes of their fields: equal letters are equal sizes, n is the catalogue.
_SHAPES: dict[type[Any], dict[str, str]] = {
    RidgeModel: {"base": "n", "features": "nk", "prior": "k", "error_variance": ""},
    ReplayModel: {"directions": "nt", "shrinks": "t", "lengths": "t", "clip": "", "search": ""},
    DescentModel: {"bases": "tnk", "gains": "tk", "learning_rate": "", "clip": ""},
    ProjectionModel: {"popularity": "n", "directions": "nk", "gains": "k"},
    PopularityModel: {"popularity": "n"},
    ClickModel: {"popularity": "n", "features": "nk", "penalty": "k"},
}
_KINDS = {kind.__name__: kind for kind in _SHAPES}


def packed(model: ItemModel, items: NDArray[Any], method: str) -> Arrays:
    """Float64 arrays, texts and labels; no array of Python objects."""
    labels = np.asarray(items)
    if labels.dtype == object:
        if not all(isinstance(label, str) for label in labels):
            raise ValueError("item labels of mixed kinds cannot be written down; use texts or whole numbers")
        labels = labels.astype(np.str_)
    arrays = {KIND: np.asarray(type(model).__name__), METHOD: np.asarray(method), ITEMS: labels}
    for name in _SHAPES[type(model)]:
        arrays[name] = np.asarray(getattr(model, name), dtype=np.float64)
    return arrays


def unpacked(arrays: Mapping[str, Any]) -> tuple[ItemModel, NDArray[Any], str]:
    """The model, catalogue and method of ``packed``; whatever does not belong together is refused."""
    try:
        kind = _KINDS[str(arrays[KIND])]
        items, method = np.asarray(arrays[ITEMS]), str(arrays[METHOD])
        fields = {name: np.array(arrays[name], dtype=np.float64) for name in _SHAPES[kind]}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"these arrays are not those of a recommender: {error}") from None
    if items.ndim != 1 or items.dtype == object:
        raise ValueError("the catalogue must be one row of texts or numbers")
    sizes = {"n": len(items)}
    for name, letters in _SHAPES[kind].items():
        value = fields[name]
        fits = value.ndim == len(letters) and all(
            sizes.setdefault(letter, size) == size for letter, size in zip(letters, value.shape, strict=True)
        )
        if not (fits and np.isfinite(value).all()):
            raise ValueError(
                f"{name!r} has shape {value.shape}, which does not fit the rest, or is not finite"
            )
    plain = {name: value if value.ndim else float(value) for name, value in fields.items()}
    if "search" in plain:
        plain["search"] = bool(plain["search"])
    return kind(**plain), items, method
