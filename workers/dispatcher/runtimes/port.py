"""The seam between a trial and the engine that runs its sandbox: `Runtime` makes sandboxes, `Sandbox` is one of them.

Every method is safe to cancel at any await: whatever `start` managed to create, `stop` removes. A runtime refuses what
it cannot enforce (`PolicyUnsupported`) before anything of the trial has run; what it cannot hold but packs usually
declare all the same (disk space) stands in `Effective.unenforced`. No limit is ignored silently.
"""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Literal, Protocol

import msgspec

NetworkMode = Literal["public", "no-network", "allowlist"]
Stream = Literal["stdout", "stderr"]


class NetworkPolicy(msgspec.Struct, frozen=True):
    """Which peers a sandbox may reach. `allowed_hosts` (names, `*.suffix`, addresses, CIDR) counts for `allowlist` only."""

    mode: NetworkMode = "public"
    allowed_hosts: tuple[str, ...] = ()


class Labels(msgspec.Struct, frozen=True):
    """What every sandbox carries, so that a reaper can tell whose it is. All but `expires_at` are ids."""

    instance: str
    team: str
    run: str
    trial: str
    execution: str
    expires_at: float = 0.0
    """Unix seconds after which nobody may need the sandbox any more, whatever its lease says."""


class SandboxSpec(msgspec.Struct, frozen=True):
    """One sandbox to make. Sizes in MB are MiB, as the engines and Harbor mean them."""

    name: str
    """Which sandbox of the trial: `agent`, or the name of a separate verifier's. Unique within an execution."""
    image: str
    """An image that is present on the engine: id or digest reference. It is never pulled."""
    labels: Labels
    ttl_seconds: float
    """The engine ends the sandbox after this time even if the worker has fallen silent."""
    workdir: str | None = None
    """Absolute; made when the image lacks it. None: the image's own."""
    environment: dict[str, str] = {}
    folders: tuple[str, ...] = ()
    """Absolute folders to make, writable by everybody, before the first command."""
    network: NetworkPolicy = NetworkPolicy()
    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    pids: int = 1024


class ExecSpec(msgspec.Struct, frozen=True):
    """One command for `bash -c`. `user`: a name or uid, `uid:gid`, or None for the image's own."""

    command: str
    cwd: str | None = None
    environment: dict[str, str] = {}
    user: str | None = None
    timeout_seconds: float | None = None


class ExecResult(msgspec.Struct, frozen=True):
    return_code: int | None
    """None when the command was stopped at its timeout. 128 + n when signal n ended it."""
    timed_out: bool = False
    oom_killed: bool = False
    """A process of the sandbox was killed for memory while this command ran."""


class EgressSeen(msgspec.Struct, frozen=True):
    """What a sandbox can reach, as seen from inside its network namespace."""

    how: Literal["tried", "read"]
    """`tried`: routes were asked for from inside; `read`: the kernel's tables were read, which takes no right."""
    interfaces: tuple[str, ...]
    """That are up, the loopback left out."""
    routes: tuple[str, ...]
    """What there is a route to, of `public`, `public6`, `metadata` and `private`."""


class Effective(msgspec.Struct, frozen=True):
    """The isolation as the engine reports it for the running sandbox, not as it was asked for."""

    network: NetworkMode
    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    pids: int | None = None
    linux_capabilities: tuple[str, ...] = ()
    no_new_privileges: bool = False
    seccomp: str = ""
    """`default`, `unconfined` or the name of a profile; empty where the engine has no word for it."""
    unenforced: tuple[str, ...] = ()
    """Declared limits that this engine cannot hold, by field name (`storage_mb`)."""
    egress: EgressSeen | None = None
    """The network policy as probed, and found to hold; None where nobody could look."""


class Facts(msgspec.Struct, frozen=True):
    """What is known of a sandbox now; asked before it is removed, so that a failure can be told by type."""

    state: Literal["created", "running", "exited", "gone"]
    exit_code: int | None = None
    """Of the sandbox's first process, when it has ended."""
    oom_kills: int = 0
    """Processes killed for memory so far; at least 1 when the engine only tells that it happened."""
    peak_memory_bytes: int | None = None


class SandboxInfo(msgspec.Struct, frozen=True):
    """One row of `list_sandboxes`: what the reaper decides by."""

    id: str
    labels: Labels
    state: Literal["created", "running", "exited"]
    created_at: float
    """Unix seconds, of the engine's clock."""


class ImageFacts(msgspec.Struct, frozen=True):
    id: str
    digests: tuple[str, ...] = ()
    size_bytes: int = 0
    workdir: str = ""
    user: str = ""
    environment: tuple[str, ...] = ()


