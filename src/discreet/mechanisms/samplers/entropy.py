"""Random words from a cipher keyed by the operating system, and repeatable words for tests, marked as insecure.

Differential privacy is lost if an adversary can guess, replay or subtract the noise. So noise comes from AES-256 in
counter mode under a key that is never stored, every fit has its own key, and no fork, thread, pickle or copy can use
the same words twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import operator
import os
import threading
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, NoReturn, SupportsIndex

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

Words = NDArray[np.uint64]

#: Name of the noise source in privacy statements.
SOURCE = "AES-256-CTR keyed by the operating system"

_WORD_BYTES = 8
_BUFFER_WORDS = 512
# update_into requires room for one block more than it writes.
_SPARE_WORDS = 2
_ZEROS = memoryview(bytes(1 << 16))


class Entropy:
    """A stream of independent uniform 64-bit words: AES-256-CTR under a key from ``os.urandom``.

    Attributes
    ----------
    secure : bool
        True if the key is secret. False inside :func:`insecure_noise`; then nothing computed from the words is
        private.

    Privacy
    -------
    Words are computationally indistinguishable from uniform ones, which is the only assumption of this package that is
    not information-theoretic. No word is used twice: threads share one locked stream, and a forked child starts a new
    key. Words are erased from the buffer when they are returned. Not covered: a virtual machine resumed twice from one
    snapshot, and an adversary who reads this process's memory.

    Examples
    --------
    >>> source = Entropy()
    >>> source.secure, source.words(4).dtype, len(set(source.words(1000).tolist()))
    (True, dtype('uint64'), 1000)
    """

    _cipher: CipherContext
    _buffer: Words
    _position: int
    _process: int

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._start()
        _alive.add(self)

    @property
    def secure(self) -> bool:
        """Whether the key is secret."""
        return True

    def words(self, count: SupportsIndex) -> Words:
        """Return the next ``count`` words as a new array."""
        wanted = operator.index(count)
        if wanted < 0:
            raise ValueError(f"the number of words must be at least 0, got {wanted}")
        with self._lock:
            if os.getpid() != self._process:  # a fork that bypassed Python's hooks
                self._start()
            if wanted > _BUFFER_WORDS:
                return self._keystream(wanted)
            if self._position + wanted > _BUFFER_WORDS:
                self._buffer, self._position = self._keystream(_BUFFER_WORDS), 0
            begin = self._position
            self._position += wanted  # first: an interruption may lose words but never repeat them
            taken = self._buffer[begin : self._position].copy()
            self._buffer[begin : self._position] = 0
            return taken

    def _key(self) -> bytes:
        """Return 48 bytes: a 256-bit key and the first counter block."""
        return os.urandom(48)

    def _start(self) -> None:
        """Start a new stream and forget the old one."""
        key = self._key()
        self._cipher = Cipher(algorithms.AES256(key[:32]), modes.CTR(key[32:])).encryptor()
        self._buffer = np.zeros(_BUFFER_WORDS, dtype=np.uint64)
        self._position = _BUFFER_WORDS
        self._process = os.getpid()

    def _keystream(self, count: int) -> Words:
        """Return the cipher's next ``count`` words, encrypting zeros in place."""
        words = np.empty(count + _SPARE_WORDS, dtype=np.uint64)
        room = words.data.cast("B")
        size = count * _WORD_BYTES
        for begin in range(0, size, len(_ZEROS)):
            self._cipher.update_into(_ZEROS[: min(len(_ZEROS), size - begin)], room[begin:])
        return words[:count]

    def _after_fork(self) -> None:
        """In a forked child, create a new lock and a key the parent does not know."""
        self._lock = threading.Lock()
        self._start()

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError(
            "a source of entropy cannot be pickled or copied, because the copy would repeat the same noise; "
            "call fresh_entropy() where the noise is drawn"
        )

    __reduce_ex__ = _refuse
    __copy__ = _refuse
    __deepcopy__ = _refuse


class _RepeatableEntropy(Entropy):
    """The same words in every run: keyed by a hash of public numbers, so never secure."""

    def __init__(self, seed: int, stream: int) -> None:
        self._name = f"discreet insecure noise, seed {seed}, stream {stream}"
        self._starts = itertools.count()
        super().__init__()

    @property
    def secure(self) -> bool:
        return False

    def _key(self) -> bytes:
        return hashlib.sha512(f"{self._name}, start {next(self._starts)}".encode()).digest()[:48]


_alive: weakref.WeakSet[Entropy] = weakref.WeakSet()


def _renew_all() -> None:
    for source in list(_alive):
        source._after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_renew_all)


class _InsecureBlock:
    """The seed of one ``insecure_noise`` block and the number of sources it has created."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._streams = itertools.count()

    def next_source(self) -> Entropy:
        return _RepeatableEntropy(self._seed, next(self._streams))


_insecure: ContextVar[_InsecureBlock | None] = ContextVar("discreet_insecure_noise", default=None)


def fresh_entropy() -> Entropy:
    """Return a newly keyed source: one per fit, created where the noise is drawn.

    Privacy
    -------
    Secure unless the caller is inside :func:`insecure_noise`. A published result must state ``secure``.
    """
    block = _insecure.get()
    return Entropy() if block is None else block.next_source()


def noise_is_secret() -> bool:
    """Whether a source created now would be secure; creates none."""
    return _insecure.get() is None


@contextlib.contextmanager
def insecure_noise(seed: SupportsIndex) -> Iterator[None]:
    """For tests and experiments only: repeatable noise. RESULTS OBTAINED INSIDE ARE NOT PRIVATE.

    Inside the block, the k-th call of :func:`fresh_entropy` returns a stream that depends on ``seed`` and k only. The
    same program draws the same noise, while two fits in the block draw different noise.

    Parameters
    ----------
    seed : int
        Any number; the same one gives the same noise.

    Yields
    ------
    None
        It is a context manager: ``with insecure_noise(7): ...``.

    Notes
    -----
    Privacy: none. Anyone who knows the seed can subtract the noise. Every source created inside has ``secure ==
    False``, and so has every statement derived from it. The switch is local to the current thread or asynchronous
    task. It does not reach new threads or spawned worker processes: those stay secure and are not repeatable. A forked
    child inherits the switch and repeats the noise of its siblings.

    Examples
    --------
    >>> with insecure_noise(7):
    ...     first, second = fresh_entropy(), fresh_entropy()
    >>> with insecure_noise(7):
    ...     again = fresh_entropy()
    >>> first.secure, fresh_entropy().secure
    (False, True)
    >>> a, b, c = (source.words(1)[0] for source in (first, second, again))
    >>> bool(a == c), bool(a == b)
    (True, False)
    """
    token = _insecure.set(_InsecureBlock(operator.index(seed)))
    try:
        yield
    finally:
        _insecure.reset(token)
