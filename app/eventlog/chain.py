"""The hashes of the log as anybody can check them: the chain of a stream, and the Merkle tree of a segment.

Chain: SHA-256 over fields that are each preceded by their length (4 bytes, big-endian). Numbers and times are big-endian;
time is microseconds since 2000-01-01 UTC, as Postgres sends it. eventlog.append computes the same (db/migrations/
0003_append.sql); golden vectors hold the two together.

Tree: RFC 6962, section 2.1. A leaf is the position (8 bytes, big-endian) and the hash of an event, so that a sealed event
can neither change nor move.
"""

import datetime
import hashlib
import struct
import uuid
from collections.abc import Sequence

EPOCH = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
MICROSECOND = datetime.timedelta(microseconds=1)
LEAF_BYTES = 40


def event_hash(
    previous: bytes,
    *,
    stream: str,
    version: int,
    event_id: uuid.UUID,
    type: str,
    schema_version: int,
    team: str,
    recorded_at: datetime.datetime,
    data: bytes,
    meta: bytes,
    private_hash: bytes | None,
) -> bytes:
    """The 32 bytes that the log keeps as the event's hash. `previous` is that of the version before; empty for the first."""
    return hash_fields(
        previous,
        stream=stream,
        version=version,
        event_id=event_id.bytes,
        type=type,
        schema_version=schema_version,
        team=team,
        recorded_at=struct.pack(">q", (recorded_at - EPOCH) // MICROSECOND),
        data=data,
        meta=meta,
        private_hash=private_hash,
    )


def hash_fields(
    previous: bytes,
    *,
    stream: str,
    version: int,
    event_id: bytes,
    type: str,
    schema_version: int,
    team: str,
    recorded_at: bytes,
    data: bytes,
    meta: bytes,
    private_hash: bytes | None,
) -> bytes:
    """The same, of an id and a time as Postgres sends them: an audit may meet a time that no datetime can hold."""
    fields = (
        previous,
        stream.encode(),
        struct.pack(">i", version),
        event_id,
        type.encode(),
        struct.pack(">h", schema_version),
        team.encode(),
        recorded_at,
        data,
        meta,
        private_hash or b"",
    )
    digest = hashlib.sha256()
    for field in fields:
        digest.update(len(field).to_bytes(4))
        digest.update(field)
    return digest.digest()


def private_hash_of(salt: bytes, private: bytes) -> bytes:
    """What stays of a private part when it is erased. The salt keeps it from being guessed."""
    return hashlib.sha256(salt + private).digest()


def leaf(position: int, event_hash: bytes) -> bytes:
    return position.to_bytes(8) + event_hash


def split_leaves(joined: bytes) -> list[tuple[int, bytes]]:
    """(position, hash) of each leaf of a segment. Raises ValueError when the bytes are not whole leaves."""
    if len(joined) % LEAF_BYTES:
        raise ValueError(f"{len(joined)} bytes are not whole leaves of {LEAF_BYTES} bytes")
    return [
        (int.from_bytes(joined[start : start + 8]), joined[start + 8 : start + LEAF_BYTES])
        for start in range(0, len(joined), LEAF_BYTES)
    ]


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    """The Merkle tree hash of the leaves; of none, the hash of nothing."""
    level = [_leaf_hash(entry) for entry in leaves] or [hashlib.sha256().digest()]
    while len(level) > 1:
        level = _up(level)
    return level[0]


def inclusion_proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """The siblings on the way from leaf `index` to the root, lowest first. Raises IndexError for a leaf that is not there."""
    if not 0 <= index < len(leaves):
        raise IndexError(index)
    level, path = [_leaf_hash(entry) for entry in leaves], list[bytes]()
    while len(level) > 1:
        if (sibling := index ^ 1) < len(level):
            path.append(level[sibling])
        level, index = _up(level), index // 2
    return path


def includes(root: bytes, size: int, index: int, entry: bytes, proof: Sequence[bytes]) -> bool:
    """Whether the proof shows that leaf `index` of a tree of `size` leaves with this root is `entry`."""
    if not 0 <= index < size:
        return False
    digest, last, siblings = _leaf_hash(entry), size - 1, iter(proof)
    while last:
        if index % 2 or index < last:  # else the node has no sibling and moves up as it is
            sibling = next(siblings, None)
            if sibling is None:
                return False
            digest = _node_hash(sibling, digest) if index % 2 else _node_hash(digest, sibling)
        index, last = index // 2, last // 2
    return next(siblings, None) is None and digest == root


def _up(level: list[bytes]) -> list[bytes]:
    """The next level: an odd node moves up as it is."""
    pairs = [_node_hash(level[at], level[at + 1]) for at in range(0, len(level) - 1, 2)]
    return pairs + level[-1:] if len(level) % 2 else pairs


def _leaf_hash(entry: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + entry).digest()


def _node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()
