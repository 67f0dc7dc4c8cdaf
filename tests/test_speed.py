"""The speed benchmarks' own arithmetic: power laws, baselines that fail, peers that are missing."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from benchmarks import check_speed, peak, speed, speed_peers
from discreet.records.arrays import ArrayRecords


def test_exponents_of_power_laws():
    sizes = [10.0, 20.0, 40.0, 80.0]
    assert speed.exponent(sizes, [3 * x**1.5 for x in sizes]) == pytest.approx(1.5)
    assert speed.exponent(sizes, [7.0] * 4) == pytest.approx(0.0)


def test_the_measure_of_peak_speed_does_what_it_counts():
    one = sum(0.9999 * k + 0.0001 for k in range(12))
    assert peak.multiply_adds(1) == pytest.approx(one, rel=1e-14)
    assert peak.multiply_adds(2) == pytest.approx(0.9999 * one + 12 * 0.0001, rel=1e-14)
    assert peak.operations(2) == 2 * peak.operations(1)


def test_generated_rows_are_bounded_and_have_no_duplicates():
    for popular in (False, True):
        X, y = speed.sparse_data(200, 1000, 20, popular)
        assert X.shape == (200, 1000)
        assert set(np.unique(X.data)) == {-1.0, 1.0}
        assert X.has_canonical_format
        assert set(y) == {-1.0, 1.0}


def test_sections_are_replaced_in_the_results_file():
    first = speed.merged("", "Start-up", ["| a | b |", "", "stamp"])
    both = speed.merged(first, "Bandwidth", ["fast"])
    assert both.index("## Bandwidth") < both.index("## Start-up")
    again = speed.merged(both, "Start-up", ["new"])
    assert "| a | b |" not in again
    assert again.count("## ") == 2
    assert speed.merged(again, "Start-up", ["new"]) == again


def run_check(monkeypatch, tmp_path, counted, baseline, *arguments):
    path = tmp_path / "instructions.json"
    path.write_text(json.dumps(baseline))
    monkeypatch.setattr(check_speed, "BASELINE", path)
    monkeypatch.setattr(check_speed, "count", lambda: counted)
    monkeypatch.setattr(sys, "argv", ["check_speed", *arguments])
    return check_speed.main(), path


def test_a_slower_task_fails_the_check(monkeypatch, tmp_path, capsys):
    assert run_check(monkeypatch, tmp_path, {"a": 129}, {"a": 100})[0] == 0
    assert run_check(monkeypatch, tmp_path, {"a": 131}, {"a": 100})[0] == 1
    assert run_check(monkeypatch, tmp_path, {"a": 100, "new": 5}, {"a": 100})[0] == 1
    code, path = run_check(monkeypatch, tmp_path, {"a": 500}, {"a": 100}, "--write")
    assert code == 0
    assert json.loads(path.read_text()) == {"a": 500}
    assert run_check(monkeypatch, tmp_path, None, {"a": 100})[0] == 0
    assert "NOT counted" in capsys.readouterr().out


def test_the_baseline_names_every_task():
    if not check_speed.BASELINE.exists():
        pytest.skip("no baseline was written yet: python -m benchmarks.check_speed --write")
    assert set(check_speed.tasks()) == set(json.loads(check_speed.BASELINE.read_text()))


def test_a_peer_that_cannot_be_installed_is_a_row_that_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(speed_peers, "_ROOT", tmp_path)
    monkeypatch.setattr(speed_peers.subprocess, "run", lambda *a, **k: (_ for _ in ()).throw(OSError()))
    found = speed_peers.measure(speed_peers.PEERS[0])
    assert isinstance(found, str)
    assert "not measured" in found


def test_threads_never_exceed_what_is_asked_for():
    """BLAS is held to one thread while our own threads work."""
    from threadpoolctl import threadpool_info

    from discreet.records.bounds import Bounds

    records = ArrayRecords(np.ones((4096, 128)), np.ones(4096), Bounds(), n_threads=2)
    seen = records._map(
        lambda lane: [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    )
    assert all(threads == 1 for pools in seen for threads in pools)
