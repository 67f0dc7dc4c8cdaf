"""Model files: exact, whole or not at all, refused when touched, and never executed."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat

import numpy as np
import pytest

from discreet import _files, card
from discreet.card.card import from_array
from discreet.estimators.classifiers import PrivateLinearSVC, PrivateLogisticRegression
from discreet.privacy.events import Approximated, ObjectivePerturbation
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.privacy.statement import PrivacyStatement
from discreet.records.bounds import Bounds
from discreet.tables.schema import Boolean, Categorical, Numeric, Schema, Target

SCHEMA = Schema(
    {"age": Numeric(0, 100), "ward": Categorical(("b", "a")), "smoker": Boolean()}, Target("y", ("no", "yes"))
)
STATEMENT = PrivacyStatement(
    guarantee=Guarantee(0.1, 1e-9, Neighboring.ZERO_OUT),
    event=Approximated(ObjectivePerturbation("logistic", 40.0, 0.01, 0.25, 0.0005), 1e-18),
    mechanism="objective perturbation",
    theorem="a theorem",
    noise={"stddev": 1 / 3, "sampler": "exact"},
    bounds={"row norm": 2.0},
    assumptions=("each person is one row",),
    not_covered=("time",),
)
AWKWARD = (0.1, -1 / 3, 5e-324, -1.7976931348623157e308)


def fitted(kind=PrivateLogisticRegression, classes=("no", "yes"), **parameters):
    """A model as a fit leaves it, without the expense of one."""
    model = kind(0.1, 1e-9, neighboring="zero-out", feature_bound=2.0, classes=list(classes), **parameters)
    outputs = 1 if len(classes) == 2 else len(classes)
    model.coef_ = np.array([AWKWARD] * outputs)
    model.intercept_ = np.linspace(0.1, 0.7, outputs)
    model.classes_ = np.array(classes)
    model.n_features_in_ = 4
    model.privacy_ = STATEMENT
    model.row_bounds_ = Bounds(2.0, intercept=True)
    return model


def rewritten(path, change, *, seal=True):
    """Edit a model file; ``seal`` recomputes the checksum as someone with bad intentions would."""
    content = json.loads(path.read_text())
    change(content)
    if seal:
        content.pop("sha256", None)
        content.pop("signature", None)
        text = json.dumps(content, separators=(",", ":"))
        content["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(content))


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.json"
    card.save(fitted(), path, schema=SCHEMA)
    return path


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC])
@pytest.mark.parametrize("classes", [("no", "yes"), (0, 1), (False, True), (2, 5, 9), (0.5, 1.5)], ids=str)
def test_what_is_saved_is_what_is_loaded(kind, classes, tmp_path):
    path = tmp_path / "model.json"
    model = fitted(kind, classes)
    card.save(model, path)
    again = card.load(path)
    assert type(again) is kind
    for name in ("coef_", "intercept_", "classes_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))
        assert getattr(again, name).dtype == getattr(model, name).dtype
    assert again.n_features_in_ == 4
    assert again.privacy_ == STATEMENT
    assert again.get_params() == model.get_params()
    assert not hasattr(again, "schema_")
    assert not hasattr(again, "feature_names_in_")


def test_loaded_models_predict_the_same(tmp_path):
    model = fitted()
    model.coef_ = np.array([[1.5, -2.0, 0.25, 0.1]])
    rows = np.random.default_rng(3).normal(size=(50, 4))
    card.save(model, tmp_path / "model.json")
    again = card.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))


def test_schema_and_feature_names_travel_along(tmp_path):
    path = tmp_path / "model.json"
    model = fitted()
    model.feature_names_in_ = np.array(SCHEMA.feature_names, dtype=object)
    card.save(model, path, schema=SCHEMA)
    again = card.load(path)
    assert again.schema_ == SCHEMA
    assert again.feature_names_in_.tolist() == list(SCHEMA.feature_names)
    card.save(again, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_nothing_about_the_run_is_saved(tmp_path):
    path = tmp_path / "model.json"
    model = fitted(ledger="/secret/place", random_state=987654321)
    card.save(model, path)
    assert "secret" not in path.read_text()
    assert "987654321" not in path.read_text()
    assert card.load(path).get_params()["ledger"] is None


def test_parameters_that_json_cannot_hold_are_described(tmp_path):
    path = tmp_path / "model.json"
    model = fitted(solver=object())
    card.save(model, path)
    assert "object" in card.read(path).described["solver"]
    assert card.load(path).solver == "auto"


def test_only_fitted_private_models_of_this_library(tmp_path):
    from sklearn.linear_model import LogisticRegression

    with pytest.raises(card.CardError, match="only a fitted private model"):
        card.save(PrivateLogisticRegression(), tmp_path / "model.json")
    foreign = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    foreign.privacy_ = STATEMENT
    with pytest.raises(card.CardError, match="'LogisticRegression' is not a model that can be saved"):
        card.save(foreign, tmp_path / "model.json")
    with pytest.raises(card.CardError, match="5 features of the schema do not go with 4"):
        card.save(fitted(), tmp_path / "model.json", schema=Schema(dict.fromkeys("abcde", Boolean())))
    broken = fitted()
    broken.coef_ = broken.coef_ * np.nan
    with pytest.raises(card.CardError, match="not all finite"):
        card.save(broken, tmp_path / "model.json")
    assert os.listdir(tmp_path) == []


# --- files that must not be believed ---


def test_every_changed_byte_is_noticed(saved):
    """Flip each byte in turn; white space is the only thing that may change."""
    original = saved.read_bytes()
    content = json.loads(original)
    for position in range(0, len(original), 7):
        changed = bytearray(original)
        changed[position] ^= 0x04
        saved.write_bytes(bytes(changed))
        try:
            card.read(saved)
        except card.CardError:
            continue
        assert json.loads(bytes(changed)) == content


@pytest.mark.parametrize("length", [0, 1, 100, -2])
def test_truncated_files_are_refused(saved, length):
    saved.write_bytes(saved.read_bytes()[:length])
    with pytest.raises(card.CardError, match="not a model file, or it is damaged"):
        card.load(saved)


def test_edited_claims_are_refused(saved):
    def claim(content):
        content["privacy"]["guarantee"]["epsilon"] = 0.01

    rewritten(saved, claim, seal=False)
    with pytest.raises(card.CardError, match="damaged or changed"):
        card.load(saved)


def test_reordered_columns_are_refused(saved):
    def reorder(content):
        content["schema"]["columns"] = dict(reversed(content["schema"]["columns"].items()))

    rewritten(saved, reorder, seal=False)
    with pytest.raises(card.CardError, match="damaged or changed"):
        card.load(saved)


def hostile(**entries):
    return lambda content: content.update(entries)


def arrays(**entries):
    return lambda content: content["arrays"].update(entries)


def array_of(values):
    return from_array(np.asarray(values, dtype=np.float64))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (hostile(format_version=1), "has format version 1, this version of discreet reads 2"),
        (hostile(format="pickle"), "not a model file of discreet"),
        (hostile(estimator="os.system"), "'os.system' is not a model"),
        (hostile(estimator=["os"]), "malformed"),
        (hostile(parameters={"__class__": "x"}), "do not fit this version"),
        (hostile(parameters=[1]), "malformed"),
        (arrays(coef_="__import__('os')"), "malformed"),
        (arrays(coef_=array_of([[np.nan] * 4])), "not all finite"),
        (arrays(coef_=array_of([[1.0] * 4]) | {"kind": "|O"}), "malformed"),
        (arrays(coef_=array_of([[1.0] * 4]) | {"shape": [1, 5]}), "32 bytes are not an array"),
        (arrays(coef_=array_of([[1.0] * 4]) | {"shape": [-1, -4]}), "cannot have the shape"),
        (arrays(coef_=array_of([[1.0] * 4]) | {"shape": [1 << 40, 1 << 40]}), "cannot have the shape"),
        (arrays(coef_=array_of([[1.0] * 4]) | {"base64": "?"}), "bytes are damaged"),
        (arrays(coef_=array_of([])), "do not belong together"),
        (arrays(intercept_=array_of([1.0, 1.0])), "do not belong together"),
        (arrays(other_=array_of([1.0])), "consists of coef_, intercept_"),
        (hostile(classes=["no", "yes", "maybe"]), "3 classes do not go with 1 rows"),
        (hostile(classes=["no", {"a": 1}]), "malformed"),
        (hostile(classes=[]), "malformed"),
        (hostile(feature_names=["one"]), "1 feature names do not go with 4"),
        (hostile(schema={"columns": {"age": {"kind": "exec"}}}), "must have a kind"),
        (hostile(privacy={}), "not a privacy statement"),
        (lambda content: content.pop("privacy"), "has no entry 'privacy'"),
        (
            lambda content: content["privacy"].update(
                event={"event": "Popen", "kind": "Popen", "args": "ls"}
            ),
            "not the description of a privacy event",
        ),
    ],
)
def test_hostile_files_with_a_correct_checksum_are_refused(saved, change, message):
    rewritten(saved, change)
    with pytest.raises(card.CardError, match=message):
        card.load(saved)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[" * 100_000,
        b'{"format": "discreet model", "format": "discreet model"}',
        b'{"format": NaN}',
        b"\x80\x04\x95 a pickle",
        b'{"format": ' + b"9" * 10_000 + b"}",
        b"\xff\xfe\x00",
        b"null",
    ],
    ids=["empty", "deep", "duplicate", "nan", "pickle", "long number", "not text", "null"],
)
def test_files_that_are_not_ours(tmp_path, text):
    path = tmp_path / "model.json"
    path.write_bytes(text)
    with pytest.raises(card.CardError, match="not a model file"):
        card.load(path)


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(card.CardError, match="there is no model file"):
        card.load(tmp_path / "none.json")
    with pytest.raises(card.CardError, match="cannot be read"):
        card.load(tmp_path)


# --- writing whole or not at all ---


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_keeps_the_old_file(saved, monkeypatch, step):
    before = saved.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(_files.os, step, full)
        with pytest.raises(OSError, match=r"could not write .*No space left on device; nothing was changed"):
            card.save(fitted(classes=("a", "b")), saved, overwrite=True)
        with pytest.raises(OSError, match=r"cannot write .*No space left"):
            _files.check_writable(saved, 10)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


def test_places_that_cannot_be_written(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        card.save(fitted(), tmp_path / "none" / "model.json")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        card.save(fitted(), tmp_path)


def test_permissions_are_those_of_an_ordinary_file(tmp_path):
    plain, path = tmp_path / "plain", tmp_path / "model.json"
    plain.write_text("")
    card.save(fitted(), path)
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    path.chmod(0o640)
    card.save(fitted(), path, overwrite=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_check_writable_leaves_nothing_behind(tmp_path):
    _files.check_writable(tmp_path / "model.json", 1000)
    assert os.listdir(tmp_path) == []
