"""What every object store holds. A store's own test subclasses this and gives the fixture `store` and the two methods."""

import asyncio
import contextlib
import datetime
import hashlib
import os
import random
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.clock import SYSTEM
from app.objects import (
    KeyInvalid,
    ObjectCorrupt,
    ObjectMissing,
    ObjectStore,
    ObjectTooLarge,
    Stored,
    from_file,
    read_all,
)

ROOT = Path(__file__).parents[2]
MIB = 1024 * 1024
LARGE = random.Random(7).randbytes(19 * MIB + 12_345)  # three parts, none of them equal
BAD_KEYS = [
    "",
    "/",
    "/etc/passwd",
    "..",
    "a/../b",
    "../a",
    "a//b",
    "a/",
    "a/./b",
    ".tmp/a",
    ".probe",
    "a\x00b",
    "a b",
    "a\\b",
    "ä",
    "a\n",
    "-a",
    "x" * 201,
    "/".join(["x" * 100] * 9),
]
HALF_WRITTEN = """
import asyncio, sys
from app.objects import open_store

async def source():
    for _ in range(20):
        yield b"x" * 1024 * 1024
    print("half way", flush=True)
    await asyncio.Event().wait()
    yield b""

async def main():
    async with open_store(sys.argv[1]) as store:
        await store.put_new("executions/half", source())

asyncio.run(main())
"""

type Source = AsyncGenerator[bytes]


async def chunks(content: bytes, size: int = 100_000) -> Source:
    for start in range(0, len(content), size):
        yield content[start : start + size]
        await asyncio.sleep(0)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def whole(store: ObjectStore, key: str, start: int = 0, end: int | None = None) -> bytes:
    return b"".join([piece async for piece in store.open(key, start=start, end=end)])


async def keys_of(store: ObjectStore, prefix: str = "") -> list[str]:
    return [key async for key in store.list(prefix)]


def in_future() -> datetime.datetime:
    return SYSTEM.now() + datetime.timedelta(days=1)


async def nothing_is_left(store: ObjectStore) -> None:
    assert await keys_of(store) == []
    assert await store.sweep(before=in_future()) == 0


