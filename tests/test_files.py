"""Files that are written whole or not at all, and never in place of what must stay."""

import os
import stat

import pytest

from discreet import Ledger
from discreet._files import check_writable, reserved, write_atomically


def test_a_ledger_is_never_replaced(tmp_path):
    place = tmp_path / "budget.db"
    Ledger(place, 1.0, 1e-6)
    before = place.read_bytes()
    for write in (lambda: write_atomically(place, b"new"), lambda: check_writable(place, 10)):
        with pytest.raises(FileExistsError, match="privacy ledger"):
            write()
    assert place.read_bytes() == before


def test_other_databases_may_be_replaced(tmp_path):
    place = tmp_path / "other.db"
    place.write_bytes(b"SQLite format 3\0" + bytes(80))
    write_atomically(place, b"new")
    assert place.read_bytes() == b"new"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_stays_a_pipe(tmp_path):
    place = tmp_path / "pipe"
    os.mkfifo(place)
    with pytest.raises(FileExistsError, match="a device or a pipe"):
        write_atomically(place, b"new")
    assert stat.S_ISFIFO(place.stat().st_mode)


def test_a_link_stays_a_link(tmp_path):
    for name in ("there", "not yet there"):
        link, place = tmp_path / f"link to {name}", tmp_path / name
        link.symlink_to(place)
        write_atomically(link, name.encode())
        assert link.is_symlink()
        assert place.read_text() == name
        write_atomically(link, b"new")
        assert place.read_bytes() == b"new"


def test_a_name_is_reserved_until_it_is_written(tmp_path):
    place = tmp_path / "new"
    with reserved(place), pytest.raises(FileExistsError), reserved(place):
        pass
    assert not place.exists()
    with reserved(place):
        write_atomically(place, b"content")
    assert place.read_bytes() == b"content"
