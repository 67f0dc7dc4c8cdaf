"""Private matrix completion: plan, charge, run; then local predictions from released item factors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import KW_ONLY
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from discreet import _checks
from discreet._checks import Habits, ParameterError, Setting, calm
from discreet._typing import Array
from discreet.estimators.parameters import Charged, budget, estimator, exceeding, parameter, relation
from discreet.privacy.guarantee import Guarantee, guarantee_of
from discreet.privacy.page import ShowsPromise
from discreet.privacy.statement import (
    OTHER_RELEASES,
    PUBLIC_TYPES,
    TIME_AND_MEMORY,
    UNPREDICTABLE,
    PrivacyStatement,
)
from discreet.recommend.item_models import ItemModel, packed, published, unpacked
from discreet.recommend.methods import IMPLICIT, METHODS
from discreet.recommend.plan import CompletionPlan, Facts, choose
from discreet.recommend.ratings import Clicks, Ratings, Scale, Users, check_memory, find_items, opened, read
from discreet.release import Carried, carry_out
from discreet.tables.reading import as_column


def state(
    facts: Facts, scale: Scale | Clicks, users: Users, carried: Carried[Any], *, from_data: bool
) -> PrivacyStatement:
    """Return the statement of a run; ``from_data`` says that the catalog was not declared."""
    return carried.state(
        bounds={
            "users": float(facts.n_users),
            "items": float(facts.n_items),
            "half range of ratings": scale.half if isinstance(scale, Scale) else 1.0,
            "centered rating (half ranges)": facts.rating_clip,
            "residual row (half ranges)": facts.row_clip,
            "exact integers per user up to": float(facts.bound(2)),
        },
        assumptions=(
            "each person is one user (given by the user of this library): somebody with k accounts is protected only "
            "at k times epsilon",
            "THE CATALOG IS THE COLUMNS OR ITEMS OF THE DATA, treated as public"
            if from_data
            else "the catalog was declared by the user",
            f"the number of users, {facts.n_users}, is public"
            if facts.guarantee.neighboring.size_is_public
            else f"{facts.n_users} is a public upper bound on the number of users",
            "the range of ratings, the rank and the other parameters were chosen without looking at the ratings",
            PUBLIC_TYPES,
            UNPREDICTABLE,
            *users.assumptions,
        ),
        not_covered=(
            "a user's own predictions and factors, if they are shown to anyone else",
            TIME_AND_MEMORY,
            "test errors computed on private ratings and published afterwards",
            OTHER_RELEASES,
        ),
    )


@estimator
class PrivateMatrixCompletion(ShowsPromise, Habits, Charged, BaseEstimator):  # type: ignore[misc]
    """Recommend items under user-level joint differential privacy.

    ``fit`` releases numbers about the items (effects, popularity, latent directions) with noise; they may be published.
    ``predict``, ``recommend`` and ``fold_in`` compute a user's predictions from these numbers and the user's own row.
    They need nothing else, and treat new and old users alike. The fitted object holds no user data.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    model_ : the released numbers about items (`discreet.recommend.item_models`); its methods compute predictions for a
        user.
    items_ : catalog, in the order of predictions.
    method_ : the method that ran.
    privacy_ : the `PrivacyStatement`; print it.

    Notes
    -----
    Privacy: joint differential privacy, unit: user. Everything released is (epsilon, delta)-DP in a user's whole
    row; what other users are shown depends on that row through the release only. A user's own predictions depend on
    that row openly and must be shown to that user alone. Not covered: choosing the catalog or parameters by looking
    at the data, and published test errors.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from discreet import PrivateMatrixCompletion
    >>> rng = np.random.default_rng(0)
    >>> taste = rng.uniform(-1, 1, size=(20_000, 1)) @ rng.uniform(-1, 1, size=(1, 30))
    >>> seen = rng.random(taste.shape) < 0.3
    >>> ratings = sp.csr_array((taste[seen], np.nonzero(seen)), shape=taste.shape)
    >>> model = PrivateMatrixCompletion(epsilon=1.0, rating_bounds=(-1, 1)).fit(ratings)
    >>> error = model.predict(ratings[:100]) - taste[:100]
    >>> bool(np.sqrt(np.mean(error**2)) < 0.15)
    True
    >>> model.privacy_.guarantee.kind, model.privacy_.guarantee.unit
    ('joint-dp', 'user')

    References
    ----------
    Jain, Thakkar and Thakurta (2018) for joint DP completion; McSherry and Mironov (2009); Chien et al. (2021).
    """

    method: str = parameter(
        "auto",
        "str",
        '"auto" chooses between "subspace" and "profile" from public numbers, and "svd" where ``ratings_per_user`` '
        'declares that users rate half of the catalog or more. "profile": item effects and popularity, with every '
        'user\'s own taste for both. "bias": mean + item effect + user offset. "subspace": the profile, then latent '
        'directions from a noisy covariance. Baselines and rivals: "svd", "power", "oja", "als", "frank-wolfe", '
        '"frank-wolfe-oja", "frank-wolfe-printed", "pgd", "cleansing".',
        positional=True,
    )
    epsilon: float = budget("one fit, for the whole row of a user")
    delta: float | None = exceeding("n_users")
    _: KW_ONLY
    rank: int = parameter(
        20,
        "int",
        "Largest number of latent directions; those below the edge of the noise are dropped without cost.",
    )
    n_iterations: int | None = parameter(None, "int", "Noisy rounds; None for the method's own choice.")
    rating_bounds: tuple[float, float] = parameter(
        (1.0, 5.0), "(float, float)", "Public range of ratings. Ignored for implicit feedback."
    )
    ratings_per_user: int | None = parameter(
        None,
        "int",
        "Users with fewer ratings than this count proportionally less (in square), users with more count the same. "
        "None lets all users count alike. No rating is thrown away. Frank-Wolfe, which weighs all ratings alike, takes "
        "None for a fifth of the catalog.",
    )
    items: Any = parameter(
        None,
        "list",
        "The public catalog. None takes the columns of a matrix, or reads the items of a data frame with a warning.",
    )
    feedback: str = parameter(
        "explicit",
        '{"explicit", "implicit"}',
        "Ratings, or sets of items (clicks): then every stored entry counts as one, and ``method`` is "
        '"auto", "bias" (popularity), "subspace", "power" or "als".',
    )
    neighboring: str = relation(
        'A record is a user with all ratings. Under "add-remove-one" the number of users is private, and ``n_users`` '
        "declares an upper bound."
    )
    n_users: int | None = parameter(
        None,
        "int",
        'Public upper bound on the number of users, needed only under "add-remove-one"; elsewhere the number is '
        "public, and that of the data is used.",
    )
    rating_clip: float = parameter(0.5, "float", "Bound on a centered rating, in units of half the range.")
    row_clip: float = parameter(
        0.5,
        "float",
        "Bound on the root mean square of a user's residuals, in units of half the range. "
        '"subspace" and "svd" lower it, at a small price, where residuals turn out smaller.',
    )
    nuclear_norm: float = parameter(
        1 / 3,
        "float",
        "Radius for Frank-Wolfe in units of half the range times sqrt(n_users n_items): a public guess of the signal.",
    )
    out_of_bounds: str = parameter("error", '{"error", "clip"}', "What to do with ratings outside the range.")
    duplicates: str = parameter(
        "error", '{"error", "mean"}', "What to do with two ratings of one item by one user."
    )

    # -- the global, trusted step ------------------------------------------------------------------------------

    def plan(self, n_users: int, n_items: int) -> CompletionPlan:
        """Return what a fit on this many users and items would run and cost; no data is needed."""
        declared = self.n_users if self.n_users is not None else n_users
        guarantee, size = guarantee_of(
            self.epsilon, self.delta, self.neighboring, n_users, declared, "users", "n_users"
        )
        return self._plan(guarantee, size, _checks.count("n_items", n_items), self._checked()[2])

    def _checked(self) -> tuple[Scale | Clicks, dict[str, str], dict[str, Any]]:
        """Check all parameters: how ratings are read, what is done about strange ones, and the numbers of the plan."""
        scale, rules = self._reading()
        implicit = _checks.choice("feedback", self.feedback, ("explicit", "implicit")) == "implicit"
        row_clip = _checks.real("row_clip", self.row_clip, above=0)
        numbers = {
            "rank": _checks.count("rank", self.rank),
            "n_iterations": _checks.count_or_none("n_iterations", self.n_iterations),
            "per_user": float(_checks.count_or_none("ratings_per_user", self.ratings_per_user) or 1),
            "rating_clip": _checks.real("rating_clip", self.rating_clip, above=0),
            "row_clip": 1.0 if implicit else row_clip,
            "nuclear_norm": _checks.real("nuclear_norm", self.nuclear_norm, above=0),
            "implicit": implicit,
        }
        return scale, rules, numbers

    def _plan(
        self, guarantee: Guarantee, size: int, n_items: int, numbers: Mapping[str, Any]
    ) -> CompletionPlan:
        """Return the plan for a guarantee to each of ``size`` users; ``numbers`` are those of `_checked`."""
        if guarantee.delta == 0:
            raise ValueError(
                "matrix completion adds Gaussian noise, which needs delta > 0; 1 / n_users**2 is common"
            )
        promise = dataclasses.replace(guarantee, unit="user", kind="joint-dp")
        sizes = {"n_users": size, "n_items": n_items, "rank": min(numbers["rank"], n_items)}
        facts = Facts(guarantee=promise, **{**numbers, **sizes})
        check_memory(8 * n_items * (facts.rank + 8), "the item side", "declare a smaller public catalog")
        name, known = (
            _checks.choice("method", self.method, ("auto", *METHODS)),
            IMPLICIT if facts.implicit else METHODS,
        )
        if name not in ("auto", *known):
            raise ValueError(
                f"implicit feedback is fitted by method='auto' or one of {', '.join(map(repr, IMPLICIT))}, not {name!r}"
            )
        plan = CompletionPlan(choose(name, facts, known), facts)
        plan.mechanisms  # noqa: B018 - calibrated, and impossible requests refused, before any data
        return plan

    def fit(self, user_items: Any, y: None = None) -> PrivateMatrixCompletion:
        """Release the item side; charges the ledger, if there is one, before anything private runs.

        Parameters
        ----------
        user_items : sparse matrix (users x items) whose stored entries are the ratings; a data frame with columns
            user, item, rating; files, folders or queries with these columns, of any size; a Dask data frame with
            them; or a Dask array or bag of sparse matrices, each a block of users (docs/scale.md).
        """
        if self.neighboring == "add-remove-one" and self.n_users is None:
            raise ParameterError(
                "n_users",
                "is required under add-remove-one, where the number of users is private",
                Setting("n_users", purpose="as a public upper bound"),
                Setting("neighboring", "replace-one"),
            )
        scale, rules, numbers = self._checked()
        with calm(), opened(user_items, scale, self.items, **rules) as (users, catalog):
            guarantee, size = guarantee_of(
                self.epsilon, self.delta, self.neighboring, users.n_users, self.n_users, "users", "n_users"
            )
            plan = self._plan(guarantee, size, users.n_items, numbers)
            carried: Carried[ItemModel] = carry_out(
                plan,
                users,
                self.ledger,
                type(self).__name__,
                published=lambda model: published(model, catalog, plan.method.name),
            )
        self.model_ = carried.release
        self.items_ = catalog
        self.method_ = plan.method.name
        self.released_ = dict(carried.published)
        self.privacy_ = state(plan.facts, scale, users, carried, from_data=self.items is None)
        return self

    def _reading(self) -> tuple[Scale | Clicks, dict[str, str]]:
        """Return how ratings are read, and how invalid ones are handled."""
        implicit = self.feedback == "implicit"
        scale = Clicks() if implicit else Scale(*_checks.interval("rating_bounds", self.rating_bounds))
        out_of_bounds = _checks.choice("out_of_bounds", self.out_of_bounds, ("error", "clip"))
        duplicates = _checks.choice("duplicates", self.duplicates, ("error", "mean"))
        return scale, {"out_of_bounds": out_of_bounds, "duplicates": "mean" if implicit else duplicates}

    def _shown(self, scores: Array) -> Array:
        """Return scores as ratings within the range; scores of implicit feedback are unchanged."""
        scale, _ = self._reading()
        return scale.outside(scores) if isinstance(scale, Scale) else scores

    # -- the local step: released numbers and one user's own row -------------------------------------------------

    def predict(self, user_items: Any) -> Array:
        """Predict ratings (scores, for implicit feedback) of all items, one dense row per given user row.

        Users of a data frame are sorted by their labels.
        """
        check_is_fitted(self)
        rows = self._rows(user_items)
        check_memory(8 * rows.n_users * rows.n_items, "the predictions", "predict fewer users at a time")
        scores = self.model_.scores(self.model_.user_factors(rows))
        return self._shown(scores)

    def recommend(
        self, user_row: Any, n: int = 10, *, exclude_rated: bool = True
    ) -> tuple[NDArray[Any], Array]:
        """Return the ``n`` best items for one user and their predicted ratings, best first."""
        check_is_fitted(self)
        rows = self._rows(user_row)
        if rows.n_users != 1:
            raise ValueError(f"recommend serves one user at a time, got {rows.n_users} rows")
        scores = self.model_.scores(self.model_.user_factors(rows))[0]
        ranked = scores.copy()
        if exclude_rated:
            ranked[rows.items] = -np.inf
        best = np.argsort(-ranked, kind="stable")[: _checks.count("n", n)]
        best = best[np.isfinite(ranked[best])]
        shown = self._shown(scores[best])
        return self.items_[best], shown

    def similar_items(self, item: Any, n: int = 10) -> tuple[NDArray[Any], Array]:
        """Return the ``n`` items most similar to a given one, by cosine of released vectors; post-processing."""
        check_is_fitted(self)
        column = int(find_items(as_column([item], "item"), self.items_)[0])
        vectors = self.model_.item_vectors
        if vectors.shape[1] == 0:
            raise ValueError(
                f"the released model ({self.method_!r}) holds no directions by which to compare items"
            )
        lengths = np.sqrt((vectors**2).sum(axis=1))
        cosines = vectors @ vectors[column] / np.maximum(lengths * lengths[column], 1e-300)
        cosines[column] = -np.inf
        best = np.argsort(-cosines, kind="stable")[: min(_checks.count("n", n), len(cosines) - 1)]
        return self.items_[best], cosines[best]

    def fold_in(self, new_user_row: Any) -> Array:
        """Compute the local factors of users, new or old, from their own rows; they belong to those users."""
        check_is_fitted(self)
        return self.model_.user_factors(self._rows(new_user_row))

    # -- the released item side, for files ------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the released item side and the catalog as plain arrays, for ``numpy.savez`` without pickling."""
        check_is_fitted(self)
        return packed(self.model_, self.items_, self.method_)

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, Any], privacy: PrivacyStatement, **parameters: Any
    ) -> PrivateMatrixCompletion:
        """Rebuild a fitted recommender from ``to_arrays()``, its ``privacy_`` and its constructor parameters.

        Examples
        --------
        >>> import numpy as np, scipy.sparse as sp
        >>> from discreet import PrivateMatrixCompletion
        >>> row = sp.csr_array(([4.0], ([0], [1])), shape=(1, 3))
        >>> fitted = PrivateMatrixCompletion("bias", 1.0, 1e-6).fit(row)
        >>> again = PrivateMatrixCompletion.from_arrays(fitted.to_arrays(), fitted.privacy_, **fitted.get_params())
        >>> bool(np.array_equal(fitted.predict(row), again.predict(row)))
        True
        """
        model = cls(**parameters)
        model.model_, model.items_, model.method_ = unpacked(arrays)
        model.privacy_ = privacy
        return model

    def _rows(self, user_items: Any) -> Ratings:
        n_columns = getattr(user_items, "shape", (0, 0))[1] if sp.issparse(user_items) else len(self.items_)
        if n_columns != len(self.items_):
            raise ValueError(
                f"the rows have {n_columns} columns, the catalog has {len(self.items_)} items; items that were not "
                "declared at fit cannot be predicted"
            )
        scale, rules = self._reading()
        rows = read(user_items, scale, self.items_, **rules)[0]
        return rows.part(0, rows.n_users)
