"""Finds what was done to the log behind its back: an edited, dropped, added, moved or forged event.

What finds what:
- the chain of each stream: any change of an event's fields, a version left out, versions in the wrong order;
- the row of each stream: events cut off its end;
- the private part and its hash: a changed private part; a missing one is *erased* when the log says so, else *forged*;
- the signed checkpoints: all of it also when chains and stream rows were computed anew, and whole streams that are gone;
- a checkpoint held elsewhere: a log that was cut off together with its own checkpoints.

What nothing finds: that events after the last checkpoint held elsewhere were cut off, or written anew, by somebody who can
rewrite chains, rows and checkpoints. The report says so, always.
"""

import contextlib
import hashlib
import uuid
from collections.abc import Iterable, Mapping

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from app.eventlog.chain import leaf, merkle_root
from app.eventlog.checkpoints import Checkpoint, CheckpointInvalid, KeyUnknown, payload_of, read_unverified, verify
from app.eventlog.connect import Session
from app.eventlog.findings import Code, Finding, Restored, Streams, compare_segment
from app.eventlog.incarnation import current_incarnation
from app.eventlog.statements import statement

FINDINGS = 1000
"""Reported at most; the rest is counted."""
ROWS = 1000
"""Read at a time."""
CUT = (
    "Events after the last checkpoint that is held elsewhere can be cut off or written anew, by somebody who can rewrite "
    "the whole database, without any audit seeing it."
)


class Report(msgspec.Struct, frozen=True):
    incarnation: uuid.UUID
    events: int
    streams: int
    last_position: int
    checkpoints: int
    sealed_position: int
    """Up to here every event is under a checkpoint with a good signature."""
    unsealed_events: int
    erased: tuple[int, ...]
    """Positions of events whose private part was erased, as the log itself says."""
    findings: tuple[Finding, ...]
    more_findings: int
    """Findings beyond those listed."""
    notes: tuple[str, ...]

    @property
    def clean(self) -> bool:
        return not self.findings


