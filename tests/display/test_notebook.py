"""What a notebook shows: the same content as the pages, without warnings, for everything that has a promise."""

import inspect
import warnings

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator
from sklearn.linear_model import Ridge

import discreet
from discreet import Ledger, PrivateLogisticRegression, evaluate
from discreet.privacy.events import Gaussian, Pure
from discreet.privacy.page import shares
from discreet.tables.cohort import COHORT_SCHEMA

pytestmark = pytest.mark.filterwarnings("ignore::discreet.NoiseWarning")
ESTIMATORS = [
    name
    for name in discreet.__all__
    if inspect.isclass(getattr(discreet, name)) and issubclass(getattr(discreet, name), BaseEstimator)
]
NEEDED = {
    "PrivateSearchCV": (PrivateLogisticRegression(), {"l2": [1.0]}),
    "PrivateSelection": ({"one": PrivateLogisticRegression()},),
    "PrivateTransferClassifier": (PrivateLogisticRegression(),),
    "PrivateTransferRegressor": (Ridge(), (0.0, 1.0)),
    "SchemaEncoder": (COHORT_SCHEMA,),
}


@pytest.fixture(scope="module")
def rows():
    X = np.random.default_rng(0).normal(size=(3000, 3)) / 2
    return X, (X[:, 0] > 0).astype(int)


@pytest.fixture(scope="module")
def budget(tmp_path_factory):
    return Ledger(tmp_path_factory.mktemp("ledger") / "<budget>.ledger", 3.0, 1e-4)


@pytest.fixture(scope="module")
def model(rows, budget):
    return PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1], ledger=budget).fit(*rows)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_shows_itself_without_a_warning(name):
    """scikit-learn reads the docstring for its table of parameters, and warns of sections it does not know."""
    made = getattr(discreet, name)(*NEEDED.get(name, ()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert name in made._repr_html_()


def test_a_fitted_model_shows_its_promise(model):
    promise = model.privacy_._repr_html_()
    assert "50% → 73%" in promise
    assert model._repr_html_().endswith(promise)
    assert model._repr_mimebundle_()["text/html"].endswith(promise)
    with config_context(display="text"):
        assert "text/html" not in model._repr_mimebundle_()


def test_everything_with_a_promise_shows_itself(rows, model, budget):
    found = evaluate(model, *rows, epsilon=0.5, delta=1e-6, ledger=budget)
    shown = {
        "statement": model.privacy_,
        "plan": model.plan(n_samples=3000, n_features=3),
        "evaluation": found,
        "ledger": budget,
    }
    for name, one in shown.items():
        text = one._repr_html_()
        assert text.startswith('<div class="discreet">'), name
        assert "<script" not in text, name
    low, high = found["accuracy"].lower, found["accuracy"].upper
    assert f"{low:.1%} to {high:.1%}" in found._repr_html_()
    assert "&lt;budget&gt;.ledger" in budget._repr_html_()


def test_a_ledger_shows_who_when_what_for_spent_and_left(tmp_path):
    ledger = Ledger(tmp_path / "budget.ledger", 3.0, 1e-6)
    assert "Nothing has been released yet." in ledger._repr_html_()
    ledger.charge(Gaussian(4.0), label="mean <age>", who="Ann")
    ledger.charge(Gaussian(6.0), label="second", who="Bob")
    ledger.to_html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    for charge in ledger.history():
        assert charge.time[:16].replace("T", " ") in text
        assert charge.who in text
        assert f"{ledger.price(charge.event):.3g}" in text
    assert "mean &lt;age&gt;" in text
    assert f"epsilon {ledger.spent().epsilon:.3g} of 3" in text
    assert f"epsilon {ledger.remaining().epsilon:.3g}" in text
    assert sum(epsilon for _, _, epsilon in shares(ledger, ledger.history())) == pytest.approx(
        ledger.spent().epsilon
    )
    assert ledger.spent_after()[-1] == pytest.approx(ledger.spent().epsilon)


def test_what_is_left_is_counted_in_releases_like_the_last(tmp_path):
    ledger = Ledger(tmp_path / "budget.ledger", 1.0, 0.0)
    event = Pure(0.3)
    ledger.charge(event, label="a third")
    count = ledger.further(event)
    assert count == 2
    assert "2 more releases like &#x27;a third&#x27; would fit" in ledger._repr_html_()
    for _ in range(count):
        ledger.charge(event)
    assert ledger.further(event) == 0
    assert "would be refused; a smaller one fits" in ledger._repr_html_()
    ledger.charge(Pure(0.1))
    assert "Nothing more will be released." in ledger._repr_html_()
    assert Ledger(tmp_path / "large.ledger", 100.0, 0.0).further(Pure(0.01), most=10) == 10
