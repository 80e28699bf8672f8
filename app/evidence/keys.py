"""The instance's signing key: an Ed25519 key in a file of its own, made on first use, and the public keys beside it.

A key id is the SHA-256 of the public key's SubjectPublicKeyInfo, in hex. Public keys are kept for ever, so that what an
old key has signed stays verifiable.
"""

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PUBLIC_SUFFIX = ".pub.pem"


class KeyUnusable(Exception):
    """A key file cannot be used; the message names it and says why."""


class SigningKey(msgspec.Struct, frozen=True):
    """A private key that signs (app.eventlog.checkpoints.Signer). Its repr shows the id alone."""

    private: Ed25519PrivateKey
    key_id: str

    def sign(self, message: bytes) -> bytes:
        return self.private.sign(message)

    @property
    def public(self) -> Ed25519PublicKey:
        return self.private.public_key()

    @property
    def public_pem(self) -> bytes:
        return self.public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    def __repr__(self) -> str:
        return f"SigningKey({self.key_id})"


def key_id(public: Ed25519PublicKey) -> str:
    info = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(info).hexdigest()


def open_signing_key(path: Path, public_folder: Path | None = None) -> SigningKey:
    """The key in `path`, made (mode 0600) when there is none; its public half is kept in `public_folder`, when given.

    Of two processes that make it at once, one wins and both use its key. A kill leaves a whole key or none. Raises
    KeyUnusable.
    """
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            pem = Ed25519PrivateKey.generate().private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            _write_new(path, pem, 0o600)
        if path.stat().st_mode & 0o007:
            raise KeyUnusable(f"{path}: others may read it; run chmod 600 on it")
        key = _parse(path)
        if public_folder is not None:
            public_folder.mkdir(parents=True, exist_ok=True, mode=0o755)
            _write_new(public_folder / f"{key.key_id}{PUBLIC_SUFFIX}", key.public_pem, 0o644)
    except OSError as error:
        raise KeyUnusable(f"{error.filename or path}: {error.strerror}") from error
    return key


def public_keys(folder: Path) -> dict[str, Ed25519PublicKey]:
    """The public keys of a folder, by key id. Raises KeyUnusable for a file that is not one."""
    keys: dict[str, Ed25519PublicKey] = {}
    for path in sorted(folder.glob(f"*{PUBLIC_SUFFIX}")):
        key = read_public_key(path)
        keys[key_id(key)] = key
    return keys


def read_public_key(path: Path) -> Ed25519PublicKey:
    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except OSError as error:
        raise KeyUnusable(f"{path}: {error.strerror}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise KeyUnusable(f"{path}: not a public key in PEM form") from error
    if not isinstance(key, Ed25519PublicKey):
        raise KeyUnusable(f"{path}: not an Ed25519 key")
    return key


def _parse(path: Path) -> SigningKey:
    try:
        private = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyUnusable(f"{path}: not a private key in PEM form without a password") from error
    if not isinstance(private, Ed25519PrivateKey):
        raise KeyUnusable(f"{path}: not an Ed25519 key")
    return SigningKey(private, key_id(private.public_key()))


def _write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a file that is there whole or not at all; one that is there already stays."""
    if path.exists():
        return
    aside = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(aside)
    finally:
        aside.unlink()
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
