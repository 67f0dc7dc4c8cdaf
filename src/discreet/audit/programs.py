"""Streams and recommenders, each on the worst neighbors known for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from discreet.audit.making import planned_as, subject_of, unfitted
from discreet.audit.subjects import DELTA, EPSILON, Subject, most_different
from discreet.mechanisms.entropy import fresh_entropy


def streams() -> Iterator[Subject]:
    """Online learners."""
    from discreet import PrivateFTRL, PrivateOnlineLinearModel

    for method in ("tree", "sampling"):
        plan = PrivateFTRL(2, 4, EPSILON, DELTA, method=method).plan()

        def actions(costs: Any, method: str = method, plan: Any = plan) -> ArrayLike:
            player = planned_as(PrivateFTRL(2, 4, EPSILON, DELTA, method=method), plan)
            chosen = []
            for row in costs:
                player.learn_one(row)
                if player.step < 4:
                    chosen.append(float(player.predict_one()))
            return np.array(chosen)

        tried = []
        for lead in (0.0, 0.5, 1.0):  # later costs that make the action which the record favors rare
            costs = np.array([[1.0, -1.0], [-lead, lead], [-lead, lead], [0.0, 0.0]])
            other = np.vstack([-costs[:1], costs[1:]])
            tried.append(subject_of(f"PrivateFTRL, {method}", actions, costs, other, plan.event))
        yield most_different(tried)

    options: dict[str, Any] = {"classes": [0, 1], "fit_intercept": False, "radius": 1e6}
    stream = PrivateOnlineLinearModel(2, 16, EPSILON, DELTA, **options).plan()

    def models(sign: float) -> ArrayLike:
        """An adversary who watches: the ninth record is misclassified, and nearly orthogonal to the model."""
        model = planned_as(PrivateOnlineLinearModel(2, 16, EPSILON, DELTA, **options), stream)
        path = []
        for step in range(1, 17):
            record = np.zeros(2)
            if step == 9:
                along = model.coef_ / np.linalg.norm(model.coef_)
                record = 0.01 * along + sign * 0.9999 * np.array([-along[1], along[0]])
            path.append(model.learn_one(record, 0).coef_)
        return np.array(path)

    # A record that can be chosen after models were seen is in one block less than is paid for.
    yield subject_of("PrivateOnlineLinearModel", models, 1.0, -1.0, stream.event)


def recommenders() -> Iterator[Subject]:
    """Every method, on two users of extreme taste: of other items, of the same items, or of half of them."""
    from discreet.recommend.methods import METHODS

    for method in METHODS:
        yield most_different(list(_users(method)))


def _users(method: str) -> Iterator[Subject]:
    import scipy.sparse as sp

    from discreet import PrivateMatrixCompletion
    from discreet.recommend.ratings import Scale, read

    others = np.array([[3.0, 4.0, 0.0, 2.0], [0.0, 2.0, 5.0, 3.0], [1.0, 0.0, 4.0, 0.0]])
    model = PrivateMatrixCompletion(method, EPSILON, DELTA, rank=3)
    plan = model.plan(len(others) + 1, 4)

    def run(ratings: Any) -> ArrayLike:
        released = plan.run(ratings, fresh_entropy())
        return np.asarray(
            next(
                vars(released)[name]
                for name in ("base", "directions", "bases", "factors")
                if name in vars(released)
            )
        )

    def program(data: Any) -> Any:
        return unfitted(model).fit(data)

    for one, two in (
        ([5.0, 1.0, 0.0, 0.0], [0.0, 0.0, 5.0, 1.0]),
        ([5.0, 1.0, 5.0, 1.0], [1.0, 5.0, 1.0, 5.0]),
        ([5.0, 1.0, 5.0, 1.0], [5.0, 5.0, 1.0, 1.0]),
    ):
        tables = tuple(sp.csr_array(np.vstack([[row], others])) for row in (one, two))
        sides = [read(part, Scale(1.0, 5.0), None)[0] for part in tables]
        name, relation = f"PrivateMatrixCompletion, {method}", plan.guarantee.neighboring
        yield Subject(name, relation, program, (tables[0], tables[1]), run, sides[0], sides[1], plan.event)
