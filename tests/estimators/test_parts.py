"""Fits on files and on Dask: the same model as in memory, everything wrong found before anything is charged."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from discreet import Ledger, PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from discreet.mechanisms.samplers.entropy import insecure_noise

N, P = 4000, 4


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, P))
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame["y"] = (X @ [1.0, -1.0, 0.5, 0.0] + rng.normal(size=N) > 0).astype(int)
    frame["kind"] = np.array(["u", "v", "w"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    return frame


def models():
    yield PrivateLogisticRegression(classes=[0, 1], solver="objective"), "y"
    yield PrivateLogisticRegression(classes=[0, 1], solver="noisy-gd"), "y"
    yield PrivateLogisticRegression(classes=[0, 1]), "y"
    yield PrivateLogisticRegression(classes=["u", "v", "w"], solver="objective"), "kind"
    yield PrivateLinearSVC(classes=["u", "v", "w"], solver="objective"), "kind"
    yield PrivateLogisticRegression(classes=[0, 1], solver="output"), "y"
    yield PrivateRidge(target_bounds=(0, 1)), "y"


@pytest.mark.parametrize(("model", "target"), list(models()), ids=str)
@pytest.mark.parametrize("place", ["parquet", "dask array", "dask frame"])
def test_the_same_noise_gives_the_same_model_wherever_the_rows_are(frame, model, target, place, tmp_path):
    features = frame[list("abcd")]
    with insecure_noise(5):
        expected = model.fit(features, frame[target]).coef_
        expected_event = model.privacy_.event
    if place == "parquet":
        frame[[*"abcd", target]].to_parquet(tmp_path / "data.parquet")
        arguments, options = (tmp_path / "data.parquet",), {"target": target}
    elif place == "dask array":
        labels = frame[target].to_numpy()
        if labels.dtype.kind not in "if":
            labels = labels.astype(str)
        arguments = da.from_array(features.to_numpy(), chunks=(900, 2)), da.from_array(labels, chunks=900)
        options = {}
    else:
        arguments = dd.from_pandas(features, npartitions=3), dd.from_pandas(frame[target], npartitions=3)
        options = {}
    with insecure_noise(5):
        model.fit(*arguments, **options)
    np.testing.assert_allclose(model.coef_, expected, rtol=1e-5, atol=1e-6)
    assert model.privacy_.event == expected_event
    assert model.n_features_in_ == P
    if place != "dask array":
        assert model.feature_names_in_.tolist() == list("abcd")


def test_bad_rows_are_refused_before_the_charge_or_count_for_nothing(frame, tmp_path):
    broken = frame[[*"abcd", "y"]].copy()
    broken.loc[10, "b"] = np.nan
    path = tmp_path / "broken.parquet"
    broken.to_parquet(path)
    ledger = Ledger(tmp_path / "ledger", 5.0, 1e-5)
    model = PrivateLogisticRegression(classes=[0, 1], ledger=ledger, solver="objective")
    with pytest.raises(ValueError, match="not finite"):
        model.fit(path, target="y")
    with pytest.raises(ValueError, match="not finite"):
        model.fit(dd.from_pandas(broken[list("abcd")], npartitions=2), broken["y"])
    with pytest.raises(ValueError, match="must be in memory"):
        model.set_params(solver="psgd").fit(path, target="y")
    with pytest.raises(ValueError, match="labels are read from the file"):
        model.fit(path, broken["y"])
    with pytest.raises(ValueError, match="y must be None where a schema or target names the column"):
        model.fit(broken[list("abcd")], broken["y"], target="y")
    with pytest.raises(ValueError, match="rows may be in several partitions"):
        model.set_params(solver="objective", max_rows_per_group=1).fit(
            dd.from_pandas(broken[list("abcd")], npartitions=2), broken["y"], groups=np.arange(N)
        )
    assert ledger.history() == []
    model.set_params(max_rows_per_group=None, solver="objective", bad_rows="null").fit(path, target="y")
    assert np.isfinite(model.coef_).all()
    assert len(ledger.history()) == 1


def test_partitions_too_small_for_a_proved_sum_are_refused():
    from discreet.records.arrays import ArrayRecords
    from discreet.records.bounds import Bounds
    from discreet.records.partitioned import LocalParts, PartitionedRecords

    part = ArrayRecords(np.zeros((100, 1)), np.zeros(100), Bounds())
    with pytest.raises(ValueError, match="at least 256 rows"):
        PartitionedRecords(LocalParts([part] * 200), [100] * 200, 1, False, Bounds(), np.zeros(20_000))
    # 8000 records: any order of additions is covered.
    PartitionedRecords(LocalParts([part] * 80), [100] * 80, 1, False, Bounds(), np.zeros(8000))


def test_the_command_line_maps_tables_that_do_not_fit(tmp_path, monkeypatch, capsys):
    from discreet import card
    from discreet.cli import main, models
    from discreet.tables.cohort import COHORT_SCHEMA, make_cohort

    make_cohort(3000).to_pandas().to_parquet(tmp_path / "cohort.parquet")
    COHORT_SCHEMA.to_file(tmp_path / "schema.toml")
    command = [
        *("fit", str(tmp_path / "cohort.parquet"), "--schema", str(tmp_path / "schema.toml")),
        *("--epsilon", "1", "--output"),
    ]
    coefficients = []
    for name, too_large in (("small.json", False), ("large.json", True)):
        monkeypatch.setattr(models, "_too_large", lambda *_, answer=too_large: answer)
        with insecure_noise(4):
            assert main([*command, str(tmp_path / name)]) == 0, capsys.readouterr().err
        coefficients.append(card.load(tmp_path / name).coef_)
    np.testing.assert_allclose(coefficients[0], coefficients[1], rtol=1e-5, atol=1e-6)
