"""The signing key: made once, for its owner's eyes, and its public half kept for ever."""

import hashlib
import multiprocessing
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from app.evidence.keys import KeyUnusable, key_id, open_signing_key, public_keys, read_public_key


def test_a_key_is_made_on_first_use_and_stays(tmp_path: Path) -> None:
    path, public = tmp_path / "keys" / "signing.pem", tmp_path / "public"
    first, second = open_signing_key(path, public), open_signing_key(path, public)
    assert first.key_id == second.key_id
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [p.name for p in public.iterdir()] == [f"{first.key_id}.pub.pem"], "nothing else is left"
    assert [p.name for p in path.parent.iterdir()] == ["signing.pem"]
    public_keys(public)[first.key_id].verify(second.sign(b"message"), b"message")


def test_the_key_id_is_the_hash_of_the_public_key(tmp_path: Path) -> None:
    key = open_signing_key(tmp_path / "signing.pem")
    info = key.public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    assert key.key_id == key_id(key.public) == hashlib.sha256(info).hexdigest()


def test_the_key_shows_its_id_alone(tmp_path: Path) -> None:
    key = open_signing_key(tmp_path / "signing.pem")
    assert repr(key) == str(key) == f"SigningKey({key.key_id})"


def test_public_keys_of_old_keys_are_kept(tmp_path: Path) -> None:
    old = open_signing_key(tmp_path / "old.pem", tmp_path / "public")
    new = open_signing_key(tmp_path / "new.pem", tmp_path / "public")
    assert set(public_keys(tmp_path / "public")) == {old.key_id, new.key_id}
    assert public_keys(tmp_path / "none") == {}


def test_a_public_key_that_a_kill_left_out_is_written_at_the_next_start(tmp_path: Path) -> None:
    key = open_signing_key(tmp_path / "signing.pem")
    open_signing_key(tmp_path / "signing.pem", tmp_path / "public")
    assert set(public_keys(tmp_path / "public")) == {key.key_id}


def _open(path: Path) -> str:
    return open_signing_key(path).key_id


def test_processes_that_make_it_at_once_use_one_key(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert len(set(pool.map(_open, [tmp_path / "signing.pem"] * 12, chunksize=1))) == 1


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        (b"not a key", 0o600, "not a private key"),
        (None, 0o644, "others may read it"),
        (b"EC", 0o600, "not an Ed25519 key"),
    ],
)
def test_a_key_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None, mode: int, reason: str) -> None:
    path = tmp_path / "signing.pem"
    if content is None:
        open_signing_key(path)
    elif content == b"EC":
        path.write_bytes(
            generate_private_key(SECP256R1()).private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
    else:
        path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(KeyUnusable, match=rf"signing\.pem: {reason}"):
        open_signing_key(path)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KeyUnusable, match="file"):
        open_signing_key(tmp_path / "file" / "signing.pem")


def test_a_public_key_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.pub.pem").write_text("not a key")
    with pytest.raises(KeyUnusable, match=r"x\.pub\.pem: not a public key"):
        public_keys(tmp_path)
    with pytest.raises(KeyUnusable, match=r"none\.pub\.pem"):
        read_public_key(tmp_path / "none.pub.pem")
