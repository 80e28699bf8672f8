"""Objects in a bucket: S3 itself, and what speaks like it.

Up to one part (8 MiB) an object goes in with one request. A larger one is sent to a temporary key, because its digest, which
is its name or its metadata, is known only at the end; the server then copies it to its place as a multipart upload, which
appears whole. Both take `If-None-Match: *`, so that the server decides between two writers. A kill leaves at most a
temporary object or an unfinished upload, which `sweep` removes.

A server that ignores the condition is found out by a probe, once a process: there an object is looked for before it is
written, and of two writers at the same moment the later wins. Blobs do not mind.
"""

import asyncio
import base64
import contextlib
import datetime
import hashlib
from collections.abc import AsyncGenerator, AsyncIterable

import msgspec

from app import ids
from app.objects import keys
from app.objects.bucket import BEYOND, GONE, HELD, MISSING, NOT_KNOWN, RACED, Answered, Bucket, content, open_bucket
from app.objects.port import ObjectMissing, Stored, StoreError, StoreUnavailable
from app.objects.streams import gathered, verified

PART_BYTES = 8 * 1024 * 1024
"""Of an upload, and the largest object that goes in one request. S3 wants at least 5 MiB and at most 10,000 parts."""
LATER_PART_BYTES = 64 * 1024 * 1024
EARLY_PARTS = 1_000
"""Parts grow after that many, so that 10,000 of them hold 570 GiB while a small upload needs little memory."""
COPY_BYTES = 1024 * 1024 * 1024
"""Of one part that the server copies; S3 takes 5 GiB."""
DIGEST_METADATA = "seatrial-sha256"
PROBE = ".probe"
RACE_TRIES = 8


@contextlib.asynccontextmanager
async def open_s3(
    bucket: str, *, prefix: str = "", endpoint: str | None = None, region: str | None = None
) -> AsyncGenerator["S3Store"]:
    """`prefix` is empty or ends in a slash. Amazon's own servers need no probe."""
    async with open_bucket(bucket, endpoint=endpoint, region=region) as opened:
        yield S3Store(opened, prefix, conditions=None if endpoint else True)


class _Received(msgspec.Struct, frozen=True):
    """A source that was read to its end: in memory, or under a temporary key of the bucket."""

    sha256: str
    size_bytes: int
    content: bytes = b""
    temporary: str | None = None


