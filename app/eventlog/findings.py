"""The rules of the audit, without I/O: one event, one stream, one sealed segment, and what is wrong with it."""

import enum
import uuid
from collections.abc import Iterator, Mapping, Sequence

import asyncpg
import msgspec

from app.eventlog.chain import hash_fields, leaf, merkle_root, private_hash_of, split_leaves
from app.eventlog.checkpoints import Checkpoint


class Code(enum.StrEnum):
    """What is wrong."""

    CHANGED = "changed"
    """The event's fields, or its place after its predecessor, do not give its hash."""
    PRIVATE_CHANGED = "private_changed"
    """The private part does not give its hash."""
    FORGED_ERASURE = "forged_erasure"
    """The private part is gone, and no event.erased says so."""
    ERASURE_UNDONE = "erasure_undone"
    """event.erased says that the private part is gone, and it is there, or never was."""
    MISSING = "missing"
    """An event is gone: its stream or a checkpoint knows of it."""
    ADDED = "added"
    """An event is there that a checkpoint of its segment does not know."""
    MOVED = "moved"
    """An event has another position than its checkpoint says, or than the order of its stream allows."""
    STREAM_CHANGED = "stream_changed"
    """The row of the stream does not agree with its last event."""
    SEGMENT_CHANGED = "segment_changed"
    """The events of a segment do not give the signed root, and no list of leaves tells which."""
    CHECKPOINT_INVALID = "checkpoint_invalid"
    """A checkpoint is not signed, not in its place, or damaged."""
    CHECKPOINT_MISSING = "checkpoint_missing"
    """A checkpoint is gone: a later one, or one held elsewhere, knows of it."""
    KEY_UNKNOWN = "key_unknown"
    """A checkpoint is signed with a key that is not known here, so it proves nothing."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    code: Code
    message: str
    stream: str | None = None
    version: int | None = None
    position: int | None = None
    """Of the event, or the first of those meant."""


class Erased(msgspec.Struct, frozen=True):
    """What event.erased says."""

    position: int
    stream: str
    version: int


class Restored(msgspec.Struct, frozen=True):
    """What log.restored says: the life `previous_incarnation` was given up after `last_position`."""

    previous_incarnation: uuid.UUID
    last_position: int


class Streams:
    """Folds the events, stream by stream, into findings and what the rest of the audit must know."""

    def __init__(self) -> None:
        self.events = self.streams = 0
        self.erased: dict[int, tuple[str, int]] = {}
        """Position -> (stream, version) of events whose private part is gone."""
        self.erasures: dict[int, tuple[str, int]] = {}
        """What event.erased says is gone."""
        self.restored: list[Restored] = []
        self._last: asyncpg.Record | None = None

    def add(self, row: asyncpg.Record) -> Iterator[Finding]:
        last = self._last
        if last is not None and last["stream"] != row["stream"]:
            yield from self._close(last)
            last = None
        self.events += 1
        self.streams += last is None
        self._last = row
        yield from check_event(row, last)
        self._note(row)

    def end(self) -> Iterator[Finding]:
        if self._last is not None:
            yield from self._close(self._last)
        for position, (stream, version) in sorted(self.erased.items()):
            if self.erasures.get(position) != (stream, version):
                yield Finding(
                    Code.FORGED_ERASURE,
                    f"the private part of position {position} is gone, and the log does not say that it was erased",
                    stream,
                    version,
                    position,
                )
        for position, (stream, version) in sorted(self.erasures.items()):
            if position not in self.erased:
                yield Finding(
                    Code.ERASURE_UNDONE,
                    f"the log says that the private part of position {position} was erased, but nothing there is erased",
                    stream,
                    version,
                    position,
                )

    def _note(self, row: asyncpg.Record) -> None:
        if row["private_hash"] is not None and row["private"] is None:
            self.erased[row["position"]] = row["stream"], row["version"]
        if row["type"] == "event.erased" and row["stream"].startswith("erasure/"):
            said = _decode(row["data"], Erased)
            if said is not None and row["stream"] == f"erasure/{said.position}":
                self.erasures[said.position] = said.stream, said.version
        if row["type"] == "log.restored" and (life := _decode(row["data"], Restored)) is not None:
            self.restored.append(life)

    @staticmethod
    def _close(last: asyncpg.Record) -> Iterator[Finding]:
        """The last event of a stream against the stream's row."""
        stream, version, position = last["stream"], last["version"], last["position"]
        said = last["stream_version"]
        if said is None:
            yield Finding(Code.STREAM_CHANGED, f"stream {stream} has events and no row", stream, version, position)
        elif said > version:
            yield Finding(
                Code.MISSING,
                f"stream {stream} ends at version {version} (position {position}); its row says {said}",
                stream,
                version + 1,
                position,
            )
        elif (said, last["stream_hash"], last["stream_team"]) != (version, last["hash"], last["team"]):
            yield Finding(
                Code.STREAM_CHANGED,
                f"the row of stream {stream} is not that of its last event",
                stream,
                version,
                position,
            )


