"""The store in a bucket, on a real server: the conformance suite, and what only a network can get wrong."""

import asyncio
import hashlib
import socket
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from app.objects import ObjectStore, Stored, StoreFull, StoreUnavailable, open_store
from app.objects.bucket import Bucket
from app.objects.s3 import PROBE, S3Store
from tests.conformance.object_stores import LARGE, ObjectStoreConformance, in_future, keys_of, sha256, whole
from tests.engines.versitygw import SECRET_KEY, S3Server, s3_server

pytestmark = pytest.mark.timeout(900)  # the first one may have to build the server


class S3Conformance(ObjectStoreConformance):
    conditions: bool | None = None

    @pytest.fixture
    def folder(self, s3: S3Server, opened: Bucket, prefix: str) -> Path:
        return s3.data / opened.name / prefix

    @pytest.fixture
    def url(self, s3: S3Server, opened: Bucket, prefix: str) -> str:
        return f"s3://{opened.name}/{prefix}?endpoint={s3.endpoint}&region=us-east-1"

    @pytest.fixture
    def store(self, opened: Bucket, prefix: str) -> ObjectStore:
        return S3Store(opened, prefix, conditions=self.conditions)


class TestS3Store(S3Conformance):
    async def test_a_listing_goes_over_pages(self, store: ObjectStore, folder: Path) -> None:
        (folder / "executions").mkdir(parents=True)
        names = [f"executions/{number:05d}" for number in range(1_205)]
        for name in names:
            (folder / name).touch()
        assert await keys_of(store, "executions/") == names

    async def test_what_lies_beside_the_prefix_is_not_ours(self, store: ObjectStore, folder: Path) -> None:
        beside = folder.with_name(folder.name + "0")
        beside.mkdir(parents=True)
        (beside / "a").touch()
        await store.put_new("executions/a", b"x")
        assert await keys_of(store) == ["executions/a"]

    async def test_a_digest_that_was_lost_is_computed(self, store: ObjectStore, folder: Path) -> None:
        (folder / "executions").mkdir(parents=True)
        (folder / "executions" / "a").write_bytes(LARGE)
        assert await store.stat("executions/a") == Stored("executions/a", sha256(LARGE), len(LARGE))

    async def test_the_server_is_probed_once(self, store: ObjectStore, folder: Path) -> None:
        await asyncio.gather(*(store.put_new(f"executions/{number}", b"x") for number in range(4)))
        assert (folder / PROBE).exists()
        (folder / PROBE).unlink()
        assert not (await store.put_new("executions/again", b"x")).existed
        assert not (folder / PROBE).exists()

    async def test_many_parts_are_joined_by_copies_of_several_parts(
        self, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("app.objects.s3.EARLY_PARTS", 1)
        monkeypatch.setattr("app.objects.s3.LATER_PART_BYTES", 16 * 1024 * 1024)
        monkeypatch.setattr("app.objects.s3.COPY_BYTES", 24 * 1024 * 1024)
        content = hashlib.shake_256(b"seed").digest(44 * 1024 * 1024 + 1)
        blob = await store.put_blob(content)
        assert blob.sha256 == sha256(content)
        assert await whole(store, blob.key) == content


class TestS3StoreWithoutConditions(S3Conformance):
    """As on a server that ignores If-None-Match."""

    conditions = False

    async def test_of_concurrent_writers_one_wins_whole(self, store: ObjectStore) -> None:
        """Here the last one wins; still no mixture is ever seen."""
        contents = [bytes([number]) * 9_000_000 for number in range(2)]
        await asyncio.gather(*(store.put_new("executions/a", content) for content in contents))
        assert await whole(store, "executions/a") in contents


async def test_a_bucket_can_be_ours_alone(s3: S3Server, bucket: Path) -> None:
    for _ in range(2):
        async with open_store(f"s3://{bucket.name}?endpoint={s3.endpoint}") as store:
            blob = await store.put_blob(b"x")
            assert await keys_of(store) == [blob.key]
            assert (await store.put_new("executions/a", b"x")).sha256 == blob.sha256
            await store.delete("executions/a")


async def test_a_server_that_is_away_is_told(s3: S3Server, bucket: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    async with open_store(f"s3://{bucket.name}?endpoint={nobody}") as store:
        with pytest.raises(StoreUnavailable):
            await store.put_blob(b"x")


async def test_refused_credentials_are_told_without_them(
    s3: S3Server, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong" + SECRET_KEY)
    async with open_store(f"s3://{bucket.name}?endpoint={s3.endpoint}") as store:
        with pytest.raises(StoreUnavailable, match="403") as caught:
            await store.put_blob(b"x")
        assert SECRET_KEY not in str(caught.value)
        with pytest.raises(StoreUnavailable):
            await store.stat("executions/a")


async def test_a_bucket_that_is_missing_is_told(s3: S3Server) -> None:
    async with open_store(f"s3://nobucket?endpoint={s3.endpoint}") as store:
        with pytest.raises(StoreUnavailable, match="NoSuchBucket"):
            await store.put_blob(b"x")
        with pytest.raises(StoreUnavailable, match="NoSuchBucket"):
            await keys_of(store)


async def test_a_full_disk_is_told_and_frees_itself(s3: S3Server, tmp_path: Path) -> None:
    with s3_server(tmp_path, disk_bytes=6_000_000) as server:
        async with open_store(f"s3://small?endpoint={server.endpoint}") as store:
            kept = await store.put_new("executions/kept", b"kept")
            for size in (7_000_000, 20_000_000):
                with pytest.raises(StoreFull):
                    await store.put_blob(b"x" * size)
            assert await keys_of(store) == ["executions/kept"]
            assert (await store.put_blob(b"x" * 3_000_000)).size_bytes == 3_000_000
            assert await store.stat(kept.key) == kept


async def test_a_server_that_dies_is_told_and_the_same_client_finds_the_next(s3: S3Server, tmp_path: Path) -> None:
    (tmp_path / "data" / "dying").mkdir(parents=True)
    with s3_server(tmp_path) as first:
        async with open_store(f"s3://dying?endpoint={first.endpoint}") as store:
            blob = await store.put_blob(LARGE)
            reading = store.open(blob.key)
            got = len(await anext(reading))

            async def dying() -> AsyncGenerator[bytes]:
                yield LARGE
                first.process.kill()
                first.process.wait()
                yield LARGE

            with pytest.raises(StoreUnavailable):
                await store.put_new("executions/a", dying())
            with pytest.raises(StoreUnavailable):
                got += sum([len(piece) async for piece in reading])
            assert got < blob.size_bytes
            with s3_server(tmp_path, port=first.port):
                assert await whole(store, blob.key) == LARGE
                assert await store.stat("executions/a") is None
                assert (await store.put_new("executions/a", LARGE)).sha256 == blob.sha256
                assert await keys_of(store) == [blob.key, "executions/a"]
                assert await store.sweep(before=in_future()) == 1
