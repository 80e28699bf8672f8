"""Signed checkpoints: when one is due, what it covers, that each follows the last, and that none is lost."""

import asyncio
import base64
import datetime
import hashlib
import uuid
from pathlib import Path

import msgspec
import pytest

from app.eventlog.chain import includes, inclusion_proof, leaf, merkle_root, split_leaves
from app.eventlog.checkpoints import (
    SEGMENT_EVENTS,
    Checkpoint,
    CheckpointInvalid,
    KeyUnknown,
    Sealed,
    mark_stored,
    maybe_checkpoint,
    payload_of,
    pre_authentication,
    sign,
    unstored,
    verify,
)
from app.eventlog.incarnation import current_incarnation
from app.evidence.keys import SigningKey, open_signing_key
from tests.eventlog.samples import opened, rows, unit, write


class SetClock:
    def __init__(self) -> None:
        self.time = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)

    def now(self) -> datetime.datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()

    def wait(self, seconds: float) -> None:
        self.time += datetime.timedelta(seconds=seconds)


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return open_signing_key(tmp_path / "signing.pem")


def opened_checkpoints(sealed: list[Sealed], key: SigningKey) -> list[Checkpoint]:
    return [verify(one.envelope, {key.key_id: key.public}) for one in sealed]


async def test_a_clock_that_was_set_back_an_hour_holds_up_no_checkpoint(database: str, key: SigningKey) -> None:
    clock = SetClock()
    async with opened(database) as connection:
        await write(connection, unit("a"))
        [first] = await maybe_checkpoint(connection, key, clock, at_once=True)
        await mark_stored(connection, first.number, clock)
        clock.wait(-3600)
        await write(connection, unit("b"))
        assert len(await maybe_checkpoint(connection, key, clock)) == 1


async def test_a_checkpoint_is_due_after_a_minute_or_when_asked(database: str, key: SigningKey) -> None:
    clock = SetClock()
    async with opened(database) as connection:
        assert await maybe_checkpoint(connection, key, clock, at_once=True) == [], "nothing to seal"
        await write(connection, unit("a", count=3))
        [first] = await maybe_checkpoint(connection, key, clock)
        await mark_stored(connection, first.number, clock)
        await write(connection, unit("b", count=2))
        clock.wait(59)
        assert await maybe_checkpoint(connection, key, clock) == []
        clock.wait(1)
        [second] = await maybe_checkpoint(connection, key, clock)
        await mark_stored(connection, second.number, clock)
        clock.wait(100)
        assert await maybe_checkpoint(connection, key, clock) == [], "nothing new"
        await write(connection, unit("c"))
        [third] = await maybe_checkpoint(connection, key, clock, at_once=True)
        one, two, three = opened_checkpoints([first, second, third], key)
        assert [(c.number, c.after_position, c.position, c.events) for c in (one, two, three)] == [
            (1, 0, 3, 3),
            (2, 3, 5, 2),
            (3, 5, 6, 1),
        ]
        assert one.previous == ""
        assert two.previous == hashlib.sha256(payload_of(first.envelope)).hexdigest()
        assert three.previous == hashlib.sha256(payload_of(second.envelope)).hexdigest()
        assert one.incarnation == await current_incarnation(connection)
        assert one.signed_at == datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
        assert (third.incarnation, third.number) == (one.incarnation, 3)


async def test_a_checkpoint_is_due_after_a_thousand_events(database: str, key: SigningKey) -> None:
    clock = SetClock()
    async with opened(database) as connection:
        await write(connection, unit("a"))
        for sealed in await maybe_checkpoint(connection, key, clock, at_once=True):
            await mark_stored(connection, sealed.number, clock)
        for number in range(5):
            await write(connection, unit(f"s{number}", count=450))
        sealed = opened_checkpoints(await maybe_checkpoint(connection, key, clock), key)
        assert [(c.after_position, c.position) for c in sealed] == [(1, 1001), (1001, 2001)]
        rest = opened_checkpoints(await maybe_checkpoint(connection, key, clock, at_once=True), key)
        assert [(c.position, c.events) for c in rest] == [(1001, SEGMENT_EVENTS), (2001, SEGMENT_EVENTS), (2251, 250)]