class Capabilities(msgspec.Struct, frozen=True):
    """What the engine behind a runtime can hold. Probed when the runtime is opened, not assumed."""

    network: frozenset[NetworkMode]
    switches_network: bool
    """`set_network` works on a running sandbox: phases may have different policies."""
    cpu_limit: bool
    memory_limit: bool
    pids_limit: bool
    storage_limit: bool
    lifeline: bool
    """The engine itself removes a sandbox when the worker dies."""


class RuntimeFault(Exception):
    """Something that a runtime could not do. The class is the code; the text is for people and holds no secret."""


class EngineUnavailable(RuntimeFault):
    """The engine does not answer. Start it, or correct SEATRIAL_DOCKER_HOST; a new execution may succeed."""


class ImageMissing(RuntimeFault):
    """The engine does not have the image. Build the revision again; sandboxes never pull."""


class PolicyUnsupported(RuntimeFault):
    """The engine cannot enforce a policy or limit that the pack declares. Use another runtime or change the pack."""


class PolicyNotHeld(RuntimeFault):
    """The engine says that a network policy is applied, and the sandbox itself shows that it is not. Look at the engine."""


class SandboxLost(RuntimeFault):
    """The sandbox has gone or stopped while it was needed, and not for a reason that lies in the trial."""


class SandboxOutOfMemory(RuntimeFault):
    """The sandbox was ended because it used more memory than the pack allows."""


class StartFailed(RuntimeFault):
    """The engine refused to create or start the sandbox."""


class StraysSurvived(RuntimeFault):
    """Processes in the sandbox could not be ended."""


class TransferFailed(RuntimeFault):
    """The engine could not copy files in or out: no space is left, or what is in the way is no folder."""


class ExecRefused(RuntimeFault):
    """The command could not be started in the sandbox: its folder, user or shell does not exist there."""


class PathMissing(RuntimeFault):
    """The path does not exist in the sandbox."""


class TransferTooLarge(RuntimeFault):
    """More bytes or files were to be copied than a trial may move."""


Output = Callable[[Stream, bytes], Awaitable[None]]


class Sandbox(Protocol):
    """One sandbox. Made by `Runtime.sandbox` without I/O; exists from `start` until `stop`."""

    @property
    def id(self) -> str:
        """The engine's name for it; empty before `start`."""
        ...

    async def start(self) -> Effective:
        """Create and start it. Raises StartFailed, ExecRefused, ImageMissing, PolicyUnsupported, PolicyNotHeld,
        EngineUnavailable."""
        ...

    async def exec(self, spec: ExecSpec, on_output: Output) -> ExecResult:
        """Run a command to its end. On timeout or cancel every process that it started is killed first.

        Raises ExecRefused, SandboxLost, SandboxOutOfMemory, EngineUnavailable.
        """
        ...

    async def exists(self, path: str) -> bool:
        """Whether there is anything at a path. Raises SandboxLost, EngineUnavailable."""
        ...

    async def put(self, folder: str, tar: AsyncIterable[bytes]) -> None:
        """Unpack a plain tar stream into a folder, which is made when it lacks. Raises SandboxLost, TransferFailed."""
        ...

    def get(self, path: str, limit_bytes: int) -> AsyncIterator[bytes]:
        """A plain tar stream of a path; `folder/.` means its contents. Raises PathMissing, TransferTooLarge, SandboxLost."""
        ...

    async def set_network(self, policy: NetworkPolicy) -> Effective:
        """Change what the running sandbox may reach; what then holds, as after `start`. Raises PolicyUnsupported,
        PolicyNotHeld, SandboxLost."""
        ...

    async def kill_strays(self) -> int:
        """Kill every process but the sandbox's own first one; return how many there were. None is left on return.

        Raises StraysSurvived, SandboxLost, EngineUnavailable.
        """
        ...

    async def facts(self) -> Facts:
        """What is known now; state `gone` when the engine knows it no more. Raises EngineUnavailable."""
        ...

    async def stop(self) -> None:
        """Remove it, with everything in it. Also after a failed or cancelled start, and as often as one likes.

        Raises EngineUnavailable when the removal could not be told to the engine: then lifeline, expiry and reaper remain.
        """
        ...


class Runtime(Protocol):
    """One engine. Open it with the `open_runtime` of its module."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    async def image(self, reference: str) -> ImageFacts:
        """Raises ImageMissing, EngineUnavailable."""
        ...

    def sandbox(self, spec: SandboxSpec) -> Sandbox: ...

    async def list_sandboxes(self, instance: str) -> list[SandboxInfo]:
        """All sandboxes with the label of this instance, whoever made them. Raises EngineUnavailable."""
        ...

    async def remove(self, sandbox_id: str) -> None:
        """Remove one by its id; one that is gone already is no error. Raises EngineUnavailable."""
        ...

    async def close(self) -> None:
        """Close the connections. Sandboxes that are still up lose their lifeline, and so end."""
        ...
