"""Fixtures of several tests of ledgers."""

from __future__ import annotations

from pathlib import Path

import pytest

from discreet.privacy.ledger.ledger import Ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.ledger"


@pytest.fixture
def pure(path: Path) -> Ledger:
    return Ledger(path, epsilon=1.0, delta=0.0)
