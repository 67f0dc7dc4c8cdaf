"""People: rows that a schema with a group column has made are nowhere protected one by one without a word.

Each program of `releases` that protects single rows gets such rows and no groups. It must refuse before the charge.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import releases

from discreet import release
from discreet.tables.schema import RowsOfPeople

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

#: Programs whose call takes no rows of a schema: tables by name, and ratings, whose users are people already.
OTHERWISE = {"private_domains", "describe"} | {
    name for name in releases.PROGRAMS if name.startswith("PrivateMatrixCompletion")
}
ALONE = [name for name in releases.PROGRAMS if not name.endswith(" people") and name not in OTHERWISE]


@pytest.mark.parametrize("name", ALONE)
def test_rows_of_people_are_not_protected_one_by_one(name, monkeypatch):
    if not name.startswith("PrivateFTRL"):  # its first action comes before the first row
        monkeypatch.setattr(release, "charge", lambda *_: pytest.fail("charged"))
    X, y = releases.ordinary(0)
    with pytest.raises(ValueError, match=r"max_rows_per_group|groups must be given"):
        releases.PROGRAMS[name]((X.view(RowsOfPeople), y))


def test_rows_of_anybody_are_taken():
    X, y = releases.ordinary(0)
    assert isinstance(X.view(RowsOfPeople)[0], RowsOfPeople)  # as streams see them
    assert np.isfinite(releases.PROGRAMS["PrivateRidge"]((X, y)).coef_).all()


def test_a_way_that_does_not_ask_whose_rows_these_are_is_caught(monkeypatch):
    monkeypatch.setattr("discreet.transfer.labeler.check_people", lambda *_: None)
    with pytest.raises(pytest.fail.Exception, match="charged"):
        test_rows_of_people_are_not_protected_one_by_one("PrivateQueries", monkeypatch)
