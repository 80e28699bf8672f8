"""The failure taxonomy: every way in which something can go wrong, with whose fault it is and what follows.

The one place. A failure has a phase, a fault owner, a retry rule, and says whether a reward that came all the same may
count. What is not known maps to `internal.unknown`: the platform's fault, one new execution, never a score. Nothing is
classified by searching text: exception types, exit facts (OOM-killed, signal, deadline) and our own typed errors decide.
"""

import enum

import msgspec


class Phase(enum.StrEnum):
    PACK = "pack"
    BUILD = "build"
    PROVISION = "provision"
    AGENT_SETUP = "agent_setup"
    AGENT = "agent"
    VERIFY = "verify"
    COLLECT = "collect"
    TEARDOWN = "teardown"


class Fault(enum.StrEnum):
    """Who can mend it."""

    PLATFORM = "platform"
    """Seatrial or the machine it runs on."""
    PROVIDER = "provider"
    """A model provider or another outside service."""
    TASK = "task"
    """The task pack."""
    AGENT = "agent"
    """The agent under evaluation."""
    CALLER = "caller"
    """Whoever started the run."""


class Retry(enum.StrEnum):
    NEVER = "never"
    NEW_EXECUTION = "new_execution"


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failure as an event stores it: complete, so that a later change of the taxonomy rewrites no history."""

    code: str
    phase: Phase
    fault: Fault
    retry: Retry
    scored: bool = False
    """A reward that came all the same is valid: the failure is part of how the agent did."""
    exception: str | None = None
    """The harness's exception type, when there was one."""


class Code(msgspec.Struct, frozen=True):
    """A known way to fail. `phase` is where it happens when the observer cannot say better."""

    code: str
    phase: Phase
    fault: Fault
    retry: Retry
    meaning: str
    scored: bool = False
    limit: int = 3
    """Executions in all, at most."""


def _codes(*codes: Code) -> dict[str, Code]:
    return {code.code: code for code in codes}


UNKNOWN = "internal.unknown"

_N, _R = Retry.NEVER, Retry.NEW_EXECUTION

