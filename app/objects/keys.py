"""Where everything lies in the object store: the one place that spells a key.

    blobs/sha256/<ab>/<64 hex>            content-addressed: packs, archives, SBOMs, artifacts, rosters
    uploads/<upload id>                   a pack that was sent and not finalized
    executions/<execution id>/<name>      what one execution left: result.json, log.jsonl, files.json, …
    builds/<revision id>/<name>           the log of a build
    checkpoints/<incarnation>/<number>.json   signed checkpoints of one life of the event log, in their order

A file whose name an agent chose is a blob, and its name stands in a listing (`files.json`): names from a sandbox never
become keys.
"""

import re
import uuid

from app import ids
from app.objects.port import KeyInvalid

SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._=+-]*\Z")
DIGEST = re.compile(r"[0-9a-f]{64}\Z")
LONGEST_SEGMENT = 200  # file systems take 255 bytes
LONGEST_KEY = 800  # S3 takes 1,024 bytes, and an operator's prefix comes before

BLOBS = "blobs/sha256/"
TEMPORARY = ".tmp/"
"""Unfinished writes. Outside the grammar, so that no key can name one."""


def check(key: str) -> str:
    """The key itself. Raises KeyInvalid unless it is segments of [A-Za-z0-9._=+-] between slashes, none with a leading
    dot, plus or minus: so no key escapes a folder, hides in it, or needs quoting in a URL."""
    if len(key) > LONGEST_KEY:
        raise KeyInvalid(f"a key of {len(key)} characters; at most {LONGEST_KEY}")
    for segment in key.split("/"):
        if len(segment) > LONGEST_SEGMENT or not SEGMENT.match(segment):
            raise KeyInvalid(f"not a key: {key!r}")
    return key


def is_key(text: str) -> bool:
    try:
        check(text)
    except KeyInvalid:
        return False
    return True


def blob(sha256: str) -> str:
    if not DIGEST.match(sha256):
        raise KeyInvalid(f"not a sha256: {sha256[:80]!r}")
    return f"{BLOBS}{sha256[:2]}/{sha256}"


def blob_digest(key: str) -> str | None:
    """The digest that a blob's key promises; None for any other key."""
    digest = key.rpartition("/")[2]
    return digest if key.startswith(BLOBS) and DIGEST.match(digest) and key == blob(digest) else None


def upload(upload_id: str) -> str:
    return f"uploads/{_identifier('upload', upload_id)}"


def execution(execution_id: str, name: str) -> str:
    return check(f"executions/{_identifier('execution', execution_id)}/{name}")


def build(revision_id: str, name: str) -> str:
    return check(f"builds/{_identifier('revision', revision_id)}/{name}")


def checkpoint(incarnation: uuid.UUID, number: int) -> str:
    """Zero-padded, so that a listing is in order."""
    if not 0 <= number < 10**12:
        raise KeyInvalid(f"not the number of a checkpoint: {number}")
    return check(f"checkpoints/{incarnation}/{number:012d}.json")


def _identifier(kind: str, value: str) -> str:
    if not ids.is_id(kind, value):
        raise KeyInvalid(f"not the id of a {kind}: {value[:80]!r}")
    return value