class ObjectStoreConformance:
    """What each store is held to. Its test class brings three fixtures: `store`, an empty one; `url`, of the same store, for
    another process; `folder`, where its bytes lie, each object a file, to damage them behind its back."""

    async def test_an_object_reads_back(self, store: ObjectStore) -> None:
        stored = await store.put_new("executions/a/result.json", b'{"reward": 1}')
        assert stored == Stored(key="executions/a/result.json", sha256=sha256(b'{"reward": 1}'), size_bytes=13)
        assert await whole(store, stored.key) == b'{"reward": 1}'
        assert await store.stat(stored.key) == stored

    @pytest.mark.parametrize("content", [b"", b"x", LARGE], ids=["empty", "one byte", "large"])
    @pytest.mark.parametrize("streamed", [False, True], ids=["bytes", "stream"])
    async def test_any_size_comes_back_under_its_digest(
        self, store: ObjectStore, content: bytes, streamed: bool
    ) -> None:
        blob = await store.put_blob(chunks(content) if streamed else content)
        named = await store.put_new("executions/a", chunks(content) if streamed else content)
        digest = sha256(content)
        assert blob == Stored(key=f"blobs/sha256/{digest[:2]}/{digest}", sha256=digest, size_bytes=len(content))
        assert named == Stored(key="executions/a", sha256=digest, size_bytes=len(content))
        for stored in (blob, named):
            assert await store.stat(stored.key) == stored
            assert await whole(store, stored.key) == content

    async def test_a_range_is_a_slice(self, store: ObjectStore) -> None:
        content = bytes(range(256)) * 8192
        blob = await store.put_blob(content)
        for start, end in [
            (0, 0),
            (0, 1),
            (5, 5),
            (1, None),
            (0, len(content)),
            (0, len(content) + 1),
            (MIB - 1, MIB + 1),
            (len(content) - 1, None),
            (len(content), None),
            (len(content) + 5, None),
            (len(content) + 5, len(content) + 9),
        ]:
            assert await whole(store, blob.key, start, end) == content[start:end], (start, end)
        with pytest.raises(ValueError, match="not a range"):
            await whole(store, blob.key, 5, 4)
        with pytest.raises(ValueError, match="not a range"):
            await whole(store, blob.key, -1)

    async def test_no_piece_is_larger_than_a_chunk(self, store: ObjectStore) -> None:
        blob = await store.put_blob(LARGE)
        assert max([len(piece) async for piece in store.open(blob.key)]) <= MIB

    @given(
        pieces=st.lists(st.binary(max_size=4000), max_size=12),
        cut=st.tuples(st.integers(0, 9000), st.integers(0, 9000)),
    )
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    async def test_chunking_changes_nothing(
        self, store: ObjectStore, pieces: list[bytes], cut: tuple[int, int]
    ) -> None:
        async def source() -> Source:
            for piece in pieces:
                yield piece

        content = b"".join(pieces)
        blob = await store.put_blob(source())
        assert (blob.sha256, blob.size_bytes) == (sha256(content), len(content))
        assert await whole(store, blob.key) == content
        start, end = min(cut), max(cut)
        assert await whole(store, blob.key, start, end) == content[start:end]

    @pytest.mark.parametrize("second", [b"another", LARGE], ids=["small", "large"])
    async def test_a_key_is_written_once(self, store: ObjectStore, second: bytes) -> None:
        first = await store.put_new("executions/a", b"first")
        again = await store.put_new("executions/a", second)
        assert again == Stored(key="executions/a", sha256=first.sha256, size_bytes=5, existed=True)
        assert await whole(store, "executions/a") == b"first"
        assert await store.sweep(before=in_future()) == 0

    @pytest.mark.parametrize("content", [b"same", LARGE], ids=["small", "large"])
    async def test_a_blob_written_twice_is_one(self, store: ObjectStore, content: bytes) -> None:
        first = await store.put_blob(content)
        second = await store.put_blob(chunks(content))
        assert (first.existed, second.existed) == (False, True)
        assert (second.key, second.sha256, second.size_bytes) == (first.key, first.sha256, first.size_bytes)
        assert await keys_of(store) == [first.key]

    @pytest.mark.parametrize(("writers", "size"), [(12, 10), (2, 9 * MIB)], ids=["small", "large"])
    async def test_of_concurrent_writers_one_wins_whole(self, store: ObjectStore, writers: int, size: int) -> None:
        contents = [bytes([number]) * size for number in range(writers)]
        answers = await asyncio.gather(*(store.put_new("executions/a", chunks(content)) for content in contents))
        [won] = [number for number, answer in enumerate(answers) if not answer.existed]
        assert {answer.sha256 for answer in answers} == {sha256(contents[won])}
        assert await whole(store, "executions/a") == contents[won]
        assert await store.sweep(before=in_future()) == 0

    async def test_concurrent_writers_of_one_blob_all_have_it(self, store: ObjectStore) -> None:
        answers = await asyncio.gather(*(store.put_blob(chunks(b"same" * 1000)) for _ in range(8)))
        assert {answer.sha256 for answer in answers} == {sha256(b"same" * 1000)}
        assert await whole(store, answers[0].key) == b"same" * 1000

    @pytest.mark.parametrize("size", [10, 9 * MIB], ids=["small", "large"])
    @pytest.mark.parametrize("streamed", [False, True], ids=["bytes", "stream"])
    async def test_a_source_beyond_its_limit_leaves_nothing(
        self, store: ObjectStore, size: int, streamed: bool
    ) -> None:
        content = b"x" * size
        for put in (store.put_blob, lambda source, **options: store.put_new("executions/a", source, **options)):
            with pytest.raises(ObjectTooLarge) as caught:
                await put(chunks(content) if streamed else content, size_limit=size - 1)
            assert caught.value.limit_bytes == size - 1
        await nothing_is_left(store)
        assert (await store.put_blob(content, size_limit=size)).size_bytes == size

    @pytest.mark.parametrize("size", [10, 17 * MIB], ids=["small", "large"])
    async def test_a_source_that_fails_leaves_nothing_and_its_error_passes(self, store: ObjectStore, size: int) -> None:
        async def source() -> Source:
            async for piece in chunks(b"x" * size):
                yield piece
            raise ConnectionResetError("the client went away")

        with pytest.raises(ConnectionResetError, match="the client went away"):
            await store.put_blob(source())
        await nothing_is_left(store)

    async def test_a_cancelled_writer_leaves_nothing(self, store: ObjectStore) -> None:
        half = asyncio.Event()

        async def source() -> Source:
            yield b"x" * 17 * MIB
            half.set()
            await asyncio.Event().wait()

        writing = asyncio.create_task(store.put_blob(source()))
        await half.wait()
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        await nothing_is_left(store)

    async def test_a_killed_writer_leaves_what_a_sweep_finds(self, store: ObjectStore, url: str) -> None:
        kept = await store.put_new("executions/kept", b"kept")
        start = SYSTEM.now() - datetime.timedelta(minutes=1)
        writer = await asyncio.create_subprocess_exec(
            sys.executable, "-c", HALF_WRITTEN, url, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        assert writer.stdout is not None
        assert await writer.stdout.readline() == b"half way\n"
        writer.send_signal(signal.SIGKILL)
        await writer.wait()
        assert await keys_of(store) == ["executions/kept"]
        assert await store.stat("executions/half") is None
        assert await store.sweep(before=start) == 0, "it is still being written, for all that is known"
        assert await store.sweep(before=in_future()) == 1
        assert await store.sweep(before=in_future()) == 0
        assert await store.stat("executions/kept") == kept

    async def test_what_is_not_there_is_missing(self, store: ObjectStore) -> None:
        await store.put_new("executions/a/b", b"")
        for key in ("executions/none", "none", "executions/a", "executions/a/b/c", f"blobs/sha256/00/{'0' * 64}"):
            assert await store.stat(key) is None
            for start, end in ((0, None), (5, 9), (0, 0)):
                with pytest.raises(ObjectMissing) as caught:
                    await whole(store, key, start, end)
                assert caught.value.key == key
            await store.delete(key)
        assert await keys_of(store) == ["executions/a/b"]

    async def test_a_deleted_key_is_free_again(self, store: ObjectStore) -> None:
        for content in (b"first", b"second"):
            assert not (await store.put_new("executions/a/b", content)).existed
            await store.delete("executions/a/b")
            assert await store.stat("executions/a/b") is None
            assert await keys_of(store) == []

    async def test_deleting_beside_a_writer_does_not_disturb_it(self, store: ObjectStore) -> None:
        async def write(number: int) -> None:
            await store.put_new(f"executions/shared/{number}", b"x")

        async def write_and_delete(number: int) -> None:
            await write(number)
            await store.delete(f"executions/shared/{number}")

        for start in range(0, 100, 20):
            await asyncio.gather(*(write_and_delete(start + number) for number in range(10)))
            await asyncio.gather(
                *(write_and_delete(start + number) for number in range(10)), write(start + 10), write(start + 11)
            )
            assert len(await keys_of(store)) == 2
            await asyncio.gather(
                store.delete(f"executions/shared/{start + 10}"), store.delete(f"executions/shared/{start + 11}")
            )

    async def test_a_listing_is_in_order_and_by_any_prefix(self, store: ObjectStore) -> None:
        keys = ["a", "a.b", "a0/x", "ab/c/d", "ab/c0", "ab/c.d", "ab1", "b/a", "b/b/c", "b=", "B"]
        await asyncio.gather(*(store.put_new(key, key.encode()) for key in keys))
        for prefix in (
            "",
            "a",
            "a/",
            "a.",
            "ab",
            "ab/",
            "ab/c",
            "ab/c/",
            "b/b",
            "b/b/c",
            "c",
            "/",
            "..",
            "../",
            "a\x00",
            "ä/",
        ):
            assert await keys_of(store, prefix) == sorted(key for key in keys if key.startswith(prefix)), prefix

    async def test_a_blob_with_other_bytes_is_not_passed_off_as_itself(self, store: ObjectStore, folder: Path) -> None:
        blob = await store.put_blob(LARGE)
        path = folder / blob.key
        damaged = bytearray(path.read_bytes())
        damaged[5] ^= 1
        path.write_bytes(damaged)
        got: list[bytes] = []

        async def read() -> None:
            async for piece in store.open(blob.key):
                got.append(piece)

        with pytest.raises(ObjectCorrupt, match=blob.key):
            await read()
        assert sum(map(len, got)) < blob.size_bytes, "nobody gets as many bytes as the blob should have"

    async def test_a_reader_that_stops_early_harms_nobody(self, store: ObjectStore) -> None:
        blob = await store.put_blob(LARGE)
        for _ in range(40):  # more than a pool has connections
            async with contextlib.aclosing(store.open(blob.key)) as pieces:
                assert await anext(pieces)
        assert await whole(store, blob.key) == LARGE

    async def test_reading_all_is_bounded(self, store: ObjectStore) -> None:
        blob = await store.put_blob(b"x" * 100)
        assert await read_all(store, blob.key, size_limit=100) == b"x" * 100
        with pytest.raises(ObjectTooLarge):
            await read_all(store, blob.key, size_limit=99)

    async def test_a_local_file_is_a_source(self, store: ObjectStore, tmp_path: Path) -> None:
        (tmp_path / "large").write_bytes(LARGE)
        assert (await store.put_blob(from_file(tmp_path / "large"))).sha256 == sha256(LARGE)
        with pytest.raises(FileNotFoundError):
            await store.put_blob(from_file(tmp_path / "none"))
        assert await store.sweep(before=in_future()) == 0

    async def test_a_key_outside_the_grammar_is_refused_everywhere(self, store: ObjectStore) -> None:
        for key in BAD_KEYS:
            with pytest.raises(KeyInvalid):
                await store.put_new(key, b"")
            with pytest.raises(KeyInvalid):
                await whole(store, key)
            with pytest.raises(KeyInvalid):
                await store.stat(key)
            with pytest.raises(KeyInvalid):
                await store.delete(key)
        await nothing_is_left(store)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
