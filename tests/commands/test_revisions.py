"""From an upload to a revision: one per content, whoever is first, however often it is tried."""

import asyncio
import datetime
import os
import time
from pathlib import Path

import msgspec
import pytest

from app.boot import House
from app.commands import handle, revisions
from app.commands.caller import Caller
from app.commands.refusals import CommandRefused, Kind
from app.eventlog.read import read_stream
from tests.commands.packs import pack, upload


async def types(house: House, stream: str) -> list[str]:
    async with house.pool.acquire() as connection:
        return [one.type for one in await read_stream(connection, stream)]


async def test_of_many_that_send_the_same_content_at_once_one_wins_and_all_get_its_revision(
    house: House, caller: Caller
) -> None:
    sent = [await upload(house, caller, pack(a="1")) for _ in range(6)]
    done = await asyncio.gather(*(revisions.finalize(house, caller, "task", one) for one in sent))
    assert len({one.result.revision_id for one in done}) == 1
    assert [one.result.created for one in done].count(True) == 1
    assert await house.pool.fetchval("select count(*) from seatrial.task") == 1
    rows = await house.pool.fetch("select state, revision from seatrial.upload")
    assert {(row["state"], row["revision"]) for row in rows} == {("finalized", done[0].result.revision_id)}
    work = await house.pool.fetch("select id, kind, due_at is not null as due from eventlog.work")
    assert [tuple(row) for row in work] == [(done[0].result.revision_id, "build", True)]
    assert await types(house, done[0].result.revision_id) == ["revision.uploaded"]
    assert await types(house, done[0].result.task_id) == ["task.created"]
    assert [key async for key in house.objects.list("uploads/")] == []
    assert len([key async for key in house.objects.list("blobs/")]) == 1


async def test_different_content_of_a_new_task_at_once_makes_one_task_with_each(house: House, caller: Caller) -> None:
    sent = [await upload(house, caller, pack(a=str(number))) for number in range(5)]
    done = await asyncio.gather(*(revisions.finalize(house, caller, "task", one) for one in sent))
    assert len({one.result.task_id for one in done}) == 1
    assert len({one.result.revision_id for one in done}) == 5
    assert all(one.result.created for one in done)
    assert await types(house, done[0].result.task_id) == ["task.created"]


async def test_the_same_content_is_a_revision_of_each_task(house: House, caller: Caller) -> None:
    content = pack(a="1")
    one = await revisions.finalize(house, caller, "one", await upload(house, caller, content))
    two = await revisions.finalize(house, caller, "two", await upload(house, caller, content))
    assert one.result.pack_digest == two.result.pack_digest
    assert one.result.revision_id != two.result.revision_id
    again = await revisions.finalize(house, caller, one.result.task_id, await upload(house, caller, content))
    assert (again.result.revision_id, again.result.task, again.result.created) == (one.result.revision_id, "one", False)


async def test_whoever_is_told_of_anothers_revision_gets_its_position_and_so_can_see_it(
    house: House, caller: Caller
) -> None:
    """A view may lag: a read after this position shows the revision, whoever made it."""
    first_sent, second_sent = [await upload(house, caller, pack()) for _ in range(2)]
    first = await revisions.finalize(house, caller, "task", first_sent)
    for sent in (second_sent, second_sent):  # the loser of a race, and the same upload once more
        told = await revisions.finalize(house, caller, "task", sent)
        assert (told.result.revision_id, told.result.created) == (first.result.revision_id, False)
        assert told.position == first.position


async def test_a_commit_whose_answer_is_lost_is_found_again(
    house: House, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = lose_answers(monkeypatch)
    done = await revisions.finalize(house, caller, "task", await upload(house, caller, pack()))
    assert lost == ["answer"]
    assert done.result.created
    assert await types(house, done.result.revision_id) == ["revision.uploaded"]
    assert await types(house, done.result.task_id) == ["task.created"]
    assert await house.pool.fetchval("select count(*) from seatrial.task") == 1


async def test_an_equal_request_gets_the_first_answer(house: House, caller: Caller) -> None:
    keyed = msgspec.structs.replace(caller, idempotency_key="k")
    sent = await upload(house, caller, pack())
    first = await revisions.finalize(house, keyed, "task", sent)
    second = await revisions.finalize(house, keyed, "task", sent)
    assert (second.result, second.position, second.replayed) == (first.result, first.position, True)
    with pytest.raises(CommandRefused) as caught:
        await revisions.finalize(house, keyed, "other", sent)
    assert caught.value.kind is Kind.MISMATCH


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"not an archive", "archive.unknown_format"),
        (b"", "archive.unknown_format"),
        (pack()[:700], "archive.truncated"),
    ],
    ids=["garbage", "empty", "cut off"],
)
async def test_an_archive_that_cannot_be_taken_is_refused_by_its_reason(
    house: House, caller: Caller, content: bytes, code: str
) -> None:
    sent = await upload(house, caller, content)
    with pytest.raises(CommandRefused) as caught:
        await revisions.finalize(house, caller, "task", sent)
    assert (caught.value.kind, caught.value.code) == (Kind.INVALID, "archive_refused")
    assert [(error.pointer, error.code) for error in caught.value.errors] == [("/upload", code)]
    assert await house.pool.fetchval("select count(*) from seatrial.task") == 0
    assert [key async for key in house.objects.list("blobs/")] == []


@pytest.mark.parametrize("name", ["", "a b", ".hidden", "a/b", "x" * 201, "ü", "a\n"])
async def test_a_task_has_a_name_that_can_stand_in_a_url(house: House, caller: Caller, name: str) -> None:
    sent = await upload(house, caller, pack())
    with pytest.raises(CommandRefused) as caught:
        await revisions.finalize(house, caller, name, sent)
    assert caught.value.code == "task_name_invalid"


async def test_an_upload_without_content_or_of_another_task_is_refused(house: House, caller: Caller) -> None:
    from app.commands import uploads

    opened = await uploads.open_upload(house, caller)
    with pytest.raises(CommandRefused) as caught:
        await revisions.finalize(house, caller, "task", opened.id)
    assert caught.value.code == "upload_empty"
    sent = await upload(house, caller, pack())
    await revisions.finalize(house, caller, "task", sent)
    with pytest.raises(CommandRefused) as caught:
        await revisions.finalize(house, caller, "other", sent)
    assert caught.value.code == "upload_finalized"


def test_what_dead_processes_left_is_swept_and_what_is_in_use_is_not(tmp_path: Path) -> None:
    old, young = tmp_path / "tmp" / "finalize-old", tmp_path / "tmp" / "finalize-young"
    for folder in (old, young):
        folder.mkdir(parents=True)
        (folder / "pack").write_bytes(b"x")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    hour_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    assert revisions.sweep_spool(tmp_path, hour_ago) == 1
    assert [path.name for path in (tmp_path / "tmp").iterdir()] == ["finalize-young"]
    assert revisions.sweep_spool(tmp_path / "nowhere", hour_ago) == 0


def lose_answers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first commit is made, and then the connection is lost before anybody knows."""
    lost: list[str] = []
    ring = handle.ring

    async def broken(connection: object) -> None:
        if not lost:
            lost.append("answer")
            raise ConnectionResetError
        await ring(connection)  # type: ignore[arg-type]

    monkeypatch.setattr(handle, "ring", broken)
    return lost
