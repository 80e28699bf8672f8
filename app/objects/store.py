"""From a URL to a store: `file:///folder` or `s3://bucket/prefix?endpoint=…&region=…`."""

import contextlib
import urllib.parse
from collections.abc import AsyncGenerator
from pathlib import Path

from app.objects import keys
from app.objects.files import FileStore
from app.objects.port import KeyInvalid, ObjectStore


class StoreUrlInvalid(ValueError):
    """The object store's URL cannot be used. Correct SEATRIAL_OBJECTS_URL as the message says."""


@contextlib.asynccontextmanager
async def open_store(url: str) -> AsyncGenerator[ObjectStore]:
    """The store at `url`, one a process, until the block ends. It need not be reachable yet. Raises StoreUrlInvalid.

    What follows `file://` is the folder as it is, nothing unquoted. S3 credentials come from where every S3 client
    looks (AWS_ACCESS_KEY_ID …, a profile, the machine's role), never from the URL, which is shown to people.
    """
    scheme, separator, rest = url.partition("://")
    if scheme == "file" and separator:
        if not rest.startswith("/"):
            raise StoreUrlInvalid("a file URL names an absolute folder: file:///var/lib/seatrial/objects")
        yield FileStore(Path(rest))
    elif scheme == "s3" and separator:
        bucket, prefix, endpoint, region = _s3_parts(url)
        from app.objects.s3 import open_s3  # 2 s and 50 MB, for those who use it

        async with open_s3(bucket, prefix=prefix, endpoint=endpoint, region=region) as store:
            yield store
    else:
        raise StoreUrlInvalid("an object store is file:///folder or s3://bucket/prefix?endpoint=…&region=…")


def _s3_parts(url: str) -> tuple[str, str, str | None, str | None]:
    """(bucket, prefix ending in a slash or empty, endpoint, region)."""
    parts = urllib.parse.urlsplit(url)
    if "@" in parts.netloc:
        raise StoreUrlInvalid("an s3 URL carries no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    if not parts.netloc:
        raise StoreUrlInvalid("an s3 URL names a bucket: s3://bucket/prefix")
    prefix = parts.path.strip("/")
    try:
        prefix = keys.check(prefix) + "/" if prefix else ""
    except KeyInvalid as error:
        raise StoreUrlInvalid(f"the prefix of an s3 URL: {error}") from error
    options = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
    endpoint, region = options.pop("endpoint", None), options.pop("region", None)
    if options:
        raise StoreUrlInvalid(f"an s3 URL has the options endpoint and region, not {', '.join(sorted(options))}")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise StoreUrlInvalid("the endpoint of an s3 URL starts with http:// or https://")
    return parts.netloc, prefix, endpoint, region
