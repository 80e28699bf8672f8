"""task.toml: what is read, what is refused by field, what is only reported."""

import contextlib
import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.pack import (
    Artifact,
    ErrorCode,
    FromDockerfile,
    FromImage,
    Header,
    MinimumReward,
    Network,
    NetworkMode,
    Pack,
    PackInvalid,
    Severity,
    Variable,
    VerifierMode,
)
from app.domain.pack_lint import lint, warnings_of
from app.domain.pack_parse import parse

FILES = frozenset({"task.toml", "instruction.md", "environment/Dockerfile", "tests/test.sh", "solution/solve.sh"})


def refused(text: str, files: frozenset[str] = FILES) -> dict[str, ErrorCode]:
    with pytest.raises(PackInvalid) as invalid:
        parse(text, files)
    assert all(error.message for error in invalid.value.errors)
    return {error.field: error.code for error in invalid.value.errors}


def test_an_empty_file_is_a_pack_of_defaults() -> None:
    pack = parse("", FILES)
    assert pack == Pack(schema_version="1.4", image=FromDockerfile())
    assert pack.verifier.mode is VerifierMode.SHARED
    assert pack.agent_network == pack.verifier_network == Network(NetworkMode.PUBLIC)


def test_every_key_is_read() -> None:
    pack = parse(EVERYTHING, FILES)
    assert pack.warnings == ()
    assert pack.task is not None
    assert (pack.task.name, pack.task.version, pack.task.authors[0].email) == ("org/name", "2", "a@example.org")
    assert json.loads(pack.metadata) == {"anything": {"goes": [1, 2.5, "x"]}, "on": "2026-01-02"}
    assert (pack.agent.timeout_seconds, pack.agent.user) == (90.0, "1000")
    assert pack.agent_network == Network(NetworkMode.NO_NETWORK)
    assert pack.verifier_network == Network(NetworkMode.ALLOWLIST, ("a.example", "*.b.example", "10.0.0.0/8", "::1"))
    assert pack.verifier.env == (Variable("A", literal="b"), Variable("KEY", source="TOKEN"))
    assert pack.verifier.collect[0].command == "collect"
    environment = pack.environment
    assert (environment.cpus, environment.memory_mb, environment.storage_mb) == (1.5, 4096, 512)
    assert environment.env == (Variable("C", source="C", default="a:-b"), Variable("D", literal="x${E}"))
    assert environment.healthcheck is not None
    assert (environment.healthcheck.retries, environment.healthcheck.interval_seconds) == (9, 0.5)
    stdio, http = environment.mcp_servers
    assert (stdio.transport, stdio.command, stdio.args) == ("stdio", "serve", ("-v",))
    assert (http.transport, http.headers) == ("streamable-http", (Header("Authorization", "Bearer ${TOKEN}"),))
    assert pack.solution_env == (Variable("S", literal=""),)
    assert pack.artifacts == (Artifact("/app/x"), Artifact("/app/y", "y", ("*.o",)))
    assert {variable.source for variable in pack.variables} == {"TOKEN", "C"}


EVERYTHING = """
schema_version = "1.3"
source = "somewhere"
artifacts = ["/app/x", {source = "/app/y", destination = "y", exclude = ["*.o"]}]
[task]
name = "org/name"
version = "2"
description = "d"
authors = [{name = "A", email = "a@example.org"}]
keywords = ["k"]
[metadata]
anything = {goes = [1, 2.5, "x"]}
on = 2026-01-02
[agent]
timeout_sec = 90
user = 1000
network_mode = "no-network"
[verifier]
timeout_sec = 30.5
user = "nobody"
network_mode = "allowlist"
allowed_hosts = ["A.example.", "*.b.example", "10.0.0.0/8", "0:0::1"]
env = {A = "b", KEY = "${TOKEN}"}
environment_mode = "shared"
[[verifier.collect]]
command = "collect"
timeout_sec = 5
[environment]
build_timeout_sec = 1200
os = "Linux"
cpus = 1.5
memory = "4G"
memory_mb = 4096
storage = "512m"
gpus = 0
gpu_types = []
skills_dir = "/skills"
workdir = "/app"
env = {C = "${C:-a:-b}", D = "x${E}"}
healthcheck = {command = "true", interval_sec = 0.5, retries = 9}
[[environment.mcp_servers]]
name = "one"
transport = "stdio"
command = "serve"
args = ["-v"]
[[environment.mcp_servers]]
name = "two"
transport = "http"
url = "http://two:8000/mcp"
headers = {Authorization = "Bearer ${TOKEN}"}
[solution]
env = {S = ""}
"""

