"""What happens to a system whose operator has secrets: trials that succeed, break and are cancelled, builds and requests that
fail. Everything that could be seen of it on the way is kept, by kind of place."""

import asyncio
import base64
import contextlib
import hashlib
import json
import os
import secrets
import stat
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.journeys.holds import eventually
from tests.journeys.packs import script, write_pack
from tests.journeys.system import ROOT, System
from tests.secrets import places
from tests.secrets.places import Place, Watch
from tests.secrets.searching import Found, Searcher

KINDS = (
    "processes",
    "harness child",
    "sandbox",
    "database",
    "JetStream",
    "server logs",
    "objects",
    "home",
    "archives",
    "answers",
    "problems",
    "command line",
    "failures to start",
    "temporary files",
)
DUMP = "dumping:Dump"
UP = ("app.local", "up")
RELAY = ("app.local.process", "relay,projector")
LINE_BYTES = 64 * 1024
LAST_FILE = "/app/marker.txt"
"""The last that the agent writes in its sandbox before it waits."""


@dataclass(repr=False)
class Story:
    secrets: dict[str, bytes]
    marker: str
    """No secret: what the agents print and the operator named, to be found wherever a secret of theirs would be."""
    places: dict[str, list[Place]] = field(default_factory=dict)
    memory: list[Place] = field(default_factory=list)
    """Of the harness child."""
    open_files: set[str] = field(default_factory=set)
    """Of the harness's processes."""
    seen: str = ""
    """What the agent in the harness child could read."""
    modes: dict[str, int] = field(default_factory=dict)
    """Of everything below the home; the names relative to it."""
    runs: dict[str, Any] = field(default_factory=dict)
    problems: list[tuple[str, int]] = field(default_factory=list)
    core_limits: dict[str, str] = field(default_factory=dict)
    _searched: dict[bytes, set[Found]] = field(default_factory=dict)

    def found(self, kind: str) -> list[tuple[str, Found]]:
        """Where which secret is, in what form."""
        searcher = Searcher(self.secrets)
        found: list[tuple[str, Found]] = []
        for where, content in self.places[kind]:
            if (digest := hashlib.sha256(content).digest()) not in self._searched:  # an artifact is in the archive too
                self._searched[digest] = searcher.search(content)
            found += ((where, what) for what in self._searched[digest])
        return found

    def marked(self, kind: str) -> bool:
        return any(self.marker.encode() in content for _, content in self.places[kind])


def new_secret() -> str:
    """Of no shape that a redactor knows, and with characters that every encoding writes in its own way."""
    return f"{secrets.token_urlsafe(18)}/+={secrets.token_urlsafe(18)}"