class _Findings:
    """Collects the first FINDINGS findings and counts the rest."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.more = 0

    def add(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            if len(self.kept) < FINDINGS:
                self.kept.append(finding)
            else:
                self.more += 1


class _Seals:
    """What is known of the checkpoints, in the order of their numbers."""

    def __init__(self) -> None:
        self.count = self.position = self.number = self.sealed_position = 0
        self.payload_hash = ""
        self.payload_hashes: dict[int, str] = {}
        self.unknown_keys: set[str] = set()
        self.whole = True
        """No checkpoint was bad so far."""

    def follows(self, checkpoint: Checkpoint) -> Iterable[Finding]:
        if checkpoint.number > self.number + 1:
            yield _bad(
                Code.CHECKPOINT_MISSING,
                f"checkpoints {self.number + 1} to {checkpoint.number - 1} are gone",
                self.position + 1,
            )
        elif (checkpoint.previous, checkpoint.after_position) != (self.payload_hash, self.position):
            yield _bad(
                Code.CHECKPOINT_INVALID,
                f"checkpoint {checkpoint.number} does not continue checkpoint {self.number}",
                checkpoint.after_position + 1,
            )

    def move(self, checkpoint: Checkpoint, envelope: bytes) -> None:
        self.number, self.position = checkpoint.number, checkpoint.position
        self.payload_hash = hashlib.sha256(payload_of(envelope)).hexdigest()
        self.payload_hashes[checkpoint.number] = self.payload_hash


async def audit(connection: Session, keys: Mapping[str, Ed25519PublicKey], held: Iterable[bytes] = ()) -> Report:
    """Check the whole log, in one snapshot. `keys`: by key id; `held`: envelopes of checkpoints kept elsewhere.

    The connection must be in no transaction and may not be used meanwhile. Memory: a segment, 32 bytes a checkpoint, and
    the places of erased events.
    """
    findings, streams, seals = _Findings(), Streams(), _Seals()
    notes: list[str] = []
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        async for row in connection.cursor(statement("audit_events"), prefetch=ROWS):
            findings.add(streams.add(row))
        findings.add(streams.end())
        for row in await connection.fetch(statement("audit_empty_streams")):
            message = f"all {row['version']} events of stream {row['id']} are gone; its row is there"
            findings.add([Finding(Code.MISSING, message, row["id"], 1)])
        async for row in connection.cursor(statement("audit_checkpoints"), prefetch=10):
            await _check_seal(
                connection, row["number"], row["position"], row["envelope"], row["leaves"], keys, seals, findings
            )
        for envelope in held:
            await _check_held(connection, envelope, keys, seals, streams.restored, findings, notes)
        rest = await connection.fetchrow(statement("audit_totals"), seals.sealed_position)
        whole = await connection.fetchrow(statement("audit_totals"), 0)
        incarnation = await current_incarnation(connection)
    assert rest is not None
    assert whole is not None
    if not seals.count:
        notes.append("There is no signed checkpoint: only chains and stream rows could be checked.")
    return Report(
        incarnation=incarnation,
        events=streams.events,
        streams=streams.streams,
        last_position=whole["last_position"],
        checkpoints=seals.count,
        sealed_position=seals.sealed_position,
        unsealed_events=rest["events"],
        erased=tuple(
            sorted(position for position, place in streams.erased.items() if streams.erasures.get(position) == place)
        ),
        findings=tuple(findings.kept),
        more_findings=findings.more,
        notes=(*notes, CUT),
    )


async def _check_seal(
    connection: Session,
    number: int,
    position: int,
    envelope: bytes,
    leaves: bytes,
    keys: Mapping[str, Ed25519PublicKey],
    seals: _Seals,
    findings: _Findings,
) -> None:
    seals.count += 1
    before = len(findings.kept) + findings.more
    try:
        checkpoint = verify(envelope, keys)
    except KeyUnknown as error:
        if error.key_id not in seals.unknown_keys:
            seals.unknown_keys.add(error.key_id)
            findings.add([_bad(Code.KEY_UNKNOWN, f"checkpoint {number} is {error}", seals.position + 1)])
        seals.whole, checkpoint = False, read_unverified(envelope)
    except CheckpointInvalid as error:
        findings.add([_bad(Code.CHECKPOINT_INVALID, f"checkpoint {number}: {error}", seals.position + 1)])
        seals.whole = False
        with contextlib.suppress(CheckpointInvalid):
            seals.move(read_unverified(envelope), envelope)
        return
    if (checkpoint.number, checkpoint.position) != (number, position):
        findings.add([_bad(Code.CHECKPOINT_INVALID, f"the row of checkpoint {number} says something else", position)])
    findings.add(seals.follows(checkpoint))
    rows = await connection.fetch(statement("audit_segment"), checkpoint.after_position, checkpoint.position)
    findings.add(
        compare_segment(
            checkpoint,
            leaves,
            [(row["position"], row["hash"]) for row in rows],
            {row["position"]: row["stream"] for row in rows},
        )
    )
    seals.move(checkpoint, envelope)
    seals.whole = seals.whole and len(findings.kept) + findings.more == before
    if seals.whole:
        seals.sealed_position = checkpoint.position


async def _check_held(
    connection: Session,
    envelope: bytes,
    keys: Mapping[str, Ed25519PublicKey],
    seals: _Seals,
    restored: Iterable[Restored],
    findings: _Findings,
    notes: list[str],
) -> None:
    """A checkpoint that somebody kept: the database must have it, or at least still give its root."""
    try:
        checkpoint = verify(envelope, keys)
    except CheckpointInvalid as error:
        findings.add([Finding(Code.CHECKPOINT_INVALID, f"a checkpoint held elsewhere: {error}")])
        return
    if seals.payload_hashes.get(checkpoint.number) == hashlib.sha256(payload_of(envelope)).hexdigest():
        return
    name = f"checkpoint {checkpoint.number} of incarnation {checkpoint.incarnation}, held elsewhere,"
    rows = await connection.fetch(statement("audit_segment"), checkpoint.after_position, checkpoint.position)
    if merkle_root([leaf(row["position"], row["hash"]) for row in rows]).hex() == checkpoint.root:
        notes.append(f"The database lacks {name} but its events are as they were sealed.")
    elif any(
        life.previous_incarnation == checkpoint.incarnation and life.last_position < checkpoint.position
        for life in restored
    ):
        notes.append(f"Events of {name} were given up when the log was restored from a backup.")
    else:
        message = f"the log does not have what {name} sealed: it was cut off or written anew from there"
        findings.add([_bad(Code.CHECKPOINT_MISSING, message, checkpoint.after_position + 1)])


def _bad(code: Code, message: str, position: int) -> Finding:
    return Finding(code, message, position=position)
