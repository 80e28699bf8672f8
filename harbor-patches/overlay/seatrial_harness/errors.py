"""Named exceptions. Harbor records a trial's exception by its class name, and the control plane's taxonomy maps each name."""

import errno

FULL = frozenset((errno.ENOSPC, errno.EDQUOT))


class SandboxLostError(RuntimeError):
    """The sandbox, or the worker that owns it, is gone."""


class SandboxStartError(RuntimeError):
    """The engine did not start the sandbox."""


class SandboxImageMissingError(RuntimeError):
    """The image is not where the trial runs."""


class SandboxPolicyUnsupportedError(RuntimeError):
    """The pack's network policy or a limit cannot be enforced here."""


class SandboxPolicyNotHeldError(RuntimeError):
    """The engine applied the network policy, and the sandbox shows that it does not hold."""


class SandboxEngineUnavailableError(RuntimeError):
    """The container engine did not answer."""


class SandboxTransferError(RuntimeError):
    """Files could not be copied into or out of the sandbox."""


class SandboxPathMissingError(FileNotFoundError):
    """A path does not exist in the sandbox."""


class SandboxExecError(RuntimeError):
    """A command could not be started in the sandbox."""


class CommandTimedOutError(TimeoutError):
    """A command used up its own time. A TimeoutError, so that Harbor takes it for the timeout of the phase it is in."""


class AgentOutOfMemoryError(RuntimeError):
    """The sandbox was ended for memory while the agent ran."""


class VerifierOutOfMemoryError(RuntimeError):
    """The sandbox, or the test script in it, was ended for memory before there was a reward."""


class VerifierExitError(RuntimeError):
    """The test script failed and left no reward."""


class StraysSurvivedError(RuntimeError):
    """Processes of the agent could not be ended before grading."""


class AgentUnknownError(ValueError):
    """There is no such agent, or its code cannot be imported."""


class AgentSettingsError(ValueError):
    """The agent does not take these settings."""


class WorkerDiskFullError(OSError):
    """The disk of the worker's machine is full. What a sandbox has no room for is another error."""


class VariableMissingError(ValueError):
    """The pack names a variable that nobody has given a value."""


class TaskInvalidError(ValueError):
    """Harbor cannot read the pack."""


BY_NAME: dict[str, type[Exception]] = {
    error.__name__: error
    for error in (
        SandboxLostError,
        SandboxStartError,
        SandboxImageMissingError,
        SandboxPolicyUnsupportedError,
        SandboxPolicyNotHeldError,
        SandboxEngineUnavailableError,
        SandboxTransferError,
        SandboxPathMissingError,
        SandboxExecError,
        AgentOutOfMemoryError,
        VerifierOutOfMemoryError,
        StraysSurvivedError,
        WorkerDiskFullError,
    )
}
"""What the worker may answer with. Any other name means that the sandbox is lost."""


def name_of(error: BaseException) -> str:
    """The name to record an exception by (patch P5): a full disk is no fault of whoever met it, also one class further out."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.errno in FULL:
            return WorkerDiskFullError.__name__
        found = found.__cause__
    return type(error).__name__
