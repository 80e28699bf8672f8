"""Stored bytes: packs, logs, artifacts, evidence. Local files or S3, behind one port.

In come keys (keys.py, the only place that spells one) and bytes; out come bytes and their digests. What they mean is
nobody's business here. `open_store(url)` is the door; it loads the S3 library only for an S3 URL.
"""

from app.objects.port import (
    KeyInvalid,
    ObjectCorrupt,
    ObjectMissing,
    ObjectStore,
    ObjectTooLarge,
    Stored,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from app.objects.store import StoreUrlInvalid, open_store
from app.objects.streams import from_file, read_all

__all__ = [
    "KeyInvalid",
    "ObjectCorrupt",
    "ObjectMissing",
    "ObjectStore",
    "ObjectTooLarge",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "StoreUrlInvalid",
    "Stored",
    "from_file",
    "open_store",
    "read_all",
]
