"""Students as arrays: they predict what scikit-learn's models do, files hold them, and nothing else is believed."""

import json

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from discreet import Ledger, PrivateTransferClassifier, PrivateTransferRegressor, card
from discreet.card.card import CardError, from_array, to_array
from discreet.transfer.classifier import RegressionStudent
from discreet.transfer.students import ArrayStudent, CannotSave, packed
from tests.card.test_card_trust import resealed

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 4))
NEW = np.vstack([RNG.normal(size=(300, 4)), X[:50], [[0, 0, 0, 0]], [[1e30, -1e30, 0, 0]]])
TWO = np.where(X[:, 0] + X[:, 1] ** 2 > 0.5, "yes", "no")
THREE = np.digitize(X[:, 0] - X[:, 2], [-0.5, 0.7])
CLASSIFIERS = [
    LogisticRegression(),
    DecisionTreeClassifier(random_state=0),
    RandomForestClassifier(20, random_state=0),
    ExtraTreesClassifier(10, random_state=0),
    HistGradientBoostingClassifier(max_iter=15),
]
REGRESSORS = [
    Ridge(),
    LinearRegression(),
    DecisionTreeRegressor(random_state=0),
    RandomForestRegressor(20, random_state=0),
    HistGradientBoostingRegressor(max_iter=15),
    HistGradientBoostingRegressor(max_iter=15, loss="absolute_error"),
]


@pytest.mark.parametrize("labels", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda model: type(model).__name__)
def test_classifiers(model, labels):
    model.fit(X, labels)
    found = ArrayStudent(packed(model, model.classes_), model.classes_)
    np.testing.assert_array_equal(found.predict(NEW), model.predict(NEW))
    np.testing.assert_allclose(found.predict_proba(NEW), model.predict_proba(NEW), atol=1e-12)


@pytest.mark.parametrize("model", REGRESSORS, ids=str)
def test_regressors(model):
    model.fit(X, X[:, 0] - 0.5 * X[:, 1] ** 2)
    np.testing.assert_allclose(
        ArrayStudent(packed(model, None)).predict(NEW), model.predict(NEW), rtol=1e-12, atol=1e-9
    )


@pytest.mark.parametrize("model", [CLASSIFIERS[2], CLASSIFIERS[4]], ids=["forest", "boosting"])
def test_missing_cells_go_where_they_went(model):
    holes = X.copy()
    holes[RNG.random(X.shape) < 0.1] = np.nan
    model.fit(holes, THREE)
    found = ArrayStudent(packed(model, model.classes_), model.classes_)
    np.testing.assert_allclose(found.predict_proba(holes), model.predict_proba(holes), atol=1e-12)


