"""The local step: one user's predictions from the released item side and that user's own row.

Nothing here draws noise, charges a budget or sees a second user, so it can run on the user's own device. The result
belongs to that user; the guarantee does not cover its publication.

`packed` and `unpacked` convert the released item side and the catalog to plain arrays and back, without pickles. The
arrays hold nothing of any user and may be published.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from discreet._typing import Array
from discreet.recommend import kernels
from discreet.recommend import replay_kernels as replay
from discreet.recommend.ratings import Ratings, in_threads, processors

_SCORES_PER_THREAD = 1 << 20


def _scores(base: Array, features: Array, factors: Array) -> Array:
    out = np.empty((len(factors), len(features)))
    features = np.ascontiguousarray(features)
    lanes = max(1, min(processors(), out.size // _SCORES_PER_THREAD))
    edges = np.linspace(0, len(factors), lanes + 1).astype(int)

    def one_lane(lane: int) -> None:
        users = slice(edges[lane], edges[lane + 1])
        kernels.row_scores(base, features, factors[users], out[users])

    in_threads(one_lane, lanes)
    return out


def _plus_mean(features: Array, factors: Array) -> Array:
    """Return the scores of users whose last factor is their own mean."""
    columns = np.column_stack([features, np.ones(len(features))])
    return _scores(np.zeros(len(features)), columns, factors)


def _per_user(rows: Ratings, width: int, solve: Callable[[Ratings, Array], None]) -> Array:
    """Return one vector per user, filled by ``solve(block, out)`` for blocks of users in several threads."""
    out = np.zeros((rows.n_users, width))
    blocks = list(rows.blocks())
    lanes = min(len(blocks), rows.n_threads)

    def one_lane(lane: int) -> None:
        for begin, end in blocks[lane::lanes]:
            solve(rows.part(begin, end), out[begin:end])

    in_threads(one_lane, lanes)
    return out


class ItemModel(Protocol):
    """Released numbers about items, which turn a user's own row into predictions, in units of [-1, 1]."""

    def user_factors(self, rows: Ratings) -> Array:
        """Return one vector per row, a function of that row alone."""
        ...

    def scores(self, factors: Array) -> Array:
        """Predict all items, one row per vector."""
        ...

    @property
    def item_vectors(self) -> Array:
        """One vector per item, for similarities."""
        ...


@dataclass(frozen=True)
class RidgeModel:
    """A Gaussian model: rating_j = base_j + features_j . x + error, x ~ N(0, prior), error ~ N(0, error_variance).

    A user's x is its conditional mean given the user's ratings: a ridge regression with penalties
    error_variance / prior.

    Attributes
    ----------
    base : global mean plus item effects.
    features : one row per item.
    prior : variance of every coefficient across users.
    error_variance : variance that the features do not explain.
    """

    base: Array
    features: Array
    prior: Array
    error_variance: float

    @property
    def penalty(self) -> Array:
        """Ridge penalties."""
        return np.asarray(self.error_variance / self.prior)

    @property
    def item_vectors(self) -> Array:
        """Features in units of their spread across users, without the constant."""
        vectors = self.features * np.sqrt(self.prior)
        return np.asarray(vectors[:, np.ptp(vectors, axis=0) > 0])

    def user_factors(self, rows: Ratings) -> Array:
        """Ridge coefficients of every row."""

        def solve(block: Ratings, out: Array) -> None:
            kernels.coefficients(
                block.starts, block.items, block.values, self.base, self.features, self.penalty, out
            )

        return _per_user(rows, self.features.shape[1], solve)

    def scores(self, factors: Array) -> Array:
        """base + factors . features."""
        return _scores(self.base, self.features, factors)


def _centered(rows: Ratings, wanted: bool) -> tuple[Array, Array]:
    """Return every user's own mean (0 if it is not ``wanted``) and the values without it.

    Users compute the mean from their own rows, so it is free (Thakkar, 2019, section 6.4).
    """
    means, values = np.zeros(rows.n_users), np.asarray(rows.values, dtype=np.float64)
    if wanted:
        left = np.empty(len(values))
        replay.center_rows(rows.starts, values, means, left)
        values = left
    return means, values


