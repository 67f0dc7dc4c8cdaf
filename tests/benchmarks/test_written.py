"""Commands that write results: what they keep of earlier runs, and their verdicts."""

import numpy as np
import pytest

import discreet
from benchmarks import additive, dimension, foundation, lasso, regression, solvers
from benchmarks.lasso import Excess


def test_foundation_keeps_the_tables_it_does_not_measure(tmp_path, monkeypatch):
    monkeypatch.setitem(foundation.TABLES, "noise", lambda _: [foundation.Row("rate", "0.7", "", True)])
    path = tmp_path / "foundation.md"
    path.write_text("# Foundation\n\nMeasured.\n\n## Accuracy\n\nold\n\n## Noise\n\nold noise\n")
    assert foundation.main(["noise", "--output", str(path)]) == 0
    found = foundation.sections(path)
    assert list(found) == ["accuracy", "noise"]
    assert found["accuracy"] == "## Accuracy\n\nold"
    assert "0.7" in found["noise"]
    assert "old" not in found["noise"]


@pytest.mark.parametrize(("risk", "verdict"), [(0.02, "yes"), (0.03, "NO")])
def test_padding_may_cost_a_logarithm(risk, verdict):
    columns = {(n, 100): Excess(0.01, 0.001, 1.0) for n in (4_000, 8_000)}
    columns |= {(4_000, 100_000): Excess(0.01, 0.001, 1.0), (8_000, 100_000): Excess(risk, 0.001, 1.0)}
    fewer = {n: Excess(0.02, 0.001, 1.0) for n in (4_000, 8_000)}
    text = "\n".join(lasso.padding(columns, fewer, {8_000: (1.6, 0.1)}))
    # The mean of both is below in either case.
    assert f"At most 2.30 at every number of rows: {verdict}" in text
    assert "at most 2.00: yes" in text


@pytest.mark.parametrize(("lost", "verdict"), [(0.0, "yes"), (0.1, "NO")])
def test_useless_columns_must_not_cost_gaussian_noise_its_accuracy(lost, verdict):
    table = {"output, Gaussian": {10: (0.9, 0.003), 10_000: (0.9 - lost, 0.003)}}
    assert dimension.verdict(table).endswith(verdict)


def test_fits_side_by_side_are_all_kept(tmp_path):
    path = tmp_path / "solvers.json"
    fits = [solvers.Fit("adult", "replace-one", 1.0, "output", seed) for seed in range(3)]
    for fit in fits:
        solvers.update(path, lambda old, new=fit: [*old, new])
    assert [fit.seed for fit in solvers.load(path)] == [0, 1, 2]
    assert solvers.update(path, lambda old: old[:1]) == solvers.load(path)


def test_regression_without_data_and_with_few_rows(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(3000, 2))
    y = np.clip(X @ [1.0, 2.0], -3, 3)
    source = regression.Source("", {"a": (-1, 1), "b": (-1, 1)}, "y", (-3, 3))
    monkeypatch.setattr(regression, "_sources", lambda: iter([("line", source, X, y)]))
    monkeypatch.setattr(regression, "SIZES", (10, 100))
    found = regression.small(epsilons=(0.1,), seeds=5)
    assert all(row["inside"] and row["least"] >= row["limit"] for row in found)
    monkeypatch.setattr(regression, "_sources", lambda: iter([]))
    assert "line" not in regression.report(1)


def test_additive_models_are_scored_and_reported(monkeypatch):
    rng = np.random.default_rng(0)
    age = rng.uniform(0, 100, 3000)
    schema = discreet.Schema({"age": discreet.Numeric(0.0, 100.0)})
    data = additive.Data({"age": age}, (np.abs(age - 50) > 25).astype(int), schema, None)
    found, _ = additive.score(data, 5.0, "add-remove-one", "0", seed=0)
    assert found > 0.95
    targets = additive.Data({"age": age}, np.abs(age - 50), schema, (0.0, 50.0))
    assert additive.score(targets, 5.0, "replace-one", "0", seed=0)[0] > 0.9
    known = {"Adult|1|AR|default": {"scores": [0.9, 0.92], "seconds": [1.0, 2.0]}}
    assert "| Adult | 1 | 0.910 ± 0.010 (2) |  |  |  | 1.5 |" in additive.report(known)
    alone = {"Adult|1|RO|0": {"scores": [0.9, 0.92], "seconds": [1.0, 2.0]}}
    assert "| Adult | 1 |  |  |  | 0.910 ± 0.010 (2) | 1.5 |" in additive.report(alone)
    monkeypatch.delenv(additive.VARIABLE, raising=False)
    with pytest.raises(additive.MissingData, match="adult_raw"):
        additive.load("Adult")