STEPS = """
multi_step_reward_strategy = "final"
[[steps]]
name = "one"
min_reward = 0.5
[steps.agent]
timeout_sec = 5
[[steps]]
name = "two"
min_reward = {reward = 1, style = 0.25}
artifacts = ["/app/z"]
healthcheck = {command = "x"}
[steps.verifier]
environment_mode = "separate"
"""


def test_steps_are_read_with_their_own_files() -> None:
    files = frozenset({"environment/Dockerfile", "steps/one/instruction.md", "steps/one/tests/test.sh"})
    files |= {"steps/two/instruction.md", "tests/test.sh"}
    pack = parse(STEPS, files)
    assert pack.step_reward == "final"
    one, two = pack.steps
    assert one.min_reward == (MinimumReward("reward", 0.5),)
    assert two.min_reward == (MinimumReward("reward", 1.0), MinimumReward("style", 0.25))
    assert (one.verifier.mode, two.verifier.mode) == (None, VerifierMode.SEPARATE)
    assert refused(STEPS, files - {"steps/two/instruction.md", "tests/test.sh"}) == {
        "steps/two/instruction.md": ErrorCode.MISSING_FILE,
        "steps/two/tests/test.sh": ErrorCode.MISSING_FILE,
    }


WRONG: dict[str, tuple[str, dict[str, ErrorCode]]] = {
    "a type": ("[agent]\ntimeout_sec = 'long'", {"agent.timeout_sec": ErrorCode.TYPE}),
    "a boolean for a number": ("[environment]\ncpus = true", {"environment.cpus": ErrorCode.TYPE}),
    "a table for a list": ("[steps]\nname = 'x'", {"steps": ErrorCode.TYPE}),
    "a list for a table": ("environment = []", {"environment": ErrorCode.TYPE}),
    "an element": ("artifacts = ['/x', 3]", {"artifacts[1]": ErrorCode.TYPE}),
    "infinity": ("[agent]\ntimeout_sec = inf", {"agent.timeout_sec": ErrorCode.VALUE}),
    "zero time": ("[agent]\ntimeout_sec = 0", {"agent.timeout_sec": ErrorCode.VALUE}),
    "half a mebibyte": ("[environment]\nmemory_mb = 0.5", {"environment.memory_mb": ErrorCode.TYPE}),
    "a size": ("[environment]\nmemory = '4 GB'", {"environment.memory": ErrorCode.VALUE}),
    "sizes that differ": (
        "[environment]\nmemory = '4G'\nmemory_mb = 4000",
        {"environment.memory": ErrorCode.CONFLICT},
    ),
    "a version": ("schema_version = '9.9'", {"schema_version": ErrorCode.UNSUPPORTED}),
    "an old version": ("version = '0.9'", {"version": ErrorCode.UNSUPPORTED}),
    "a name without organisation": ("[task]\nname = 'hello'", {"task.name": ErrorCode.VALUE}),
    "no name": ("[task]\ndescription = ''", {"task.name": ErrorCode.REQUIRED}),
    "a network": ("[environment]\nnetwork_mode = 'some'", {"environment.network_mode": ErrorCode.VALUE}),
    "hosts without an allowlist": (
        "[environment]\nnetwork_mode = 'public'\nallowed_hosts = ['a.example']",
        {"environment.allowed_hosts": ErrorCode.CONFLICT},
    ),
    "hosts of a phase without a mode": ("[agent]\nallowed_hosts = []", {"agent.allowed_hosts": ErrorCode.CONFLICT}),
    "a URL as a host": (
        "[agent]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['a.example', 'http://b.example', '*.10.0.0.1', 'a:80']",
        {f"agent.allowed_hosts[{place}]": ErrorCode.VALUE for place in (1, 2, 3)},
    ),
    "a network with host bits": (
        "[agent]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['10.0.0.1/8']",
        {"agent.allowed_hosts[0]": ErrorCode.VALUE},
    ),
    "shared with an environment": (
        "[verifier]\nenvironment_mode = 'shared'\n[verifier.environment]\ncpus = 1",
        {"verifier.environment_mode": ErrorCode.CONFLICT},
    ),
    "windows": ("[environment]\nos = 'Windows'", {"environment.os": ErrorCode.UNSUPPORTED}),
    "gpus": ("[environment]\ngpus = 2", {"environment.gpus": ErrorCode.UNSUPPORTED}),
    "a tpu": ("[environment]\ntpu = {type = 'v4', topology = '2x2'}", {"environment.tpu": ErrorCode.UNSUPPORTED}),
    "a server without url": (
        "[[environment.mcp_servers]]\nname = 'x'",
        {"environment.mcp_servers[0].url": ErrorCode.REQUIRED},
    ),
    "a literal credential": (
        "[[environment.mcp_servers]]\nname = 'x'\nurl = 'http://x'\nheaders = {Authorization = 'Bearer abc'}",
        {"environment.mcp_servers[0].headers.Authorization": ErrorCode.VALUE},
    ),
    "a credential as a default": (
        "[[environment.mcp_servers]]\nname = 'x'\nurl = 'http://x'\nheaders = {X-Api-Key = '${K:-abc}'}",
        {"environment.mcp_servers[0].headers.X-Api-Key": ErrorCode.VALUE},
    ),
    "a way out": ("artifacts = [{source = '/a/../b'}]", {"artifacts[0].source": ErrorCode.VALUE}),
    "a destination outside": (
        "artifacts = [{source = '/a', destination = '../b'}, {source = '/a', destination = '/b'}]",
        {"artifacts[0].destination": ErrorCode.VALUE, "artifacts[1].destination": ErrorCode.VALUE},
    ),
    "the manifest's place": (
        "artifacts = [{source = '/a', destination = 'manifest.json'}]",
        {"artifacts[0].destination": ErrorCode.VALUE},
    ),
    "another service": (
        "artifacts = [{source = '/a', service = 'db'}]",
        {"artifacts[0].service": ErrorCode.UNSUPPORTED},
    ),
    "a reward table": (
        "[[steps]]\nname = 'a'\nmin_reward = {reward = 'x'}",
        {
            "steps[0].min_reward.reward": ErrorCode.TYPE,
            "steps/a/instruction.md": ErrorCode.MISSING_FILE,
        },
    ),
    "several at once": (
        "[agent]\ntimeout_sec = 'x'\n[environment]\ncpus = -1\n[[verifier.collect]]\nuser = []",
        {
            "agent.timeout_sec": ErrorCode.TYPE,
            "environment.cpus": ErrorCode.VALUE,
            "verifier.collect[0].command": ErrorCode.REQUIRED,
            "verifier.collect[0].user": ErrorCode.VALUE,
        },
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_by_its_field(name: str) -> None:
    text, errors = WRONG[name]
    assert refused(text) == errors


@pytest.mark.parametrize("name", ["", ".", "a/b", "a\\b", "CON", "nul.txt", "x ", "x.", "a" * 256, "\u0007"])
def test_a_step_is_named_like_a_folder_on_every_system(name: str) -> None:
    assert "steps[0].name" in refused(f"[[steps]]\nname = {json.dumps(name)}")


def test_steps_of_one_name_on_some_systems_are_refused() -> None:
    text = "".join(f"[[steps]]\nname = '{name}'\n" for name in ("é", "e\u0301", "É"))
    errors = refused(text)
    assert {errors["steps[1].name"], errors["steps[2].name"]} == {ErrorCode.CONFLICT}


def test_syntax_errors_have_line_and_column() -> None:
    with pytest.raises(PackInvalid) as invalid:
        parse("[agent]\ntimeout_sec = {max}\n", FILES)
    (error,) = invalid.value.errors
    assert (error.code, error.line) == (ErrorCode.SYNTAX, 2)
    assert error.column is not None
    assert error.column >= 15
    with pytest.raises(PackInvalid) as invalid:
        parse("[agent]\nname = '''abc", FILES)
    assert invalid.value.errors[0].line == 2


@pytest.mark.parametrize("text", ["a = " + "[" * 5000 + "]" * 5000, "a = " + "9" * 10_000, "x" * 2_000_000])
def test_a_file_that_would_exhaust_the_parser_is_refused(text: str) -> None:
    assert refused(text) == {"": ErrorCode.SYNTAX}


def test_a_key_that_nobody_reads_is_reported_with_its_place() -> None:
    text = "[agent]\nkwargs = {a = 1}\n[environment]\nmemroy_mb = 3\n[[steps]]\nname = 'a'\nverifer = 1\n[tests]\nx = 1"
    pack = parse(text, FILES | {"steps/a/instruction.md"})
    assert [finding.field for finding in pack.warnings] == [
        "agent.kwargs",
        "environment.memroy_mb",
        "steps[0].verifer",
        "tests",
    ]
    assert lint(pack, FILES)[: len(pack.warnings)] == pack.warnings


def test_missing_files_are_named() -> None:
    assert set(refused("", frozenset())) == {"environment/Dockerfile", "instruction.md", "tests/test.sh"}
    pack = parse("[environment]\ndocker_image = 'debian:12'", FILES - {"environment/Dockerfile"})
    assert pack.image == FromImage("debian:12")
    assert parse("[environment]\ndocker_image = 'debian:12'", FILES).image == FromImage("debian:12")


def test_a_compose_pack_is_valid_and_unsupported() -> None:
    with pytest.raises(PackInvalid) as invalid:
        parse("", FILES | {"environment/docker-compose.yaml"})
    assert invalid.value.unsupported
    with pytest.raises(PackInvalid) as invalid:
        parse("[environment]\ncpus = 'x'", FILES | {"environment/docker-compose.yaml"})
    assert not invalid.value.unsupported


@pytest.mark.parametrize(
    ("text", "extra"),
    [
        ("[verifier]\nenvironment_mode = 'separate'", {"tests/Dockerfile"}),
        ("[verifier.environment]\ndocker_image = 'x'", set[str]()),
    ],
)
def test_a_separate_verifier_with_another_image_is_unsupported(text: str, extra: set[str]) -> None:
    assert set(refused(text, FILES | extra).values()) == {ErrorCode.UNSUPPORTED}
    assert parse("[verifier]\nenvironment_mode = 'separate'", FILES).verifier.mode is VerifierMode.SEPARATE


def test_internet_of_older_packs_counts_where_nothing_else_is_said() -> None:
    assert parse("[environment]\nallow_internet = false", FILES).agent_network.mode is NetworkMode.NO_NETWORK
    assert parse("[environment]\nallow_internet = true", FILES).agent_network.mode is NetworkMode.PUBLIC
    both = "[environment]\nallow_internet = false\nnetwork_mode = 'public'"
    assert parse(both, FILES).agent_network.mode is NetworkMode.PUBLIC


def test_lint_tells_what_an_author_should_know() -> None:
    pack = parse("[environment]\ndocker_image = 'debian:12'\nenv = {A = '${B}'}", FILES)
    assert {finding.code for finding in lint(pack, FILES - {"solution/solve.sh"})} == {
        "unpinned_image",
        "unused_dockerfile",
        "no_agent_timeout",
        "no_limit",
        "shared_verifier",
        "public_network",
        "needs_variable",
        "no_solution",
    }
    careful = """
[agent]
timeout_sec = 9
[verifier]
environment_mode = "separate"
[environment]
network_mode = "no-network"
cpus = 1
memory_mb = 1
"""
    assert lint(parse(careful, FILES), FILES) == ()


def test_only_likely_mistakes_are_warnings_and_they_come_first() -> None:
    """What a pack leaves at its default is said to whoever lints it, and not at every build."""
    found = lint(parse("[environment]\nbogus = 1\nenv = {A = '${B}'}", FILES), FILES)
    assert [one.severity for one in found] == [Severity.WARNING] * 2 + [Severity.NOTE] * 5
    assert {one.code for one in found if one.severity is Severity.NOTE} == {
        "no_agent_timeout",
        "no_limit",
        "shared_verifier",
        "public_network",
    }
    assert warnings_of(parse("", FILES), FILES) == ()


def test_the_example_has_no_warnings() -> None:
    folder = Path(__file__).parents[2] / "examples" / "hello-world"
    files = frozenset(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())
    assert warnings_of(parse((folder / "task.toml").read_text(), files), files) == ()


def test_the_example_is_a_pack_without_errors() -> None:
    folder = Path(__file__).parents[2] / "examples" / "hello-world"
    files = frozenset(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    pack = parse((folder / "task.toml").read_text(), files)
    assert pack.schema_version == "1.4"
    assert pack.warnings == ()
    assert (folder / "solution" / "solve.sh").stat().st_mode & 0o100


scalars = st.one_of(st.booleans(), st.integers(-5, 5000), st.floats(allow_nan=False), st.text(max_size=8), st.dates())
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = [
    "schema_version",
    "version",
    "task",
    "metadata",
    "verifier",
    "agent",
    "environment",
    "solution",
    "source",
    "steps",
    "artifacts",
    "name",
    "authors",
    "timeout_sec",
    "user",
    "network_mode",
    "allowed_hosts",
    "env",
    "collect",
    "environment_mode",
    "docker_image",
    "os",
    "cpus",
    "memory_mb",
    "memory",
    "gpus",
    "gpu_types",
    "mcp_servers",
    "healthcheck",
    "command",
    "min_reward",
    "destination",
    "exclude",
    "service",
    "headers",
    "url",
    "transport",
]
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=25,
)


def toml(value: object) -> str:
    """Inline TOML of any value."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value) if isinstance(value, int | float) else str(value)


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), documents, max_size=6))
def test_any_document_is_a_pack_or_is_refused_by_fields(document: dict[str, object]) -> None:
    text = "\n".join(f"{key} = {toml(value)}" for key, value in document.items())
    try:
        pack = parse(text, FILES)
    except PackInvalid as refusal:
        errors = refusal.errors
    else:
        assert parse(text, FILES) == pack
        lint(pack, FILES)
        return
    assert errors
    assert all(error.field and error.code is not ErrorCode.SYNTAX for error in errors), errors


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_a_pack_or_is_refused(text: str) -> None:
    with contextlib.suppress(PackInvalid):
        parse(text, FILES)


@given(st.integers(1, 4096), st.sampled_from("KMGkmg"))
def test_sizes_of_older_packs_are_mebibytes(number: int, unit: str) -> None:
    expected = {"K": number // 1024, "M": number, "G": number * 1024}[unit.upper()]
    text = f"[environment]\nmemory = '{number}{unit}'"
    if expected:
        assert parse(text, FILES).environment.memory_mb == expected
    else:
        assert refused(text) == {"environment.memory": ErrorCode.VALUE}


# ---------------------------------------------------------------- Harbor's own parser as the oracle

ORACLE = """
import json, sys, warnings
warnings.simplefilter("ignore")
from harbor.models.task.config import TaskConfig
for text in json.load(sys.stdin):
    try:
        task = TaskConfig.model_validate_toml(text)
    except Exception as error:
        print(json.dumps(None))
        continue
    print(json.dumps({
        "schema": task.schema_version, "agent": task.agent.timeout_sec, "verifier": task.verifier.timeout_sec,
        "build": task.environment.build_timeout_sec, "cpus": task.environment.cpus, "memory": task.environment.memory_mb,
        "storage": task.environment.storage_mb, "image": task.environment.docker_image,
        "network": task.environment.network_mode.value, "hosts": task.environment.allowed_hosts or [],
        "env": sorted(task.environment.env), "steps": [step.name for step in task.steps or []],
        "artifacts": len(task.artifacts), "servers": [server.transport for server in task.environment.mcp_servers],
    }))
"""


def facts(pack: Pack) -> dict[str, object]:
    return {
        "schema": pack.schema_version,
        "agent": pack.agent.timeout_seconds,
        "verifier": pack.verifier.timeout_seconds,
        "build": pack.environment.build_timeout_seconds,
        "cpus": pack.environment.cpus,
        "memory": pack.environment.memory_mb,
        "storage": pack.environment.storage_mb,
        "image": pack.environment.docker_image,
        "network": pack.environment.network.mode.value,
        "hosts": list(pack.environment.network.allowed_hosts),
        "env": sorted(variable.name for variable in pack.environment.env),
        "steps": [step.name for step in pack.steps],
        "artifacts": len(pack.artifacts),
        "servers": [server.transport for server in pack.environment.mcp_servers],
    }


def harbors(harness: Path, texts: list[str]) -> list[dict[str, object] | None]:
    python = harness / "bin" / "python"
    if not python.exists():
        python = next(harness.glob("**/bin/python"))
    result = subprocess.run([python, "-c", ORACLE], input=json.dumps(texts), capture_output=True, text=True, check=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


def difference(text: str, harbor: dict[str, object] | None) -> object:
    """What the two parsers do not agree on, or None. What Seatrial does not offer yet may be refused here alone."""
    steps = [] if harbor is None else [f"steps/{name}/instruction.md" for name in harbor["steps"]]  # type: ignore[attr-defined]
    try:
        pack = parse(text, FILES | set(steps))
    except PackInvalid as invalid:
        return None if harbor is None or invalid.unsupported else invalid
    return None if facts(pack) == harbor else (facts(pack), harbor)


def real_packs() -> list[Path]:
    """Third-party files that are not part of the project: `TEST_TASKPACKS`, or beside the checkout."""
    root = Path(__file__).parents[2]
    folder = Path(os.environ.get("TEST_TASKPACKS") or root.parent / "shared" / "taskpacks")
    return sorted(folder.glob("**/task.toml")) if folder.is_dir() else []


@pytest.mark.harness
def test_harbor_reads_the_same_out_of_the_same_text(harness: Path) -> None:
    """Of every text of this module, and of real packs where they are at hand."""
    stricter = {"zero time", "infinity", "a version", "an old version", "a boolean for a number"}
    texts = {"everything": EVERYTHING, "steps": STEPS, "empty": ""}
    texts |= {name: text for name, (text, _) in WRONG.items() if name not in stricter}
    texts |= {str(path): path.read_text() for path in real_packs()}
    for (name, text), answer in zip(texts.items(), harbors(harness, list(texts.values())), strict=True):
        problem = difference(text, answer)
        assert problem is None, (name, problem)
