"""Packs on this machine: fetched once, checked before anybody runs them, kept while somebody does."""

import asyncio
import io
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from app.archives.folder import pack_folder
from app.archives.read import scan
from app.domain.pack import PackInvalid
from app.objects.files import FileStore
from app.objects.port import ObjectMissing, StoreUnavailable
from workers import packs
from workers.packs import PackCorrupt, Packs


class Counting(FileStore):
    """The real store, counted; goes away in the middle when told to."""

    opened, breaks = 0, False

    async def open(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncGenerator[bytes]:
        self.opened += 1
        async for chunk in super().open(key, start=start, end=end):
            yield chunk[: len(chunk) // 2] if self.breaks else chunk
            if self.breaks:
                raise StoreUnavailable("away")


@pytest.fixture
def store(tmp_path: Path) -> Counting:
    return Counting(tmp_path / "objects")


async def stored(store: Counting, folder: Path, **files: str) -> tuple[str, str]:
    """(pack digest, object key) of a pack."""
    content = {
        "task.toml": 'version = "1.0"\n', "instruction.md": "Do it.\n", "environment/Dockerfile": "FROM x\n",
        "tests/test.sh": "true\n",
    } | files  # fmt: skip
    for path, text in content.items():
        (folder / "pack" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "pack" / path).write_text(text)
    packed = io.BytesIO()
    pack_folder(folder / "pack", packed)
    (folder / "packed").write_bytes(packed.getvalue())
    return scan(folder / "packed").digest, (await store.put_blob(packed.getvalue())).key


async def test_many_that_want_a_pack_fetch_it_once(store: Counting, tmp_path: Path) -> None:
    """In this process and in another one on the same folder."""
    digest, key = await stored(store, tmp_path)
    mine, another = Packs(store, tmp_path / "cache"), Packs(store, tmp_path / "cache")

    async def use(cache: Packs) -> str:
        async with cache.open(digest, key) as local:
            return (local.folder / "instruction.md").read_text()

    assert set(await asyncio.gather(*(use(mine) for _ in range(5)))) == {"Do it.\n"}
    assert await use(another) == "Do it.\n"
    assert store.opened == 1


async def test_other_bytes_than_the_revisions_are_refused_and_not_kept(store: Counting, tmp_path: Path) -> None:
    _, key = await stored(store, tmp_path)
    cache = Packs(store, tmp_path / "cache")
    with pytest.raises(PackCorrupt):
        async with cache.open("sha256:" + "0" * 64, key):
            pass
    assert list((tmp_path / "cache").iterdir()) == []


async def test_a_fetch_that_breaks_off_leaves_nothing_and_can_be_done_again(store: Counting, tmp_path: Path) -> None:
    digest, key = await stored(store, tmp_path)
    cache = Packs(store, tmp_path / "cache")
    store.breaks = True
    with pytest.raises(StoreUnavailable):
        async with cache.open(digest, key):
            pass
    assert list((tmp_path / "cache").iterdir()) == []
    store.breaks = False
    async with cache.open(digest, key) as local:
        assert local.pack.schema_version


async def test_a_lost_object_and_an_invalid_pack_are_told_as_what_they_are(store: Counting, tmp_path: Path) -> None:
    digest, key = await stored(store, tmp_path, **{"task.toml": "version = 3\n"})
    cache = Packs(store, tmp_path / "cache")
    with pytest.raises(PackInvalid):
        async with cache.open(digest, key):
            pass
    await store.delete(key)
    with pytest.raises(ObjectMissing):
        async with Packs(store, tmp_path / "other").open(digest, key):
            pass


async def test_a_pack_in_use_is_never_removed(store: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by this process, nor by another one that shares the folder, however many others come by."""
    monkeypatch.setattr(packs, "KEEP", 1)
    made = [await stored(store, tmp_path, **{"instruction.md": f"Number {number}.\n"}) for number in range(5)]
    mine, another = Packs(store, tmp_path / "cache"), Packs(store, tmp_path / "cache")
    async with mine.open(*made[0]) as first:
        for cache in (mine, another):
            for one in made[1:]:
                async with cache.open(*one):
                    pass
        assert (first.folder / "instruction.md").read_text() == "Number 0.\n"
        left = [path for path in (tmp_path / "cache").iterdir() if not path.name.startswith(".")]
        assert len(left) <= 2
    async with mine.open(*made[1]):
        pass
    assert len([path for path in (tmp_path / "cache").iterdir() if not path.name.startswith(".")]) == 1