CODES: dict[str, Code] = _codes(
    # the pack and its build
    Code("pack.invalid", Phase.PACK, Fault.TASK, _N, "The pack is not a valid task pack."),
    Code(
        "pack.unsupported",
        Phase.PACK,
        Fault.TASK,
        _N,
        "The pack needs something that this installation does not offer.",
    ),
    Code("pack.no_solution", Phase.PACK, Fault.TASK, _N, "The oracle agent needs a solution, and the pack has none."),
    Code("pack.corrupt", Phase.PACK, Fault.PLATFORM, _R, "The stored pack differs from what was uploaded."),
    Code("build.step_failed", Phase.BUILD, Fault.TASK, _N, "A step of the pack's Dockerfile failed."),
    Code("build.dockerfile_invalid", Phase.BUILD, Fault.TASK, _N, "The pack's Dockerfile cannot be parsed."),
    Code("build.base_image_missing", Phase.BUILD, Fault.TASK, _N, "An image that the pack builds on cannot be found."),
    Code("build.image_missing", Phase.BUILD, Fault.TASK, _N, "The pack's docker_image cannot be found."),
    Code("build.image_too_large", Phase.BUILD, Fault.TASK, _N, "The image is larger than this installation allows."),
    Code("build.image_unreadable", Phase.BUILD, Fault.TASK, _N, "The image's package records cannot be read."),
    Code("build.timed_out", Phase.BUILD, Fault.TASK, _N, "The build took longer than the pack allows."),
    Code("build.engine_unavailable", Phase.BUILD, Fault.PLATFORM, _R, "The container engine did not answer."),
    Code("build.registry_unreachable", Phase.BUILD, Fault.PROVIDER, _R, "An image's registry does not answer."),
    Code("build.worker_lost", Phase.BUILD, Fault.PLATFORM, _R, "The build worker went away."),
    # the sandbox
    Code("sandbox.start_failed", Phase.PROVISION, Fault.PLATFORM, _R, "The sandbox could not be started."),
    Code("sandbox.start_timed_out", Phase.PROVISION, Fault.PLATFORM, _R, "The sandbox took too long to start."),
    Code("sandbox.image_missing", Phase.PROVISION, Fault.PLATFORM, _R, "The image is not where the trial runs."),
    Code("sandbox.lost", Phase.AGENT, Fault.PLATFORM, _R, "The sandbox went away during the trial."),
    Code(
        "sandbox.policy_unsupported",
        Phase.PROVISION,
        Fault.TASK,
        _N,
        "The pack's network policy cannot be enforced here.",
    ),
    Code(
        "sandbox.policy_not_held",
        Phase.PROVISION,
        Fault.PLATFORM,
        _R,
        "The sandbox's network is not what its policy says.",
    ),
    Code("sandbox.healthcheck_failed", Phase.PROVISION, Fault.TASK, _R, "The pack's health check did not pass."),
    Code("sandbox.engine_unavailable", Phase.PROVISION, Fault.PLATFORM, _R, "The container engine did not answer."),
    Code("sandbox.access_failed", Phase.PROVISION, Fault.PLATFORM, _R, "The sandbox could not be reached."),
    Code("sandbox.operation_unsupported", Phase.PROVISION, Fault.CALLER, _N, "The sandbox cannot do what was asked."),
    Code("sandbox.storage_exhausted", Phase.PROVISION, Fault.PLATFORM, _R, "No space was left for the sandbox."),
    Code(
        "sandbox.exec_refused",
        Phase.AGENT,
        Fault.TASK,
        _N,
        "The image lacks the shell, folder or user that the pack needs.",
    ),
    Code("sandbox.transfer_failed", Phase.PROVISION, Fault.PLATFORM, _R, "Files could not be copied in or out."),
    Code("sandbox.path_missing", Phase.COLLECT, Fault.TASK, _N, "A path that the pack names is not in the sandbox."),
    Code(
        "sandbox.command_timed_out",
        Phase.AGENT,
        Fault.AGENT,
        _N,
        "A command in the sandbox took longer than its caller allowed.",
    ),
    Code(
        "sandbox.none",
        Phase.VERIFY,
        Fault.CALLER,
        _N,
        "The trial ran without a sandbox, to measure the harness: no score.",
    ),
    # the worker and the harness
    Code("worker.lost", Phase.AGENT, Fault.PLATFORM, _R, "The worker went away; its lease ended."),
    Code("worker.drained", Phase.AGENT, Fault.PLATFORM, _R, "The worker was stopped before the trial ended."),
    Code(
        "worker.dependency_away", Phase.PROVISION, Fault.PLATFORM, _R, "The database or another service did not answer."
    ),
    Code("worker.disk_full", Phase.PROVISION, Fault.PLATFORM, _R, "The disk of the worker's machine is full."),
    Code("harness.lost", Phase.AGENT, Fault.PLATFORM, _R, "The harness process ended without a result."),
    Code("harness.failed", Phase.PROVISION, Fault.PLATFORM, _R, "The harness could not begin the trial."),
    Code("harness.result_invalid", Phase.COLLECT, Fault.PLATFORM, _R, "The harness's result cannot be read."),
    Code("trial.timed_out", Phase.AGENT, Fault.PLATFORM, _R, "The trial passed its total deadline.", limit=2),
    Code("store.unavailable", Phase.COLLECT, Fault.PLATFORM, _R, "The object store did not take the trial's results."),
    Code("store.corrupt", Phase.COLLECT, Fault.PLATFORM, _R, "The object store holds other bytes than were stored."),
    # the agent
    Code("agent.setup_timed_out", Phase.AGENT_SETUP, Fault.AGENT, _R, "Setting up the agent took too long."),
    Code("agent.exited", Phase.AGENT, Fault.AGENT, _N, "The agent ended with an error.", scored=True),
    Code("agent.timed_out", Phase.AGENT, Fault.AGENT, _N, "The agent used up its time.", scored=True),
    Code("agent.context_exceeded", Phase.AGENT, Fault.AGENT, _N, "The agent outgrew the model's context.", scored=True),
    Code(
        "agent.output_exceeded",
        Phase.AGENT,
        Fault.AGENT,
        _N,
        "The agent outgrew the model's output limit.",
        scored=True,
    ),
    Code("agent.refused", Phase.AGENT, Fault.AGENT, _N, "The model refused the task.", scored=True),
    Code("agent.out_of_memory", Phase.AGENT, Fault.AGENT, _N, "The sandbox ran out of memory under the agent."),
    Code(
        "agent.key_missing",
        Phase.AGENT_SETUP,
        Fault.CALLER,
        _N,
        "The agent needs a key for its model, and none can reach it: there are no credentials yet.",
    ),
    Code("agent.unknown", Phase.AGENT_SETUP, Fault.CALLER, _N, "There is no such agent."),
    Code("agent.settings_invalid", Phase.AGENT_SETUP, Fault.CALLER, _N, "The agent does not take these settings."),
    Code(
        "agent.dependency_missing",
        Phase.AGENT_SETUP,
        Fault.PLATFORM,
        _N,
        "The agent needs a package that is not installed.",
    ),
    Code(
        "agent.unconfined",
        Phase.AGENT_SETUP,
        Fault.PLATFORM,
        _N,
        "The agent's own code would run as root on the worker, which cannot confine it.",
    ),
    Code("agent.storage_exhausted", Phase.AGENT, Fault.AGENT, _N, "The agent filled the sandbox's disk."),
    Code(
        "run.variable_missing",
        Phase.PROVISION,
        Fault.CALLER,
        _N,
        "The pack needs a variable that the run does not give.",
    ),
    Code(
        "collect.too_large",
        Phase.COLLECT,
        Fault.AGENT,
        _N,
        "What the trial left is larger than this installation keeps.",
    ),
    # providers
    Code("provider.authentication", Phase.AGENT, Fault.CALLER, _N, "The provider refused the credential."),
    Code("provider.model_missing", Phase.AGENT, Fault.CALLER, _N, "The provider has no such model."),
    Code("provider.request_invalid", Phase.AGENT, Fault.CALLER, _N, "The provider refused the request's parameters."),
    Code("provider.budget_exceeded", Phase.AGENT, Fault.CALLER, _N, "The budget is used up."),
    Code("provider.response_invalid", Phase.AGENT, Fault.PROVIDER, _N, "The provider's answer cannot be read."),
    Code("provider.rate_limited", Phase.AGENT, Fault.PROVIDER, _R, "The provider limited the rate."),
    Code("provider.usage_limited", Phase.AGENT, Fault.PROVIDER, _R, "The provider's usage limit is reached."),
    Code("provider.overloaded", Phase.AGENT, Fault.PROVIDER, _R, "The provider is overloaded."),
    Code("provider.failed", Phase.AGENT, Fault.PROVIDER, _R, "The provider failed."),
    Code("provider.unreachable", Phase.AGENT, Fault.PROVIDER, _R, "The provider could not be reached."),
    # the verifier
    Code("verifier.timed_out", Phase.VERIFY, Fault.TASK, _N, "The verifier used up its time."),
    Code("verifier.reward_missing", Phase.VERIFY, Fault.TASK, _N, "The verifier wrote no reward."),
    Code("verifier.reward_empty", Phase.VERIFY, Fault.TASK, _N, "The verifier wrote an empty reward."),
    Code(
        "verifier.reward_invalid",
        Phase.VERIFY,
        Fault.TASK,
        _N,
        "The verifier's reward is not a flat object of finite numbers.",
    ),
    Code("verifier.exited", Phase.VERIFY, Fault.TASK, _N, "The verifier's script failed."),
    Code("verifier.out_of_memory", Phase.VERIFY, Fault.TASK, _N, "The sandbox ran out of memory under the verifier."),
    Code("verifier.storage_exhausted", Phase.VERIFY, Fault.TASK, _N, "The verifier filled the sandbox's disk."),
    Code("verifier.tests_not_sent", Phase.VERIFY, Fault.PLATFORM, _R, "The tests did not reach the sandbox."),
    Code("verifier.output_not_read", Phase.VERIFY, Fault.PLATFORM, _R, "The verifier's output could not be read."),
    Code(
        "verifier.strays_survived",
        Phase.VERIFY,
        Fault.PLATFORM,
        _R,
        "Processes of the agent could not be ended before grading.",
    ),
    Code("verifier.regrade_failed", Phase.VERIFY, Fault.CALLER, _N, "The recorded artifacts cannot be graded again."),
    # what nobody foresaw
    Code("cancelled", Phase.AGENT, Fault.CALLER, _N, "The trial was cancelled."),
    Code(UNKNOWN, Phase.AGENT, Fault.PLATFORM, _R, "Something failed that Seatrial does not know.", limit=2),
)