@pytest.mark.parametrize("labels", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize(
    "kind", [Ridge(), DecisionTreeRegressor(max_depth=3), RandomForestRegressor(5)], ids=str
)
def test_regressors_of_votes(kind, labels):
    classes = np.unique(labels)
    votes = (labels[:, None] == classes) - 1 / len(classes)
    columns = votes[:, 1:] if len(classes) == 2 else votes
    student = RegressionStudent(
        [kind.__class__(**kind.get_params()).fit(X, one) for one in columns.T], classes
    )
    found = ArrayStudent(packed(student, classes), classes)
    np.testing.assert_array_equal(found.predict(NEW), student.predict(NEW))
    np.testing.assert_allclose(found.predict_proba(NEW), student.predict_proba(NEW), atol=1e-12)


def test_a_student_may_know_some_of_the_classes():
    classes = np.array(["maybe", "no", "yes"])
    model = LogisticRegression().fit(X, TWO)
    found = ArrayStudent(packed(model, classes), classes)
    np.testing.assert_array_equal(found.predict(NEW), model.predict(NEW))
    constant = DummyClassifier(strategy="constant", constant="no").fit(X[:1], ["no"])
    assert set(ArrayStudent(packed(constant, classes), classes).predict(NEW)) == {"no"}


@pytest.mark.parametrize(
    "model",
    [GaussianNB(), MLPClassifier(max_iter=2), make_pipeline(StandardScaler(), LogisticRegression())],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:Stochastic")
def test_others_are_refused_with_what_to_do(model):
    with pytest.raises(CannotSave, match=r"without pickle.*fit_student"):
        packed(model.fit(X, TWO), np.unique(TWO))


def test_a_subclass_is_another_model():
    class Mine(LogisticRegression):
        def predict(self, X):
            return super().predict(-X)

    with pytest.raises(CannotSave):
        packed(Mine().fit(X, TWO), np.unique(TWO))


def fitted(estimator, ledger=None, **settings):
    private = RNG.normal(size=(3000, 4))
    labels = np.where(private[:, 0] > 0, "yes", "no")
    model = PrivateTransferClassifier(
        estimator, epsilon=2.0, delta=1e-6, classes=["no", "yes"], n_teachers=30, ledger=ledger, **settings
    )
    return model.fit(private, labels, X)


@pytest.mark.parametrize("estimator", [DecisionTreeClassifier(max_depth=3), LogisticRegression()], ids=str)
@pytest.mark.parametrize("aggregator", ["shares", "plurality"])
def test_a_file_predicts_verifies_and_has_a_card(estimator, aggregator, tmp_path):
    ledger = Ledger(tmp_path / "budget.ledger", epsilon=3.0, delta=1e-5)
    model = fitted(estimator, ledger, aggregator=aggregator)
    path = tmp_path / "model.json"
    card.save(model, path)
    again = card.load(path)
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))
    np.testing.assert_allclose(again.predict_proba(NEW), model.predict_proba(NEW), atol=1e-12)
    assert again.labels_.tolist() == model.labels_.tolist()
    assert again.privacy_ == model.privacy_
    assert "charge 1" in str(card.verify(path, ledger=ledger))
    card.to_html(path, tmp_path / "page.html")
    assert "Private transfer classifier" in (tmp_path / "page.html").read_text()
    card.save(again, tmp_path / "again.json")
    assert card.read(tmp_path / "again.json").release_digest == card.read(path).release_digest


def test_a_regressor_too(tmp_path):
    private = RNG.uniform(size=(4000, 2))
    model = PrivateTransferRegressor(
        RandomForestRegressor(5, max_depth=3), (0.0, 1.0), delta=1e-6, n_teachers=40
    )
    model.fit(private, private[:, 0], private[:200])
    card.save(model, tmp_path / "model.json")
    again = card.load(tmp_path / "model.json")
    np.testing.assert_allclose(again.predict(private), model.predict(private), atol=1e-12)


@pytest.mark.parametrize(
    "changes",
    [
        {"student_left": np.array([0, -1, -1])},  # a walk that never ends
        {"student_left": np.array([9, -1, -1])},
        {"student_feature": np.array([7, 0, 0])},
        {"student_places": np.array([0, 2])},
        {"student_link": np.array(9)},
        {"codes": np.array([5])},
        {"student_value": np.zeros((2, 2))},
        {"student_root": np.array([3])},
        {"student_value": np.array([["a", "b"]] * 3)},  # words where numbers belong
        {"student_link": np.array("1")},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_file_that_says_something_else_is_refused(changes, tmp_path):
    model = fitted(DecisionTreeClassifier(max_depth=1), student=DecisionTreeClassifier(max_depth=1))
    made = card.read(_saved(model, tmp_path))
    with pytest.raises(CardError, match="not those of a PrivateTransfer"):
        type(made)(**{**vars_of(made), "arrays": {**made.arrays, **changes}})


def test_a_report_does_not_speak_for_the_student(tmp_path):
    """The ledger knows the released labels; whoever changes a file can put another student beside them."""
    ledger = Ledger(tmp_path / "budget.ledger", epsilon=3.0, delta=1e-5)
    path = _saved(fitted(DecisionTreeClassifier(max_depth=1), ledger, student=LogisticRegression()), tmp_path)

    def flip(content):
        coef = to_array(content["arrays"]["student_coef"])
        content["arrays"]["student_coef"] = from_array(-coef)

    resealed(path, flip)
    told = str(card.verify(path, ledger=ledger))
    assert "Not bound   the student" in told
    assert "matches charge 1" in told  # which is true of the labels


def vars_of(made):
    return {name: getattr(made, name) for name in made.__dataclass_fields__}


def _saved(model, place):
    card.save(model, place / "model.json")
    assert "sklearn" not in json.dumps(list(card.read(place / "model.json").arrays))
    return place / "model.json"