@dataclass(frozen=True)
class ReplayModel:
    """Frank-Wolfe: the released directions and step lengths, replayed by every user on their own row.

    Round t: Y <- shrinks_t Y - lengths_t (a . v_t) v_t, where a = residual of Y on the user's ratings, shrunk to
    ``clip``.

    Attributes
    ----------
    directions : one column per round.
    shrinks, lengths : per round.
    clip : bound on the norm of a residual.
    search : whether every user takes the part of each step that is best for their own ratings; local, so it is free.
    centered : whether every user first subtracts the mean of their own ratings; local as well.
    """

    directions: Array
    shrinks: Array
    lengths: Array
    clip: float
    search: bool = False
    centered: bool = False

    @property
    def item_vectors(self) -> Array:
        """The directions."""
        return self.directions

    def residuals(self, rows: Ratings, bound: int) -> tuple[NDArray[np.int64], Array]:
        """Return clipped residuals of all rows in integer steps of clip / bound, and users' coefficients and means."""
        q = np.zeros(len(rows.items), dtype=np.int64)
        factors = np.zeros((rows.n_users, self.directions.shape[1]))
        means, values = _centered(rows, self.centered)
        replay.replay_rows(
            rows.starts,
            rows.items,
            values,
            self.directions,
            self.shrinks,
            self.lengths,
            self.clip,
            self.search,
            bound,
            q,
            factors,
        )
        return q, np.column_stack([factors, means])

    def user_factors(self, rows: Ratings) -> Array:
        """Return the coefficients of the directions after all rounds, and the user's own mean."""
        return self.residuals(rows, 1)[1]

    def scores(self, factors: Array) -> Array:
        """factors . directions, plus the mean."""
        return _plus_mean(self.directions, factors)


@dataclass(frozen=True)
class DescentModel:
    """Projected gradient descent, replayed by every user on their own row.

    Attributes
    ----------
    bases, gains : the subspace after every step, and how much of each coordinate the projection keeps.
    learning_rate, clip : step size, and bound on the norm of a full row.
    centered : whether every user first subtracts the mean of their own ratings.
    """

    bases: Array
    gains: Array
    learning_rate: float
    clip: float
    centered: bool = False

    @property
    def item_vectors(self) -> Array:
        """The last subspace."""
        return np.asarray(self.bases[-1] * np.sqrt(self.gains[-1]))

    def unprojected(self, rows: Ratings) -> tuple[Array, Array]:
        """Return full rows after one more step, and the coefficients and means before it."""
        full = np.zeros((rows.n_users, self.bases.shape[1]))
        factors = np.zeros((rows.n_users, self.bases.shape[2]))
        means, values = _centered(rows, self.centered)
        replay.descend_rows(
            rows.starts,
            rows.items,
            values,
            self.bases,
            self.gains,
            self.learning_rate,
            self.clip,
            factors,
            full,
        )
        return full, np.column_stack([factors, means])

    def user_factors(self, rows: Ratings) -> Array:
        """Return the coefficients in the last subspace, and the user's own mean."""
        return self.unprojected(rows)[1]

    def scores(self, factors: Array) -> Array:
        """factors . basis, plus the mean."""
        return _plus_mean(self.bases[-1], factors)


@dataclass(frozen=True)
class ProjectionModel:
    """Implicit feedback: a user's set of items, scaled to unit length and projected onto released directions.

    Attributes
    ----------
    popularity : released popularity in [0, 1], the score of a user without items.
    directions : orthonormal columns.
    gains : weight of each projection, in [0, 1].
    """

    popularity: Array
    directions: Array
    gains: Array

    @property
    def item_vectors(self) -> Array:
        """Weighted directions."""
        return np.asarray(self.directions * np.sqrt(self.gains))

    def user_factors(self, rows: Ratings) -> Array:
        """Return the weighted projections of every row."""
        directions = np.ascontiguousarray(self.directions)

        def solve(block: Ratings, out: Array) -> None:
            kernels.projections(block.starts, block.items, directions, self.gains, out)

        return _per_user(rows, len(self.gains), solve)

    def scores(self, factors: Array) -> Array:
        """Return the projections; popularity breaks ties."""
        return _scores(1e-3 * self.popularity, self.directions, factors)