class S3Store:
    """An ObjectStore."""

    def __init__(self, bucket: Bucket, prefix: str, *, conditions: bool | None) -> None:
        """`conditions`: whether the server is known to heed If-None-Match; None: find out."""
        self._bucket = bucket
        self._prefix = prefix
        self._conditions = conditions
        self._probing = asyncio.Lock()

    async def put_new(self, key: str, source: AsyncIterable[bytes] | bytes, *, size_limit: int | None = None) -> Stored:
        keys.check(key)
        async with self._received(source, size_limit) as received:
            return await self._settle(key, received)

    async def put_blob(self, source: AsyncIterable[bytes] | bytes, *, size_limit: int | None = None) -> Stored:
        async with self._received(source, size_limit) as received:
            key = keys.blob(received.sha256)
            found = await self.stat(key)  # a pack comes again and again: spare the second transfer
            if found is not None:
                return msgspec.structs.replace(found, existed=True)
            return await self._settle(key, received)

    async def open(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncGenerator[bytes]:
        keys.check(key)
        if start < 0 or (end is not None and end < start):
            raise ValueError(f"not a range: {start} to {end}")
        if start == end:
            if await self.stat(key) is None:
                raise ObjectMissing(key)
            return
        whole = start == 0 and end is None
        asked = {} if whole else {"Range": f"bytes={start}-{'' if end is None else end - 1}"}
        try:
            answer = await self._bucket.call("get_object", expect=MISSING | BEYOND, Key=self._at(key), **asked)
        except Answered as error:
            if error.code in MISSING:
                raise ObjectMissing(key) from error
            return  # it is there, and shorter than `start`
        pieces = content(answer["Body"])
        if whole or (start == 0 and answer.get("ContentRange", "").endswith(f"/{answer['ContentLength']}")):
            pieces = verified(key, pieces)
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                yield piece

    async def stat(self, key: str) -> Stored | None:
        keys.check(key)
        try:
            head = await self._bucket.call("head_object", expect=MISSING, Key=self._at(key))
        except Answered:
            return None
        sha256 = keys.blob_digest(key) or head["Metadata"].get(DIGEST_METADATA, "")
        if not keys.DIGEST.match(sha256):  # somebody copied it here without its metadata
            digest = hashlib.sha256()
            async with contextlib.aclosing(self.open(key)) as pieces:
                async for piece in pieces:
                    digest.update(piece)
            sha256 = digest.hexdigest()
        return Stored(key=key, sha256=sha256, size_bytes=head["ContentLength"])

    async def list(self, prefix: str) -> AsyncGenerator[str]:
        async for entry in self._bucket.pages("list_objects_v2", "Contents", self._prefix + prefix):
            key: str = entry["Key"].removeprefix(self._prefix)
            if keys.is_key(key):
                yield key

    async def delete(self, key: str) -> None:
        await self._bucket.call("delete_object", Key=self._at(keys.check(key)))

    async def sweep(self, *, before: datetime.datetime) -> int:
        swept = 0
        async for entry in self._bucket.pages("list_objects_v2", "Contents", self._prefix + keys.TEMPORARY):
            if entry["LastModified"] < before:
                await self._bucket.call("delete_object", Key=entry["Key"])
                swept += 1
        async for entry in self._bucket.pages("list_multipart_uploads", "Uploads", self._prefix):
            if entry["Initiated"] < before:
                await self._bucket.abort(entry["Key"], entry["UploadId"])
                swept += 1
        return swept

    @contextlib.asynccontextmanager
    async def _received(
        self, source: AsyncIterable[bytes] | bytes, size_limit: int | None
    ) -> AsyncGenerator[_Received]:
        """All of `source`, its digest known: in memory if it is one part, else under a temporary key until the block ends."""
        async with contextlib.aclosing(gathered(source, size_limit, PART_BYTES)) as pieces:
            first = await anext(pieces, b"")
            second = await anext(pieces, None)
            if second is None:
                yield _Received(sha256=hashlib.sha256(first).hexdigest(), size_bytes=len(first), content=first)
                return
            key = f"{self._prefix}{keys.TEMPORARY}{ids.uuid7()}"
            try:
                sha256, size_bytes = await self._upload(key, _chained(first, second, pieces))
                yield _Received(sha256=sha256, size_bytes=size_bytes, temporary=key)
            finally:
                with contextlib.suppress(StoreError):  # `sweep` will find it
                    await self._bucket.call("delete_object", Key=key)

    async def _upload(self, key: str, pieces: AsyncGenerator[bytes]) -> tuple[str, int]:
        """Send parts as they come; the digest and the size. Each part's MD5 is checked by the server."""
        digest, size_bytes = hashlib.sha256(), 0
        async with self._bucket.multipart(key) as upload, contextlib.aclosing(_parts(pieces)) as parts:
            async for part in parts:
                await asyncio.to_thread(digest.update, part)
                size_bytes += len(part)
                md5 = await asyncio.to_thread(hashlib.md5, part, usedforsecurity=False)
                await upload.add("upload_part", Body=part, ContentMD5=base64.b64encode(md5.digest()).decode())
            try:
                await upload.complete()
            except Answered as error:  # perhaps an earlier try did it, whose answer was lost
                if error.code not in GONE or await self._size_of(key) != size_bytes:
                    raise StoreUnavailable(f"an upload was not completed: {error.code}") from error
        return digest.hexdigest(), size_bytes

    async def _size_of(self, key: str) -> int | None:
        try:
            return (await self._bucket.call("head_object", expect=MISSING, Key=key))["ContentLength"]
        except Answered:
            return None

    async def _settle(self, key: str, received: _Received) -> Stored:
        """Put what was received where it belongs, unless something is there."""
        conditions = await self._heeds_conditions()
        for tries in range(RACE_TRIES):
            if not conditions and (found := await self.stat(key)) is not None:
                return msgspec.structs.replace(found, existed=True)
            asked = {"IfNoneMatch": "*"} if conditions else {}
            try:
                await self._place(key, received, asked)
            except Answered as error:
                if error.code in HELD | GONE and (found := await self.stat(key)) is not None:
                    return msgspec.structs.replace(found, existed=True)
                await asyncio.sleep(0.05 * 2**tries)
            else:
                return Stored(key=key, sha256=received.sha256, size_bytes=received.size_bytes)
        raise StoreUnavailable(f"others write {key} all the time")

    async def _place(self, key: str, received: _Received, asked: dict[str, str]) -> None:
        metadata = {DIGEST_METADATA: received.sha256}
        if received.temporary is None:
            checksum = base64.b64encode(bytes.fromhex(received.sha256)).decode()
            await self._bucket.call(
                "put_object",
                expect=HELD | RACED,
                Key=self._at(key),
                Body=received.content,
                Metadata=metadata,
                ChecksumSHA256=checksum,
                **asked,
            )
            return
        async with self._bucket.multipart(self._at(key), Metadata=metadata) as upload:
            for start in range(0, received.size_bytes, COPY_BYTES):
                last = min(start + COPY_BYTES, received.size_bytes) - 1
                await upload.add(
                    "upload_part_copy",
                    CopySource={"Bucket": self._bucket.name, "Key": received.temporary},
                    CopySourceRange=f"bytes={start}-{last}",
                )
            await upload.complete(**asked)

    async def _heeds_conditions(self) -> bool:
        """Whether a second write under If-None-Match is refused here; asked of the server once."""
        async with self._probing:
            if self._conditions is None:
                self._conditions = await self._probe() or await self._probe()
            return self._conditions

    async def _probe(self) -> bool:
        """Whether a conditional write over the probe was refused. The first one ever makes the probe instead."""
        heeded = HELD | RACED
        try:
            await self._bucket.call(
                "put_object", expect=heeded | NOT_KNOWN, Key=self._prefix + PROBE, Body=b"", IfNoneMatch="*"
            )
        except Answered as error:
            return error.code in heeded
        return False

    def _at(self, key: str) -> str:
        return self._prefix + key


async def _chained(first: bytes, second: bytes, rest: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    yield first
    yield second
    async for piece in rest:
        yield piece


async def _parts(pieces: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Pieces of PART_BYTES as they are, after EARLY_PARTS of them joined to LATER_PART_BYTES."""
    number = 0
    waiting: list[bytes] = []
    async for piece in pieces:
        waiting.append(piece)
        if number < EARLY_PARTS or len(waiting) * PART_BYTES >= LATER_PART_BYTES:
            yield b"".join(waiting) if len(waiting) > 1 else piece
            waiting.clear()
            number += 1
    if waiting:
        yield b"".join(waiting)
