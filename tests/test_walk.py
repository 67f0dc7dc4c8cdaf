"""The paths through the code do not grow back: calls enter few files and seldom change file."""

import pytest

from benchmarks.walk import LIMITS, walked, walks


@pytest.mark.parametrize("name", LIMITS)
def test_a_walk_is_short(name, tmp_path):
    found = walked(walks(tmp_path)[name])
    files, changes = LIMITS[name]
    assert len(found.functions) > 20  # the tracer saw the call
    assert len(found.files) <= files, sorted(found.files)
    assert found.changes <= changes
