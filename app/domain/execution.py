"""What one execution of a trial left behind, as it is stored under the execution's id in the object store.

`log.jsonl`, the files (as blobs) and `files.json` come first, `result.json` last: an execution that has it is complete,
and a later worker adopts it instead of running the trial again.
"""

import datetime
from typing import Literal

import msgspec

from app.domain.events import Validity
from app.domain.failures import Failure

RESULT = "result.json"
FILES = "files.json"
LOG = "log.jsonl"


class StoredFile(msgspec.Struct, frozen=True):
    """One artifact: its path inside the execution, and the blob that holds it."""

    path: str
    sha256: str
    size_bytes: int


class Raised(msgspec.Struct, frozen=True):
    """An exception as the harness recorded it: its type's name, its phase, its (redacted) text."""

    type: str
    phase: str
    message: str
    step: str | None = None


class ExecutionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`result.json`: what happened, judged by the taxonomy."""

    schema_version: int = 1
    execution_id: str
    trial_id: str
    evaluation_id: str
    run_id: str
    execution: int
    worker: str
    started_at: datetime.datetime
    finished_at: datetime.datetime
    outcome: Literal["scored", "errored", "cancelled"]
    rewards: dict[str, float] | None = None
    failure: Failure | None = None
    message: str | None = None
    validity: Validity
    harness: str
    harness_digest: str
    timings_ms: dict[str, int] = {}
    exceptions: tuple[Raised, ...] = ()
    files_digest: str
    """sha256:<hex> of files.json."""
    files: int
    omitted: tuple[str, ...] = ()
    """Paths that were not kept: beyond the limits, or no regular file. Long names and long lists are cut."""
    omitted_count: int = 0
    """How many there are."""
    log_digest: str
    log_truncated: bool = False
