"""Private search over candidates, with the interface of scikit-learn's search classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

from discreet._checks import ParameterError
from discreet.estimators.parameters import REQUIRED, budget, estimator, exceeding, parameter
from discreet.search.base import PrivateSearch


@estimator
class PrivateSelection(PrivateSearch):
    """Choose the best of several private models privately; the stated epsilon covers training and choosing.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    best_estimator_, best_index_ : the released model, which carries the statement of the whole search, and the index of
        its candidate.
    best_score_ : its noisy share of right answers (or mean of 1 - squared error over squared range), included in the
        price under "tries"; None under "split", for one candidate, and if people may have several rows. As the best of
        several scores it is optimistic: evaluate on other data.
    privacy_ : the `PrivacyStatement` of the whole search.

    Notes
    -----
    Privacy: (epsilon, delta)-DP of everything released; docs/proofs/selection.md. NOT covered under "tries": how
    long the search took, because it tells the number of tries, which must stay secret. No table of all scores is
    kept: it would have to be paid for.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateLogisticRegression, PrivateSelection
    >>> X = np.random.default_rng(0).normal(size=(20_000, 3))
    >>> y = (X @ [1.0, -2.0, 0.5] > 0).astype(int)
    >>> bounds = [PrivateLogisticRegression(feature_bound=bound) for bound in (0.01, 1.0, 3.0)]
    >>> search = PrivateSelection(bounds, epsilon=1.0, classes=[0, 1]).fit(X, y)
    >>> search.privacy_.epsilon, bool(search.score(X, y) > 0.9)
    (1.0, True)
    """

    candidates: Sequence[Any] = parameter(
        REQUIRED,
        "list of unfitted linear models of this package",
        "All classifiers, or all regressors with the same ``target_bounds``. Pipelines are not supported: encode the "
        "rows first. The search replaces their epsilon, delta, relation and ledger by its own.",
        positional=True,
    )
    epsilon: float = budget("the whole search")
    delta: float | None = exceeding("n_samples", "which needs 32 records")

    def _all(self) -> list[Any]:
        return list(self.candidates)

    def _example(self) -> Any:
        return next(iter(self.candidates), None)


@estimator
class PrivateSearchCV(PrivateSearch):
    """Search over a grid of parameters with the interface of scikit-learn's ``GridSearchCV``, for one stated epsilon.

    Records are held out once instead of in folds, because every fold would have to be paid for. For the same reason
    there is no refit on all records.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    best_params_ : parameters of the chosen candidate.
    best_estimator_, best_index_, best_score_, privacy_ : as for `PrivateSelection`.

    Notes
    -----
    Privacy: As for `PrivateSelection`.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateLogisticRegression, PrivateSearchCV
    >>> X = np.random.default_rng(0).normal(size=(20_000, 3))
    >>> y = (X @ [1.0, -2.0, 0.5] > 0).astype(int)
    >>> model = PrivateLogisticRegression(classes=[0, 1])
    >>> search = PrivateSearchCV(model, {"feature_bound": [0.01, 1.0], "l2": [1e-5, 1e-4]}).fit(X, y)
    >>> sorted(search.best_params_), search.privacy_.epsilon
    (['feature_bound', 'l2'], 1.0)
    """

    estimator: Any = parameter(
        REQUIRED, "unfitted linear model of this package", "What the grid varies.", positional=True
    )
    param_grid: Any = parameter(
        REQUIRED,
        "dict or list of dicts",
        "As for ``GridSearchCV``; the privacy parameters are not varied.",
        positional=True,
    )
    epsilon: float = budget("the whole search")
    delta: float | None = exceeding("n_samples", "which needs 32 records")

    def _all(self) -> list[Any]:
        refused = {"epsilon", "delta", "neighboring", "ledger", "max_rows_per_group"}
        for parameters in self._grid():
            if wrong := refused & set(parameters):
                raise ParameterError("param_grid", f"must not vary {sorted(wrong)}: the search sets them")
        return [clone(self.estimator).set_params(**parameters) for parameters in self._grid()]

    def _example(self) -> Any:
        return self.estimator

    def _grid(self) -> list[dict[str, Any]]:
        return list(ParameterGrid(self.param_grid))

    def fit(
        self, X: Any, y: Any = None, *, groups: Any = None, target: str | None = None, schema: Any = None
    ) -> Self:
        """Search privately; charges the ledger once, before anything private runs; see `PrivateSelection`."""
        super().fit(X, y, groups=groups, target=target, schema=schema)
        self.best_params_: dict[str, Any] = self._grid()[self.best_index_]
        return self