async def test_the_root_proves_every_event_of_its_segment(database: str, key: SigningKey) -> None:
    async with opened(database) as connection:
        await write(connection, unit("a", count=5), unit("b", count=4))
        [sealed] = await maybe_checkpoint(connection, key, SetClock(), at_once=True)
    [checkpoint] = opened_checkpoints([sealed], key)
    events = await rows(database, "select position, hash from eventlog.event order by position")
    leaves = [leaf(e["position"], e["hash"]) for e in events]
    assert merkle_root(leaves).hex() == checkpoint.root
    for index, entry in enumerate(leaves):
        proof = inclusion_proof(leaves, index)
        assert includes(bytes.fromhex(checkpoint.root), checkpoint.events, index, entry, proof)
    [stored] = await rows(database, "select leaves from eventlog.merkle_checkpoint")
    assert split_leaves(stored["leaves"]) == [(e["position"], e["hash"]) for e in events]


async def test_a_checkpoint_never_covers_a_position_that_is_not_decided(database: str, key: SigningKey) -> None:
    async with opened(database) as one, opened(database) as two:
        await write(two, unit("a"))
        transaction = one.transaction()
        await transaction.start()
        await write(one, unit("open"))
        await write(two, unit("b"))
        waiting = asyncio.create_task(maybe_checkpoint(two, key, SetClock(), at_once=True))
        await asyncio.sleep(0.05)
        assert not waiting.done(), "it waits for the writer at the gap"
        await transaction.commit()
        [checkpoint] = opened_checkpoints(await waiting, key)
    assert (checkpoint.position, checkpoint.events) == (3, 3)


async def test_what_is_not_known_to_be_stored_is_handed_out_again(database: str, key: SigningKey) -> None:
    """The process was killed between the row and the object."""
    clock = SetClock()
    async with opened(database) as connection:
        await write(connection, unit("a"))
        first = await maybe_checkpoint(connection, key, clock, at_once=True)
        assert await maybe_checkpoint(connection, key, clock) == first
        await mark_stored(connection, first[0].number, clock)
        assert await unstored(connection) == []


async def test_of_two_signers_one_signs(database: str, key: SigningKey) -> None:
    async with opened(database) as one, opened(database) as two:
        for number in range(10):
            await write(one, unit(f"s{number}"))
            await asyncio.gather(*(maybe_checkpoint(c, key, SetClock(), at_once=True) for c in (one, two)))
        sealed = opened_checkpoints(await unstored(one), key)
    assert [c.number for c in sealed] == list(range(1, len(sealed) + 1))
    assert [c.after_position for c in sealed[1:]] == [c.position for c in sealed[:-1]]
    assert sealed[-1].position == 10


async def test_nothing_but_the_signed_bytes_verifies(key: SigningKey, tmp_path: Path) -> None:
    clock, other = SetClock(), open_signing_key(tmp_path / "other.pem")
    statement = Checkpoint(1, uuid.UUID(int=1), 0, 5, 5, "00" * 32, "", clock.now(), key.key_id)
    keys = {key.key_id: key.public}
    envelope = sign(statement, key)
    assert verify(envelope, keys) == statement
    with pytest.raises(KeyUnknown, match=key.key_id):
        verify(envelope, {other.key_id: other.public})
    with pytest.raises(CheckpointInvalid, match="not signed"):
        verify(envelope, {key.key_id: other.public})
    changed = msgspec.json.decode(envelope)
    changed["payload"] = base64.b64encode(msgspec.json.encode(msgspec.structs.replace(statement, position=6))).decode()
    with pytest.raises(CheckpointInvalid, match="not signed"):
        verify(msgspec.json.encode(changed), keys)
    for broken in (b"", b"{}", b"[]", envelope[:-1], envelope.replace(b"checkpoint.v1", b"checkpoint.v2")):
        with pytest.raises(CheckpointInvalid):
            verify(broken, keys)


def test_what_is_signed_is_the_pre_authentication_encoding_of_dsse() -> None:
    """The example of the DSSE protocol document."""
    encoded = pre_authentication("http://example.com/HelloWorld", b"hello world")
    assert encoded == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
