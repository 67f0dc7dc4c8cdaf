"""The estimators: tables, missing cells, groups, plans, monotone shapes, files, and a replay at worst neighbors."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from discreet import (
    Boolean,
    Categorical,
    Ledger,
    Numeric,
    PrivateAdditiveClassifier,
    PrivateAdditiveRegressor,
    Schema,
    Target,
    Text,
    card,
)
from discreet.additive.plan import AdditivePlan
from discreet.additive.stages import ResidualMechanism
from discreet.audit.replay import replay
from discreet.audit.trace import trace
from discreet.mechanisms.samplers.entropy import insecure_noise
from discreet.privacy.guarantee import Neighboring, Sensitivity

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # so few records are mostly noise

SCHEMA = Schema(
    {
        "age": Numeric(0.0, 100.0),
        "gain": Numeric(0.0, 1e5, logarithmic=True, missing_feature=True),
        "ward": Categorical(tuple("abcdefg")),
        "smoker": Boolean(),
    },
    target=Target("ill", ("no", "yes")),
)
OF_PEOPLE = Schema(dict(SCHEMA.columns), SCHEMA.target, group="person")


def people(n=3000, seed=0):
    """A table in which age bends, one ward stands out, and some gains are missing."""
    rng = np.random.default_rng(seed)
    age, ward = rng.uniform(0, 100, n), rng.integers(0, 7, n)
    gain = np.where(rng.uniform(size=n) < 0.2, np.nan, np.exp(rng.uniform(0, 11, n)) - 1)
    smoker = rng.uniform(size=n) < 0.4
    raw = 3 * np.abs(age / 50 - 1) - 1.5 + (ward == 2) + 0.5 * smoker + np.where(np.isnan(gain), 2.0, 0.0)
    ill = rng.uniform(size=n) < 1 / (1 + np.exp(-2 * raw))
    return pd.DataFrame(
        {
            "age": age,
            "gain": gain,
            "ward": np.array(list("abcdefg"))[ward],
            "smoker": np.where(smoker, "yes", "no"),
            "ill": np.where(ill, "yes", "no"),
            "person": np.arange(n) // 2,
        }
    )


@pytest.fixture(scope="module")
def fitted():
    with insecure_noise(1):
        model = PrivateAdditiveClassifier(5.0, 1e-6, schema=SCHEMA, n_iterations=20, pairs=0)
        return model.fit(people())


def test_a_table_is_learned_from(fitted):
    table = people(seed=1)
    assert fitted.score(table, table["ill"]) > 0.8
    assert list(fitted.shapes_) == ["age", "gain", "ward", "smoker"]
    shape = fitted.shapes_["age"]
    values = np.array(shape["value"])
    assert values[0] > 1 > -1 > values[len(values) // 2]
    assert shape["lower"][0] == 0.0
    assert shape["upper"][-1] == 100.0
    assert np.sum(shape["count"]) == pytest.approx(3000, rel=0.1)
    assert fitted.shapes_["gain"]["bin"][-1] == "missing"
    assert fitted.shapes_["gain"]["value"][-1] > 1
    assert next(iter(fitted.importances_)) == "age"
    chances = fitted.predict_proba(table)
    assert np.allclose(chances.sum(axis=1), 1)
    assert np.array_equal(fitted.predict(table) == "yes", chances[:, 1] > 0.5)


def test_every_container_gives_the_same_predictions(fitted):
    frame = people(50, seed=2)
    expected = fitted.decision_function(frame)
    arrow = pl.from_pandas(frame)
    plain = {name: frame[name].tolist() for name in frame}
    assert np.array_equal(fitted.decision_function(arrow), expected)
    assert np.array_equal(fitted.decision_function(plain), expected)


def test_predictions_add_up_to_the_tables(fitted):
    frame = people(200, seed=3)
    total = np.full(len(frame), fitted.intercept_)
    age = fitted.shapes_["age"]
    total += np.array(age["value"])[np.searchsorted(age["lower"][1:], frame["age"], side="right")]
    gain = fitted.shapes_["gain"]
    places = np.searchsorted(gain["lower"][1:-1], frame["gain"].fillna(0), side="right")
    total += np.array(gain["value"])[np.where(frame["gain"].isna(), len(gain["value"]) - 1, places)]
    for name in ("ward", "smoker"):
        texts = frame[name] if name == "ward" else frame[name].map({"yes": "true", "no": "false"})
        shape = fitted.shapes_[name]
        place = {label: k for k, names in enumerate(shape["bin"]) for label in names.split(", ")}
        total += np.array(shape["value"])[[place[text] for text in texts]]
    assert np.allclose(total, fitted.decision_function(frame))


def test_the_plan_is_what_the_fit_is_charged(fitted, tmp_path):
    model = PrivateAdditiveClassifier(5.0, 1e-6, schema=SCHEMA, n_iterations=20, pairs=0)
    plan = model.plan(3000)
    assert isinstance(plan, AdditivePlan)
    assert plan.event == fitted.privacy_.event
    assert dict(plan.noise) == dict(fitted.privacy_.noise)
    ledger = Ledger(tmp_path / "budget.db", 10.0, 1e-5)
    again = model.set_params(ledger=ledger).fit(people())
    assert [charge.event for charge in ledger.history()] == [plan.event]
    assert again.privacy_.paid is not None


def test_the_example_of_the_guide_runs(capsys):
    text = (Path(__file__).parents[2] / "docs" / "additive.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    scope = {}
    exec(compile(example, "additive.md", "exec"), scope)
    assert "39000 x 3" in capsys.readouterr().out
    assert scope["model"].plan(39_000).guarantee.epsilon == 1.0


def test_groups_come_from_the_schema():
    with pytest.raises(
        ValueError, match="max_rows_per_group"
    ):  # the fit of single rows would be a false promise
        PrivateAdditiveClassifier(2.0, 1e-6, schema=OF_PEOPLE).fit(people())
    model = PrivateAdditiveClassifier(2.0, 1e-6, schema=OF_PEOPLE, max_rows_per_group=2, n_iterations=2)
    fitted = model.fit(people())
    assert fitted.privacy_.guarantee.unit == "user"
    assert fitted.privacy_.event == model.plan(3000).event
    assert model.plan(3000).record_guarantee.epsilon < 2.0


def test_files_keep_the_model_and_its_edits(fitted, tmp_path):
    path = tmp_path / "model.json"
    card.save(fitted, path)
    loaded = card.load(path)
    frame = people(100, seed=4)
    assert np.array_equal(loaded.predict_proba(frame), fitted.predict_proba(frame))
    assert loaded.shapes_ == fitted.shapes_ or json.dumps(loaded.shapes_) == json.dumps(fitted.shapes_)
    assert loaded.classes_.tolist() == ["no", "yes"]
    flat = [0.0] * len(loaded.shapes_["ward"]["value"])
    loaded.set_shape("ward", flat)
    assert loaded.shapes_["ward"]["value"] == flat
    assert "low" not in loaded.shapes_["ward"]
    assert loaded.shapes_["age"]["low"] == fitted.shapes_["age"]["low"]
    assert not np.array_equal(loaded.decision_function(frame), fitted.decision_function(frame))
    card.save(loaded, path, overwrite=True)
    content = json.loads(path.read_text())
    assert sorted(content["original"]) == ["margins", "values"]
    assert np.array_equal(card.load(path).decision_function(frame), loaded.decision_function(frame))


def test_a_damaged_model_is_refused(fitted):
    kind = type(fitted)
    arrays = fitted.to_arrays()
    for name, change in {
        "values": lambda array: array[:-1],
        "counts": lambda array: np.append(array, 1.0),
        "bins": lambda array: array * 0,
        "places": lambda array: array + 100,
        "margins": lambda array: array - 0.1,
        "intercept": lambda array: np.zeros(2),
    }.items():
        with pytest.raises((ValueError, KeyError, TypeError)):
            kind.from_arrays(arrays | {name: change(arrays[name])}, fitted.privacy_)


def test_shapes_are_drawn_as_they_were_released(fitted):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    drawn = fitted.plot(["age", "ward"]).to_dict()
    assert len(drawn["vconcat"]) == 2
    for name, chart in zip(["age", "ward"], drawn["vconcat"], strict=True):
        gray, front = chart["layer"]  # in front of the bars: a line at 0, and the values
        counts, values = (layer["data"]["values"] for layer in (gray, front["layer"][-1]))
        table = fitted.shapes_[name]
        assert [one["value"] for one in values][: len(counts)] == table["value"][: len(counts)]
        band = front["layer"][1]["data"]["values"]
        assert [one["low"] for one in band][: len(counts)] == table["low"][: len(counts)]
        assert [one["high"] for one in band][: len(counts)] == table["high"][: len(counts)]
        assert [one["rows"] for one in counts] == [max(0.0, count) for count in table["count"][: len(counts)]]


def test_bands_can_be_left_out(fitted):
    pytest.importorskip("altair")
    assert all(
        len(chart["layer"][1]["layer"]) == 2 for chart in fitted.plot(bands=False).to_dict()["vconcat"]
    )


def test_models_of_older_files_have_no_bands(fitted):
    arrays = {name: array for name, array in fitted.to_arrays().items() if name != "margins"}
    older = type(fitted).from_arrays(arrays, fitted.privacy_)
    assert all("low" not in table for table in older.shapes_.values())
    assert older.shapes_["age"]["value"] == fitted.shapes_["age"]["value"]


# -- regression, classes, pairs --------------------------------------------------------------------------------------


def bumps(n=6000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 3))
    return X, np.abs(X[:, 0]) + 0.5 * X[:, 1] + 0.05 * rng.normal(size=n)


def test_targets_are_fitted_in_their_units():
    X, y = bumps()
    model = PrivateAdditiveRegressor(
        5.0, 1e-6, feature_bounds=(-1, 1), target_bounds=(-10, 10), monotonic={"x1": 1}
    )
    with insecure_noise(0):
        model.fit(X, 5 * y)
    assert model.score(X, 5 * y) > 0.95
    values = np.array(model.shapes_["x1"]["value"])
    assert np.all(np.diff(values) >= 0)
    assert values[-1] - values[0] == pytest.approx(5, rel=0.2)
    assert model.predict(X).max() <= 10


def counts(n=6000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 3))
    return X, rng.poisson(np.exp(1 + np.sin(3 * X[:, 0]) - 0.5 * X[:, 1]))


def test_shapes_of_counts_multiply(tmp_path):
    X, y = counts()
    model = PrivateAdditiveRegressor(
        5.0, 1e-6, feature_bounds=(-1, 1), target_bounds=(0, 40), loss="poisson", monotonic={"x1": -1}
    )
    with insecure_noise(0):
        model.fit(X, y)
    truth = np.exp(1 + np.sin(3 * X[:, 0]) - 0.5 * X[:, 1])
    assert np.mean(np.abs(model.predict(X) / truth - 1)) < 0.1
    falling = np.array(model.shapes_["x1"]["value"])
    assert np.all(np.diff(falling) <= 0)
    assert falling[0] - falling[-1] == pytest.approx(1.0, abs=0.25)
    flat = PrivateAdditiveRegressor(
        **model.get_params() | {"loss": "squared", "pairs": 0, "monotonic": None}
    ).fit(X, y)
    assert model.score(X, truth) > flat.score(X, truth) + 0.05  # a sum of shapes cannot follow a product
    card.save(model, tmp_path / "counts.json")
    loaded = card.load(tmp_path / "counts.json")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    model.set_params(loss="squared", target_bounds=(0, 1))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_predicted_counts_keep_their_range():
    X, y = counts(400)
    model = PrivateAdditiveRegressor(
        0.01, 1e-6, feature_bounds=(-1, 1), target_bounds=(0, 40), loss="poisson", least_mean=0.5, pairs=1
    ).fit(X, y)
    found = model.predict(np.random.default_rng(1).uniform(-1, 1, size=(2000, 3)))
    assert found.min() >= 0.5 * (1 - 1e-12)
    assert found.max() <= 40 * (1 + 1e-12)


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"target_bounds": (-1, 5), "loss": "poisson"}, "target_bounds"),
        ({"target_bounds": (0, 5), "loss": "poisson", "least_mean": 6.0}, "least_mean"),
        ({"target_bounds": (0, 5), "loss": "poisson", "least_mean": 0.0}, "least_mean"),
        ({"target_bounds": (0, 5), "least_mean": 0.1}, "least_mean"),
        ({"target_bounds": (0, 5), "loss": "gamma"}, "loss"),
    ],
)
def test_nonsense_about_counts_is_refused_before_any_data(parameters, named):
    model = PrivateAdditiveRegressor(1.0, feature_bounds=(-1, 1), **parameters)
    with pytest.raises(ValueError, match=named):
        model.plan(1000, 3)


def test_monotone_shapes_fall_where_they_must():
    X, y = bumps()
    model = PrivateAdditiveRegressor(
        5.0, 1e-6, feature_bounds=(-1, 1), target_bounds=(-2, 2), monotonic={"x1": -1}, n_iterations=5
    ).fit(X, y)
    values = np.array(model.shapes_["x1"]["value"])
    assert np.all(np.diff(values) <= 0)
    assert np.ptp(values) < 0.2  # the truth rises: a flat line is nearest


def test_three_classes():
    X, _ = bumps()
    y = np.digitize(X[:, 0] ** 2 + 0.2 * X[:, 1], [0.2, 0.5])
    model = PrivateAdditiveClassifier(5.0, 1e-6, feature_bounds=(-1, 1), classes=[0, 1, 2], n_iterations=15)
    model.fit(X, y)
    assert model.score(X, y) > 0.85
    assert model.decision_function(X).shape == (len(X), 3)
    assert np.allclose(model.predict_proba(X).sum(axis=1), 1)
    assert list(model.shapes_["x0"])[3:6] == ["value 0", "value 1", "value 2"]


def test_a_product_needs_its_pair():
    X, _ = bumps(8000)
    y = (X[:, 0] * X[:, 2] > 0).astype(int)
    paired = PrivateAdditiveClassifier(
        3.0, 1e-6, feature_bounds=(-1, 1), classes=[0, 1], pairs=1, n_iterations=10
    )
    alone = PrivateAdditiveClassifier(**paired.get_params() | {"pairs": 0})
    assert alone.fit(X, y).score(X, y) < 0.6
    assert paired.fit(X, y).score(X, y) > 0.85
    (found,) = paired.pairs_
    assert found["columns"] == ["x0", "x2"]
    assert np.shape(found["values"]) == (len(found["bins"][0]), len(found["bins"][1]))


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({}, "feature_bounds"),
        ({"feature_bounds": [(0, 1)]}, "feature_bounds"),
        ({"feature_bounds": (1, 0)}, "feature_bounds"),
        ({"feature_bounds": (-1, 1), "pairs": -1}, "pairs"),
        ({"feature_bounds": (-1, 1), "max_bins": 1}, "max_bins"),
        ({"feature_bounds": (-1, 1), "monotonic": {"x9": 1}}, "monotonic"),
        ({"feature_bounds": (-1, 1), "delta": 0.0}, "delta"),
        ({"schema": "people.toml"}, "schema"),
        ({"schema": Schema({"a": Text()})}, "schema"),
    ],
)
def test_nonsense_is_refused_before_any_data(parameters, named):
    model = PrivateAdditiveClassifier(**{"epsilon": 1.0, "delta": 1e-6, "classes": [0, 1]} | parameters)
    with pytest.raises((ValueError, TypeError), match=named):
        model.plan(1000, 3)


# -- audit -------------------------------------------------------------------------------------------------------------


def worst(relation, kind):
    """A record that differs in every column, with a residual beyond the clip whatever was learned so far."""
    rng = np.random.default_rng(0)
    X = np.tile(rng.uniform(-1, 1, size=(30, 2)), (4, 1))
    y = np.zeros(len(X)) if kind is PrivateAdditiveClassifier else np.full(len(X), -1.0)
    X[0], y[0] = [0.9, 0.9], 1.0
    other, labels = X.copy(), y.copy()
    if relation is Neighboring.REPLACE_ONE:
        other[0], labels[0] = [0.9, 0.9], y[1]
        if kind is PrivateAdditiveRegressor:
            y[0], labels[0] = 1.0, -1.0
    elif relation is Neighboring.ZERO_OUT:
        other[0] = np.nan
    else:
        other, labels = other[1:], labels[1:]
    return (X, y.astype(int) if kind is PrivateAdditiveClassifier else y), (
        other,
        labels.astype(int) if kind is PrivateAdditiveClassifier else labels,
    )


def program(kind, relation, pairs=0, **chosen):
    told = {"classes": [0, 1]} if kind is PrivateAdditiveClassifier else {"target_bounds": (-1.0, 1.0)}
    told |= chosen
    model = kind(
        1.0,
        1e-2,
        neighboring=relation.value,
        n_samples=120,
        bad_rows="null",
        feature_bounds=(-1.0, 1.0),
        n_iterations=2,
        pairs=pairs,
        **told,
    )
    return lambda data: model.set_params().fit(*data)


@pytest.mark.parametrize("kind", [PrivateAdditiveClassifier, PrivateAdditiveRegressor])
@pytest.mark.parametrize("relation", list(Neighboring))
def test_a_replay_at_worst_neighbors_passes_and_comes_close(kind, relation):
    pairs = int(relation is Neighboring.REPLACE_ONE)
    found = replay(program(kind, relation, pairs), *worst(relation, kind))
    assert found.passed, str(found)
    assert 0.95 < found.worst_input_ratio <= 1


@pytest.mark.parametrize("relation", list(Neighboring))
def test_a_replay_of_counts_passes_and_comes_close(relation):
    """All counts are 0 but one, which is the highest: its residual is clipped, and so are all others."""
    pairs = int(relation is Neighboring.REPLACE_ONE)
    (X, y), (other, labels) = worst(relation, PrivateAdditiveRegressor)
    chosen = {"target_bounds": (0.0, 10.0), "loss": "poisson"}
    run = program(PrivateAdditiveRegressor, relation, pairs, **chosen)
    found = replay(run, (X, 5 * (y + 1)), (other, 5 * (labels + 1)))
    assert found.passed, str(found)
    assert 0.9 < found.worst_input_ratio <= 1


def test_exchanged_records_that_share_no_bin_attain_the_histograms():
    relation = Neighboring.REPLACE_ONE
    (X, y), _ = worst(relation, PrivateAdditiveClassifier)
    other = X.copy()
    other[0] = -X[0]
    found = replay(program(PrivateAdditiveClassifier, relation), (X, y), (other, y))
    assert found.passed, str(found)
    assert 0.99 < found.worst_input_ratio <= 1


def test_a_clip_taken_from_the_residuals_is_caught(monkeypatch):
    """The twin's cap is the largest residual of the data: the noise would depend on who is in it."""
    honest = ResidualMechanism.release_sums

    def peeking(self, records, theta, slopes, entropy):
        largest = float(np.abs(slopes(np.zeros((len(records.scales), 1)), slice(None))).max())
        return honest(dataclasses.replace(self, cap=0.1 + largest / 2), records, theta, slopes, entropy)

    monkeypatch.setattr(ResidualMechanism, "release_sums", peeking)
    X, y = np.tile([[0.5, -0.5]], (100, 1)), np.zeros(100)
    y[0] = 1.0
    relation = Neighboring.ADD_REMOVE_ONE
    found = replay(program(PrivateAdditiveRegressor, relation), (X, y), (X[1:], y[1:]))
    assert not found.passed


def test_half_the_noise_is_caught(monkeypatch):
    honest = ResidualMechanism.gaussian.func

    def half(self):
        made = honest(self)
        return dataclasses.replace(made, sensitivity=Sensitivity(made.sensitivity.value / 2))

    monkeypatch.setattr(ResidualMechanism, "gaussian", property(half))
    relation = Neighboring.ADD_REMOVE_ONE
    found = replay(program(PrivateAdditiveClassifier, relation), *worst(relation, PrivateAdditiveClassifier))
    assert "distance" in found.failed_checks


def test_equal_answers_give_equal_models():
    one = trace(
        program(PrivateAdditiveRegressor, Neighboring.ZERO_OUT),
        worst(Neighboring.ZERO_OUT, PrivateAdditiveRegressor)[0],
    )
    assert one.error is None
    assert len(one.calls) == 1 + 2 + 2
