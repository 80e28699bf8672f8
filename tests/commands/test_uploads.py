"""Uploads: what arrives is what is kept, once, and nothing is kept of what does not."""

import base64
import datetime
import hashlib
from collections.abc import AsyncIterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import ids
from app.boot import House
from app.commands import revisions, uploads
from app.commands.caller import Caller
from app.commands.refusals import CommandRefused, Kind
from app.objects import keys
from tests.commands.packs import pack, pieces, upload


async def refusal(awaited: object) -> CommandRefused:
    with pytest.raises(CommandRefused) as caught:
        await awaited  # type: ignore[misc]
    return caught.value


async def test_sending_the_same_bytes_again_answers_the_same_and_other_bytes_are_refused(
    house: House, caller: Caller
) -> None:
    opened = await uploads.open_upload(house, caller)
    first = await uploads.receive(house, caller, opened.id, pieces(b"content"))
    assert first.sha256 == hashlib.sha256(b"content").hexdigest()
    assert await uploads.receive(house, caller, opened.id, pieces(b"content", 1)) == first
    refused = await refusal(uploads.receive(house, caller, opened.id, pieces(b"other")))
    assert (refused.kind, refused.code) == (Kind.CONFLICT, "upload_stored")


async def test_too_many_bytes_are_refused_while_they_come_and_nothing_is_kept(house: House, caller: Caller) -> None:
    opened = await uploads.open_upload(house, caller)
    asked = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal asked
        while True:
            asked += 1
            yield bytes(64 * 1024)

    refused = await refusal(uploads.receive(house, caller, opened.id, endless()))
    assert (refused.kind, refused.code) == (Kind.TOO_LARGE, "upload_too_large")
    assert asked <= house.settings.upload_limit_bytes // (64 * 1024) + 1
    assert await house.objects.stat(keys.upload(opened.id)) is None


async def test_what_arrives_damaged_is_not_kept_and_can_be_sent_again(house: House, caller: Caller) -> None:
    opened = await uploads.open_upload(house, caller)
    expected = hashlib.sha256(b"content").hexdigest()
    refused = await refusal(uploads.receive(house, caller, opened.id, pieces(b"cqntent"), expected=expected))
    assert (refused.kind, refused.code) == (Kind.INVALID, "digest_mismatch")
    assert await house.objects.stat(keys.upload(opened.id)) is None
    assert (await uploads.receive(house, caller, opened.id, pieces(b"content"), expected=expected)).sha256 == expected


async def test_a_sender_that_breaks_off_leaves_nothing(house: House, caller: Caller) -> None:
    opened = await uploads.open_upload(house, caller)

    async def broken() -> AsyncIterator[bytes]:
        yield b"half of"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await uploads.receive(house, caller, opened.id, broken())
    assert await house.objects.stat(keys.upload(opened.id)) is None
    assert (await uploads.find(house, caller, opened.id)).state == "open"


async def test_an_upload_expires_but_not_what_was_made_of_it(house: House, caller: Caller) -> None:
    opened = await uploads.open_upload(house, caller)
    made = await upload(house, caller, pack())
    done = await revisions.finalize(house, caller, "task", made)

    class Tomorrow:
        def now(self) -> datetime.datetime:
            return datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=25)

        def monotonic(self) -> float:
            return 0.0

    later = msgspec.structs.replace(house, clock=Tomorrow())
    refused = await refusal(uploads.receive(later, caller, opened.id, pieces(b"late")))
    assert (refused.kind, refused.code) == (Kind.CONFLICT, "upload_expired")
    again = await revisions.finalize(later, caller, "task", made)
    assert (again.result.revision_id, again.result.created) == (done.result.revision_id, False)


async def test_what_a_kill_left_behind_is_swept_and_what_is_under_way_is_not(house: House, caller: Caller) -> None:
    under_way = await upload(house, caller, pack(a="1"))
    finished = await upload(house, caller, pack(a="2"))
    await revisions.finalize(house, caller, "task", finished)
    await house.objects.put_new(keys.upload(finished), b"killed before it was deleted")
    await house.objects.put_new(keys.upload(ids.new("upload")), b"its row is gone")
    opened = await uploads.open_upload(house, caller)
    await house.objects.put_new(keys.upload(opened.id), b"killed before the row was told")
    assert await uploads.sweep(house) == 2
    left = {key async for key in house.objects.list("uploads/")}
    assert left == {keys.upload(under_way), keys.upload(opened.id)}
    assert await uploads.sweep(house) == 0


@given(digest=st.binary(min_size=32, max_size=32), other=st.sampled_from(["", "sha-512=:AAAA:, ", "md5=:AA==:,"]))
def test_a_digest_is_understood_in_both_spellings(digest: bytes, other: str) -> None:
    header = f"{other}sha-256=:{base64.b64encode(digest).decode()}:"
    assert uploads.expected_digest(header, None) == digest.hex()
    assert uploads.expected_digest(None, digest.hex().upper()) == digest.hex()


@pytest.mark.parametrize("header", ["sha-256=abc", "sha-256=:AAAA:", "sha-256=:" + "A" * 43 + "!:", "sha-256="])
def test_a_malformed_digest_is_refused(header: str) -> None:
    with pytest.raises(CommandRefused, match="Content-Digest"):
        uploads.expected_digest(header, None)
    with pytest.raises(CommandRefused, match="hexadecimal"):
        uploads.expected_digest(None, header)


def test_an_unknown_digest_is_passed_over() -> None:
    assert uploads.expected_digest("sha-512=:AAAA:", None) is None
    assert uploads.expected_digest(None, None) is None
