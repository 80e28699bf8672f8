"""A task pack as its task.toml describes it: schema 1.0 to 1.4 of Harbor's task format, as typed data.

`pack_parse.parse` makes a `Pack` or raises `PackInvalid`; `pack_lint.lint` tells what is allowed but unwise. Seconds and
mebibytes throughout. The format's source is Harbor 0.26.0's own models.
"""

import enum

import msgspec

SCHEMA_VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4")


class ErrorCode(enum.StrEnum):
    SYNTAX = "syntax"
    """Not TOML; `line` and `column` say where."""
    TYPE = "type"
    VALUE = "value"
    REQUIRED = "required"
    CONFLICT = "conflict"
    """Two settings that exclude each other."""
    MISSING_FILE = "missing_file"
    UNSUPPORTED = "unsupported"
    """A valid pack, that needs something which Seatrial does not offer yet."""


class PackError(msgspec.Struct, frozen=True):
    field: str
    """As in task.toml: `environment.memory_mb`, `steps[1].name`; for a missing file its path; empty for the file itself."""
    code: ErrorCode
    message: str
    line: int | None = None
    """From 1; of syntax errors only."""
    column: int | None = None


class PackInvalid(ValueError):
    """The pack cannot be used: `errors` is all that is wrong with it, in the order of the file."""

    def __init__(self, errors: tuple[PackError, ...]) -> None:
        self.errors = errors
        super().__init__("; ".join(f"{error.field or 'task.toml'}: {error.message}" for error in errors))

    @property
    def unsupported(self) -> bool:
        """Whether nothing is wrong with the pack but that it asks for more than Seatrial offers."""
        return all(error.code is ErrorCode.UNSUPPORTED for error in self.errors)


class Severity(enum.StrEnum):
    WARNING = "warning"
    """Probably not meant: said whenever the pack is built."""
    NOTE = "note"
    """A choice, or a default that nobody chose, and what it comes to: said to whoever asks for it."""


class Finding(msgspec.Struct, frozen=True):
    """Something that does not stop a pack, and that its author will want to know."""

    field: str
    code: str
    message: str
    severity: Severity = Severity.WARNING

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class NetworkMode(enum.StrEnum):
    PUBLIC = "public"
    NO_NETWORK = "no-network"
    ALLOWLIST = "allowlist"


class Network(msgspec.Struct, frozen=True):
    mode: NetworkMode = NetworkMode.PUBLIC
    allowed_hosts: tuple[str, ...] = ()
    """Host names, `*.suffix`, addresses and CIDR blocks; only of an allowlist."""


class Variable(msgspec.Struct, frozen=True):
    """One environment variable: a literal, or a template `${source}` / `${source:-default}` filled in where the pack runs."""

    name: str
    literal: str | None = None
    source: str | None = None
    default: str | None = None


class Healthcheck(msgspec.Struct, frozen=True):
    """With the meaning of Docker's HEALTHCHECK."""

    command: str
    interval_seconds: float = 5.0
    timeout_seconds: float = 30.0
    start_period_seconds: float = 0.0
    start_interval_seconds: float = 5.0
    retries: int = 3


class Header(msgspec.Struct, frozen=True):
    """An HTTP header; its value may hold `${VARIABLE}` among other text."""

    name: str
    value: str


class McpServer(msgspec.Struct, frozen=True):
    name: str
    transport: str
    """sse, stdio or streamable-http."""
    url: str | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    headers: tuple[Header, ...] = ()


class Environment(msgspec.Struct, frozen=True):
    network: Network = Network()
    build_timeout_seconds: float = 600.0
    docker_image: str | None = None
    os: str = "linux"
    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    gpus: int = 0
    gpu_types: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()
    mcp_servers: tuple[McpServer, ...] = ()
    skills_dir: str | None = None
    healthcheck: Healthcheck | None = None
    workdir: str | None = None


class AgentPhase(msgspec.Struct, frozen=True):
    timeout_seconds: float | None = None
    user: str | None = None
    """A name, or a number as text."""
    network: Network | None = None
    """Other than the environment's, while the agent works."""


class VerifierMode(enum.StrEnum):
    SHARED = "shared"
    SEPARATE = "separate"


class Collect(msgspec.Struct, frozen=True):
    """A command that runs after the agent, before artifacts are collected."""

    command: str
    service: str = "main"
    timeout_seconds: float = 60.0
    user: str | None = None


class VerifierPhase(msgspec.Struct, frozen=True):
    timeout_seconds: float = 600.0
    mode: VerifierMode | None = None
    """None, in a step: as the task's verifier has it."""
    env: tuple[Variable, ...] = ()
    user: str | None = None
    network: Network | None = None
    environment: Environment | None = None
    collect: tuple[Collect, ...] = ()


class Artifact(msgspec.Struct, frozen=True):
    source: str
    destination: str | None = None
    exclude: tuple[str, ...] = ()
    service: str | None = None


class MinimumReward(msgspec.Struct, frozen=True):
    key: str
    value: float


class Step(msgspec.Struct, frozen=True):
    name: str
    agent: AgentPhase = AgentPhase()
    verifier: VerifierPhase = VerifierPhase()
    min_reward: tuple[MinimumReward, ...] = ()
    """All must be reached, or the steps after this one are not taken."""
    healthcheck: Healthcheck | None = None
    artifacts: tuple[Artifact, ...] = ()


class Author(msgspec.Struct, frozen=True):
    name: str
    email: str | None = None


class Task(msgspec.Struct, frozen=True):
    """The `[task]` table: what the pack calls itself."""

    name: str
    """`organisation/name`."""
    version: str | None = None
    description: str = ""
    authors: tuple[Author, ...] = ()
    keywords: tuple[str, ...] = ()


class FromDockerfile(msgspec.Struct, frozen=True, tag="dockerfile"):
    """Build it: the folder is the build's context, the Dockerfile lies in it."""

    folder: str = "environment"
    dockerfile: str = "Dockerfile"


class FromImage(msgspec.Struct, frozen=True, tag="image"):
    """Use it as it is."""

    reference: str


class Pack(msgspec.Struct, frozen=True):
    schema_version: str
    image: FromDockerfile | FromImage
    task: Task | None = None
    agent: AgentPhase = AgentPhase()
    verifier: VerifierPhase = VerifierPhase(mode=VerifierMode.SHARED)
    environment: Environment = Environment()
    solution_env: tuple[Variable, ...] = ()
    steps: tuple[Step, ...] = ()
    step_reward: str | None = None
    """mean or final; None for a pack without steps."""
    artifacts: tuple[Artifact, ...] = ()
    source: str | None = None
    metadata: str = "{}"
    """The free `[metadata]` table as JSON, keys sorted."""
    warnings: tuple[Finding, ...] = ()
    """Keys that task.toml has and nobody reads: Harbor drops them silently."""

    @property
    def agent_network(self) -> Network:
        return self.agent.network or self.environment.network

    @property
    def verifier_network(self) -> Network:
        environment = self.verifier.environment or self.environment
        return self.verifier.network or environment.network

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Every template of the pack that must be filled in from outside, those without a default first seen first."""
        steps = tuple(variable for step in self.steps for variable in step.verifier.env)
        inner = self.verifier.environment.env if self.verifier.environment else ()
        everything = (*self.environment.env, *inner, *self.verifier.env, *self.solution_env, *steps)
        return tuple(variable for variable in everything if variable.source is not None)
