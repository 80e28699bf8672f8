"""task.toml and the names of a pack's files -> `Pack`, or `PackInvalid` with everything that is wrong.

Pure. Harbor 0.26.0 is the measure: what it refuses is refused here, and what it drops silently is a warning here. Three
things are stricter: a schema version that does not exist yet, numbers written as strings, and limits of zero, less or infinity.
"""

import re
import tomllib
import unicodedata
from typing import Any

import msgspec

from app.domain import pack_environment, pack_files
from app.domain.pack import (
    SCHEMA_VERSIONS,
    AgentPhase,
    Artifact,
    Author,
    Collect,
    ErrorCode,
    MinimumReward,
    Pack,
    PackError,
    PackInvalid,
    Step,
    Task,
    VerifierMode,
    VerifierPhase,
)
from app.domain.pack_table import Problems, Table

TASK_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*/[a-zA-Z0-9][a-zA-Z0-9._-]*")
SERVICE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
UNPORTABLE = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')
DEVICE = re.compile(r"(CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(COM|LPT)[1-9¹²³])", re.IGNORECASE)
"""Names that Windows keeps for devices, with any extension."""
MAIN_SERVICE = "main"
TEXT_LIMIT = 1024 * 1024
"""Characters of a task.toml; the largest known has 12 thousand."""
SYNTAX_PLACE = re.compile(r"\(at line (\d+), column (\d+)\)$")


def parse(text: str, files: frozenset[str]) -> Pack:
    """Read a pack. `files`: the paths of all its files, relative to its root. Raises PackInvalid."""
    problems = Problems()
    root = Table(_load(text), "", problems)
    schema_version = _schema_version(root)
    task = _task(root.table("task"))
    metadata = root.table("metadata")
    agent = _agent(root.table("agent"))
    verifier = _verifier(root.table("verifier"), VerifierMode.SHARED)
    environment = pack_environment.read(root.table("environment"))
    solution = root.table("solution")
    solution_env = pack_environment.variables(solution, "env") if solution else ()
    if solution is not None:
        solution.close()
    steps = root.each("steps", _step)
    _unique(steps, problems)
    strategy = root.choice("multi_step_reward_strategy", ("mean", "final"))
    artifacts = _artifacts(root)
    source = root.text("source")
    root.close()
    pack = Pack(
        schema_version=schema_version,
        image=pack_files.image(environment.docker_image),
        task=task,
        agent=agent,
        verifier=verifier,
        environment=environment,
        solution_env=solution_env,
        steps=steps,
        step_reward=(strategy or "mean") if steps else None,
        artifacts=artifacts,
        source=source,
        metadata=_json(root.raw("metadata") if metadata else {}),
        warnings=tuple(problems.warnings),
    )
    pack_files.check(pack, files, problems)
    if problems.errors:
        raise PackInvalid(tuple(problems.errors))
    return pack


def _load(text: str) -> dict[str, Any]:
    if len(text) > TEXT_LIMIT:
        raise PackInvalid((PackError("", ErrorCode.SYNTAX, f"is longer than {TEXT_LIMIT} characters"),))
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # The place is in the message's fixed tail only (before Python 3.14).
        place = SYNTAX_PLACE.search(str(error))
        line, column = (int(place[1]), int(place[2])) if place else _end(text)
        message = SYNTAX_PLACE.sub("", str(error)).removesuffix("(at end of document)").strip()
        raise PackInvalid(
            (PackError("", ErrorCode.SYNTAX, f"{message} (line {line}, column {column})", line, column),)
        ) from error
    except (RecursionError, ValueError) as error:
        # Nested too deep, or a number of more digits than Python converts.
        raise PackInvalid((PackError("", ErrorCode.SYNTAX, "is not readable TOML"),)) from error


def _end(text: str) -> tuple[int, int]:
    return text.count("\n") + 1, len(text) - (text.rfind("\n") + 1) + 1


def _schema_version(root: Table) -> str:
    legacy = root.text("version", empty=False)
    version = root.text("schema_version", empty=False) or legacy or SCHEMA_VERSIONS[-1]
    if version not in SCHEMA_VERSIONS:
        key = "schema_version" if "schema_version" in root else "version"
        root.wrong(key, ErrorCode.UNSUPPORTED, f"is none of the known versions {', '.join(SCHEMA_VERSIONS)}")
    return version


def _task(table: Table | None) -> Task | None:
    if table is None:
        return None
    name = table.required_text("name")
    if name and (not TASK_NAME.fullmatch(name) or ".." in name):
        table.wrong("name", ErrorCode.VALUE, "must be `organisation/name` of letters, digits, `.`, `_` and `-`")
    task = Task(
        name=name,
        version=table.text("version", empty=False),
        description=table.text("description") or "",
        authors=table.each("authors", _author),
        keywords=table.texts("keywords"),
    )
    table.close()
    return task


def _author(table: Table) -> Author:
    author = Author(table.required_text("name"), table.text("email"))
    table.close()
    return author


def _agent(table: Table | None) -> AgentPhase:
    if table is None:
        return AgentPhase()
    phase = AgentPhase(
        timeout_seconds=table.number("timeout_sec"),
        user=_user(table),
        network=pack_environment.network(table),
    )
    table.close()
    return phase


