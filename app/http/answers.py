"""What the API shows: the resources, as Structs of their own, so that a view may change without changing the contract."""

import datetime

import msgspec

from app.access.roles import Role
from app.bus.logs import LogChunk
from app.domain.agents import Agent
from app.domain.events import Image, Tally, Validity
from app.domain.failures import Failure


class Listed[T](msgspec.Struct, frozen=True, kw_only=True):
    """A page of a list. Without `next_page_token` it is the last one."""

    items: tuple[T, ...]
    next_page_token: str | None = None


class Me(msgspec.Struct, frozen=True, kw_only=True):
    actor: str
    team: str
    team_name: str | None
    role: Role
    operator: bool
    permissions: tuple[str, ...]


class Key(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    role: Role
    operator: bool
    created_at: datetime.datetime
    expires_at: datetime.datetime | None
    revoked_at: datetime.datetime | None
    last_used_at: datetime.datetime | None
    """To the minute."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str | None
    created_at: datetime.datetime
    revisions: int
    ready: int
    rejected: int
    evaluations: int
    last_revision: str | None
    last_revision_at: datetime.datetime | None
    ready_revision: str | None
    """What a run takes when it names no revision."""


class PackError(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a pack."""

    field: str = ""
    code: str = ""
    message: str = ""


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    task_id: str
    task_name: str | None
    status: str
    """uploaded, building, ready or rejected."""
    pack_digest: str
    archive_digest: str
    archive_bytes: int
    files: int
    uploaded_at: datetime.datetime
    attempt: int
    build_started_at: datetime.datetime | None
    retry_at: datetime.datetime | None
    ended_at: datetime.datetime | None
    image: Image | None
    build_ms: int | None
    failure: Failure | None
    message: str | None = None
    """What the failure said. Not in lists."""
    errors: tuple[PackError, ...] = ()
    """Of a rejected pack. Not in lists."""
    warnings: tuple[str, ...] = ()
    """Of a pack that is ready all the same. Not in lists."""
    warning_count: int = 0
    events_url: str = ""
    logs_url: str = ""


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """A mean, never without what it leaves out."""

    mean: float | None
    standard_error: float | None
    trials: int
    scored: int
    errored: dict[str, int]
    """By the owner of the fault."""
    cancelled: int
    coverage: float
    """Scored out of all, 0 to 1."""
    pass_at_1: float | None
    """Where all rewards are 0 or 1."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Trials by status, now."""

    queued: int
    admitted: int
    running: int
    scored: int
    errored: int
    cancelled: int


class AgentName(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str


class Run(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    number: int
    name: str | None
    labels: dict[str, str]
    status: str
    """requested, running, cancelling or completed."""
    outcome: str | None
    """succeeded, failed or cancelled, when completed."""
    agent: Agent
    agent_digest: str
    stored_agent: AgentName | None
    """The stored agent that the run named; nothing when it said its agent outright."""
    trials: int
    """Per evaluation."""
    evaluations: int
    evaluations_completed: int
    counts: Counts
    adopted: int
    """Trials whose scores were taken over from earlier runs (`derived_from`); they are among the scored."""
    score: Score | None
    tally: Tally | None
    """As the run completed."""
    priority: int
    derived_from: str | None
    deadline_seconds: int | None
    cancel_reason: str | None
    created_at: datetime.datetime
    started_at: datetime.datetime | None
    ended_at: datetime.datetime | None
    url: str
    events_url: str
    logs_url: str
    archive_url: str


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    run_id: str
    ordinal: int
    task_id: str
    task_name: str | None
    revision_id: str
    pack_digest: str
    image: Image
    agent: Agent
    agent_digest: str
    trials: int
    status: str
    """open or completed."""
    outcome: str | None
    counts: Counts
    adopted: int
    """Trials whose scores were taken over from an earlier run; they are among the scored."""
    score: Score | None
    tally: Tally | None
    created_at: datetime.datetime
    started_at: datetime.datetime | None
    ended_at: datetime.datetime | None
    evidence: str | None
    """owed, sealing, waiting or sealed; nothing while the evaluation is open."""
    archive_digest: str | None
    archive_url: str


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    run_id: str
    evaluation_id: str
    revision_id: str
    ordinal: int
    priority: int
    status: str
    """queued, admitted, running, scored, errored or cancelled."""
    cancel_requested: bool
    executions: int
    execution_id: str | None
    phase: str | None
    reward: float | None
    rewards: dict[str, float] | None
    validity: Validity | None
    recovered: bool
    """Its result was found complete after the worker that ran it was lost."""
    adopted_from: str | None
    """The trial of an earlier run whose score a retry took over: that one ran, and what is told here is its story."""
    failure: Failure | None
    message: str | None
    queued_at: datetime.datetime
    admitted_at: datetime.datetime | None
    started_at: datetime.datetime | None
    retry_at: datetime.datetime | None
    ended_at: datetime.datetime | None
    timings_ms: dict[str, int]
    events_url: str
    logs_url: str
    artifacts_url: str


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """One try of a trial."""

    id: str
    trial_id: str
    number: int
    worker: str
    status: str
    phase: str | None
    reward: float | None
    failure: Failure | None
    message: str | None
    result_digest: str | None
    timings_ms: dict[str, int] | None
    started_at: datetime.datetime
    ended_at: datetime.datetime | None


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """A file that an execution left."""

    path: str
    sha256: str
    size_bytes: int
    url: str


class Artifacts(msgspec.Struct, frozen=True, kw_only=True):
    execution_id: str
    items: tuple[Artifact, ...]


class StoredAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent under a name. Neither changes any more."""

    id: str
    name: str
    agent: Agent
    agent_digest: str
    created_by: str
    created_at: datetime.datetime


class CheckedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """The agent that a run would have."""

    agent: Agent
    agent_digest: str
    agent_id: str | None
    """Of the stored agent that was named."""
    warning: str | None
    """Why its trials will all end in one failure, if that is certain. A run of it is accepted all the same."""


class Agents(Listed[StoredAgent], frozen=True, kw_only=True):
    """A page of the stored agents, and the names of those that the harness ships."""

    harness: tuple[str, ...]


class Events(msgspec.Struct, frozen=True, kw_only=True):
    """CloudEvents in the order of the log. `after` is where to go on, also when there are none."""

    items: tuple[msgspec.Raw, ...]
    after: str
    more: bool
    """Whether there are more already."""


class Logs(msgspec.Struct, frozen=True, kw_only=True):
    """Chunks of output in their order. `after` is where to go on."""

    items: tuple[LogChunk, ...]
    after: str
    more: bool


class Dependency(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    up: bool
    needed: bool
    """Whether the API is not ready without it."""
    detail: str | None = None


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    ready: bool
    dependencies: tuple[Dependency, ...]


class Alive(msgspec.Struct, frozen=True):
    alive: bool = True
