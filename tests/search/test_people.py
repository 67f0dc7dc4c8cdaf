"""Searches per person: people are held out, scores move by k, and every fit protects people itself."""

import numpy as np
import pytest
from sklearn.base import clone

from discreet import (
    Ledger,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSearchCV,
    PrivateSelection,
)
from discreet.audit.replay import replay
from discreet.privacy.accounting import accountants
from discreet.search import plans
from discreet.search.plans import Trainer

MODEL = PrivateLogisticRegression(classes=[0, 1], solver="output")
METHODS = ["tries", "split", "split-parallel"]


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    ids = np.repeat([f"p{i}" for i in range(1500)], rng.integers(1, 5, size=1500))
    X = rng.normal(size=(len(ids), 3))
    return X, (X @ [1.0, -2.0, 0.5] > 0).astype(int), ids


@pytest.mark.parametrize("method", METHODS)
def test_a_search_for_people_costs_what_it_says(people, method, tmp_path):
    X, y, ids = people
    ledger = Ledger(tmp_path / "budget", epsilon=9.0, delta=1e-4, unit="user")
    bounds = {"feature_bound": [0.01, 1.0]}
    search = PrivateSearchCV(MODEL, bounds, 8.0, 1e-6, method=method, max_rows_per_group=2, ledger=ledger)
    search.fit(X, y, groups=ids)
    (charge,) = ledger.history()
    assert charge.event == search.privacy_.event
    assert accountants.epsilon(charge.event, 1e-6, ledger.neighboring) <= 8.0
    assert search.privacy_.guarantee.unit == "user"
    assert search.best_estimator_.privacy_ == search.privacy_
    assert "the number of groups, 1500, is public" in search.privacy_.assumptions[0]
    assert search.best_score_ is None  # how many rows were held out is private
    assert search.plan(3000, 3).event == search.privacy_.event


def test_one_row_of_everybody_gives_a_share(people):
    X, y, ids = people
    search = PrivateSelection([MODEL], 8.0, 1e-6, expected_tries=2.0, max_rows_per_group=1).fit(
        X, y, groups=ids
    )
    assert 0 <= search.best_score_ <= 1


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.lemma("selection.md#lemma-2")
def test_nobody_is_trained_on_and_scored_on(people, method, monkeypatch):
    X, y, ids = people
    seen = []
    run = plans.TriesPlan.run if method == "tries" else plans.SplitPlan.run

    def listening(plan, trainer, entropy):
        seen.append(trainer)
        return run(plan, trainer, entropy)

    kind = plans.TriesPlan if method == "tries" else plans.SplitPlan
    monkeypatch.setattr(kind, "run", listening)
    PrivateSelection([MODEL, MODEL], 8.0, 1e-6, method=method, max_rows_per_group=2).fit(X, y, groups=ids)
    (trainer,) = seen
    assert isinstance(trainer, Trainer)
    train, held_out = trainer._places(trainer.train), trainer._places(trainer.held_out)
    assert not {*(train // 2)} & {*(held_out // 2)}
    assert {*(train // 2), *(held_out // 2)} == {*range(1500)}
    assert np.all(trainer.records.truth[trainer.records.empty] == -1)


@pytest.mark.parametrize("method", METHODS)
def test_scores_move_by_as_much_as_a_person_has_rows(people, method):
    one, two = (
        PrivateSelection([MODEL, MODEL], 2.0, 1e-6, method=method, max_rows_per_group=k).plan(3000, 3)
        for k in (1, 2)
    )
    if method == "tries":
        assert (one.score.sensitivity.value, two.score.sensitivity.value) == (1.0, 2.0)
    else:
        assert one.choice.scale * 2 == pytest.approx(two.choice.scale)


@pytest.mark.parametrize("method", METHODS)
def test_everything_of_a_person_may_change(people, method, monkeypatch):
    X, y, ids = (part[:400] for part in people)
    for place in (0, 100, 200):
        mine = ids == ids[place]
        first = int(np.flatnonzero(mine)[0])
        size = 3 if np.count_nonzero(mine) != 3 else 1
        other = (
            np.concatenate([X[:first], -5 * np.tile(X[first], (size, 1)), X[first:][~mine[first:]]]),
            np.concatenate([y[:first], np.full(size, 1 - y[first]), y[first:][~mine[first:]]]),
            np.concatenate([ids[:first], np.full(size, ids[place]), ids[first:][~mine[first:]]]),
        )
        search = PrivateSelection(
            [MODEL, MODEL], 1.0, 1e-3, method=method, expected_tries=3, max_rows_per_group=2
        )

        def program(part, search=search):
            return clone(search).fit(part[0], part[1], groups=part[2])

        found = replay(program, (X, y, ids), other)
        assert found.passed, str(found)


def test_regressors_are_searched_per_person(people):
    X, _, ids = people
    y = X @ [0.1, -0.2, 0.0]
    models = [PrivateRidge(target_bounds=(-1, 1), feature_bound=bound) for bound in (0.1, 3.0)]
    search = PrivateSelection(models, 8.0, 1e-6, method="split", max_rows_per_group=2)
    assert search.fit(X, y, groups=ids).privacy_.guarantee.unit == "user"


def test_misuse_is_refused(people):
    X, y, ids = people
    with pytest.raises(ValueError, match="max_rows_per_group"):
        PrivateSelection([MODEL]).fit(X, y, groups=ids)
    with pytest.raises(ValueError, match="groups="):
        PrivateSelection([MODEL], max_rows_per_group=2).fit(X, y)
    with pytest.raises(ValueError, match="to the search"):
        PrivateSelection([clone(MODEL).set_params(max_rows_per_group=2)]).fit(X, y)
