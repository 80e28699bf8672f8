"""The one seam to stored bytes: what every object store does, and how it says that it cannot.

Two kinds of object. A *named* object lives under a key that its writer chose and is written once (`put_new`). A *blob* lives
under the digest of its content (`put_blob`), so that writing it twice is the same as writing it once, and reading it whole
proves it. Nothing is ever overwritten and nothing is ever half there: a reader sees all of an object or none of it, also
when the writer was killed.

`tests/conformance/object_stores.py` says what each store must hold.
"""

import datetime
from collections.abc import AsyncGenerator, AsyncIterable
from typing import Protocol

import msgspec

CHUNK_BYTES = 1024 * 1024
"""The largest piece that `open` yields, so that a reader's memory is bounded."""


class Stored(msgspec.Struct, frozen=True):
    """An object that is in the store, durably."""

    key: str
    sha256: str
    """Of the content: 64 hexadecimal digits."""
    size_bytes: int
    existed: bool = False
    """The key was there before, and what is described is what was there. Compare sha256 to learn if it is the same."""


class StoreError(Exception):
    """The object store did not do what it was asked for."""


class ObjectMissing(StoreError):
    """There is no object of this key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"no object {key}")
        self.key = key


class ObjectTooLarge(StoreError):
    """The source gave more bytes than its limit. Nothing of it was kept."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"more than {limit_bytes} bytes")
        self.limit_bytes = limit_bytes


class ObjectCorrupt(StoreError):
    """A blob's bytes are not those of its digest. Restore it from a backup: what was read must not be used."""

    def __init__(self, key: str, found: str) -> None:
        super().__init__(f"object {key} holds other bytes, whose sha256 is {found}")
        self.key = key


class StoreFull(StoreError):
    """No space is left in the store. Free some: everything that waits for it goes on by itself."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or refuses us. What was being written may or may not be there: write it again."""


class KeyInvalid(ValueError):
    """A key breaks the grammar of `keys.check`. A fault in the caller, never a matter of input."""


class ObjectStore(Protocol):
    """Safe for concurrent use by the tasks of one event loop, and by any number of processes.

    Every method may raise StoreUnavailable; those that write may raise StoreFull. What a source raises passes through
    as it is, and nothing of that source is kept.
    """

    async def put_new(self, key: str, source: AsyncIterable[bytes] | bytes, *, size_limit: int | None = None) -> Stored:
        """Store `source` under `key`, unless the key is there already: then leave it, and report it (`existed`).

        Of two concurrent writers one wins, whole. Raises ObjectTooLarge beyond `size_limit` bytes.
        """
        ...

    async def put_blob(self, source: AsyncIterable[bytes] | bytes, *, size_limit: int | None = None) -> Stored:
        """Store `source` under the digest of its content, which is computed on the way. Raises ObjectTooLarge."""
        ...

    def open(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncGenerator[bytes]:
        """The bytes from `start` up to, not including, `end`; as with a slice, what lies beyond the object is empty.

        Raises ObjectMissing at the first step, and ObjectCorrupt after the last byte of a blob that was read whole and
        is not what its key says. A reader that stops early closes it (`contextlib.aclosing`).
        """
        ...

    async def stat(self, key: str) -> Stored | None:
        """What is under `key`, without its bytes; None if nothing is."""
        ...

    def list(self, prefix: str) -> AsyncGenerator[str]:
        """The keys that start with `prefix` (any string, also half a segment), ascending by their bytes."""
        ...

    async def delete(self, key: str) -> None:
        """Remove `key`; nothing happens if it is not there."""
        ...

    async def sweep(self, *, before: datetime.datetime) -> int:
        """Remove what writers that died before that moment left unfinished; how many. No object is touched."""
        ...
