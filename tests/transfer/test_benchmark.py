"""The benchmark's own numbers, at sizes that take no time."""

import pytest

from benchmarks import transfer
from benchmarks.data import VARIABLE, MissingData


def test_the_stability_table_meets_its_targets():
    rows = {(row["T"], row["questions"]): row for row in transfer.measure("stability")}
    assert rows[10, 1_000]["factor"] >= 40
    assert rows[100, 10_000]["factor"] >= 17
    assert [rows[key]["printed"] for key in ((1, 100), (10, 1_000), (100, 10_000))] == [3414, 13307, 50019]


def test_missing_data_is_reported(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    transfer._load.cache_clear()
    with pytest.raises(MissingData, match=VARIABLE):
        transfer.student("kddcup99", "forest")


def test_the_page_states_means_over_the_splits():
    shared = {"part": "student", "data": "d", "model": "m", "default model, true labels": 92.0}
    columns = "same model, true labels", "private logistic, all records"
    rows = [
        {**shared, "seed": seed, "student": 80.0 + seed, columns[0]: 84.0, columns[1]: 79.0}
        for seed in (0, 1)
    ]
    page = transfer._page([{"part": "teachers", "teachers": 1000, "seconds": 1.5}, *rows])
    assert "| d | m | 2 | 80.50 | 84.00 | 92.00 | 79.00 | 3.50 | 1.50 |" in page
    assert "| 1000 | 1.5 |" in page
    assert len({transfer._key(row) for row in rows}) == 2
