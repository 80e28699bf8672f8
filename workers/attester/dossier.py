"""What the log and the object store know of one evaluation, as the inputs of its archive.

Only what can no longer change goes in: run.requested, the revision up to revision.ready, the evaluation and its trials
whole, the platform as evidence.owed has it. Of a trial whose score was adopted: the trial that ran, whole, with what it
left, and evaluation.created of the evaluation that it ran in, which names its image and its agent. So two attesters make the
same archive, at different times, of different versions or in different lives of the log.
"""

import asyncio
import datetime
from collections.abc import AsyncIterable, Iterable, Sequence

import asyncpg
import msgspec

from app import digests, ids
from app.boot import House
from app.domain import execution as stored_execution
from app.domain.events import (
    EvaluationCompleted,
    EvaluationCreated,
    Image,
    Installation,
    RevisionReady,
    RevisionUploaded,
    RunRequested,
    TrialAdopted,
    TrialQueued,
)
from app.domain.execution import FILES, LOG, RESULT, StoredFile
from app.domain.registry import Event, decode
from app.evidence.archive import EvidenceFile, execution_path
from app.evidence.provenance import (
    BuildRecord,
    ExecutionRecord,
    PackRecord,
    Platform,
    Provenance,
    TrialRecord,
)
from app.objects import keys
from app.objects.port import ObjectMissing, ObjectStore
from workers.attester.records import Incomplete, Stream, adopted_record, trial_record
from workers.statements import statement

LISTING = msgspec.json.Decoder(tuple[StoredFile, ...])
RECORD = msgspec.json.Decoder(stored_execution.ExecutionRecord)
UNKNOWN = Installation(version="unknown", instance="unknown", incarnation="unknown")
"""Who vouches for what was owed before evidence.owed said so."""


class ProofLine(msgspec.Struct, frozen=True):
    """One line of events.jsonl: what the event's hash covers. `data` and `meta` are the exact bytes, as text."""

    position: int
    stream: str
    version: int
    event_id: str
    type: str
    schema_version: int
    team: str
    recorded_at: datetime.datetime
    data: str
    meta: str
    private_hash: str | None
    hash: str


class Dossier(msgspec.Struct, frozen=True):
    provenance: Provenance
    events: bytes
    """events.jsonl."""
    files: tuple[EvidenceFile, ...]
    image: Image
    """Whose packages the SBOM lists."""


async def gather(house: House, evaluation_id: str, platform: Installation | None) -> Dossier:
    """Raises Incomplete, and what the log and the object store raise when they are away."""
    created, trials = await _evaluation(house, evaluation_id)
    adopted = await _adopted(house, trials)
    wanted = {created.run_id: 1, created.revision_id: None, evaluation_id: None} | dict.fromkeys(trials)
    wanted |= dict.fromkeys(one.adopted_from for one in adopted.values())
    wanted |= dict.fromkeys(await _evaluations_of(house, adopted.values()), 1)
    rows = await house.pool.fetch(
        statement("read_proof"), list(wanted), [version or 2**31 - 1 for version in wanted.values()]
    )
    streams = await asyncio.to_thread(_streams, wanted, rows)
    revision = _up_to_ready(streams[created.revision_id])
    streams[created.revision_id] = revision
    kept = {row["position"] for stream in streams.values() for row in stream.rows}
    files: list[EvidenceFile] = []
    records: list[TrialRecord] = []
    for ordinal, name in enumerate(trials, start=1):
        origin = adopted.get(name)
        record = (
            trial_record(streams[name], ordinal) if origin is None else adopted_record(name, origin, streams, ordinal)
        )
        records.append(record)
        for execution in record.executions:
            files += await _files(house.objects, ordinal, execution)
    return Dossier(
        provenance=_provenance(platform or UNKNOWN, evaluation_id, streams, created, records),
        events=await asyncio.to_thread(_lines, rows, kept),
        files=tuple(files),
        image=created.image,
    )


async def _evaluation(house: House, evaluation_id: str) -> tuple[EvaluationCreated, list[str]]:
    rows = await house.pool.fetch(statement("read_proof"), [evaluation_id], [1])
    created = decode(rows[0]["type"], rows[0]["schema_version"], rows[0]["data"])
    assert isinstance(created, EvaluationCreated), "an evaluation's stream begins with evaluation.created"
    return created, [ids.derive("trial", evaluation_id, number) for number in range(1, created.trials + 1)]


async def _adopted(house: House, trials: Sequence[str]) -> dict[str, TrialAdopted]:
    """Which of the trials took over the score of another, and how."""
    return {name: event for name, event in (await _begun(house, trials)).items() if isinstance(event, TrialAdopted)}


async def _evaluations_of(house: House, adopted: Iterable[TrialAdopted]) -> list[str]:
    """The evaluations that the trials ran in whose scores were taken over."""
    begun = await _begun(house, [one.adopted_from for one in adopted])
    return list(dict.fromkeys(event.evaluation_id for event in begun.values() if isinstance(event, TrialQueued)))


