"""Packs on disk: fetched once, whole as long as somebody uses them, and the least used go first."""

import asyncio
import io
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.archives.folder import pack_folder
from app.domain.pack import PackInvalid
from app.objects.port import ObjectMissing, ObjectStore
from app.objects.store import open_store
from workers import packs
from workers.packs import PackCorrupt, Packs

TASK = 'version = "1.0"\n[environment]\ndocker_image = "example/image:1"\n'
INSTRUCTION = "Say hello.\n"


@pytest.fixture
async def objects(tmp_path: Path) -> AsyncIterator[ObjectStore]:
    async with open_store(f"file://{tmp_path / 'objects'}") as store:
        yield store


async def stored(objects: ObjectStore, folder: Path, name: str, task: str = TASK) -> tuple[str, str]:
    """A pack in the store: its content digest and its key."""
    (folder / name / "tests").mkdir(parents=True)
    (folder / name / "task.toml").write_text(task)
    (folder / name / "instruction.md").write_text(f"{INSTRUCTION}{name}\n")
    (folder / name / "tests" / "test.sh").write_text("echo 1 > /logs/verifier/reward.txt\n")
    out = io.BytesIO()
    digest = pack_folder(folder / name, out).digest
    return digest, (await objects.put_blob(out.getvalue())).key


def on_disk(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def name(pack: tuple[str, str]) -> str:
    return pack[0].removeprefix("sha256:")


def descriptors() -> set[str]:
    return {link for number in os.listdir("/proc/self/fd") if (link := _link(number)).startswith("/")}


def _link(number: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except FileNotFoundError:
        return ""


async def test_many_at_once_fetch_a_pack_once_and_leave_nothing_open(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack, ours = await stored(objects, tmp_path, "a"), Packs(objects, tmp_path / "cache")
    fetched: list[str] = []
    fetch = Packs._fetch

    async def counted(self: Packs, folder: Path, pack_digest: str, object_key: str) -> None:
        fetched.append(folder.name)
        await fetch(self, folder, pack_digest, object_key)

    monkeypatch.setattr(Packs, "_fetch", counted)

    async def use() -> str:
        async with ours.open(*pack) as local:
            await asyncio.sleep(0)
            return (local.folder / "instruction.md").read_text()

    assert set(await asyncio.gather(*(use() for _ in range(20)))) == {f"{INSTRUCTION}a\n"}
    assert fetched == [name(pack)]
    assert ours._entries == {}
    assert not [link for link in descriptors() if link.startswith(str(tmp_path / "cache"))]
    assert on_disk(tmp_path / "cache") == {name(pack)}


async def test_what_was_not_used_for_the_longest_time_goes_first(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "KEEP", 2)
    ours = Packs(objects, tmp_path / "cache")
    one, two, three = [await stored(objects, tmp_path, letter) for letter in "abc"]
    for age, pack in ((300, one), (200, two)):
        async with ours.open(*pack) as local:
            pass
        os.utime(local.folder, (time.time() - age,) * 2)
    async with ours.open(*one):
        pass
    async with ours.open(*three):
        pass
    assert on_disk(tmp_path / "cache") == {name(one), name(three)}


async def test_a_pack_in_use_is_removed_by_nobody(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "KEEP", 0)
    ours, theirs = Packs(objects, tmp_path / "cache"), Packs(objects, tmp_path / "cache")
    one, two = await stored(objects, tmp_path, "a"), await stored(objects, tmp_path, "b")
    async with ours.open(*one) as local:
        async with theirs.open(*two):
            pass
        assert on_disk(tmp_path / "cache") == {name(one)}
        assert (local.folder / "tests" / "test.sh").exists()
    assert on_disk(tmp_path / "cache") == set()


async def test_whoever_removes_and_whoever_opens_never_meet_in_the_middle(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "KEEP", 0)
    every = [await stored(objects, tmp_path, letter) for letter in "ab"]
    homes = [Packs(objects, tmp_path / "cache") for _ in range(3)]

    async def use(which: int) -> None:
        for turn in range(10):
            async with homes[which].open(*every[turn % 2]) as local:
                await asyncio.sleep(0)
                assert sorted(on_disk(local.folder)) == ["instruction.md", "task.toml", "tests"]
                assert (local.folder / "tests" / "test.sh").read_text()

    await asyncio.gather(*(use(which) for which in range(3)))


async def test_other_content_than_the_revision_s_is_refused_and_not_kept(objects: ObjectStore, tmp_path: Path) -> None:
    ours = Packs(objects, tmp_path / "cache")
    (digest, _), (_, key) = await stored(objects, tmp_path, "a"), await stored(objects, tmp_path, "b")
    with pytest.raises(PackCorrupt):
        async with ours.open(digest, key):
            raise AssertionError("it was opened")
    with pytest.raises(ObjectMissing):
        async with ours.open(digest, "blobs/sha256/00/" + "0" * 64):
            raise AssertionError("it was opened")
    assert on_disk(tmp_path / "cache") == set()
    assert ours._entries == {}


async def test_a_pack_that_cannot_be_read_is_refused_each_time(objects: ObjectStore, tmp_path: Path) -> None:
    ours = Packs(objects, tmp_path / "cache")
    broken = await stored(objects, tmp_path, "a", task='version = "77.0"\n')

    async def refused() -> None:
        with pytest.raises(PackInvalid):
            async with ours.open(*broken):
                raise AssertionError("it was opened")

    await asyncio.gather(refused(), refused(), refused())
    assert ours._entries == {}
    assert not [link for link in descriptors() if link.startswith(str(tmp_path / "cache"))]


async def test_what_a_killed_process_left_unfinished_goes(objects: ObjectStore, tmp_path: Path) -> None:
    pack, ours = await stored(objects, tmp_path, "a"), Packs(objects, tmp_path / "cache")
    (tmp_path / "cache" / ".old.partial").mkdir(parents=True)
    for old in (tmp_path / "cache" / ".fetch-old", tmp_path / "cache" / ".fetch-new"):
        old.write_bytes(b"half")
    for old in (".old.partial", ".fetch-old"):
        os.utime(tmp_path / "cache" / old, (time.time() - 2 * packs.UNFINISHED_SECONDS,) * 2)
    async with ours.open(*pack):
        pass
    assert on_disk(tmp_path / "cache") == {name(pack), ".fetch-new"}
