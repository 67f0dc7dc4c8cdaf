"""The contract of estimators: everything public that is fitted, as `discreet._api` lists it, and the printed recipe.

Run this file to write the snapshot of signatures: ``python tests/contracts/test_estimator.py``.
"""

import dataclasses
import functools
import inspect
import json
import pickle
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression, Ridge

sys.path.insert(0, str(Path(__file__).parent))
import recipes
import releases

import discreet
from discreet import BudgetExceeded, Ledger, card
from discreet._api import HOMES
from discreet.audit.trace import difference, frozen
from discreet.card.card import FAMILIES
from discreet.losses import HuberRegression

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # so few records are mostly noise

SNAPSHOT = Path(__file__).with_name("signatures.json")
EPSILON, DELTA = 1.0, 1e-2
PUBLIC = {name: getattr(discreet, name) for name in HOMES}
ESTIMATORS = {
    name: kind for name, kind in PUBLIC.items() if isinstance(kind, type) and issubclass(kind, BaseEstimator)
}
RECIPE = recipes.ESTIMATOR.PrivateAbsoluteRegressor
RATINGS = sp.csr_array(np.tile([[1.0, -1.0, 0.0, 0.5], [0.0, 1.0, 1.0, -0.5]], (releases.N // 2, 1)))
SEARCHED = [discreet.PrivateRidge(target_bounds=(-1.0, 1.0), l2=l2) for l2 in (1.0, 10.0)]
UNLABELED = ("PrivateMedian", "PrivatePCA")
TEACHERS = {"n_teachers": 20, "random_state": 0}


def unfitted(name, **parameters):
    """An estimator with all that it must be told."""
    asked = {"epsilon": EPSILON, "delta": DELTA} | parameters
    if name in releases.LINEAR or name == RECIPE.__name__:
        kind = releases.LINEAR.get(name, RECIPE)
        own = releases.given(kind, **releases.PARAMETERS) | {"bad_rows": "error"}
        own |= {"target_bounds": (0.0, 4.0)} if "Poisson" in name else {}
        return kind(**own | asked)
    own = {
        "PrivateAdditiveClassifier": {"feature_bounds": (-1.0, 1.0), "classes": [0, 1], "n_iterations": 4},
        "PrivateAdditiveRegressor": {
            "feature_bounds": (-1.0, 1.0),
            "target_bounds": (-1.0, 1.0),
            "n_iterations": 4,
        },
        "PrivateERM": {"loss": HuberRegression(0.5)},
        "PrivateMedian": {"radius": 2.0},
        "PrivatePCA": {"n_components": 1},
        "PrivateSelection": {"candidates": SEARCHED},
        "PrivateSearchCV": {"estimator": SEARCHED[0], "param_grid": {"l2": [1.0, 10.0]}},
        "PrivateMatrixCompletion": {"rating_bounds": (-1, 1), "items": list("abcd"), "rank": 2},
        "PrivateTransferClassifier": {
            "estimator": releases.TREE,
            "student": LogisticRegression(),
            "classes": [0, 1],
            **TEACHERS,
        },
        "PrivateTransferRegressor": {"estimator": Ridge(), "bounds": (-1.0, 1.0), **TEACHERS},
        "SchemaEncoder": {
            "schema": discreet.Schema({"a": discreet.Numeric(-1, 1), "b": discreet.Numeric(-1, 1)})
        },
    }[name]
    return ESTIMATORS[name](**own | ({} if name == "SchemaEncoder" else asked))


def fitted(model, X=None, y=None):
    """The estimator after a fit to ordinary data, or to these."""
    rows, targets = releases.ordinary(0)
    X, y = rows if X is None else X, targets if y is None else y
    if getattr(model, "classes", None) is not None and np.asarray(y).dtype.kind == "f":
        y = releases.labels_of(y)
    if "rating_bounds" in model.get_params():
        return model.fit(RATINGS if X is rows else X)
    if "n_teachers" in model.get_params():
        return model.fit(X, y, releases.PUBLIC)
    return model.fit(X) if type(model).__name__ in UNLABELED else model.fit(X, y)


@functools.cache
def ready(name):
    """A fitted estimator; not to be changed."""
    return fitted(unfitted(name))


PRIVATE = [*(name for name in ESTIMATORS if name != "SchemaEncoder"), RECIPE.__name__]
SAVED = [name for name in PRIVATE if name in FAMILIES]
TABLES = [name for name in PRIVATE if name != "PrivateMatrixCompletion"]
LABELED = [name for name in TABLES if name not in UNLABELED]
SEARCHES = ["PrivateSearchCV", "PrivateSelection"]
CLASSIFIERS = [name for name in LABELED if "classes" in unfitted(name).get_params() and name not in SEARCHES]
#: Rows of all other estimators are numbers; what a teacher makes of a row is for the teacher to say.
NUMBERS = [name for name in TABLES if "Transfer" not in name]


# -- what scikit-learn asks for ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PRIVATE, "SchemaEncoder"])
def test_parameters_are_kept_as_given(name):
    model = unfitted(name)
    parameters = model.get_params(deep=False)
    assert list(parameters) == sorted(inspect.signature(type(model)).parameters)
    copy = clone(model)
    assert copy is not model
    assert repr(copy) == repr(model)
    assert difference(frozen(copy.get_params(deep=False)), frozen(parameters)) is None
    assert clone(model).set_params(**parameters).get_params(deep=False) == parameters
    with pytest.raises(ValueError, match="no_such_parameter"):
        model.set_params(no_such_parameter=1)


@pytest.mark.parametrize("name", PRIVATE)
def test_fitted_models_travel(name):
    """A pickle is the model; a clone has forgotten the fit."""
    model = ready(name)
    copy = pickle.loads(pickle.dumps(model))
    assert difference(frozen(model), frozen(copy)) is None
    assert copy.privacy_ == model.privacy_
    assert type(model).__name__ in repr(model)
    assert not [attribute for attribute in vars(clone(model)) if attribute.endswith("_")]


# -- names and words -----------------------------------------------------------------------------------------------


def signature_of(thing):
    """Names, kinds and defaults of parameters, and of those of ``fit``."""
    found = {}
    for method in ("", "fit", "plan", "predict"):
        called = getattr(thing, method, None) if method else thing
        if called is not None and (not method or isinstance(thing, type)):
            parameters = inspect.signature(called).parameters.values()
            found[method or "call"] = [
                (f"{part.name}={part.default!r}" if part.default is not part.empty else part.name)
                + ("" if part.kind is not part.KEYWORD_ONLY else " (by name)")
                for part in parameters
            ]
    return found


def signatures():
    called = {
        name: thing for name, thing in PUBLIC.items() if name.startswith(("Private", "private", "evaluate"))
    }
    called |= {name: PUBLIC[name] for name in ("SchemaEncoder", "coefficient_intervals", "describe")}
    called.pop("PrivacyStatement", None)
    return {name: signature_of(thing) for name, thing in sorted(called.items())}


def test_signatures_are_those_of_the_snapshot():
    """Whoever renames a parameter breaks somebody's program, and should know it."""
    assert signatures() == json.loads(SNAPSHOT.read_text())


@pytest.mark.parametrize("name", [*signatures(), RECIPE.__name__])
def test_every_parameter_is_documented(name):
    thing = PUBLIC.get(name, RECIPE)
    text = inspect.getdoc(thing)
    parameters = text[text.index("Parameters\n---") :]
    for parameter in inspect.signature(thing).parameters:
        assert re.search(rf"\b{parameter}\b", parameters), parameter


# -- the budget and the file ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRIVATE)
def test_a_fit_is_charged_once_and_an_exhausted_budget_refuses_the_next(name, tmp_path):
    ledger = Ledger(tmp_path / "budget.db", EPSILON, DELTA, **terms(name))
    model = fitted(unfitted(name, ledger=ledger))
    (charge,) = ledger.history()
    statement = model.privacy_
    assert (statement.guarantee.epsilon, statement.guarantee.delta) == (EPSILON, DELTA)
    assert dataclasses.replace(statement.paid, released=None, head=None) == dataclasses.replace(
        ledger.receipt(charge), released=None, head=None
    )
    assert statement.event == charge.event
    before = frozen(model)
    with pytest.raises(BudgetExceeded):
        fitted(model)
    assert difference(frozen(model), before) is None
    assert len(ledger.history()) == 1


def terms(name):
    statement = ready(name).privacy_
    return {"neighboring": statement.guarantee.neighboring, "unit": statement.guarantee.unit}


@pytest.mark.parametrize("name", SAVED)
def test_a_model_file_holds_the_model_and_its_promise(name, tmp_path):
    ledger = Ledger(tmp_path / "budget.db", EPSILON, DELTA, **terms(name))
    model = fitted(unfitted(name, ledger=ledger))
    card.save(model, tmp_path / "model.json")
    found = card.verify(tmp_path / "model.json", ledger=ledger)
    assert found.epsilon <= EPSILON
    loaded = card.load(tmp_path / "model.json")
    assert type(loaded) is type(model)
    assert str(loaded.privacy_) == str(model.privacy_)
    if hasattr(model, "coef_"):
        assert np.array_equal(loaded.coef_, model.coef_)
    if hasattr(model, "coef_") or "Additive" in name:
        assert np.array_equal(loaded.predict(releases.PUBLIC), model.predict(releases.PUBLIC))


def test_every_estimator_of_single_models_can_be_saved():
    assert set(FAMILIES) == set(SAVED)


# -- errors before the charge --------------------------------------------------------------------------------------

ROWS, TARGETS = releases.ordinary(0)


def spoiled(value):
    X = ROWS.copy()
    X[3, 1] = value
    return X


BAD = {
    "NaN": (NUMBERS, {}, spoiled(np.nan), None, "NaN|not finite|X"),
    "infinite": (NUMBERS, {}, spoiled(np.inf), None, "infinity|not finite|X"),
    "empty": (TABLES, {}, ROWS[:0], TARGETS[:0], "X|row|sample"),
    "one dimension": (TABLES, {}, ROWS[:, 0], None, "X|2D"),
    "short labels": (LABELED, {}, ROWS, TARGETS[:-1], "y|label|target"),
    "NaN target": (
        sorted({*LABELED} & {*NUMBERS} - {*CLASSIFIERS}),
        {},
        ROWS,
        np.full(len(ROWS), np.nan),
        "y|target",
    ),
    "one class": (CLASSIFIERS, {"classes": [0]}, ROWS, None, "classes"),
    "unknown labels": (CLASSIFIERS, {"classes": [0, 7]}, ROWS, None, "label|classes"),
    "negative epsilon": (PRIVATE, {"epsilon": -1.0}, None, None, "epsilon"),
    "NaN epsilon": (PRIVATE, {"epsilon": np.nan}, None, None, "epsilon"),
    "text for epsilon": (PRIVATE, {"epsilon": "1"}, None, None, "epsilon"),
    "delta of one": (PRIVATE, {"delta": 1.0}, None, None, "delta"),
    "unknown relation": (PRIVATE, {"neighboring": "nearby"}, None, None, "neighboring"),
}


@pytest.mark.parametrize(("case", "name"), [(case, name) for case, parts in BAD.items() for name in parts[0]])
def test_bad_input_is_refused_by_name_before_the_charge(case, name, tmp_path):
    _, changes, X, y, named = BAD[case]
    ledger = Ledger(tmp_path / "budget.db", 10.0, 0.5, **terms(name))
    model = unfitted(name, ledger=ledger, **changes)
    with pytest.raises((ValueError, TypeError), match=named):
        fitted(model, X, y)
    assert ledger.history() == []
    assert not hasattr(model, "privacy_")


# -- the recipe ----------------------------------------------------------------------------------------------------


def test_the_printed_recipe_is_short():
    assert len(recipes.ESTIMATOR_CODE.strip().splitlines()) <= 25


if __name__ == "__main__":
    SNAPSHOT.write_text(json.dumps(signatures(), indent=1) + "\n")
