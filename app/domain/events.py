"""The catalogue: every event of Seatrial, by stream category. Read it top to bottom to see what can happen.

Digests are `sha256:<hex>`; ids are those of app/ids.py; durations are in milliseconds. Free text (names, labels, messages)
travels in Draft.private under the keys that each docstring lists.
"""

import datetime

import msgspec

from app.domain.agents import Agent
from app.domain.failures import Failure
from app.domain.registry import Event, event

# ---------------------------------------------------------------- rows (audit events, written with the row they tell of)


@event("team.created")
class TeamCreated(Event, frozen=True, kw_only=True):
    """private: name."""


@event("team.limited")
class TeamLimited(Event, frozen=True, kw_only=True):
    """How many trials the team may run at a time; none: as many as there are slots."""

    trial_limit: int | None = None


@event("key.created")
class KeyCreated(Event, frozen=True, kw_only=True):
    role: str
    operator: bool
    expires_at: datetime.datetime | None = None
    """private: name."""


@event("key.revoked")
class KeyRevoked(Event, frozen=True, kw_only=True):
    pass


@event("task.created")
class TaskCreated(Event, frozen=True, kw_only=True):
    """private: name."""


@event("agent.created")
class AgentCreated(Event, frozen=True, kw_only=True):
    """An agent was stored under a name; neither changes any more. private: name."""

    agent: Agent
    agent_digest: str


# ---------------------------------------------------------------- revision: one uploaded pack and its build


@event("revision.uploaded")
class RevisionUploaded(Event, frozen=True, kw_only=True):
    task_id: str
    pack_digest: str
    """The pack's own content digest (app/archives): the same for the same files, however they were packed."""
    archive_digest: str
    archive_bytes: int
    object_key: str
    files: int


@event("revision.build_started")
class BuildStarted(Event, frozen=True, kw_only=True):
    attempt: int
    worker: str
    epoch: int


@event("revision.build_failed")
class BuildFailed(Event, frozen=True, kw_only=True):
    """The platform failed, not the pack: the build is tried again. private: message."""

    attempt: int
    failure: Failure
    retry_at: datetime.datetime


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """What a pack was built into."""

    reference: str
    """What the runtime starts: an image id or a name with a digest."""
    digest: str
    size_bytes: int
    architecture: str
    workdir: str | None = None
    user: str | None = None
    base_images: tuple[str, ...] = ()
    prebuilt: bool = False
    """The pack named a docker_image; nothing was built."""
    backend: str = "docker"


@event("revision.ready")
class RevisionReady(Event, frozen=True, kw_only=True):
    attempt: int
    image: Image
    build_ms: int
    log_key: str | None = None
    warnings: int = 0
    """Lint findings that do not stop a build. private: warnings (JSON list)."""


@event("revision.rejected")
class RevisionRejected(Event, frozen=True, kw_only=True):
    """private: message, and errors (JSON list of field, code, message) for an invalid pack."""

    attempt: int
    failure: Failure
    log_key: str | None = None


# ---------------------------------------------------------------- run: what a user starts


@event("run.requested")
class RunRequested(Event, frozen=True, kw_only=True):
    """private: name, labels (JSON object)."""

    number: int
    agent: Agent
    agent_digest: str
    agent_id: str | None = None
    """The stored agent that was named; None: the run said its agent outright."""
    trials: int
    """Trials per evaluation."""
    roster: str
    """Digest of the frozen member list (app/domain/run.py: Member), a row of seatrial.roster."""
    evaluations: int
    priority: int = 0
    derived_from: str | None = None
    """The run that this one retries: it has the same roster, agent and trials, and adopts its scored trials by reference."""
    deadline_seconds: int | None = None


@event("run.cancel_requested")
class RunCancelRequested(Event, frozen=True, kw_only=True):
    reason: str = "caller"
    """caller or deadline."""


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """How trials ended. `errored` maps a fault owner to a count."""

    trials: int
    scored: int = 0
    cancelled: int = 0
    errored: dict[str, int] = {}

    @property
    def ended(self) -> int:
        return self.scored + self.cancelled + sum(self.errored.values())


@event("run.completed")
class RunCompleted(Event, frozen=True, kw_only=True):
    outcome: str
    """succeeded, failed or cancelled."""
    evaluations: int
    tally: Tally


# ---------------------------------------------------------------- evaluation: one task revision of a run


@event("evaluation.created")
class EvaluationCreated(Event, frozen=True, kw_only=True):
    run_id: str
    ordinal: int
    task_id: str
    revision_id: str
    pack_digest: str
    image: Image
    agent: Agent
    agent_digest: str
    trials: int


@event("evaluation.completed")
class EvaluationCompleted(Event, frozen=True, kw_only=True):
    """The only terminal event of an evaluation."""

    run_id: str
    outcome: str
    """cancelled if any trial ended cancelled, else failed if none scored, else succeeded."""
    tally: Tally


# ---------------------------------------------------------------- trial: one rollout and its verification


@event("trial.queued")
class TrialQueued(Event, frozen=True, kw_only=True):
    run_id: str
    evaluation_id: str
    revision_id: str
    ordinal: int
    """1 to the evaluation's trials."""
    priority: int = 0


@event("trial.admitted")
class TrialAdmitted(Event, frozen=True, kw_only=True):
    pass


@event("trial.started")
class TrialStarted(Event, frozen=True, kw_only=True):
    execution_id: str
    execution: int
    """1, 2, 3: which try of the trial."""
    worker: str
    epoch: int