@dataclass(frozen=True)
class PopularityModel:
    """Implicit feedback: the same released ranking for all users.

    Attributes
    ----------
    popularity : in [0, 1].
    """

    popularity: Array

    @property
    def item_vectors(self) -> Array:
        """Empty vectors: counts do not show which items are similar."""
        return np.zeros((len(self.popularity), 0))

    def user_factors(self, rows: Ratings) -> Array:
        """Return empty vectors: nothing is learned about users."""
        return np.zeros((rows.n_users, 0))

    def scores(self, factors: Array) -> Array:
        """Popularity."""
        return np.repeat(self.popularity[None], len(factors), axis=0)


@dataclass(frozen=True)
class ClickModel:
    """Implicit feedback: a ridge regression with target 1 for a user's items and 0 for all others.

    x minimizes the mean over the user's items of (1 - x . features_j)^2 plus sum_c penalty_c x_c^2. The columns of the
    features are orthogonal, so the penalty accounts for the squared scores of all items.

    Attributes
    ----------
    popularity : released popularity in [0, 1], the score of a user without items.
    features : one row per item.
    penalty : per column.
    """

    popularity: Array
    features: Array
    penalty: Array

    @property
    def item_vectors(self) -> Array:
        """The features."""
        return self.features

    def user_factors(self, rows: Ratings) -> Array:
        """Ridge coefficients of every row."""

        def solve(block: Ratings, out: Array) -> None:
            kernels.click_factors(
                block.starts, block.items, self.features, self.penalty, 0, block.n_users, out
            )

        return _per_user(rows, self.features.shape[1], solve)

    def scores(self, factors: Array) -> Array:
        """Return factors . features; popularity breaks ties."""
        return _scores(1e-3 * self.popularity, self.features, factors)


Arrays = dict[str, NDArray[Any]]

KIND, ITEMS, METHOD = "kind", "items", "method"
# The only models that a file can hold, with the sizes of their fields: equal letters are equal sizes, n the catalog.
_SHAPES: dict[type[Any], dict[str, str]] = {
    RidgeModel: {"base": "n", "features": "nk", "prior": "k", "error_variance": ""},
    ReplayModel: {
        "directions": "nt",
        "shrinks": "t",
        "lengths": "t",
        "clip": "",
        "search": "",
        "centered": "",
    },
    DescentModel: {"bases": "tnk", "gains": "tk", "learning_rate": "", "clip": "", "centered": ""},
    ProjectionModel: {"popularity": "n", "directions": "nk", "gains": "k"},
    PopularityModel: {"popularity": "n"},
    ClickModel: {"popularity": "n", "features": "nk", "penalty": "k"},
}
_KINDS = {kind.__name__: kind for kind in _SHAPES}


def published(model: ItemModel, items: NDArray[Any], method: str) -> Arrays:
    """Return the released item side with its catalog; labels may be of any kind."""
    arrays = {KIND: np.asarray(type(model).__name__), METHOD: np.asarray(method), ITEMS: np.asarray(items)}
    for name in _SHAPES[type(model)]:
        arrays[name] = np.asarray(getattr(model, name), dtype=np.float64)
    return arrays


def packed(model: ItemModel, items: NDArray[Any], method: str) -> Arrays:
    """Return float64 arrays, texts and labels, and no array of Python objects."""
    arrays = published(model, items, method)
    if arrays[ITEMS].dtype == object:
        if not all(isinstance(label, str) for label in arrays[ITEMS]):
            raise ValueError("item labels of mixed kinds cannot be saved; use texts or whole numbers")
        arrays[ITEMS] = arrays[ITEMS].astype(np.str_)
    return arrays


def unpacked(arrays: Mapping[str, Any]) -> tuple[ItemModel, NDArray[Any], str]:
    """Rebuild model, catalog and method from ``packed``; raise an error for inconsistent arrays."""
    try:
        kind = _KINDS[str(arrays[KIND])]
        items, method = np.asarray(arrays[ITEMS]), str(arrays[METHOD])
        given = {"centered": 0.0, **arrays}  # older files do not know it
        fields = {name: np.array(given[name], dtype=np.float64) for name in _SHAPES[kind]}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"these arrays are not those of a recommender: {error}") from None
    if items.ndim != 1 or items.dtype == object:
        raise ValueError("the catalog must be one row of texts or numbers")
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
    plain |= {name: bool(plain[name]) for name in ("search", "centered") if name in plain}
    return kind(**plain), items, method
