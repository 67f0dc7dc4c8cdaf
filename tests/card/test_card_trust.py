"""Verified claims, signatures, payments, and models handed to other tools."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import warnings

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import discreet
from discreet import PrivateLogisticRegression, card
from discreet.cli import main
from discreet.mechanisms.samplers.entropy import insecure_noise

N = 3000
CLASSIFIERS = {
    "logistic": lambda: discreet.PrivateLogisticRegression(classes=[0, 1]),
    "words": lambda: discreet.PrivateLogisticRegression(classes=["no", "yes"]),
    "truths": lambda: discreet.PrivateLogisticRegression(classes=[False, True], fit_intercept=False),
    "softmax": lambda: discreet.PrivateLogisticRegression(classes=[0, 1, 2]),
    "one against the rest": lambda: discreet.PrivateLogisticRegression(classes=[0, 1, 2], multi_class="ovr"),
    "svm": lambda: discreet.PrivateLinearSVC(classes=[0, 1]),
    "svm of three": lambda: discreet.PrivateLinearSVC(classes=["a", "b", "c"]),
    "sparse": lambda: discreet.PrivateSparseLogisticRegression(classes=[0, 1], delta=1e-6, l1_radius=5.0),
}
REGRESSORS = {
    "ridge": lambda: discreet.PrivateRidge(target_bounds=(-1, 3)),
    "huber": lambda: discreet.PrivateHuberRegressor(target_bounds=(-1, 3), fit_intercept=False),
    "lasso": lambda: discreet.PrivateLasso(target_bounds=(-1, 3), delta=1e-6, l1_radius=5.0),
}
EVERY = {**CLASSIFIERS, **REGRESSORS}


def fitted(name, **parameters):
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(N, 3))
    model = EVERY[name]().set_params(**parameters)
    if name in REGRESSORS:
        return model.fit(rows, np.clip(rows @ [0.5, -0.3, 0.1] + 1, -1, 3)), rows
    codes = np.digitize(rows[:, 0], [0.0] if len(model.classes) == 2 else [-0.5, 0.5])
    return model.fit(rows, np.asarray(model.classes)[codes]), rows


@pytest.mark.parametrize("name", EVERY)
def test_every_model_is_saved_loaded_verified_and_exported(name, tmp_path):
    model, rows = fitted(name)
    path = tmp_path / "model.json"
    card.save(model, path)
    again = card.load(path)
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
    found = card.verify(path)
    assert found.claimed == model.privacy_.guarantee
    assert 0.9 * model.epsilon < found.epsilon <= model.epsilon

    card.to_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    outputs = session.run(None, {"X": rows})
    plain = card.to_sklearn(model)
    if name in REGRESSORS:
        np.testing.assert_allclose(outputs[0], model.predict(rows), rtol=1e-9)
        if name != "lasso":
            short = 0.01 * rows
            reference = unclipped(model).predict(short)
            np.testing.assert_allclose(plain.predict(short), reference, rtol=1e-9)
        return
    np.testing.assert_array_equal(outputs[0].astype(model.classes_.dtype), model.predict(rows))
    if hasattr(model, "predict_proba"):
        np.testing.assert_allclose(outputs[1], model.predict_proba(rows), rtol=1e-7, atol=1e-14)
    if name != "sparse":  # which clips entry by entry, and so may turn a row
        np.testing.assert_array_equal(plain.predict(rows), model.predict(rows))
        if hasattr(plain, "predict_proba"):
            reference = unclipped(model).predict_proba(rows)
            np.testing.assert_allclose(plain.predict_proba(rows), reference, rtol=1e-7, atol=1e-14)


def unclipped(model):
    """The model as if it had been fitted with a bound that no row exceeds."""
    model.row_bounds_ = dataclasses.replace(model.row_bounds_, feature_norm=1e3)
    return model


def resealed(path, change):
    """Change a file as someone would who knows how to make checksums."""
    content = json.loads(path.read_text())
    change(content)
    seals = {name: content.pop(name) for name in ("sha256", "signature") if name in content}
    text = json.dumps(content, separators=(",", ":"))
    content.update(seals, sha256=hashlib.sha256(text.encode()).hexdigest())
    path.write_text(json.dumps(content))


def boast(content):
    content["privacy"]["guarantee"]["epsilon"] /= 2
    content["privacy"]["epsilon"] /= 2


def test_a_false_claim_is_refused_even_with_a_right_checksum(tmp_path, capsys):
    model, _ = fitted("logistic")
    path = tmp_path / "model.json"
    card.save(model, path)
    resealed(path, boast)
    with pytest.raises(card.CardError, match=r"claims epsilon 0\.5 .* events cost .*: the claim is false"):
        card.verify(path)
    assert main(["verify", str(path)]) == 1
    assert "the claim is false" in capsys.readouterr().err


def test_signatures_notice_what_checksums_cannot(tmp_path):
    model, _ = fitted("logistic")
    path, private, public = (tmp_path / name for name in ("model.json", "private.pem", "public.pem"))
    card.new_key(private, public)
    assert private.stat().st_mode & 0o077 == 0
    card.save(model, path)
    with pytest.raises(card.CardError, match="is not signed"):
        card.verify(path, key=public)
    card.save(model, path, key=private, overwrite=True)
    assert card.verify(path, key=public).signed
    card.new_key(tmp_path / "other.pem", tmp_path / "other.pub")
    with pytest.raises(card.CardError, match="signed with another key"):
        card.verify(path, key=tmp_path / "other.pub")

    resealed(path, lambda content: content["parameters"].update(feature_bound=2.0))
    assert card.verify(path).signed is None  # the checksum is right and the claim still follows
    with pytest.raises(card.CardError, match="was changed, or signed with another key"):
        card.verify(path, key=public)


def test_keys_are_never_replaced_and_never_guessed(tmp_path):
    card.new_key(tmp_path / "a", tmp_path / "b")
    with pytest.raises(card.CardError, match="never replaced"):
        card.new_key(tmp_path / "c", tmp_path / "b")
    assert not (tmp_path / "c").exists()
    model, _ = fitted("logistic")
    (tmp_path / "d").write_text("a word")
    for key, message in (
        ("none", "cannot be read"),
        ("b", "is the public key of a pair"),
        ("d", "unencrypted key in PEM format"),
    ):
        with pytest.raises(card.CardError, match=message):
            card.save(model, tmp_path / "model.json", key=tmp_path / key)
    assert not (tmp_path / "model.json").exists()


def test_the_ledger_that_paid_is_recognized(tmp_path, capsys):
    paid = discreet.Ledger(tmp_path / "paid.db", epsilon=3, delta=1e-5)
    other = discreet.Ledger(tmp_path / "other.db", epsilon=3, delta=1e-5)
    model, _ = fitted("logistic", ledger=paid)
    path = tmp_path / "model.json"
    card.save(model, path)
    assert card.verify(path, ledger=paid).charge == paid.history()[-1].sequence
    with pytest.raises(card.CardError, match="was not paid from the ledger"):
        card.verify(path, ledger=other)
    assert main(["verify", str(path), "--ledger", str(tmp_path / "paid.db")]) == 0
    assert "charge 1 of the given ledger" in capsys.readouterr().out


def test_an_equal_charge_is_not_a_payment(tmp_path, capsys):
    ledger = discreet.Ledger(tmp_path / "paid.db", epsilon=9, delta=1e-5)
    names = ("first", "second", "free")
    for name, paying in zip(names, (ledger, ledger, None), strict=True):
        card.save(fitted("logistic", ledger=paying)[0], tmp_path / name)
    assert len({charge.event for charge in ledger.history()}) == 1
    assert [card.verify(tmp_path / name, ledger=ledger).charge for name in names[:2]] == [1, 2]
    with pytest.raises(card.CardError, match=r"names no charge.* holds an equal charge \(1, 2\)"):
        card.verify(tmp_path / "free", ledger=ledger)
    assert main(["verify", str(tmp_path / "free"), "--ledger", str(ledger.path)]) == 1
    assert "does not show that it paid" in capsys.readouterr().err
    assert "the file names no charge" in str(card.verify(tmp_path / "free"))
    assert "charge 2 of the ledger" in str(card.verify(tmp_path / "second"))
    assert card.load(tmp_path / "second").privacy_ == card.read(tmp_path / "second").privacy


def test_a_receipt_that_was_edited_or_belongs_to_something_else_is_refused(tmp_path):
    ledger = discreet.Ledger(tmp_path / "paid.db", epsilon=9, delta=1e-5)
    path = tmp_path / "model.json"
    card.save(fitted("logistic", ledger=ledger, epsilon=2.0)[0], path)
    other = json.loads(path.read_text())["privacy"]["paid"]
    card.save(fitted("logistic", ledger=ledger)[0], path, overwrite=True)
    for edit, message in (
        ({"digest": "0" * 64}, "another one than the file names"),
        ({"ledger": "0" * 32}, "this is another ledger"),
        ({"charge": 0}, "this is another ledger"),
        ({**other, "released": "0" * 64}, "not those that its receipt is bound to"),
    ):
        resealed(path, lambda content, edit=edit: content["privacy"]["paid"].update(edit))
        with pytest.raises(card.CardError, match=message):
            card.verify(path, ledger=ledger)
    resealed(
        path, lambda content: content["privacy"].update(paid={name: other[name] for name in list(other)[:3]})
    )
    with pytest.raises(card.CardError, match=r"charge 1 .* covers a different mechanism"):
        card.verify(path, ledger=ledger)
    for broken in ({"charge": True}, {"digest": 3}, {"head": None}, {"ledger": "\x1b[8m"}):
        resealed(path, lambda content, broken=broken: content["privacy"]["paid"].update({**other, **broken}))
        with pytest.raises(card.CardError, match="a receipt names"):
            card.load(path)
    resealed(path, lambda content: content["privacy"].pop("paid"))  # as files were before
    assert card.load(path).privacy_.paid is None
    with pytest.raises(card.CardError, match="saved before files named their charge"):
        card.verify(path, ledger=ledger)


def promised(**changes):
    """Edit the promise in a file, so that it does not contradict itself."""

    def edit(content):
        content["privacy"]["guarantee"].update(changes)
        content["privacy"]["neighboring"] = content["privacy"]["guarantee"]["neighboring"]

    return edit


def test_a_charge_pays_for_no_other_relation_or_unit(tmp_path):
    ledger = discreet.Ledger(tmp_path / "paid.db", epsilon=9, delta=1e-5, neighboring="zero-out")
    path = tmp_path / "model.json"
    for changes in ({"neighboring": "replace-one"}, {"unit": "user"}, {"kind": "joint-dp"}):
        model, _ = fitted("logistic", ledger=ledger, neighboring="zero-out", solver="noisy-gd")
        card.save(model, path, overwrite=True)
        assert card.verify(path, ledger=ledger).charge
        resealed(path, promised(**changes))
        with pytest.raises(card.CardError, match=r"made for a different (relation|unit|kind)$"):
            card.verify(path, ledger=ledger)


@pytest.mark.parametrize(
    ("entry", "value"), [("neighboring", "replace-one"), ("epsilon", 0.5), ("delta", 0.0)]
)
def test_a_statement_that_contradicts_itself_is_refused(tmp_path, entry, value):
    card.save(fitted("logistic", neighboring="zero-out")[0], tmp_path / "model.json")
    resealed(tmp_path / "model.json", lambda content: content["privacy"].update({entry: value}))
    for read in (card.load, card.verify):
        with pytest.raises(card.CardError, match=f"contradicts itself: {entry}"):
            read(tmp_path / "model.json")


def test_labels_of_a_model_that_cuts_entries_agree_once_they_are_cut():
    model, rows = fitted("sparse", epsilon=4.0)
    plain = card.to_sklearn(model)
    assert np.any(plain.predict(5 * rows) != model.predict(5 * rows))  # as the docstring says
    cut = np.clip(5 * rows, -model.feature_bound, model.feature_bound)
    np.testing.assert_array_equal(plain.predict(cut), model.predict(5 * rows))


def test_every_kind_of_model_file_names_its_charge(tmp_path):
    ledger = discreet.Ledger(tmp_path / "paid.db", epsilon=99, delta=1e-3)
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(400, 2))
    y = (rows[:, 0] > 0).astype(int)
    ratings = sp.random(300, 20, 0.3, random_state=3, format="csr")
    logistic = discreet.PrivateLogisticRegression(classes=[0, 1], solver="noisy-gd")
    search = discreet.PrivateSearchCV(logistic, {"feature_bound": [1.0, 2.0]}, method="split", ledger=ledger)
    models = (
        discreet.PrivateMedian(radius=3.0, ledger=ledger).fit(rows),
        discreet.PrivateMatrixCompletion("bias", 4.0, rating_bounds=(0, 1), ledger=ledger).fit(ratings),
        search.fit(rows, y).best_estimator_,
    )
    for number, model in enumerate(models, start=1):
        card.save(model, tmp_path / "model.json", overwrite=True)
        assert card.verify(tmp_path / "model.json", ledger=ledger).charge == number


def test_of_a_pipeline_the_model_is_saved_with_the_schema(tmp_path):
    schema = discreet.Schema({"age": discreet.Numeric(0, 100)}, discreet.Target("ill", ("no", "yes")))
    table = {"age": np.arange(2000) % 100, "ill": np.where(np.arange(2000) % 100 > 50, "yes", "no")}
    model = discreet.PrivateLogisticRegression(classes=["no", "yes"], feature_bound=schema.feature_bound())
    pipe = make_pipeline(discreet.SchemaEncoder(schema), model)
    with pytest.raises(card.CardError, match="only a fitted private model"):
        card.save(pipe, tmp_path / "model.json")
    pipe.fit(table, table["ill"])
    with pytest.raises(card.CardError, match=r"card\.save\(pipe\[-1\], path, schema=pipe\[0\]\.schema\)"):
        card.save(pipe, tmp_path / "model.json")
    card.save(pipe[-1], tmp_path / "model.json", schema=pipe[0].schema)
    again = card.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.predict(again.schema_.transform(table)), pipe.predict(table))
    longer = make_pipeline(FunctionTransformer(), *(step for _, step in pipe.steps))
    with pytest.raises(card.CardError, match="the steps before it"):
        card.save(longer, tmp_path / "model.json")


def test_seeded_models_are_not_verified(tmp_path):
    with insecure_noise(3), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, _ = fitted("logistic")
    card.save(model, tmp_path / "model.json")
    with pytest.raises(card.CardError, match="its noise was seeded"):
        card.verify(tmp_path / "model.json")


def test_models_of_other_kinds_are_saved_and_not_exported(tmp_path):
    rng = np.random.default_rng(1)
    rows = rng.uniform(0, 1, size=(N, 3))
    path = tmp_path / "model.json"
    ratings = sp.csr_matrix(np.clip(rng.normal(3, 1, size=(200, 6)), 1, 5))
    recommender = discreet.PrivateMatrixCompletion("subspace", 5.0, 1e-6, rank=2).fit(ratings)
    made = [
        (discreet.PrivateSimplexRegressor(target_bounds=(0, 1)).fit(rows, rows[:, 0]), "predict", rows),
        (
            discreet.PrivateSimplexClassifier(classes=[0, 1]).fit(rows, rows[:, 0] > 0.5),
            "predict_proba",
            rows,
        ),
        (
            discreet.PrivatePoissonRegressor(target_bounds=(0, 10)).fit(rows, rng.poisson(rows[:, 0] * 3)),
            "predict",
            rows,
        ),
        (recommender, "predict", ratings),
    ]
    for model, method, data in made:
        card.save(model, path, overwrite=True)
        again = card.load(path)
        np.testing.assert_array_equal(getattr(again, method)(data), getattr(model, method)(data))
        assert card.verify(path).claimed == model.privacy_.guarantee
        with pytest.raises(card.CardError, match="cannot be exported"):
            card.to_sklearn(model)
        card.to_html(model, tmp_path / "card.html")
    median = discreet.PrivateMedian(epsilon=1.0, delta=1e-6, radius=3.0).fit(rows)
    card.save(median, path, overwrite=True)
    np.testing.assert_array_equal(card.load(path).median_, median.median_)


def test_a_recommender_with_names_holds_no_user(tmp_path):
    frame = pd.DataFrame(
        {"user": ["secret-user", "b", "b"], "item": ["x", "x", "y"], "rating": [1.0, 5.0, 3.0]}
    )
    model = discreet.PrivateMatrixCompletion("bias", 1.0, 1e-6, items=["x", "y", "z"]).fit(frame)
    card.save(model, tmp_path / "model.json")
    assert "secret-user" not in (tmp_path / "model.json").read_text()
    assert card.load(tmp_path / "model.json").items_.tolist() == ["x", "y", "z"]


@pytest.mark.filterwarnings("ignore::discreet.NoiseWarning")
def test_rows_shrunk_by_their_largest_entry_stay_so_in_files(tmp_path):
    """The automatic choice may look for single columns of wide rows, and then bounds entries instead of norms."""
    rows = np.random.default_rng(0).normal(size=(200, 1500))
    model = PrivateLogisticRegression(1.0, 1e-4, classes=[0, 1]).fit(rows, np.arange(200) % 2)
    card.save(model, tmp_path / "model.json")
    again = card.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))
    card.to_onnx(again, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for size in (1.0, 2.0**290, 2.0**310):  # the last are beyond what a fit takes for records
        scores = session.run(["score"], {"X": size * rows})[0]
        np.testing.assert_allclose(scores, model.predict_proba(size * rows), rtol=1e-7, atol=1e-14)
    # Version 0.1.0 named these bounds in the words of the statement alone; from then on words decide nothing.
    words = model.privacy_.bounds
    old = dataclasses.replace(card.Card.of(model), row_bounds=None)
    assert card.Card.from_dict(old.to_dict()).row_bounds == model.row_bounds_
    model.privacy_ = dataclasses.replace(model.privacy_, bounds={"in other words": 1.0})
    np.testing.assert_array_equal(model.predict_proba(rows), again.predict_proba(rows))
    plain = PrivateLogisticRegression(1.0, 1e-4, classes=[0, 1], solver="noisy-gd").fit(
        rows, np.arange(200) % 2
    )
    before = plain.predict_proba(rows)
    plain.privacy_ = dataclasses.replace(plain.privacy_, bounds=words)
    np.testing.assert_array_equal(plain.predict_proba(rows), before)
    card.save(plain, tmp_path / "plain.json")
    np.testing.assert_array_equal(card.load(tmp_path / "plain.json").predict_proba(rows), before)


@pytest.mark.parametrize("place", ["classes", "arrays"])
def test_words_of_a_small_file_do_not_fill_the_memory(place, tmp_path):
    """NumPy gives every word as much room as the longest: a megabyte of JSON would ask for hundreds of gigabytes."""
    path, words = tmp_path / "model.json", ["long" * 200_000, *map(str, range(200_000))]
    card.save(fitted("logistic")[0], path)

    def change(content):
        content["classes" if place == "classes" else "arrays"] = (
            words
            if place == "classes"
            else {"coef_": {"shape": [len(words)], "kind": "words", "words": words}}
        )

    resealed(path, change)
    with pytest.raises(card.CardError, match="too many, or one of them is too long"):
        card.verify(path)