async def _begun(house: House, streams: Sequence[str]) -> dict[str, Event]:
    """The first event of each stream."""
    rows = await house.pool.fetch(statement("read_proof"), list(streams), [1] * len(streams))
    return {row["stream"]: decode(row["type"], row["schema_version"], row["data"]) for row in rows}


def _streams(names: Iterable[str], rows: Sequence[asyncpg.Record]) -> dict[str, Stream]:
    """Of a thousand trials that takes a quarter of a second, so it runs beside the loop."""
    of: dict[str, list[asyncpg.Record]] = {name: [] for name in names}
    for row in rows:
        of[row["stream"]].append(row)
    return {name: _stream(name, found) for name, found in of.items()}


def _stream(name: str, rows: Sequence[asyncpg.Record]) -> Stream:
    events = tuple(decode(row["type"], row["schema_version"], row["data"]) for row in rows)
    return Stream(name, tuple(rows), events)


def _up_to_ready(stream: Stream) -> Stream:
    count = next(at for at, event in enumerate(stream.events, start=1) if isinstance(event, RevisionReady))
    return Stream(stream.name, stream.rows[:count], stream.events[:count])


def _lines(rows: Sequence[asyncpg.Record], positions: set[int]) -> bytes:
    return b"".join(_line(row) for row in rows if row["position"] in positions)


def _line(row: asyncpg.Record) -> bytes:
    line = ProofLine(
        position=row["position"],
        stream=row["stream"],
        version=row["version"],
        event_id=str(row["event_id"]),
        type=row["type"],
        schema_version=row["schema_version"],
        team=row["team"],
        recorded_at=row["recorded_at"],
        data=row["data"].decode(),
        meta=row["meta"].decode(),
        private_hash=row["private_hash"].hex() if row["private_hash"] else None,
        hash=row["hash"].hex(),
    )
    return msgspec.json.encode(line) + b"\n"


async def _files(objects: ObjectStore, ordinal: int, execution: ExecutionRecord) -> list[EvidenceFile]:
    """What an execution left, if an event names its result: what a lost worker stored later is nobody's evidence."""
    if execution.result_digest is None:
        return []
    result = await _read(objects, execution, RESULT, execution.result_digest)
    record = RECORD.decode(result)
    listing = await _read(objects, execution, FILES, record.files_digest)
    files: list[EvidenceFile] = []
    for name, digest in ((RESULT, execution.result_digest), (FILES, record.files_digest), (LOG, record.log_digest)):
        key = keys.execution(execution.execution_id, name)
        stored = await objects.stat(key)
        if stored is None:
            raise Incomplete(f"{key} is missing")
        sha256 = digests.digits_of(digest)  # build_archive holds the bytes to it
        files.append(_file(objects, ordinal, execution.number, name, key, sha256, stored.size_bytes))
    for one in LISTING.decode(listing):
        key = keys.blob(one.sha256)
        path = f"files/{one.path}"
        files.append(_file(objects, ordinal, execution.number, path, key, one.sha256, one.size_bytes))
    return files


async def _read(objects: ObjectStore, execution: ExecutionRecord, name: str, digest: str) -> bytes:
    """A document of an execution. Raises Incomplete when it is not what the log, or its record, says it is."""
    key = keys.execution(execution.execution_id, name)
    try:
        content = b"".join([chunk async for chunk in objects.open(key)])
    except ObjectMissing as error:
        raise Incomplete(f"{key} is missing") from error
    if digests.of(content) != digest:
        raise Incomplete(f"{key} holds other bytes than were stored")
    return content


def _file(objects: ObjectStore, ordinal: int, number: int, name: str, key: str, sha256: str, size: int) -> EvidenceFile:
    def read() -> AsyncIterable[bytes]:
        return objects.open(key)

    return EvidenceFile(execution_path(ordinal, number, name), sha256, size, read)


def _provenance(
    platform: Installation,
    evaluation_id: str,
    streams: dict[str, Stream],
    created: EvaluationCreated,
    trials: list[TrialRecord],
) -> Provenance:
    completed = streams[evaluation_id].first(EvaluationCompleted)
    revision = streams[created.revision_id]
    uploaded, ready = revision.first(RevisionUploaded), revision.first(RevisionReady)
    requested = streams[created.run_id].first(RunRequested)
    return Provenance(
        evaluation_id=evaluation_id,
        run_id=created.run_id,
        run_number=requested.number,
        team=streams[evaluation_id].rows[0]["team"],
        ordinal=created.ordinal,
        outcome=completed.outcome,
        tally=completed.tally,
        platform=Platform(**msgspec.structs.asdict(platform)),
        pack=PackRecord(
            task_id=created.task_id,
            revision_id=created.revision_id,
            pack_digest=created.pack_digest,
            archive_digest=uploaded.archive_digest,
            files=uploaded.files,
        ),
        build=BuildRecord(attempt=ready.attempt, image=ready.image, build_ms=ready.build_ms),
        agent=created.agent,
        agent_digest=created.agent_digest,
        agent_id=requested.agent_id,
        trials=tuple(trials),
        streams=tuple(sorted((stream.record() for stream in streams.values()), key=lambda record: record.stream)),
    )
