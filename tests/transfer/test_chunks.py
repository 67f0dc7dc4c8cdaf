"""Chunks: one person's record changes one chunk, whatever is added, removed or exchanged."""

import numpy as np
import pytest

from discreet.estimators.groups import read_people
from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.privacy.guarantee import Neighboring
from discreet.transfer.base import changed_teachers
from discreet.transfer.teachers import assign_groups, assign_rows


def contents(ids, chunks, n_chunks):
    return [tuple(ids[chunks == c]) for c in range(n_chunks)]


def same_key(function, *arguments):
    with insecure_noise(3):
        return function(*arguments, fresh_entropy())


def n_changed(before, after):
    return sum(a != b for a, b in zip(before, after, strict=True))


def test_adding_a_user_at_the_front_changes_one_chunk_and_exchanging_two_at_most():
    ids = np.array([f"user {i % 70}" for i in range(300)])
    chunks = same_key(assign_groups, ids, 11)
    before = contents(ids, chunks, 11)
    added = np.concatenate([["somebody new"], ids])
    assert n_changed(before, contents(added, same_key(assign_groups, added, 11), 11)) == 1
    removed = ids[ids != "user 5"]
    assert n_changed(before, contents(removed, same_key(assign_groups, removed, 11), 11)) == 1
    exchanged = np.where(ids == "user 5", "another", ids)
    assert n_changed(before, contents(exchanged, same_key(assign_groups, exchanged, 11), 11)) <= 2


def test_all_records_of_a_user_stay_together_and_users_spread_evenly():
    ids = np.repeat(np.arange(5000), 3)
    chunks = assign_groups(ids, 10, fresh_entropy())
    per_user = chunks.reshape(-1, 3)
    assert np.all(per_user == per_user[:, :1])
    counts = np.bincount(per_user[:, 0], minlength=10)
    assert abs(counts - 500).max() < 5 * np.sqrt(500)


@pytest.mark.lemma("sparse-vector.md#section-8")
def test_exchanging_a_row_changes_one_chunk_and_runs_do_not_repeat():
    chunks = same_key(assign_rows, 100, 7)
    rows = np.arange(100)
    exchanged = np.where(rows == 42, 1000, rows)
    assert n_changed(contents(rows, chunks, 7), contents(exchanged, same_key(assign_rows, 100, 7), 7)) == 1
    assert not np.array_equal(assign_rows(100, 7, fresh_entropy()), assign_rows(100, 7, fresh_entropy()))


def test_a_consecutive_split_would_be_caught_by_the_same_test():
    rows = np.arange(100)
    split = np.sort(rows % 7)
    added = np.concatenate([[1000], rows])
    assert n_changed(contents(rows, split, 7), contents(added, np.sort(np.arange(101) % 7), 7)) > 2


@pytest.mark.parametrize("relation", list(Neighboring))
def test_the_relation_factor(relation):
    assert changed_teachers(relation, by_group=False, label_private=False) == 1
    by_user = changed_teachers(relation, by_group=True, label_private=False)
    assert by_user == (2 if relation is Neighboring.REPLACE_ONE else 1)
    assert changed_teachers(relation, by_group=True, label_private=True) == 1


def test_no_character_of_an_id_raises_anything():
    """After the charge, an error would tell that somebody has such an id."""
    chunks = assign_groups(np.array(["a", "b\udcff", "b\udcff"], dtype=object), 1000, fresh_entropy())
    assert chunks[1] == chunks[2]


def test_ids_must_be_usable():
    with pytest.raises(TypeError, match="whole numbers or strings"):
        read_people(np.array([1.5, 2.5]), 2, strict=True)
    with pytest.raises(ValueError, match="one id per row"):
        read_people([1, 2, 3], 2, strict=True)
    with pytest.raises(ValueError, match="has no id"):
        read_people(np.array(["a", None], dtype=object), 2, strict=True)
    assert len(read_people(np.array(["a", 1], dtype=object), 2, strict=True).names) == 2


def test_ids_are_told_apart_by_every_character_but_blanks_around_them():
    ids = np.array(["a", "a\0", " a", "b", "1", 1], dtype=object)
    chunks = assign_groups(ids, 10**9, fresh_entropy())
    assert chunks[0] == chunks[2]
    assert chunks[4] == chunks[5]
    assert len(set(chunks)) == len(read_people(ids, strict=True).names) == 4
