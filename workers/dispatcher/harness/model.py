"""What a trial is given and what is observed of it: the data on both sides of `run_trial`."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from workers.dispatcher.runtimes.port import Effective, Labels, NetworkPolicy

Phase = Literal["provision", "agent_setup", "agent", "verify", "collect", "teardown"]
PHASES: tuple[Phase, ...] = ("provision", "agent_setup", "agent", "verify", "collect", "teardown")


class AgentSpec(msgspec.Struct, frozen=True):
    """Which agent. `name` is one that Harbor ships; `import_path` is `module:Class`; neither means `oracle`."""

    name: str | None = None
    import_path: str | None = None
    version: str | None = None
    model: str | None = None
    settings: dict[str, Any] = {}
    """Keyword arguments of the agent: JSON values."""
    environment: dict[str, str] = {}
    """Secret. Reaches the child by its socket and the sandbox by the engine's API; never a command line."""
    bundle: Path | None = None
    """A folder with the agent's own code, put first on the child's import path."""

    @property
    def is_own_code(self) -> bool:
        """Whether the child runs code that is not the harness's own."""
        return self.import_path is not None or self.bundle is not None


class Deadlines(msgspec.Struct, frozen=True):
    """Seconds. `total` is the worker's own and bounds everything, teardown excepted."""

    total: float
    agent: float | None = None
    """None: what the pack declares, which with `[[steps]]` it does for each step by itself."""
    verify: float | None = None
    provision: float = 600.0
    agent_setup: float = 360.0


class Resources(msgspec.Struct, frozen=True):
    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None


class NetworkPolicies(msgspec.Struct, frozen=True):
    """The policy of the sandbox when it starts, and the policies of the phases that differ (None: the same)."""

    baseline: NetworkPolicy = NetworkPolicy()
    agent: NetworkPolicy | None = None
    verify: NetworkPolicy | None = None


class TrialSpec(msgspec.Struct, frozen=True):
    execution_id: str
    trial_id: str
    run_id: str
    team: str
    trial_uuid: str
    """UUID text: the id that Harbor writes into its result."""
    task_folder: Path
    """The extracted pack; read only."""
    image: str
    """What the agent's sandbox runs, and a separate verifier's that has no image of its own."""
    scratch: Path
    """An existing, empty, writable folder of this execution alone. Harbor's trial folder comes to lie in it."""
    labels: Labels
    deadlines: Deadlines
    agent: AgentSpec = AgentSpec()
    workdir: str | None = None
    resources: Resources = Resources()
    network: NetworkPolicies = NetworkPolicies()
    variables: dict[str, str] = {}
    """Values for the `${NAME}` templates of task.toml: the only variables that the pack can see."""
    verifier_images: dict[str, str] = {}
    """Images of separate verifiers with an image of their own (tests/Dockerfile, docker_image): step name -> image; the
    task's own under the empty name."""
    verify: bool = True
    sandbox: Literal["runtime", "none"] = "runtime"
    """`none`: no sandbox at all, for measuring the harness itself (agent `nop`, `verify=False`)."""


class LogChunk(msgspec.Struct, frozen=True):
    """A piece of output as it came; not cut at lines. Not redacted: the dispatcher does that before it goes further."""

    phase: Phase
    stream: Literal["stdout", "stderr"]
    source: Literal["agent", "verifier", "harness"]
    """`harness`: what the harness child itself printed."""
    text: str
    step: str | None = None


class PhaseTiming(msgspec.Struct, frozen=True):
    """Unix seconds; `finished_at` is None for the phase in which the trial ended early."""

    phase: Phase
    started_at: float
    finished_at: float | None = None


class TrialException(msgspec.Struct, frozen=True):
    """An exception as the harness recorded it. `type` is the bare class name that the failure taxonomy maps: Harbor's
    own, or one of the overlay's (`SandboxLostError`, …; harbor-patches/overlay/seatrial_harness/errors.py)."""

    type: str
    message: str
    phase: Phase
    step: str | None = None


class VerifierFacts(msgspec.Struct, frozen=True):
    exit_code: int | None = None
    isolation: Literal["shared", "separate"] = "shared"
    strays_killed: int = 0
    reward_file: str | None = None
    step: str | None = None


class Exit(msgspec.Struct, frozen=True):
    """How the harness child ended. Both None: nobody saw it (the fork server died)."""

    code: int | None = None
    signal: int | None = None
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0


class HarnessVersion(msgspec.Struct, frozen=True):
    version: str
    overlay_digest: str


State = Literal["finished", "failed", "cancelled", "deadline", "lost"]


class TrialObservation(msgspec.Struct, frozen=True):
    """What happened. Facts only: whether it is a score or which failure it is, the dispatcher decides with the taxonomy.

    `finished`: the harness ended with a result (which may hold exceptions); `failed`: it could not even begin;
    `cancelled`: by us; `deadline`: the total deadline passed; `lost`: no result and no reason, an infrastructure fault
    (the child or the fork server was killed, or broke).
    """

    state: State
    harness: HarnessVersion
    files: Path
    """The trial folder: config.json, result.json, agent/, verifier/, artifacts/, harness.log."""
    phases: tuple[PhaseTiming, ...] = ()
    harness_result: bytes | None = None
    """Harbor's result as JSON, with its settings in it: redact before storing."""
    rewards: dict[str, float] | None = None
    exceptions: tuple[TrialException, ...] = ()
    """Harbor's order: the trial's own first, then those of the steps."""
    exit: Exit = Exit()
    verifiers: tuple[VerifierFacts, ...] = ()
    confined: bool = False
    """The harness child was a user of its own, with nothing of the worker's in view."""
    own_code: bool = False
    """The child ran code of whoever brought the agent, and what it told (rewards too) is that code's word as well."""
    effective: Effective | None = None
    """Of the agent's sandbox; None when it never ran."""
    oom_kills: int = 0
    peak_memory_bytes: int | None = None
    timed_out: tuple[Phase, ...] = ()
    """Phases that ran into their own deadline."""
    teardown_error: str | None = None
    """Set when a sandbox could not be removed: the lifeline, its expiry and the reaper then do it."""


OnPhase = Callable[[Phase], Awaitable[None] | None]
OnLog = Callable[[LogChunk], Awaitable[None]]
