"""What a model is after a fit, a refused fit and a change of its parameters; what travels to workers."""

import pickle

import cloudpickle
import dask.array as da
import numpy as np
import onnxruntime
import pandas as pd
import pytest

import discreet
from discreet import Ledger, card
from discreet.privacy.ledger.ledger import BudgetExceeded
from discreet.records.clusters import workers

N = 2000
RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.uniform(-0.5, 0.5, size=(N, 2)), columns=["a", "b"])
LABELS = (X.a > 0).astype(int)
MODELS = {
    "logistic": (discreet.PrivateLogisticRegression, {"classes": [0, 1]}, {"feature_bound": 0.01}),
    "sparse": (discreet.PrivateSparseLogisticRegression, {"classes": [0, 1]}, {"feature_bound": 0.01}),
    "simplex": (discreet.PrivateSimplexClassifier, {"classes": [0, 1]}, {"feature_bound": 0.01}),
    "ridge": (discreet.PrivateRidge, {"target_bounds": (-1, 2)}, {"target_bounds": (5, 9)}),
    "lasso": (discreet.PrivateLasso, {"target_bounds": (-1, 2)}, {"feature_bound": 0.01}),
    "mixture": (discreet.PrivateSimplexRegressor, {"target_bounds": (-1, 2)}, {"target_bounds": (5, 9)}),
    "counts": (discreet.PrivatePoissonRegressor, {"target_bounds": (0, 2)}, {"least_mean": 1.9}),
    "intercept": (discreet.PrivateRidge, {"target_bounds": (-1, 2)}, {"fit_intercept": False}),
}


def made(name, **parameters):
    kind, own, _ = MODELS[name]
    return kind(0.9, 1e-6, **own, **parameters)


def answers(model):
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


@pytest.fixture
def ledger(tmp_path):
    """Room for one fit."""
    return Ledger(tmp_path / "one.ledger", epsilon=0.9, delta=1e-6)


@pytest.mark.parametrize("name", [*MODELS, "median"])
def test_a_refused_fit_leaves_a_model_as_it_was(name, ledger):
    model = discreet.PrivateMedian(0.9, 1e-6, radius=1.0) if name == "median" else made(name)
    model.set_params(ledger=ledger).fit(X, LABELS)
    before = dict(vars(model))
    with pytest.raises(BudgetExceeded):
        model.fit(X[["b", "a"]], LABELS)
    assert vars(model) == before
    assert list(model.feature_names_in_) == ["a", "b"]
    if name != "median":
        model.predict(X)
        with pytest.raises(ValueError, match="feature names"):
            model.predict(X[["b", "a"]])


def test_so_does_an_interrupt_whenever_it_comes(monkeypatch):
    """Ctrl-C in the middle of the run, and between two attributes that the fit sets."""

    def interrupted(*_):
        raise KeyboardInterrupt

    for place in ("_read", "_attributes", "_stated_bounds"):
        model = made("logistic").fit(X, LABELS)
        before = dict(vars(model))
        with monkeypatch.context() as patched:
            patched.setattr(type(model), place, interrupted)
            with pytest.raises(KeyboardInterrupt):
                model.fit(X[["b", "a"]], LABELS)
        assert vars(model) == before


def test_nothing_of_an_earlier_fit_stays():
    model = made("lasso").fit(X, LABELS)
    assert list(model.feature_names_in_) == ["a", "b"]
    model.certificate_ = model.schema_ = "of the earlier fit"
    model.fit(da.from_array(X.to_numpy(), chunks=(500, 2)), LABELS.to_numpy())
    assert model.certificate_ != "of the earlier fit"
    assert not hasattr(model, "feature_names_in_")
    assert not hasattr(model, "schema_")


@pytest.mark.parametrize("name", MODELS)
def test_parameters_set_after_a_fit_wait_for_the_next_one(name, tmp_path):
    model, later = made(name).fit(X, LABELS), MODELS[name][2]
    before = answers(model)
    np.testing.assert_array_equal(answers(model.set_params(**later)), before)
    np.testing.assert_array_equal(answers(pickle.loads(pickle.dumps(model))), before)
    card.save(model, tmp_path / "model.json")
    again = card.load(tmp_path / "model.json")
    np.testing.assert_array_equal(answers(again), before)
    np.testing.assert_array_equal(answers(again.set_params(**later)), before)
    model.fit(X, LABELS)
    assert model.fitted_parameters_ | later == model.fitted_parameters_


@pytest.mark.parametrize("name", ["logistic", "ridge", "lasso"])
def test_an_onnx_graph_clips_as_the_fit_did(name, tmp_path):
    model = made(name).fit(X, LABELS).set_params(**MODELS[name][2])
    card.to_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    found = session.run(None, {"X": X.to_numpy()})[-1]
    np.testing.assert_allclose(found, answers(model), rtol=1e-7, atol=1e-12)


def test_intervals_belong_to_the_fit_too():
    model = made("ridge", feature_bound=1.3).fit(X, LABELS)
    model.set_params(feature_bound=0.01, fit_intercept=False, target_bounds=(5, 9))
    found = discreet.coefficient_intervals(model, X, LABELS, epsilon=100.0, delta=1e-6)
    assert found.estimate.shape == (3,)
    assert abs(found.estimate[-1] - LABELS.mean()) < 0.2


class ElsewhereLedger(Ledger):
    """One that workers cannot open."""

    def __reduce__(self):
        raise AssertionError("the ledger was sent to a worker")


@pytest.mark.parametrize("name", MODELS)
def test_no_worker_is_sent_the_ledger(name, tmp_path, monkeypatch):
    tasks, ask, sent, told = workers.Threads._tasks, workers.Held.ask, [], []

    def pickled(function, columns):
        sent.append(len(cloudpickle.dumps((function, columns))))
        return tasks(function, columns)

    def asked(held, question):
        told.append(len(cloudpickle.dumps(question)))
        return ask(held, question)

    monkeypatch.setattr(workers.Threads, "_tasks", staticmethod(pickled))
    monkeypatch.setattr(workers.Held, "ask", asked)
    ledger = ElsewhereLedger(tmp_path / "one.ledger", epsilon=1.0, delta=1e-3)
    model = made(name, ledger=ledger, solver="noisy-gd")
    model.fit(da.from_array(X.to_numpy(), chunks=(500, 2)), LABELS.to_numpy())
    assert sent
    assert told
    assert len(ledger.history()) == 1