OUTAGES = frozenset(
    {
        "sandbox.engine_unavailable",
        "sandbox.start_failed",
        "build.engine_unavailable",
        "store.unavailable",
        "worker.dependency_away",
        "worker.disk_full",
        "harness.failed",
    }
)
"""After one of these a worker first asks whether what it needs is there, before it claims more."""

# Harbor 0.26.0's exception names, one by one (its error policy table).
HARBOR: dict[str, str] = {
    "EnvironmentStartTimeoutError": "sandbox.start_timed_out",
    "SandboxBuildFailedError": "sandbox.start_failed",
    "AgentSetupTimeoutError": "agent.setup_timed_out",
    "HealthcheckError": "sandbox.healthcheck_failed",
    "SandboxLikelyOutOfMemoryError": "agent.out_of_memory",
    "MemoryLimitExceededError": "agent.out_of_memory",
    "SSHAccessError": "sandbox.access_failed",
    "GKEExecStreamClosedError": "sandbox.lost",
    "GKEPodNotFoundError": "sandbox.lost",
    "RuntimeRequestError": "sandbox.engine_unavailable",
    "AddTestsDirError": "verifier.tests_not_sent",
    "DownloadVerifierDirError": "verifier.output_not_read",
    "ApiError": "provider.failed",
    "ApiRateLimitError": "provider.rate_limited",
    "ApiInternalServerError": "provider.failed",
    "ApiOverloadedError": "provider.overloaded",
    "ApiConnectionClosedError": "provider.unreachable",
    "ApiResponseStalledError": "provider.unreachable",
    "UnknownApiError": "provider.failed",
    "NetworkConnectionError": "provider.unreachable",
    "ApiConnectionError": "provider.unreachable",
    "ApiUsageLimitError": "provider.usage_limited",
    "RateLimitError": "provider.rate_limited",
    "InternalServerError": "provider.failed",
    "ServiceUnavailableError": "provider.overloaded",
    "APIConnectionError": "provider.unreachable",
    "APIError": "provider.failed",
    "Timeout": "provider.unreachable",
    "UnsupportedModelParametersError": "provider.request_invalid",
    "BadRequestError": "provider.request_invalid",
    "UnprocessableEntityError": "provider.request_invalid",
    "UnsupportedParamsError": "provider.request_invalid",
    "APIResponseValidationError": "provider.response_invalid",
    "BudgetExceededError": "provider.budget_exceeded",
    "VerifierTimeoutError": "verifier.timed_out",
    "RewardFileNotFoundError": "verifier.reward_missing",
    "RewardFileEmptyError": "verifier.reward_empty",
    "VerifierOutputParseError": "verifier.reward_invalid",
    "AgentAuthenticationError": "provider.authentication",
    "ModelNotFoundError": "provider.model_missing",
    "ApiProviderResourceNotFoundError": "provider.model_missing",
    "AuthenticationError": "provider.authentication",
    "PermissionDeniedError": "provider.authentication",
    "NotFoundError": "provider.model_missing",
    "ServiceOperationsUnsupportedError": "sandbox.operation_unsupported",
    "VercelScopeError": "sandbox.operation_unsupported",
    "DspyImportError": "agent.dependency_missing",
    "MissingExtraError": "agent.dependency_missing",
    "RegradeError": "verifier.regrade_failed",
    "CancelledError": "cancelled",
    "NonZeroAgentExitCodeError": "agent.exited",
    "AgentTimeoutError": "agent.timed_out",
    "ContextWindowExceededError": "agent.context_exceeded",
    "OutputTokenExceededError": "agent.output_exceeded",
    "ContextLengthExceededError": "agent.context_exceeded",
    "OutputLengthExceededError": "agent.output_exceeded",
    "AgentSafetyRefusalError": "agent.refused",
    "ContentPolicyViolationError": "agent.refused",
}

