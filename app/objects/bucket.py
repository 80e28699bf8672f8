"""One bucket as the S3 library reaches it: requests, what they answer as typed errors, multipart uploads.

The only module that imports the library, which is slow to load (2 s, 50 MB) and has had no release since 2025-10: another
library is another version of this file.
"""

import contextlib
from collections.abc import AsyncGenerator, Generator
from typing import Any

import aioboto3
import aiohttp
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from app.objects.port import CHUNK_BYTES, StoreError, StoreFull, StoreUnavailable

MISSING = frozenset({"404", "NoSuchKey", "NotFound"})
BEYOND = frozenset({"416", "InvalidRange"})
HELD = frozenset({"412", "PreconditionFailed"})
RACED = frozenset({"409", "ConditionalRequestConflict", "ExistingObjectIsDirectory"})
"""To be tried again. The last: of servers that keep objects in folders, while a folder on the way to the key comes or goes."""
GONE = frozenset({"NoSuchUpload"})
"""Completed or aborted already: perhaps by our own request, whose answer was lost."""
NOT_KNOWN = frozenset({"501", "NotImplemented", "InvalidRequest", "InvalidArgument"})
FULL = frozenset({"507", "InsufficientStorage", "QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"})


class Answered(Exception):
    """The server answered with an error code that the caller expects."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@contextlib.asynccontextmanager
async def open_bucket(name: str, *, endpoint: str | None, region: str | None) -> AsyncGenerator["Bucket"]:
    """One client, for the whole process: making one takes half a second. Nothing is sent yet.

    Checksums are ours to give (Content-MD5, x-amz-checksum-sha256): the library's own come as trailers, which many servers
    store as content (botocore#3651). Servers other than Amazon's get the bucket's name in the path.
    """
    config = Config(
        connect_timeout=5,
        read_timeout=60,
        retries={"mode": "standard", "total_max_attempts": 3},
        max_pool_connections=32,
        s3={"addressing_style": "path" if endpoint else "auto"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    region = region or ("us-east-1" if endpoint else None)
    async with contextlib.AsyncExitStack() as stack:
        with _told("the S3 client"):
            opening: Any = aioboto3.Session().client("s3", endpoint_url=endpoint, region_name=region, config=config)
            client = await stack.enter_async_context(opening)
        yield Bucket(client, name)


class Bucket:
    """`client` is a botocore S3 client, untyped; every use of it is in here."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self.name = name

    async def call(
        self, operation: str, /, *, expect: frozenset[str] = frozenset(), **arguments: Any
    ) -> dict[str, Any]:
        """One request. Raises Answered for an error code of `expect`, a StoreError for any other."""
        with _told(operation, expect):
            return await getattr(self._client, operation)(Bucket=self.name, **arguments)

    async def pages(self, operation: str, field: str, prefix: str) -> AsyncGenerator[dict[str, Any]]:
        """The entries of a listing, page after page."""
        with _told(operation):
            pages = aiter(self._client.get_paginator(operation).paginate(Bucket=self.name, Prefix=prefix))
        while True:
            with _told(operation):
                page = await anext(pages, None)
            if page is None:
                return
            for entry in page.get(field, ()):
                yield entry

    @contextlib.asynccontextmanager
    async def multipart(self, key: str, **arguments: Any) -> AsyncGenerator["Multipart"]:
        """An upload to `key`, aborted unless it was completed in the block."""
        answer = await self.call("create_multipart_upload", Key=key, **arguments)
        upload = Multipart(self, key, answer["UploadId"])
        try:
            yield upload
        finally:
            if not upload.completed:
                with contextlib.suppress(StoreError):  # a sweep will find it
                    await self.abort(key, upload.id)

    async def abort(self, key: str, upload_id: str) -> None:
        with contextlib.suppress(Answered):
            await self.call("abort_multipart_upload", expect=GONE, Key=key, UploadId=upload_id)


class Multipart:
    """Parts, in order; the object appears whole with `complete`."""

    def __init__(self, bucket: Bucket, key: str, upload_id: str) -> None:
        self._bucket = bucket
        self._key = key
        self.id = upload_id
        self.completed = False
        self._parts: list[dict[str, Any]] = []

    async def add(self, operation: str, **arguments: Any) -> None:
        """The next part, by upload_part or upload_part_copy."""
        number = len(self._parts) + 1
        answer = await self._bucket.call(operation, Key=self._key, UploadId=self.id, PartNumber=number, **arguments)
        self._parts.append({"PartNumber": number, "ETag": answer.get("CopyPartResult", answer)["ETag"]})

    async def complete(self, **conditions: str) -> None:
        """Raises Answered for a code of HELD, RACED and GONE."""
        await self._bucket.call(
            "complete_multipart_upload",
            expect=HELD | RACED | GONE,
            Key=self._key,
            UploadId=self.id,
            MultipartUpload={"Parts": self._parts},
            **conditions,
        )
        self.completed = True


async def content(stream: Any) -> AsyncGenerator[bytes]:
    """The body of an answer. Its connection is closed with it, for one that was not read to the end is of no more use."""
    try:
        while True:
            with _told("get_object"):
                piece: bytes = await stream.read(CHUNK_BYTES)
            if not piece:
                return
            yield piece
    finally:
        stream.close()


@contextlib.contextmanager
def _told(operation: str, expect: frozenset[str] = frozenset()) -> Generator[None]:
    """What the library raises, as a typed error that holds no credential."""
    try:
        yield
    except ClientError as error:
        code: str = error.response.get("Error", {}).get("Code", "")
        if code in expect:
            raise Answered(code) from error
        if code in FULL:
            raise StoreFull(f"no space left in the object store ({code})") from error
        raise StoreUnavailable(f"the object store answered {operation} with {code}") from error
    except (BotoCoreError, aiohttp.ClientError, TimeoutError) as error:
        raise StoreUnavailable(f"{operation}: {error or type(error).__name__}") from error
