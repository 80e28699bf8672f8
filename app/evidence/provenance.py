"""How a score came about, as data: what ran, on what, by whom, and where the log says so.

The shape follows the in-toto attestation framework (v1, statement and predicate) and SLSA provenance 1.0: `subject` is
what is vouched for, the rest is the predicate. The signed statement around it comes with its own issue. Ids, numbers, codes
and digests only: names and messages are private text of the log, and an archive could not forget them.
"""

import datetime

import msgspec

from app.domain.agents import Agent
from app.domain.events import Image, Tally, Validity
from app.domain.failures import Failure

FORMAT = "urn:seatrial:provenance:v1"


class Subject(msgspec.Struct, frozen=True):
    """One thing that is vouched for. `sha256`: 64 hex digits."""

    name: str
    sha256: str


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """Who says so."""

    name: str = "seatrial"
    version: str
    instance: str
    incarnation: str
    """Of the event log."""


class PackRecord(msgspec.Struct, frozen=True, kw_only=True):
    task_id: str
    revision_id: str
    pack_digest: str
    archive_digest: str
    """Of the file that was uploaded."""
    files: int


class BuildRecord(msgspec.Struct, frozen=True, kw_only=True):
    attempt: int
    image: Image
    build_ms: int


class HarnessRecord(msgspec.Struct, frozen=True, kw_only=True):
    name: str = "harbor"
    version: str
    overlay_digest: str


class ExecutionRecord(msgspec.Struct, frozen=True, kw_only=True):
    execution_id: str
    number: int
    worker: str
    started_at: datetime.datetime
    ended_at: datetime.datetime | None
    outcome: str
    """scored, errored, cancelled, or failed when another execution followed."""
    harness: HarnessRecord | None = None
    """None when the execution ended before the harness began."""
    result_digest: str | None = None
    failure: Failure | None = None
    timings_ms: dict[str, int] = {}


class TrialRecord(msgspec.Struct, frozen=True, kw_only=True):
    trial_id: str
    ordinal: int
    outcome: str
    """scored, errored or cancelled."""
    reward: float | None = None
    rewards: dict[str, float] = {}
    validity: Validity | None = None
    failure: Failure | None = None
    executions: tuple[ExecutionRecord, ...] = ()
    """All of them, by number; the last one counts."""
    adopted_from: str | None = None
    """The trial of an earlier run that ran, and whose score this one takes over: all else here, and what lies in the archive
    under this ordinal, is of that trial. Its stream is named in `streams`, as is the evaluation that it ran in."""


class StreamRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Where the log tells of it: the whole stream up to `version`."""

    stream: str
    version: int
    first_position: int
    last_position: int
    head_hash: str
    """Hex. Of the last event counted; it covers all before it."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    format: str = FORMAT
    evaluation_id: str
    run_id: str
    run_number: int
    team: str
    ordinal: int
    """Of the evaluation in its run."""
    outcome: str
    """succeeded, failed or cancelled."""
    tally: Tally
    subject: tuple[Subject, ...] = ()
    """Every result in the archive, with the SBOM and the events. Filled in by `archive.build_archive`."""
    platform: Platform
    pack: PackRecord
    build: BuildRecord
    agent: Agent
    agent_digest: str
    agent_id: str | None = None
    """Of the stored agent that the run named. What it is called is private text, as every name is."""
    trials: tuple[TrialRecord, ...]
    """By ordinal."""
    streams: tuple[StreamRecord, ...]
    """By name: the revision's, the run's, the evaluation's and the trials', and those of adopted trials."""


ENCODER = msgspec.json.Encoder(order="deterministic")


def encode(provenance: Provenance) -> bytes:
    """Canonical JSON of the whole: sorted keys, two spaces, one line feed at the end, so that a person can read it."""
    return msgspec.json.format(ENCODER.encode(provenance), indent=2) + b"\n"


def decode(data: bytes) -> Provenance:
    """Raises msgspec.DecodeError for what is not a provenance record."""
    return msgspec.json.decode(data, type=Provenance)
