"""The paths through the code do not grow back: calls enter few files and seldom change file."""

import pytest

from benchmarks.walk import walked, walks

# Files and changes of file that the calls take today; `benchmarks.walk.LIMITS` is the goal.
MOST = {
    "PrivateLogisticRegression.fit": (25, 90),
    "PrivateMatrixCompletion.fit": (18, 50),
    "PrivateTransferClassifier.fit": (20, 60),
    "discreet fit": (43, 186),
    "Ledger.charge": (7, 15),
}


@pytest.mark.parametrize("name", MOST)
def test_a_walk_is_short(name, tmp_path):
    found = walked(walks(tmp_path)[name])
    files, changes = MOST[name]
    assert len(found.functions) > 20  # the tracer saw the call
    assert len(found.files) <= files, sorted(found.files)
    assert found.changes <= changes
