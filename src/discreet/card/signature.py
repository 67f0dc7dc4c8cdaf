"""Ed25519 signatures of model files: who made the claim, not only that nobody changed it since."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from discreet._files import write_atomically
from discreet.card.errors import CardError

Path_ = str | os.PathLike[str]


def new_key(private: Path_, public: Path_) -> None:
    """Make a key pair: ``private`` stays with the signer (readable by its owner only), ``public`` goes to readers.

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
    """The signature of ``content``, in hexadecimal digits."""
    key = _key(private, lambda text: serialization.load_pem_private_key(text, password=None))
    if not isinstance(key, Ed25519PrivateKey):
        raise CardError(f"{str(private)!r} is not an Ed25519 private key")
    return key.sign(content).hex()


def is_signed_by(content: bytes, signature: str, public: Path_) -> bool:
    """Whether the holder of the private key made this signature of ``content``."""
    key = _key(public, serialization.load_pem_public_key)
    if not isinstance(key, Ed25519PublicKey):
        raise CardError(f"{str(public)!r} is not an Ed25519 public key")
    try:
        key.verify(bytes.fromhex(signature), content)
    except (InvalidSignature, ValueError):
        return False
    return True


def _key(path: Path_, read: object) -> object:
    try:
        return read(Path(path).read_bytes())  # type: ignore[operator]
    except OSError as error:
        raise CardError(f"the key {str(path)!r} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError):
        raise CardError(
            f"{str(path)!r} is not an unencrypted key in PEM format; discreet.card.new_key makes a pair"
        ) from None
