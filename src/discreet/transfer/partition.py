"""Which teacher sees which record: an assignment that one person's record cannot disturb.

Splitting rows into equal consecutive parts would be a disaster: one added row moves every later row to another
part, and every teacher changes. Here each record finds its chunk by itself, from its own row number or its own
user id and a secret drawn for this run only.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.mechanisms.entropy import Entropy
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.tables import cell_text

Chunks = NDArray[np.int64]


def assign_rows(n_rows: int, n_chunks: int, entropy: Entropy) -> Chunks:
    """Independent uniform chunks, one per row.

    Privacy
    -------
    Exchanging or blanking a record changes the content of its own chunk only. For adding and removing, the
    words must be fresh, secret and never used for a second run: then the assignments of neighbors can be
    coupled so that all common records keep their chunk (docs/proofs/sparse-vector.md, section 8).
    """
    return np.asarray(entropy.words(n_rows) % np.uint64(n_chunks), dtype=np.int64)


def assign_groups(groups: ArrayLike, n_chunks: int, entropy: Entropy) -> Chunks:
    """The chunk of every row's user: a keyed hash of the id, so that all records of a user stay together.

    Privacy
    -------
    Adding, removing or blanking a user changes one chunk, whatever the key. Exchanging a user for one with
    another id changes two.
    """
    key = entropy.words(8).tobytes()
    names, place = np.unique(_ids(groups), return_inverse=True)
    chunks = np.array(
        [int.from_bytes(hashlib.blake2b(_bytes(name), key=key, digest_size=8).digest()) for name in names],
        dtype=np.uint64,
    )
    return np.asarray((chunks % np.uint64(n_chunks))[place.ravel()], dtype=np.int64)


def n_users(groups: ArrayLike) -> int:
    """How many different users there are."""
    return len(np.unique(_ids(groups)))


def counted(guarantee: Guarantee) -> str:
    """What the public size of a plan counts: users where they are protected as a whole, otherwise records."""
    return "users" if "user" in guarantee.unit else "records"


def changed_teachers(neighboring: Neighboring, *, by_group: bool, label_private: bool) -> int:
    """How many teachers may differ between neighbors: the relation factor of everything that follows.

    Two where a user is exchanged for another one, because ids decide the chunk; one in every other case.

    >>> changed_teachers(Neighboring.REPLACE_ONE, by_group=True, label_private=False)
    2
    >>> changed_teachers(Neighboring.ADD_REMOVE_ONE, by_group=True, label_private=False)
    1
    """
    return 2 if by_group and not label_private and neighboring is Neighboring.REPLACE_ONE else 1


def check_groups(groups: ArrayLike | None, n_rows: int) -> None:
    """Raise unless there is one usable id per row."""
    if groups is None:
        return
    if np.shape(groups) != (n_rows,):
        raise ValueError(
            f"groups must hold one user id per row: {n_rows} rows, groups of shape {np.shape(groups)}"
        )
    _ids(groups)


def _bytes(name: Any) -> bytes:
    """An id as bytes; half a surrogate pair among its characters raises nothing."""
    return str(name).encode(errors="surrogatepass")


def _ids(groups: ArrayLike) -> NDArray[Any]:
    ids = np.asarray(groups)
    if ids.dtype.kind not in "iubUSO":
        raise TypeError(
            f"user ids must be whole numbers or strings, got dtype {ids.dtype}; convert them, for instance to str"
        )
    if ids.dtype.kind in "iub":
        return ids
    texts = np.array([cell_text(value) for value in ids], dtype=object)
    if any(text is None for text in texts):
        raise ValueError("some rows have no user id in groups; add it, or leave such rows out")
    return texts
