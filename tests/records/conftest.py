"""Compiled passes are what these tests are about: few rows take them too."""

import pytest

from discreet.records import clipped_rows

collect_ignore = ["spark_cluster.py"]  # a program that needs PySpark


@pytest.fixture(autouse=True)
def compiled_at_all_sizes(monkeypatch):
    monkeypatch.setattr(clipped_rows, "COMPILED_FROM", 0)
