"""Files that are written whole or not at all, and never in place of what must stay."""

import os
import stat
from contextlib import nullcontext

import pytest

from discreet import Ledger, _files
from discreet._files import check_writable, erase, reserved, write_atomically
from discreet.tables.csv_files import write_csv


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


@pytest.mark.skipif(os.name != "posix", reason="keeps the bytes by a second link")
@pytest.mark.parametrize("size", [0, 1, _files._BLOCK, _files._BLOCK + 3])
def test_a_file_is_overwritten_before_it_goes(size, tmp_path):
    place, kept = tmp_path / "secret", tmp_path / "kept"
    place.write_bytes(b"x" * size)
    os.link(place, kept)
    erase(place)
    assert not place.exists()
    assert kept.read_bytes() == bytes(size)
    erase(place)  # nothing to do


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_private_files_are_for_their_owner_only(tmp_path):
    """Whatever the umask says, and whatever lay there before: predictions tell of the rows they were made from."""
    mask = os.umask(0)
    try:
        for name in ("new", "reserved", "replaced"):
            place = tmp_path / name
            if name == "replaced":
                place.write_bytes(b"old")
                place.chmod(0o644)
            with reserved(place) if name == "reserved" else nullcontext():
                write_csv(place, {"prediction": [1, 0]})
            assert stat.S_IMODE(place.stat().st_mode) == 0o600
            assert place.read_bytes().count(b"\n") == 3
        write_atomically(tmp_path / "public", b"")
        assert stat.S_IMODE((tmp_path / "public").stat().st_mode) == 0o666
    finally:
        os.umask(mask)
