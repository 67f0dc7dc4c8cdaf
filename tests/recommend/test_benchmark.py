"""The benchmark at a tiny size: it runs, resumes, reports, and completion beats predicting nothing."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import recommender_report, recommender_tasks, recommenders, scale
from benchmarks.recommender_tasks import as_clicks, low_rank, most_rated, score, without_privacy
from benchmarks.recommenders import Cell, at_scale, measure, measure_piece, task_of
from benchmarks.scale_ratings import measure_ratings
from discreet.recommend.metrics import rmse


def test_tiny_run():
    task = low_rank(4000, 40, 12)
    rows = {method: measure(task, Cell("x", method, 5.0, 0)) for method in ("subspace", "bias")}
    assert rows["subspace"]["rmse"] < 0.5 * task.ratings.std()
    assert rows["bias"]["rmse"] < 1.1 * task.ratings.std()


def test_held_out_ratings_are_not_trained_on():
    task = low_rank(500, 30, 8)
    assert np.all(np.asarray(task.train[task.users, task.items]).ravel() == 0)
    assert task.train.nnz == 500 * 8


def test_restriction_clicks_and_references():
    task = most_rated(low_rank(2000, 40, 12), 20)
    assert task.train.shape == (2000, 20)
    assert score(task, without_privacy(task, 2, 1.0, sweeps=2).predict).rmse < 1.1 * task.ratings.std()
    clicks = as_clicks(replace(task, name="tiny"))
    assert clicks.train.nnz == (task.train.data > 0).sum()
    row = measure(clicks, Cell("x", "als", 5.0, 0))
    assert "rmse" not in row
    assert 0 <= row["ndcg"] <= 1


def test_scores_are_those_of_single_predictions(monkeypatch):
    monkeypatch.setattr(recommender_tasks, "_BLOCK", 7)
    task = low_rank(50, 20, 6)
    dense = np.random.default_rng(0).normal(size=(50, 100))
    found = score(task, lambda first, last: dense[first:last].copy())
    assert found.rmse == rmse(task.ratings, dense[task.users, task.items])
    perfect = np.full((50, 100), -1.0)
    perfect[task.users, task.items] = task.ratings
    assert score(task, lambda first, last: perfect[first:last].copy()).ranking.ndcg == pytest.approx(1.0)


def test_a_piece_is_resumed_and_reported(monkeypatch, tmp_path):
    piece = recommenders.cells(("tiny",), ("auto", "bias"), (1.0, 5.0), 2)
    monkeypatch.setitem(recommenders.PIECES, "tiny", piece)
    monkeypatch.setattr(recommenders, "ROWS", tmp_path / "rows.jsonl")
    monkeypatch.setattr(recommenders, "task_of", lambda name, run: low_rank(300, 20, 6, seed=run))
    monkeypatch.setattr(recommender_report, "RESULTS", tmp_path / "report.md")
    monkeypatch.setitem(recommender_report._CURVES, "tiny", "Tiny")
    assert not measure_piece("tiny", 0.0)
    assert measure_piece("tiny", 5.0)
    assert measure_piece("tiny", 5.0)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert len(rows) == len(piece)
    assert recommender_report.write(rows) == 1  # the targets were not measured
    text = (tmp_path / "report.md").read_text()
    assert "## Tiny" in text
    assert "not measured" in text


def test_scale_run_reports_steps():
    row = at_scale("subspace", 2000, 80, 8)
    assert math.isfinite(row["rmse"])
    assert {"covariance", "its noise", "its directions"} <= set(row["steps"])
    assert "| covariance |" in "\n".join(recommender_report.scale_lines([row]))


def test_synthetic_tasks_say_their_sizes():
    assert task_of("rank 2, 100 items, 50 users", 0).train.shape == (50, 100)
    assert set(recommenders.FEWER_USERS) <= set(recommender_report._CURVES)


def test_parts_of_the_scale_page_are_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(scale, "STORE", tmp_path / "scale.json")
    rows = measure_ratings(200, 80, 8)
    assert ("sums equal to those in memory, bit by bit", "yes") in rows
    scale.kept("ratings", rows)
    text = scale.kept("tasks", [("gradient", "1 / 2 / 3", "1 ms", "2 ms")])
    assert "bit by bit | yes |" in text
    assert text.index("## Ratings in") < text.index("## What a partition")