# What Harbor raises and its table does not name.
BESIDE_THE_TABLE: dict[str, str] = {"MissingModelCredentialError": "agent.key_missing"}

# The exceptions of our own overlay (harbor-patches/overlay/seatrial_harness/errors.py), by name.
OVERLAY: dict[str, str] = {
    "SandboxLostError": "sandbox.lost",
    "SandboxStartError": "sandbox.start_failed",
    "SandboxImageMissingError": "sandbox.image_missing",
    "SandboxPolicyUnsupportedError": "sandbox.policy_unsupported",
    "SandboxPolicyNotHeldError": "sandbox.policy_not_held",
    "SandboxEngineUnavailableError": "sandbox.engine_unavailable",
    "SandboxTransferError": "sandbox.transfer_failed",
    "SandboxPathMissingError": "sandbox.path_missing",
    "SandboxExecError": "sandbox.exec_refused",
    "AgentOutOfMemoryError": "agent.out_of_memory",
    "AgentUnknownError": "agent.unknown",
    "AgentSettingsError": "agent.settings_invalid",
    "AgentUnconfinedError": "agent.unconfined",
    "VariableMissingError": "run.variable_missing",
    "TaskInvalidError": "pack.invalid",
    "VerifierExitError": "verifier.exited",
    "VerifierOutOfMemoryError": "verifier.out_of_memory",
    "StraysSurvivedError": "verifier.strays_survived",
    "StorageExhausted": "sandbox.storage_exhausted",  # of an engine that can tell it
    "CommandTimedOutError": "sandbox.command_timed_out",
    "WorkerDiskFullError": "worker.disk_full",
    "HarnessUnavailable": "harness.failed",
    "HarnessMissing": "harness.failed",
    "ResultInvalid": "harness.result_invalid",
    "CallInvalid": "harness.failed",
}

