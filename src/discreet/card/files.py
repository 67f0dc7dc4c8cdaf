"""Model files: one JSON document with a checksum and, optionally, a signature.

Reading a file parses JSON and checks it; nothing in it is ever executed, imported by name or unpickled. The checksum
detects damage and careless edits. A deliberate editor can recompute it, but not the signature (Ed25519), which shows
who made the claim.

Files are not trusted, so their events are priced only within a bound on the work: a few lines could take hours, with
many different mechanisms that each need a loss distribution. Plans of this library stay far below the limits, because
calibrating them prices them many times.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from discreet._files import read_file, reserved, write_atomically
from discreet.card.card import About, Card, CardError, no_constant, no_duplicates
from discreet.privacy.accounting import accountants
from discreet.privacy.accounting.objective import ANGLE_CELLS, TANGENT_POINTS
from discreet.privacy.events import (
    Approximate,
    Approximated,
    BoundedRange,
    Composed,
    Discretized,
    Event,
    Gaussian,
    Grouped,
    Laplace,
    ObjectivePerturbation,
    OneOf,
    Pure,
    RandomTries,
    Repeated,
    Subsampled,
)
from discreet.privacy.statement import PrivacyStatement
from discreet.tables.schema import Schema

Path_ = str | os.PathLike[str]

FORMAT = "discreet model"
FORMAT_VERSION = 2


@dataclass(frozen=True)
class Sealed:
    """A file with a correct checksum: its card, the signed bytes, and the signature or None."""

    card: Card
    content: bytes
    signature: str | None


def save(
    model: Any,
    path: Path_,
    *,
    schema: Schema | None = None,
    key: Path_ | None = None,
    about: About | None = None,
    overwrite: bool = False,
) -> None:
    """Write a fitted private model to a JSON file, atomically.

    Parameters
    ----------
    model : fitted estimator of this library.
    path : file to write.
    schema : public domains through which the model was fitted; default: ``model.schema_``, if any.
    key : file with the private key to sign with; ``new_key`` makes one.
    about : your declarations about the model, for its page; they are signed, too.
    overwrite : whether to replace an existing file, once the new content is on disk.

    Privacy
    -------
    The file holds only released values and public facts: no data, no seed, and no path of a ledger; the charge is named
    by the ledger's random identity and a digest. It may be published under the conditions of its statement.

    Raises
    ------
    CardError, OSError
        The model cannot be saved; the file exists; the disk is full or the path is not writable. An old file is kept.
    """
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, **Card.of(model, schema, about).to_dict()}
    if overwrite:
        _write(path, content, key)
        return
    try:
        with reserved(path):
            _write(path, content, key)
    except FileExistsError as error:
        if error.filename is None:  # for example a ledger, which is never replaced
            raise
        raise FileExistsError(
            17, f"{str(path)!r} exists; name another file, or pass overwrite=True to replace it"
        ) from None


def sign_file(path: Path_, signed: Path_, *, key: Path_) -> None:
    """Write a signed copy of a model file, with unchanged content.

    Parameters
    ----------
    path : model file; it is checked as by `read`.
    signed : file to write; it may be the same.
    key : file with the private key to sign with; ``new_key`` makes one.
    """
    _write(signed, json.loads(unsealed(path).content), key)


def _write(path: Path_, content: Mapping[str, Any], key: Path_ | None) -> None:
    """Seal the content and write it."""
    canonical = _canonical(content)
    seals = {"sha256": hashlib.sha256(canonical).hexdigest()}
    if key is not None:
        seals["signature"] = sign(canonical, key)
    text = json.dumps({**content, **seals}, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomically(path, (text + "\n").encode())


def load(path: Path_) -> Any:
    """Read a model file back into a fitted estimator; executes nothing from the file.

    Returns
    -------
    estimator
        With its released numbers, ``privacy_`` and, if saved with a schema, ``schema_``: then it predicts for raw
        tables with the schema's columns; arrays are taken as encoded rows.

    Raises
    ------
    CardError
        The file is missing, not a model file, damaged, edited, or of an unknown format.
    """
    card = read(path)
    try:
        return card.model()
    except CardError as error:
        raise CardError(f"{str(path)!r}: {error}") from None


def read(path: Path_) -> Card:
    """Read and check a model file without building the estimator."""
    return unsealed(path).card


def unsealed(path: Path_) -> Sealed:
    """Read a model file and check its checksum."""
    name = repr(str(path))
    try:
        content = json.loads(read_file(path), parse_constant=no_constant, object_pairs_hook=no_duplicates)
    except FileNotFoundError:
        raise CardError(f"there is no model file {name}") from None
    except OSError as error:
        raise CardError(f"model file {name} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise CardError(f"{name} is not a model file, or it is damaged: it is not valid JSON") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CardError(f"{name} is not a model file of discreet")
    if content.get("format_version") != FORMAT_VERSION:
        raise CardError(
            f"{name} has format version {content.get('format_version')!r}, this version of discreet reads "
            f"{FORMAT_VERSION}; use the version that wrote it"
        )
    stored, signature = content.pop("sha256", None), content.pop("signature", None)
    try:
        canonical = _canonical(content)
    except (ValueError, RecursionError):
        raise CardError(f"{name} is not a model file, or it is damaged: it is not valid JSON") from None
    if stored != hashlib.sha256(canonical).hexdigest():
        raise CardError(f"{name} was damaged or changed after it was written: its checksum does not match")
    try:
        card = Card.from_dict(content)
        check_size(card.privacy)
    except CardError as error:
        raise CardError(f"{name} is not a usable model file: {error}") from None
    return Sealed(card, canonical, signature if isinstance(signature, str) else None)


def _canonical(content: Mapping[str, Any]) -> bytes:
    """Return the bytes that are hashed and signed: the content in its order, without blanks."""
    return json.dumps(content, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


# -- signatures ---------------------------------------------------------------------------------------------------


def new_key(private: Path_, public: Path_) -> None:
    """Make a key pair: the signer keeps ``private`` (readable by its owner only), readers get ``public``.

    Raises
    ------
    CardError
        One of the files exists; a key is never replaced.
    """
    for path in (private, public):
        if Path(path).exists():
            raise CardError(f"{str(path)!r} exists; a key is never replaced, choose another name")
    key = Ed25519PrivateKey.generate()
    descriptor = os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
    write_atomically(
        public,
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
    )


def sign(content: bytes, private: Path_) -> str:
    """Return the signature of ``content``, in hexadecimal digits."""
    key = _key(private, lambda text: serialization.load_pem_private_key(text, password=None), "public")
    if not isinstance(key, Ed25519PrivateKey):
        raise CardError(f"{str(private)!r} is not an Ed25519 private key")
    return key.sign(content).hex()


def is_signed_by(content: bytes, signature: str, public: Path_) -> bool:
    """Whether the holder of the private key made this signature of ``content``."""
    key = _key(public, serialization.load_pem_public_key, "private")
    if not isinstance(key, Ed25519PublicKey):
        raise CardError(f"{str(public)!r} is not an Ed25519 public key")
    try:
        key.verify(bytes.fromhex(signature), content)
    except (InvalidSignature, ValueError):
        return False
    return True


def _key(path: Path_, read: object, other: str) -> object:
    """Read a key; name the mistake if the file holds the ``other`` key of a pair."""
    try:
        return read(Path(path).read_bytes())  # type: ignore[operator]
    except OSError as error:
        raise CardError(f"the key {str(path)!r} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError):
        if f"-----BEGIN {other.upper()} KEY".encode() in Path(path).read_bytes():
            raise CardError(
                f"{str(path)!r} is the {other} key of a pair; files are signed with the private key and checked "
                "with the public one"
            ) from None
        raise CardError(
            f"{str(path)!r} is not an unencrypted key in PEM format; discreet.card.new_key makes a pair"
        ) from None


# -- bounded pricing -----------------------------------------------------------------------------------------------

MOST_WORK = 6.0  # approximate seconds of one processor
MOST_PARTS = 10_000
MOST_RECORDS = 1000  # of one person; also models in one objective perturbation
MOST_PROFILES = 500_000  # Gaussian profiles in the price of one objective perturbation
MOST_RUNS = 2**20  # of mechanisms that are not Gaussian
_LIGHT = 2.0  # seconds; if a search for epsilon takes longer, the claim is checked at one point
_FAR = 8.0  # privacy loss of one mechanism, above which compositions are as slow as those of perturbed objectives
_SEARCH = 35  # points of a search for epsilon


def check_size(statement: PrivacyStatement) -> None:
    """Raise ``CardError`` if the events of a statement cannot be priced in reasonable time."""
    if work(statement.event) > MOST_WORK:
        raise CardError("its events are too many, or too different, to be priced")


def recomputed(statement: PrivacyStatement) -> float:
    """Return the epsilon of a statement's events at the claimed delta; infinite if the claim is false.

    If the exact number would take long, return the claimed epsilon, an upper bound.
    """
    promise, event = statement.guarantee, statement.event
    try:
        if _SEARCH * work(event) <= _LIGHT:
            return accountants.epsilon(event, promise.delta, promise.neighboring)
        fits = accountants.delta(event, promise.epsilon, promise.neighboring) <= promise.delta
    except (OverflowError, ValueError) as error:
        raise CardError(f"its events have no price: {error}") from None
    return promise.epsilon if fits else math.inf


def work(event: Event) -> float:
    """Return the estimated seconds of one processor to compute delta at one point; infinite beyond the limits.

    From measurements, with a margin. For alternatives (`OneOf`) one is searched for, and the others are compared.
    """
    if _count(event) > MOST_PARTS:
        return math.inf
    return sum(_work(parts) * times for parts, times in _compositions(event, 1))


def _work(counts: dict[Event, int]) -> float:
    """Return the work of one composition at one point."""
    if any(_size(leaf) > MOST_RECORDS or _profiles(leaf) > MOST_PROFILES for leaf in counts):
        return math.inf
    others = [leaf for leaf in counts if not isinstance(leaf, Gaussian)]
    slow = [
        leaf
        for leaf in others
        if isinstance(leaf, ObjectivePerturbation | Grouped | Subsampled) or _far(leaf)
    ]
    runs = sum(counts[leaf] for leaf in others)
    if runs > MOST_RUNS:
        return math.inf
    if len(counts) == 1 and runs <= 1:
        return 0.0025 + 1e-6 * _profiles(slow[0]) if slow and not _far(slow[0]) else 0.0002
    return 0.0002 + 0.9 * len(slow) + 0.02 * (len(others) - len(slow)) + 0.0001 * math.pow(runs, 0.7)


def _far(leaf: Event) -> bool:
    """Whether losses are so large that their distribution has many points."""
    match leaf:
        case Pure(epsilon=epsilon) | Approximate(epsilon=epsilon) | BoundedRange(epsilon=epsilon):
            return epsilon > _FAR
        case Laplace(noise_multiplier=multiplier):
            return multiplier * _FAR < 1
        case _:
            return False


def _compositions(event: Event, asked: int) -> Iterator[tuple[dict[Event, int], int]]:
    """Yield all compositions of mechanisms, inner ones included, and the number of evaluations of each."""
    counts: dict[Event, int] = {}
    stack = [(event, 1)]
    while stack:
        node, times = stack.pop()
        match node:
            case Repeated(event=inner, times=more):
                stack.append((inner, times * more))
            case Composed(events=parts):
                stack += [(part, times) for part in parts]
            case Approximated(event=inner) | Discretized(event=inner):
                stack.append((inner, times))
            case OneOf(events=parts):
                for place, part in enumerate(dict.fromkeys(parts)):
                    yield from _compositions(part, max(asked, 2 if place else _SEARCH))
                counts[node] = times
            case RandomTries(event=inner):
                parts = tuple(dict.fromkeys(inner.events)) if isinstance(inner, OneOf) else (inner,)
                for place, part in enumerate(parts):
                    yield from _compositions(part, max(asked, 4 if place else 2 * _SEARCH))
                counts[node] = times
            case _:
                counts[node] = counts.get(node, 0) + times
    yield counts, asked


def _count(event: Event) -> int:
    """Return the number of events in a tree."""
    total, stack = 0, [event]
    while stack:
        node = stack.pop()
        total += 1
        stack += [*getattr(node, "events", ()), *([node.event] if hasattr(node, "event") else ())]
    return total


def _size(leaf: Event) -> int:
    match leaf:
        case Grouped(event=inner, size=size):
            return max(size, _size(inner))
        case ObjectivePerturbation(n_outputs=models):
            return models
        case Subsampled(event=inner):
            return _size(inner)
        case _:
            return 1


def _profiles(leaf: Event) -> int:
    """Return the number of Gaussian profiles in the price of perturbed objectives: see `accounting.objective`."""
    match leaf:
        case Grouped(event=inner) | Subsampled(event=inner):
            return _profiles(inner)
        case ObjectivePerturbation(family="logistic", n_outputs=models):
            return len(TANGENT_POINTS) * math.comb(models + 3, 3)
        case ObjectivePerturbation(family="monotone", n_outputs=models):
            return math.comb(models + 2, 2)
        case ObjectivePerturbation(family="general", n_outputs=models):
            return ANGLE_CELLS * (models + 1)
        case ObjectivePerturbation(family="softmax"):
            return 15_000  # integrals, which take as long
        case _:
            return 1
