"""The card for people: what is promised, what was declared, and coefficients compared with a reference level."""

import math
import re

import numpy as np
import pytest

from discreet import Ledger, PrivateLogisticRegression, PrivateRidge, card, coefficient_intervals
from discreet.card.released import effects
from discreet.mechanisms.samplers.entropy import insecure_noise
from discreet.privacy.page import posterior
from discreet.tables.schema import Binned, Boolean, Categorical, Numeric, Schema, Target, Text

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
SCHEMA = Schema(
    {
        "age": Numeric(20, 80, missing_feature=True),
        "dose": Binned((1.0, 5.0)),
        "ward": Categorical(("north", "south", "west")),
        "smoker": Boolean(),
        "letter": Text(16),
    },
    target=Target("outcome", ("no", "yes")),
)
ABOUT = card.About(purpose="triage <of> letters", owner="records office")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(2000, SCHEMA.n_features)) / 5, rng.integers(0, 2, size=2000)


@pytest.fixture(scope="module")
def model(rows):
    X, y = rows
    return PrivateLogisticRegression(1.0, 1e-6, classes=["no", "yes"]).fit(X, np.array(["no", "yes"])[y])


def page_of(model, folder, **options):
    card.to_html(model, folder / "card.html", **options)
    return (folder / "card.html").read_text(encoding="utf-8")


def test_an_effect_is_a_difference_of_predictions(model):
    """Each shown number is what the model's score changes by when the cell of a table changes."""
    shown = {(one.group.partition(",")[0], one.name): one for one in effects(card.Card.of(model, SCHEMA))}
    coef = model.coef_[0]

    def score(**cells):
        table = {"age": [50], "dose": [0], "ward": ["north"], "smoker": [None], "letter": [""]} | cells
        return float(SCHEMA.transform(table)[0] @ coef)

    numbers = next(group for group, name in shown if name == "smoker")
    changes = {
        (numbers, "smoker"): score(smoker=["yes"]) - score(smoker=["no"]),
        ("ward", "west"): score(ward=["west"]) - score(ward=["north"]),
        ("dose", "dose>=5"): score(dose=[9]) - score(dose=[0]),
    }
    for key, change in changes.items():
        assert shown[key].of(coef) == pytest.approx(change), key
    age = [one for one in effects(card.Card.of(model, SCHEMA)) if one.name == "age"]
    assert age[0].of(coef) == pytest.approx(score(age=[80]) - score(age=[20]))
    assert age[1].of(coef) == pytest.approx(score(age=[None]) - score(age=[50]))


def test_words_are_left_out_and_the_reference_is_named(model, tmp_path):
    text = page_of(model, tmp_path, schema=SCHEMA)
    assert "letter#" not in text.partition("<details>")[0]
    assert "16 hashed words of &#x27;letter&#x27;" in text
    assert "ward, compared with north" in text
    odds = math.exp(model.coef_[0, 6] - model.coef_[0, 5])  # south compared with north
    assert f'south</th><td class="number">×{odds:#.3g}<' in text


def test_the_promise_is_a_picture(model, tmp_path):
    text = page_of(model, tmp_path)
    assert f"50% → {posterior(0.5, 1.0):.0%}" in text
    assert f"one row changes the odds by a factor of at most {math.e:.3g}" in text
    assert "Privacy statement" in text  # folded
    assert text.index("Suppose someone had") < text.index("<details>") < text.index("Privacy statement")
    for value in model.coef_[0]:
        assert f"{value:.8f}"[:-2] in text.partition("coef_ = ")[2]


def test_belief_follows_the_odds():
    for prior in (0.01, 0.5, 0.9):
        for epsilon in (0.1, 1.0, 5.0):
            after = posterior(prior, epsilon)
            assert after / (1 - after) == pytest.approx(math.exp(epsilon) * prior / (1 - prior))


def test_declarations_travel_in_the_file(model, tmp_path):
    path = tmp_path / "model.json"
    card.save(model, path, about=ABOUT)
    assert card.read(path).about == ABOUT
    assert card.verify(path).claimed == model.privacy_.guarantee
    text = page_of(path, tmp_path)
    assert "triage &lt;of&gt; letters" in text
    assert text.count("<i>not recorded</i>") == 4
    path.write_text(path.read_text().replace("records office", "another office"))
    with pytest.raises(card.CardError, match="checksum"):
        card.read(path)
    assert "about" not in card.Card.of(model).to_dict()


@pytest.mark.parametrize("about", [{"owner": 3}, {"author": "x"}, {"owner": "x" * 3000}, "text"])
def test_declarations_of_another_kind_are_refused(model, about):
    with pytest.raises(card.CardError):
        card.Card.from_dict(card.Card.of(model).to_dict() | {"about": about})


def test_the_day_and_the_budget_come_from_the_ledger(rows, tmp_path):
    X, y = rows
    ledger = Ledger(tmp_path / "budget.ledger", 3.0, 1e-4)
    model = PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1], ledger=ledger).fit(X, y)
    text = page_of(model, tmp_path, ledger=ledger.path)
    assert ledger.history()[0].time[:10] in text
    assert f"{ledger.spent().epsilon / 3:.0%} of the budget is spent" in text
    assert "charge 1 of this ledger" in text
    other = Ledger(tmp_path / "other.ledger", 3.0, 1e-4)
    text = page_of(model, tmp_path, ledger=other)
    assert "does not name a charge of this ledger" in text
    assert ledger.history()[0].time[:10] not in text
    assert "that ledger shows the total" in page_of(model, tmp_path)


def test_a_seeded_or_edited_model_says_so_first(rows, tmp_path):
    X, y = rows
    with insecure_noise(3):
        model = PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1]).fit(X, y)
    model.coef_ = model.coef_ + 1
    text = page_of(model, tmp_path)
    assert text.index("NOT PRIVATE") < text.index("EDITED after the release: coef_") < text.index("<h2")


def test_intervals_show_which_part_is_noise(rows, tmp_path):
    X, _ = rows
    y = np.clip(X[:, 0], -1, 1)
    model = PrivateRidge(1.0, 1e-6, target_bounds=(-1, 1)).fit(X[:, :2], y)
    found = coefficient_intervals(model, X[:, :2], y, epsilon=5.0, delta=1e-6)
    text = page_of(model, tmp_path, intervals=found)
    assert len(re.findall('class="band"', text)) == int(np.isfinite(found.lower).sum()) > 0
    assert f"{found.estimate[0]:+.3g}" in text