# What ends a sandbox for memory, or fills its disk, is the fault of whoever ran in it at that time.
BY_PHASE: dict[tuple[str, Phase], str] = {
    ("sandbox.command_timed_out", Phase.AGENT_SETUP): "agent.setup_timed_out",
    ("sandbox.command_timed_out", Phase.VERIFY): "verifier.timed_out",
    ("agent.out_of_memory", Phase.VERIFY): "verifier.out_of_memory",
    ("sandbox.storage_exhausted", Phase.VERIFY): "verifier.storage_exhausted",
    ("sandbox.storage_exhausted", Phase.AGENT): "agent.storage_exhausted",
}


def failure(code: str, *, phase: Phase | None = None, exception: str | None = None) -> Failure:
    """The failure of this code; a code that is not in CODES becomes `internal.unknown`."""
    known = CODES.get(code) or CODES[UNKNOWN]
    return Failure(
        code=known.code,
        phase=phase or known.phase,
        fault=known.fault,
        retry=known.retry,
        scored=known.scored,
        exception=exception,
    )


def failure_of_exception(name: str, *, phase: Phase | None = None) -> Failure:
    """The failure behind a harness exception of this type name. An unknown name is never a score."""
    code = OVERLAY.get(name) or HARBOR.get(name) or BESIDE_THE_TABLE.get(name) or UNKNOWN
    if phase is not None:
        code = BY_PHASE.get((code, phase), code)
    return failure(code, phase=phase, exception=name)


def may_retry(failed: Failure, executions: int) -> bool:
    """Whether a new execution follows after `executions` of them (this one included)."""
    if failed.retry is Retry.NEVER:
        return False
    return executions < (CODES.get(failed.code) or CODES[UNKNOWN]).limit