async def tell(folder: Path, docker_host: str, harness: Path, patch: pytest.MonkeyPatch) -> Story:
    began = places.now()
    marker = f"marker-{secrets.token_hex(12)}"
    given = {
        name: new_secret() for name in ("OPERATORS_TOKEN", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD")
    }
    for name, value in given.items():
        patch.setenv(name, value)
    patch.setenv("DOCKER_CONFIG", str(_logins(folder, given)))
    given["the starter's key"] = new_secret()
    story = Story({name: value.encode() for name, value in given.items()}, marker)
    system = System(folder, docker_host, harness, api_key=given["the starter's key"], log_level="debug", log_json=True)
    async with system.running():
        story.secrets |= _of_installation(system.home)
        with Watch(system.supervisor) as watch:
            await asyncio.gather(_trials(system, story, folder), _broken_starts(story, folder))
            await _requests(system, story)
            await _commands(system, story)
        assert watch.turns > 10, "processes were looked at all the while"
        story.places["processes"] = list(watch.places())
        story.places["database"] = [one async for one in places.database(system.database_url)]
        relay_url = (system.home / "run" / "nats-relay-url").read_text()
        story.places["JetStream"] = [one async for one in places.jetstream(relay_url)]
        story.modes = dict(_modes(system.home))
        for group in ("api", "dispatcher", "builder"):
            for pid in system.pids(group):
                lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
                story.core_limits[group] = next(line for line in lines if line.startswith("Max core file size"))
    secret_files = _secret_files(system.home)
    servers = [system.home / "postgres" / "data", system.home / "nats" / "jetstream"]
    story.places["objects"] = list(places.files(system.home / "objects"))
    story.places["home"] = list(places.files(system.home, but=[*secret_files, *servers, system.home / "objects"]))
    logs = [
        *(system.home / "logs").iterdir(),
        system.home / "postgres" / "postgres.log",
        system.home / "nats" / "nats.log",
    ]
    story.places["server logs"] = [(str(log), log.read_bytes()) for log in (*logs, system.log)]
    temporary = Path(tempfile.gettempdir())
    story.places["temporary files"] = [("names", "\n".join(os.listdir(temporary)).encode())]
    story.places["temporary files"] += places.recently_made(temporary, began)
    return story


# ------------------------------------------------------------ the secrets


def _logins(folder: Path, given: dict[str, str]) -> Path:
    """The operator's logins at registries, which the builder's docker command may use."""
    given["a registry's password"] = new_secret()
    login = base64.b64encode(f"operator:{given["a registry's password"]}".encode()).decode()
    config = folder / "docker"
    config.mkdir(mode=0o700)
    (config / "config.json").write_text(json.dumps({"auths": {"registry.invalid": {"auth": login}}}))
    return config


def _secret_files(home: Path) -> list[Path]:
    files = [path for path in (home / "keys").rglob("*") if path.is_file() and not path.name.endswith(".pub.pem")]
    files += [home / "run" / name for name in ("database-url", "nats-url", "nats-relay-url")]
    files += [home / "postgres" / "password", *(home / "nats").glob("*-password"), home / "nats" / "nats.conf"]
    return files


def _of_installation(home: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for path in _secret_files(home):
        text = path.read_text().strip()
        if path.suffix == ".pem":
            body = "".join(line for line in text.splitlines() if not line.startswith("-"))
            found[f"{path.name}, as text"] = body[-44:].encode()  # what comes before is the same in every key
            found[f"{path.name}, the key itself"] = base64.b64decode(body)[-32:]
        elif path.name == "local-admin":
            found[path.name] = text.rpartition("_")[2].encode()  # what comes before is its name
        elif path.name.endswith("password"):
            found[f"{path.parent.name}/{path.name}"] = text.encode()
    assert len(found) >= 6, found.keys()
    return found


def _modes(home: Path) -> Iterator[tuple[str, int]]:
    for path in home.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            yield str(path.relative_to(home)), path.lstat().st_mode


# ------------------------------------------------------------ what happens


async def _trials(system: System, story: Story, folder: Path) -> None:
    api = system.api
    good, bad = folder / "dumped", folder / "broken-build"
    for pack in (good, bad):
        write_pack(pack)
    look = "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/mounts 2>/dev/null | tr '\\0' '\\n'"
    script(
        good / "solution" / "solve.sh",
        f"echo {story.marker}",
        look,
        f"({look}) >/logs/agent/all.txt",
        "echo done >/app/answer.txt",
    )
    dockerfile = f"FROM seatrial-test-base:1\nRUN echo {story.marker}; {look}; exit 3\n"
    (bad / "environment" / "Dockerfile").write_text(dockerfile)
    revision, broken = await asyncio.gather(api.built(good, good.name), api.built(bad, bad.name))
    assert (revision["status"], broken["status"]) == ("ready", "rejected"), (revision, broken)

    def agent(**settings: Any) -> dict[str, Any]:
        return {"name": DUMP, "settings": {"marker": story.marker, **settings}}

    agents = {"oracle": {"name": "oracle"}, "dump": agent(), "breaks": agent(raises=True), "waits": agent(waits=True)}
    runs = {
        name: await api.post("/v1/runs", {"tasks": [good.name], "agent": one, "name": f"{story.marker} {name}"})
        for name, one in agents.items()
    }
    for name in ("oracle", "dump", "breaks"):
        story.runs[name] = await api.completed(runs[name])
    await _look_at_child(system, story)
    await api.post(f"/v1/runs/{runs['waits']['id']}/cancel")
    story.runs["waits"] = await api.completed(runs["waits"])
    story.places["archives"] = []
    for name in agents:
        for one in [one async for one in api.pages(f"/v1/runs/{runs[name]['id']}/evaluations")]:
            content = await _archive(system, one["id"])
            story.places["archives"] += places.unpacked(
                f"archive of {name}", content, lambda path: path.endswith("seen.txt")
            )
    own = [
        content
        for where, content in story.places["archives"]
        if "archive of dump!" in where and where.endswith("seen.txt")
    ]
    story.seen = b"".join(own).decode()


async def _archive(system: System, evaluation: str) -> bytes:
    """The evidence, when it has been sealed."""
    for _ in range(600):
        answer = await system.api.client.get(f"/v1/evaluations/{evaluation}/archive")
        if answer.is_success:
            return answer.content
        await asyncio.sleep(0.1)
    raise AssertionError(f"there is no archive: {answer.text}")


async def _look_at_child(system: System, story: Story) -> None:
    """While the agent of the only run that is left waits: its harness child, the fork servers and its sandbox."""
    host = system.settings["SEATRIAL_DOCKER_HOST"]

    async def waits() -> bool:
        sandboxes = await system.engine.sandboxes()
        return len(sandboxes) == 1 and await places.has_file(host, sandboxes[0]["Id"], LAST_FILE)

    await eventually(waits, 60, "the agent waits")
    (child,) = system.pids("harness child")
    story.memory.append((f"memory of {child}", places.memory(child)))
    for pid in (child, *system.pids("fork server")):
        story.places.setdefault("harness child", []).extend(places.process(pid))
        story.open_files |= places.open_files(pid)
    (container,) = await system.engine.sandboxes()
    found = places.engine(host, [container["Id"]], [container["ImageID"]])
    story.places["sandbox"] = [one async for one in found]


async def _requests(system: System, story: Story) -> None:
    """Requests that are refused, with a secret wherever one can be put; and answers to those that are not."""
    api, secret = system.api.client, new_secret()
    story.secrets["a request's"] = secret.encode()
    fine = {"tasks": ["dumped"], "agent": {"name": "oracle"}}
    bodies: list[Any] = [
        {**fine, "api_key": secret},
        {**fine, "secret": secret},
        {**fine, "trials": secret},
        {**fine, "agent": {"name": "oracle", "settings": {"api_key": secret}}},
        {**fine, "agent": {"name": "oracle", "settings": {"headers": {"Authorization": f"Bearer {secret}"}}}},
        {
            **fine,
            "agent": {"name": "oracle", "settings": {"url": f"https://user:{quote(secret, safe='')}@example.org/"}},
        },
        {**fine, "agent": {"name": "oracle", "settings": {"password": secret}}},
        {**fine, "agent": {"name": "oracle", "settings": {"provider": [{"token": secret}]}}},
        {**fine, "agent": {"name": secret}},
        {**fine, "agent": secret},
        {**fine, "tasks": [secret]},
        {**fine, "tasks": [{"task": "dumped", "revision": secret}]},
    ]
    content = [json.dumps(body).encode() for body in bodies]
    content += [f'{{"tasks": ["dumped"], "key": "{secret}'.encode(), secret.encode(), f'"{secret}"'.encode()]
    answers = [await api.post("/v1/runs", content=one, headers=_json_of(str(n))) for n, one in enumerate(content)]
    headers = [
        {"Authorization": f"Bearer {secret}"},
        {"Authorization": f"Basic {base64.b64encode(f'user:{secret}'.encode()).decode()}"},
        {"Authorization": secret},
        {"Seatrial-After": secret},
        {"Last-Event-ID": secret, "Accept": "text/event-stream"},
        {
            "If-None-Match": secret,
            "Range": secret,
            "X-Api-Key": secret,
            "Cookie": f"session={secret}",
            "X-Request-Id": secret,
        },
        {"Prefer": secret, "Accept": secret},
    ]
    answers += [
        await api.get("/v1/events", headers=one) for one in headers if "event-stream" not in one.get("Accept", "")
    ]
    answers += [await api.get("/v1/events", headers=headers[4])]
    queries = ("after", "page_token", "page_size", "token", secret)
    answers += [await api.get("/v1/events", params={name: secret}) for name in queries]
    paths = (
        "runs/{}",
        "trials/{}",
        "tasks/{}",
        "evaluations/{}/archive",
        "{}",
        "uploads/{}/content",
        "trials/{}/artifacts/{}",
    )
    answers += [await api.get("/v1/" + path.format(secret, secret)) for path in paths]
    answers += [await api.put(f"/v1/uploads/{secret}/content", content=secret.encode())]
    story.problems = [(f"{answer.request.method} {answer.request.url.path}", answer.status_code) for answer in answers]
    story.places["problems"] = [(_asked(answer), _whole(answer)) for answer in answers]
    shown = [
        "/openapi.json",
        "/docs",
        "/metrics",
        "/healthz",
        "/readyz",
        "/v1/runs",
        "/v1/events",
        "/v1/keys",
        "/v1/agents",
        "/v1/tasks",
    ]
    for run in story.runs.values():
        shown += [f"/v1/runs/{run['id']}", f"/v1/runs/{run['id']}/trials", f"/v1/runs/{run['id']}/logs"]
        async for trial in system.api.pages(f"/v1/runs/{run['id']}/trials"):
            shown += [f"/v1/trials/{trial['id']}", f"/v1/trials/{trial['id']}/logs", f"/v1/trials/{trial['id']}/events"]
    seen = [await api.get(path) for path in shown]
    assert not [(answer.url.path, answer.status_code) for answer in seen if answer.status_code >= 400]
    story.places["answers"] = [(answer.url.path, _whole(answer)) for answer in seen]


def _json_of(key: str) -> dict[str, str]:
    return {"Content-Type": "application/json", "Idempotency-Key": f"request-{key}"}


def _asked(answer: httpx.Response) -> str:
    """What was refused: enough to find the request, in a failing test, with the secret left out."""
    return f"{answer.request.method} {answer.request.url.path.count('/')} {answer.status_code} {answer.text[:60]!r}"


def _whole(answer: httpx.Response) -> bytes:
    return repr(answer.headers.multi_items()).encode() + b"\n" + answer.content


# ------------------------------------------------------------ commands


async def _commands(system: System, story: Story) -> None:
    """The command line, when it works and when it does not."""
    secret = new_secret()
    story.secrets["the command line's key"] = secret.encode()
    home = {"SEATRIAL_HOME": str(system.home), "SEATRIAL_DOCKER_HOST": system.settings["SEATRIAL_DOCKER_HOST"]}
    strange = {**home, "SEATRIAL_API_KEY": secret}
    away = {"SEATRIAL_API_URL": f"http://user:{secret}@127.0.0.1:1", "SEATRIAL_API_KEY": secret}
    run = story.runs["breaks"]["id"]
    commands: list[tuple[dict[str, str], list[str]]] = [
        (home, ["status"]),
        (home, ["runs", "list"]),
        (home, ["runs", "logs", run]),
        (home, ["admin", "audit"]),
        (strange, ["runs", "list"]),
        (away, ["runs", "list"]),
        ({**home, "SEATRIAL_HTTP_PORT": secret}, ["status"]),
        ({**home, "SEATRIAL_API_KEI": secret}, ["status"]),
        ({**home, "SEATRIAL_DATABASE_URL": f"postgresql://seatrial:{secret}@127.0.0.1:1/seatrial"}, ["admin", "audit"]),
    ]
    story.places["command line"] = await _printed(commands)


async def _broken_starts(story: Story, folder: Path) -> None:
    """Processes whose servers are not there, or whose URLs are wrong. Each is ended after a moment, unless it ended itself."""
    secret = new_secret()
    story.secrets["a broken URL's password"] = secret.encode()
    urls = (
        f"postgresql://seatrial:{quote(secret, safe='')}@127.0.0.1:1/seatrial",
        f"postgresql://seatrial:{secret}@127.0.0.1:1/seatrial",
        f"postgresql://seatrial@127.0.0.1:{secret}/seatrial",
    )
    starts: list[Awaitable[Place]] = []
    for number, url in enumerate(urls):
        home = folder / f"broken-{number}"
        home.mkdir()
        environment = {
            "SEATRIAL_HOME": str(home),
            "SEATRIAL_DATABASE_URL": url,
            "SEATRIAL_NATS_URL": url.replace("postgresql", "nats").partition("?")[0],
            "SEATRIAL_LOG_LEVEL": "debug",
        }
        starts += [_run([sys.executable, "-P", "-m", *(UP if number == 1 else RELAY)], environment, 1.0)]
    story.places["failures to start"] = await asyncio.gather(*starts)


async def _printed(commands: list[tuple[dict[str, str], list[str]]]) -> list[Place]:
    program = [sys.executable, "-P", "-m", "app"]
    return await asyncio.gather(
        *(_run([*program, *arguments], environment, 60.0) for environment, arguments in commands)
    )


async def _run(command: list[str], settings: dict[str, str], seconds: float) -> Place:
    """What a command prints on both outputs; one that goes on for so long after its first words (a process that waits for its
    servers) is ended."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SEATRIAL_")}
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**environment, **settings, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    printed = await process.stdout.read(LINE_BYTES)
    rest = asyncio.ensure_future(process.communicate())
    for end in (process.terminate, process.kill):
        await asyncio.wait({rest}, timeout=seconds)
        if not rest.done():
            end()
    printed += (await rest)[0]
    assert printed, f"{command[3:]} says nothing"
    return " ".join(command[3:]), printed


def is_open_to_others(mode: int) -> bool:
    return bool(mode & (stat.S_IRWXG | stat.S_IRWXO))
