"""Signed checkpoints: what the log said, up to a position, put where the log's database cannot change it.

A checkpoint seals a *segment*: the events after the last checkpoint's position, up to its own. It names the incarnation,
the Merkle root of the segment (chain.py), the hash of the checkpoint before, and the key; it is signed as a DSSE envelope
(https://github.com/secure-systems-lab/dsse, PAE version 1). The row comes first, then the object: a row that is not in the
object store yet is handed out again until its caller says that it is.
"""

import base64
import binascii
import datetime
import hashlib
import uuid
from collections.abc import Mapping
from typing import Protocol

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from app.clock import Clock
from app.eventlog.chain import leaf, merkle_root
from app.eventlog.connect import Connection
from app.eventlog.incarnation import current_incarnation
from app.eventlog.statements import statement
from app.eventlog.tail import settle

PAYLOAD_TYPE = "application/vnd.seatrial.checkpoint.v1+json"
SEGMENT_EVENTS = 1000
SEGMENT_SECONDS = 60.0
LOCK = 0x5EA7_C4EC
"""The advisory lock of whoever signs."""


class Signer(Protocol):
    """A private key, wherever it is."""

    @property
    def key_id(self) -> str: ...

    def sign(self, message: bytes) -> bytes: ...


class Checkpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The signed statement. Hashes are hex."""

    number: int
    """1, 2, 3, … through all incarnations of this database."""
    incarnation: uuid.UUID
    after_position: int
    position: int
    """The segment: after_position < position of an event <= position."""
    events: int
    root: str
    previous: str
    """SHA-256 of the payload of the checkpoint before; empty for the first."""
    signed_at: datetime.datetime
    key_id: str


class Sealed(msgspec.Struct, frozen=True):
    """A checkpoint that the object store does not have yet."""

    number: int
    incarnation: uuid.UUID
    """Of the log that it seals: numbers begin again with a restore."""
    envelope: bytes


class _Signature(msgspec.Struct, frozen=True):
    keyid: str
    sig: str


class _Envelope(msgspec.Struct, frozen=True, rename="camel"):
    payload_type: str
    payload: str
    signatures: list[_Signature]


class CheckpointInvalid(Exception):
    """The bytes are not a checkpoint that one of the known keys has signed."""


class KeyUnknown(CheckpointInvalid):
    """The checkpoint names a key that is not among the known ones."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"signed with key {key_id}, which is not known here")
        self.key_id = key_id


async def maybe_checkpoint(
    connection: Connection, signer: Signer, clock: Clock, *, at_once: bool = False
) -> list[Sealed]:
    """Seal what is decided, when 1,000 events or 60 s have gathered, or `at_once`; return what is to be stored.

    The connection must be in no transaction. Two processes may call it at once: one signs, the other does nothing. Put
    each answer into the object store, then call `mark_stored`.
    """
    up_to = await settle(connection)
    while await _seal_segment(connection, signer, clock, up_to, at_once):
        pass
    return await unstored(connection)


async def unstored(connection: Connection) -> list[Sealed]:
    """The checkpoints that are not in the object store as far as we know, oldest first."""
    rows = await connection.fetch(statement("read_unstored_checkpoints"))
    return [Sealed(row["number"], read_unverified(row["envelope"]).incarnation, row["envelope"]) for row in rows]


async def mark_stored(connection: Connection, number: int, clock: Clock) -> None:
    await connection.execute(statement("mark_checkpoint_stored"), number, clock.now())


async def _seal_segment(connection: Connection, signer: Signer, clock: Clock, up_to: int, at_once: bool) -> bool:
    """Sign at most one segment. Whether there may be more to sign."""
    async with connection.transaction():
        if not await connection.fetchval("select pg_try_advisory_xact_lock($1)", LOCK):
            return False
        last = await connection.fetchrow(statement("read_last_checkpoint"))
        after, number = (last["position"], last["number"]) if last else (0, 0)
        rows = await connection.fetch(statement("read_leaves"), after, up_to, SEGMENT_EVENTS)
        if not rows:
            return False
        now = clock.now()
        begun = last["signed_at"] if last else rows[0]["recorded_at"]
        # Also when the last one is of the future: the clock was set back since.
        due = at_once or not 0 <= (now - begun).total_seconds() < SEGMENT_SECONDS
        if len(rows) < SEGMENT_EVENTS and not due:
            return False
        leaves = [leaf(row["position"], row["hash"]) for row in rows]
        checkpoint = Checkpoint(
            number=number + 1,
            incarnation=await current_incarnation(connection),
            after_position=after,
            position=rows[-1]["position"],
            events=len(rows),
            root=merkle_root(leaves).hex(),
            previous=hashlib.sha256(payload_of(last["envelope"])).hexdigest() if last else "",
            signed_at=now,
            key_id=signer.key_id,
        )
        await connection.execute(
            statement("insert_checkpoint"),
            checkpoint.number,
            checkpoint.position,
            sign(checkpoint, signer),
            b"".join(leaves),
            now,
        )
    return len(rows) == SEGMENT_EVENTS


def sign(checkpoint: Checkpoint, signer: Signer) -> bytes:
    """The DSSE envelope, as JSON."""
    payload = msgspec.json.encode(checkpoint)
    signature = signer.sign(pre_authentication(PAYLOAD_TYPE, payload))
    return msgspec.json.encode(
        _Envelope(
            PAYLOAD_TYPE,
            base64.b64encode(payload).decode(),
            [_Signature(signer.key_id, base64.b64encode(signature).decode())],
        )
    )


def verify(envelope: bytes, keys: Mapping[str, Ed25519PublicKey]) -> Checkpoint:
    """The statement inside, when the key that it names has signed it. Raises KeyUnknown or CheckpointInvalid."""
    checkpoint, signatures = _open(envelope)
    key = keys.get(checkpoint.key_id)
    if key is None:
        raise KeyUnknown(checkpoint.key_id)
    message = pre_authentication(PAYLOAD_TYPE, payload_of(envelope))
    for signature in signatures:
        if signature.keyid == checkpoint.key_id:
            try:
                key.verify(base64.b64decode(signature.sig, validate=True), message)
            except (InvalidSignature, binascii.Error):
                continue
            return checkpoint
    raise CheckpointInvalid(f"checkpoint {checkpoint.number} is not signed by the key that it names")


def read_unverified(envelope: bytes) -> Checkpoint:
    """The statement inside, whoever signed it. Raises CheckpointInvalid when there is none."""
    return _open(envelope)[0]


def payload_of(envelope: bytes) -> bytes:
    """The signed bytes. Raises CheckpointInvalid."""
    try:
        parsed = msgspec.json.decode(envelope, type=_Envelope)
        if parsed.payload_type != PAYLOAD_TYPE:
            raise CheckpointInvalid("the envelope holds something else")
        return base64.b64decode(parsed.payload, validate=True)
    except (msgspec.MsgspecError, binascii.Error) as error:
        raise CheckpointInvalid(f"not an envelope: {error}") from error


def pre_authentication(payload_type: str, payload: bytes) -> bytes:
    """What is signed: DSSE's pre-authentication encoding, so that no bytes can be taken for those of another type."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def _open(envelope: bytes) -> tuple[Checkpoint, list[_Signature]]:
    payload = payload_of(envelope)
    try:
        return msgspec.json.decode(payload, type=Checkpoint), msgspec.json.decode(envelope, type=_Envelope).signatures
    except msgspec.MsgspecError as error:
        raise CheckpointInvalid(f"not a checkpoint: {error}") from error