def check_event(row: asyncpg.Record, last: asyncpg.Record | None) -> Iterator[Finding]:
    """One event against its own hashes and the event before it in its stream."""
    stream, version, position = row["stream"], row["version"], row["position"]
    expected = 1 if last is None else last["version"] + 1
    if version != expected:
        gone = f"version {expected}" if version == expected + 1 else f"versions {expected} to {version - 1}"
        yield Finding(
            Code.MISSING, f"{gone} of stream {stream} missing before position {position}", stream, expected, position
        )
    if last is not None and last["position"] >= position:
        yield Finding(
            Code.MOVED,
            f"version {version} of stream {stream} is at position {position}, before version {last['version']} at {last['position']}",
            stream,
            version,
            position,
        )
    if version == expected and _hash_of(row, last) != row["hash"]:
        yield Finding(
            Code.CHANGED,
            f"position {position} (stream {stream}, version {version}) is not what was written",
            stream,
            version,
            position,
        )
    if row["private"] is not None and private_hash_of(row["salt"] or b"", row["private"]) != row["private_hash"]:
        yield Finding(
            Code.PRIVATE_CHANGED,
            f"the private part of position {position} is not what was written",
            stream,
            version,
            position,
        )


def compare_segment(
    checkpoint: Checkpoint, leaves: bytes, found: Sequence[tuple[int, bytes]], streams: Mapping[int, str]
) -> Iterator[Finding]:
    """The events of a segment against its signed root; the leaves tell which ones differ. `streams`: by position."""
    root = bytes.fromhex(checkpoint.root)
    if merkle_root([leaf(*entry) for entry in found]) == root and len(found) == checkpoint.events:
        return
    segment = f"checkpoint {checkpoint.number} (positions {checkpoint.after_position + 1} to {checkpoint.position})"
    try:
        signed = split_leaves(leaves)
    except ValueError:
        signed = []
    if merkle_root([leaf(*entry) for entry in signed]) != root:
        yield Finding(
            Code.SEGMENT_CHANGED,
            f"the events of {segment} are not what was sealed; its list of leaves is damaged, so it cannot be said which",
            position=checkpoint.after_position + 1,
        )
        return
    before, now = dict(signed), dict(found)
    places = {digest: position for position, digest in found}
    for position, digest in signed:
        if now.get(position) == digest:
            continue
        stream = streams.get(position)
        if (place := places.get(digest)) is not None:
            yield Finding(
                Code.MOVED,
                f"the event of position {position} is at {place}; {segment}",
                streams.get(place),
                None,
                place,
            )
        elif position in now:
            yield Finding(
                Code.CHANGED, f"position {position} is not what was sealed by {segment}", stream, None, position
            )
        else:
            yield Finding(
                Code.MISSING, f"position {position} is gone; it was sealed by {segment}", stream, None, position
            )
    known = {digest for _, digest in signed}
    for position, digest in found:
        if position not in before and digest not in known:
            yield Finding(
                Code.ADDED,
                f"position {position} was not there when {segment} was signed",
                streams.get(position),
                None,
                position,
            )


def _hash_of(row: asyncpg.Record, last: asyncpg.Record | None) -> bytes:
    return hash_fields(
        b"" if last is None else last["hash"],
        stream=row["stream"],
        version=row["version"],
        event_id=row["event_id"].bytes,
        type=row["type"],
        schema_version=row["schema_version"],
        team=row["team"],
        recorded_at=row["recorded_at_bytes"],
        data=row["data"],
        meta=row["meta"],
        private_hash=row["private_hash"],
    )


def _decode[T](data: bytes, shape: type[T]) -> T | None:
    """None for what has been tampered with so far that it says nothing: its hash tells of that."""
    try:
        return msgspec.json.decode(data, type=shape)
    except msgspec.MsgspecError:
        return None