@event("trial.phase_entered")
class PhaseEntered(Event, frozen=True, kw_only=True):
    execution_id: str
    phase: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The stored result of an execution: where it lies and what identifies it."""

    key: str
    digest: str
    harness: str
    harness_digest: str
    """Digest of the overlay that the harness ran with."""
    timings_ms: dict[str, int] = {}
    """Wall time by phase."""


@event("trial.execution_failed")
class ExecutionFailed(Event, frozen=True, kw_only=True):
    """One try failed and another follows. private: message."""

    execution_id: str
    execution: int
    failure: Failure
    retry_at: datetime.datetime
    result: Result | None = None
    """What it left, when it could still store it."""


class EgressSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent's sandbox could reach, as seen from inside its network namespace before the agent ran."""

    how: str
    """tried: routes were asked for from inside; read: the kernel's tables of the namespace were read."""
    interfaces: tuple[str, ...] = ()
    """That were up, the loopback left out."""
    routes: tuple[str, ...] = ()
    """What there was a route to, of public and public6 (the internet, by protocol), metadata and private."""


class Validity(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a score trustworthy, as observed, not as wished."""

    verifier_isolation: str
    """separate, or shared with the agent's sandbox after its processes were ended."""
    egress: str
    """The network policy of the agent phase as enforced: public, no-network or allowlist."""
    egress_probed: bool
    """Whether the policy was held against what the sandbox itself shows; `egress_seen` says what that was."""
    cpus: float | None
    memory_mb: int | None
    pids: int | None
    digests_pinned: bool
    executions: int
    """Executions used, the counting one included."""
    strays_killed: int = 0
    """Processes of the agent that were still alive before grading, and were ended."""
    verifier_exit_code: int | None = None
    out_of_memory: bool = False
    unenforced: tuple[str, ...] = ()
    """What the engine could not hold: limits that the pack declares (`storage_mb`), and `private_addresses` when a sandbox
    with public egress also reaches those of the host's own networks."""
    egress_seen: EgressSeen | None = None
    harness_isolation: str = "unknown"
    """separate: the harness process ran as a user of its own that sees nothing of the worker's; shared: as the worker's user,
    which is so when the worker is not root, or is root on a machine that lets it confine nothing."""
    agent_code: str = "unknown"
    """harness: the agent is one of the harness's. own: it is code of the user's (an import path), which ran in the very process
    that grades and could read the tests: this score, and what else stands here of the verifier, rest on trust in that code."""


@event("trial.scored")
class TrialScored(Event, frozen=True, kw_only=True):
    """private: message, when the trial scored in spite of a failure of the agent."""

    execution_id: str
    execution: int
    reward: float
    """The primary reward, `rewards["reward"]`, or the only one."""
    rewards: dict[str, float]
    validity: Validity
    result: Result
    failure: Failure | None = None
    """A failure that may still score (the agent used up its time, say)."""
    recovered: bool = False
    """Found complete in the object store by a later worker, after the one that ran it was lost."""


@event("trial.adopted")
class TrialAdopted(Event, frozen=True, kw_only=True):
    """The score of a trial of an earlier run is taken over: the first and only event of a trial that did not run itself.

    All else about the score is in the stream of the trial that ran.
    """

    run_id: str
    evaluation_id: str
    revision_id: str
    ordinal: int
    """1 to the evaluation's trials; it is that of the trial that ran."""
    adopted_from: str
    """The trial that ran, however many retries lie between."""
    head_hash: str
    """Hex: the hash of that trial's last event, its trial.scored. It covers the whole stream."""
    execution_id: str
    """Of that trial: the one that scored."""
    reward: float
    """The primary reward of that trial."""


@event("trial.errored")
class TrialErrored(Event, frozen=True, kw_only=True):
    """private: message."""

    failure: Failure
    executions: int
    execution_id: str | None = None
    result: Result | None = None


@event("trial.cancel_requested")
class TrialCancelRequested(Event, frozen=True, kw_only=True):
    pass


@event("trial.cancelled")
class TrialCancelled(Event, frozen=True, kw_only=True):
    execution_id: str | None = None
    result: Result | None = None


# ---------------------------------------------------------------- evidence: what proves an evaluation


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """Who vouches for an evaluation: as it was when that completed, whoever seals the archive later."""

    version: str
    """Of Seatrial."""
    instance: str
    """The installation's name."""
    incarnation: str
    """Of the event log."""


@event("evidence.owed")
class EvidenceOwed(Event, frozen=True, kw_only=True):
    """Written with evaluation.completed, in one transaction."""

    evaluation_id: str
    run_id: str
    platform: Installation | None = None


@event("evidence.started")
class EvidenceStarted(Event, frozen=True, kw_only=True):
    attempt: int
    worker: str
    epoch: int


@event("evidence.failed")
class EvidenceFailed(Event, frozen=True, kw_only=True):
    """Tried again at `retry_at`, for ever: evidence is owed. private: message."""

    attempt: int
    failure: Failure
    retry_at: datetime.datetime


@event("evidence.sealed")
class EvidenceSealed(Event, frozen=True, kw_only=True):
    evaluation_id: str
    run_id: str
    archive_key: str
    archive_digest: str
    archive_bytes: int
    manifest_digest: str
    provenance_digest: str
    sbom_digest: str
    files: int


# ---------------------------------------------------------------- the log itself


@event("event.erased")
class EventErased(Event, frozen=True, kw_only=True):
    """Written by eventlog.erase in stream erasure/POSITION. `reason` is a code, not free text."""

    position: int
    stream: str
    version: int
    reason: str


@event("log.restored")
class LogRestored(Event, frozen=True, kw_only=True):
    previous_incarnation: str
    incarnation: str
    last_position: int
    first_position: int
