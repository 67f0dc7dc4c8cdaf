"""Files of streams: what was erased is nowhere, what was committed stays, and holders take turns."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from discreet.online import stream_file

MARK = b"a teacher's private page"


def content(size=40_000):
    return MARK * (size // len(MARK))


def journal(path):
    return Path(f"{os.path.realpath(path)}-journal")


@pytest.mark.skipif(os.name != "posix", reason="keeps the journal by a second link")
@pytest.mark.parametrize("linked", [False, True])
def test_the_journal_is_overwritten_before_it_goes(tmp_path, linked):
    """A second link keeps the bytes that deleting the journal would leave on the disk."""
    place, kept = tmp_path / "stream.db", tmp_path / "kept"
    stream_file.create(place, content(), {"left": 3})
    assert MARK in place.read_bytes()
    if linked:
        (tmp_path / "link").symlink_to(place)
        place = tmp_path / "link"

    def forget():
        os.link(journal(place), kept)
        return "nothing"

    stream_file.spend(place, 1, lambda: (None, {"left": 0}), forget)
    assert kept.stat().st_size > len(content()) / 2  # it did hold the pages
    assert not kept.read_bytes().strip(b"\0")
    assert not [file for file in tmp_path.iterdir() if MARK in file.read_bytes()]
    assert not journal(place).exists()
    assert stream_file.take_over(place)[:2] == ("nothing", {"left": 0})


@pytest.mark.skipif(os.name != "posix", reason="keeps the journal by a second link")
def test_the_journal_of_a_rollback_is_overwritten_too(tmp_path):
    place, kept = tmp_path / "stream.db", tmp_path / "kept"
    stream_file.create(place, content(), {"left": 3})

    def failing():
        os.link(journal(place), kept)
        raise KeyError("no")

    with pytest.raises(KeyError):
        stream_file.spend(place, 1, lambda: (None, {"left": 10**9}), failing)
    assert not kept.read_bytes().strip(b"\0")
    assert stream_file.take_over(place)[:2] == (content(), {"left": 3})


CRASH = """
import os, sys
from pathlib import Path
from discreet import _files
from discreet.online import stream_file
place, moment = Path(sys.argv[1]), sys.argv[2]
def crash(*_):
    os._exit(9)
if moment == "after the commit":
    _files.erase = crash
stream_file.spend(place, 1, lambda: (None, {"left": 2}), crash if moment == "before the commit" else lambda: "new")
"""


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_a_crash_loses_nothing_that_was_committed(tmp_path, moment):
    place = tmp_path / "stream.db"
    stream_file.create(place, content(), {"left": 3})
    assert subprocess.run([sys.executable, "-c", CRASH, place, moment], check=False).returncode == 9
    assert journal(place).exists()
    committed = moment == "after the commit"
    expected = ("new", {"left": 2}) if committed else (content(), {"left": 3})
    assert stream_file.take_over(place)[:2] == expected
    assert not journal(place).exists()  # whoever opens the file next erases it


SPEND = """
import sys
from pathlib import Path
from discreet.online import stream_file
place, done = Path(sys.argv[1]), 0
while done < 4:
    _, state, generation = stream_file.take_over(place)
    try:
        stream_file.spend(place, generation, lambda: (None, {"left": state["left"] - 1}), held=state)
    except stream_file.StreamError as error:
        assert "resumed elsewhere" in str(error), error
    else:
        done += 1
"""


def test_processes_take_turns(tmp_path):
    place = tmp_path / "stream.db"
    stream_file.create(place, content(), {"left": 100})
    running = [subprocess.Popen([sys.executable, "-c", SPEND, place]) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    assert stream_file.take_over(place)[:2] == (content(), {"left": 92})