def _verifier(table: Table | None, default: VerifierMode | None) -> VerifierPhase:
    """Without a mode of its own, a verifier with an environment is separate; else it is as `default` says."""
    if table is None:
        return VerifierPhase(mode=default)
    mode = table.choice("environment_mode", tuple(VerifierMode))
    inner = table.table("environment")
    environment = pack_environment.read(inner) if inner else None
    if mode == VerifierMode.SHARED and environment is not None:
        table.wrong("environment_mode", ErrorCode.CONFLICT, "is shared, so there can be no [verifier.environment]")
    implied = VerifierMode.SEPARATE if environment is not None else default
    timeout = table.number("timeout_sec")
    phase = VerifierPhase(
        timeout_seconds=600.0 if timeout is None else timeout,
        mode=VerifierMode(mode) if mode else implied,
        env=pack_environment.variables(table, "env"),
        user=_user(table),
        network=pack_environment.network(table),
        environment=environment,
        collect=table.each("collect", _collect),
    )
    table.close()
    return phase


def _collect(table: Table) -> Collect:
    timeout = table.number("timeout_sec")
    collect = Collect(
        command=table.required_text("command"),
        service=_service(table) or MAIN_SERVICE,
        timeout_seconds=60.0 if timeout is None else timeout,
        user=_user(table),
    )
    table.close()
    return collect


def _user(table: Table) -> str | None:
    value = table.raw("user")
    if value is None or (isinstance(value, str) and value):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32:
        return str(value)
    table.wrong("user", ErrorCode.VALUE, "must be a user's name or number")
    return None


def _service(table: Table) -> str | None:
    value = table.text("service")
    if value is None:
        return None
    value = value.strip()
    if not SERVICE.fullmatch(value):
        table.wrong("service", ErrorCode.VALUE, "must be a compose service's name")
        return None
    return value


def _step(table: Table) -> Step:
    name = table.required_text("name")
    if name and not _portable(name):
        table.wrong("name", ErrorCode.VALUE, "must be usable as a folder's name on every system, of at most 255 bytes")
    step = Step(
        name=name,
        agent=_agent(table.table("agent")),
        verifier=_verifier(table.table("verifier"), None),
        min_reward=_min_reward(table),
        healthcheck=pack_environment.healthcheck(table),
        artifacts=_artifacts(table),
    )
    table.close()
    return step


def _portable(name: str) -> bool:
    stem = name.partition(".")[0].rstrip(" ")
    return not (
        name in (".", "..")
        or name.endswith((".", " "))
        or UNPORTABLE.search(name)
        or DEVICE.fullmatch(stem)
        or len(name.encode("utf-8", "surrogatepass")) > 255
    )


def _unique(steps: tuple[Step, ...], problems: Problems) -> None:
    seen: dict[str, int] = {}
    for place, step in enumerate(steps):
        first = seen.setdefault(unicodedata.normalize("NFC", step.name).casefold(), place)
        if first != place and step.name:
            problems.add(f"steps[{place}].name", ErrorCode.CONFLICT, f"is the name of steps[{first}] on some systems")


def _min_reward(table: Table) -> tuple[MinimumReward, ...]:
    value = table.raw("min_reward")
    if value is None:
        return ()
    if not isinstance(value, dict):
        number = table.number("min_reward", least=float("-inf"))
        return () if number is None else (MinimumReward("reward", number),)
    inner = Table(value, table.field("min_reward"), table.problems)  # pyright: ignore[reportUnknownArgumentType]
    numbers = ((str(key), inner.number(str(key), least=float("-inf"))) for key in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return tuple(MinimumReward(key, number) for key, number in numbers if number is not None)


def _artifacts(table: Table) -> tuple[Artifact, ...]:
    found: list[Artifact] = []
    for place, item in enumerate(table.items("artifacts")):
        here = f"artifacts[{place}]"
        if isinstance(item, str):
            inner = Table({"source": item}, table.field(here), table.problems)
        elif isinstance(item, dict):
            inner = Table(item, table.field(here), table.problems)  # pyright: ignore[reportUnknownArgumentType]
        else:
            table.wrong(here, ErrorCode.TYPE, "must be a path or a table")
            continue
        found.append(_artifact(inner))
    return tuple(found)


def _artifact(table: Table) -> Artifact:
    source, service = table.required_text("source"), _service(table)
    if ".." in source.split("/"):
        table.wrong("source", ErrorCode.VALUE, "must not hold `..`")
    elif service not in (None, MAIN_SERVICE) and not source.startswith("/"):
        table.wrong("source", ErrorCode.VALUE, "must be absolute, since it comes from another service")
    destination = table.text("destination") or None
    if destination is not None and not _inside(destination):
        table.wrong(
            "destination", ErrorCode.VALUE, "must be a relative path with forward slashes, inside the artifacts"
        )
    elif destination is not None and destination.rstrip("/") == "manifest.json":
        table.wrong("destination", ErrorCode.VALUE, "must not be manifest.json, which lists the artifacts")
    artifact = Artifact(source, destination, table.texts("exclude"), service)
    table.close()
    return artifact


def _inside(path: str) -> bool:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return bool(parts) and not path.startswith("/") and "\\" not in path and ".." not in parts


def _json(metadata: object) -> str:
    """TOML's dates become ISO 8601 text; its infinities, which JSON has not, become null."""
    return msgspec.json.encode(metadata, order="sorted").decode()
