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
