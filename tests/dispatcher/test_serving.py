"""The child is not trusted: it runs an agent's own code, which may ask for anything on its socket."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.dispatcher.rig import trial_spec
from workers.dispatcher.harness.serving import FAULTS, Desk
from workers.dispatcher.runtimes import port
from workers.dispatcher.runtimes.port import Runtime

pytestmark = pytest.mark.docker

START: dict[str, Any] = {
    "op": "start", "verifier": False, "own_image": False, "image": None, "workdir": "/app", "cpus": None,
    "memory_mb": 64, "storage_mb": None, "environment": {}, "network": {"mode": "public", "allowed_hosts": []},
    "folders": ["/logs/agent"],
}  # fmt: skip
EXEC: dict[str, Any] = {
    "op": "exec", "command": "true", "cwd": None, "environment": {}, "user": None, "timeout": None, "live": False,
}  # fmt: skip


class Client:
    def __init__(self, desk: Desk, transfer: Path) -> None:
        self.desk, self.transfer, self.number = desk, transfer, 0
        self.output = b""

    async def ask(self, header: dict[str, Any], sandbox: str = "trial__env") -> dict[str, Any]:
        self.number += 1
        answers: list[dict[str, Any]] = []

        async def reply(answer: dict[str, Any], body: bytes) -> None:
            if "out" in answer:
                self.output += body
            else:
                answers.append(answer)

        asked = {"sandbox": sandbox, **header, "id": self.number}
        await self.desk.carry_out(asked, reply, lambda call, stream, data, final: None)
        assert len(answers) == 1, "every call has one answer"
        return answers[0]


@pytest.fixture(scope="module")
async def client(runtime: Runtime, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    folder = tmp_path_factory.mktemp("serving")
    transfer = folder / ".transfer"
    transfer.mkdir()
    spec = trial_spec(folder)
    desk = Desk(spec, runtime, transfer, remaining=lambda: 60.0, phase=lambda: "agent")
    client = Client(desk, transfer)
    assert (await client.ask(START | {"looks_for": ["/bin/bash", "/nowhere"]})) == {"id": 1, "present": ["/bin/bash"]}
    yield client
    await desk.close()
    assert not [i for i in await runtime.list_sandboxes(spec.labels.instance) if i.labels == spec.labels]


@pytest.mark.parametrize(
    "name", ["../escape.tar", "/etc/passwd", "a.tar", "1.tar/..", "1", "", "1.tar\n", "99999999999.tar"]
)
@pytest.mark.parametrize("op", ["put", "get"])
async def test_a_transfer_stays_in_its_folder(name: str, op: str, client: Client) -> None:
    answer = await client.ask({"op": op, "file": name, "folder": "/tmp", "path": "/etc"})
    assert answer["error"] == "SandboxLostError"
    assert not list(client.transfer.iterdir())
    assert not (client.transfer.parent / "escape.tar").exists()


async def test_a_link_in_the_transfer_folder_is_not_followed(client: Client, tmp_path: Path) -> None:
    secret, victim = tmp_path / "secret", tmp_path / "victim"
    secret.write_text("of the worker")
    victim.write_text("as it was")
    (client.transfer / "7.tar").symlink_to(secret)
    (client.transfer / "8.tar").symlink_to(victim)
    assert "error" in await client.ask({"op": "put", "file": "7.tar", "folder": "/tmp"})
    assert "error" in await client.ask({"op": "get", "file": "8.tar", "path": "/bin"})
    assert victim.read_text() == "as it was"
    for link in client.transfer.iterdir():
        link.unlink()


@pytest.mark.parametrize(
    "header",
    [
        {"op": "format-the-disk"},
        {"op": "exec"},
        EXEC | {"environment": "not a table"},
        EXEC | {"timeout": "soon"},
        {"op": "network", "network": {"mode": "everything"}},
        {"op": "network", "network": None},
        START,
        {"op": "put", "file": "1.tar"},
    ],
)
async def test_nonsense_is_answered_and_harms_nothing(header: dict[str, Any], client: Client) -> None:
    assert (await client.ask(header))["error"] == "SandboxLostError"
    assert await client.ask(EXEC) == {"id": client.number, "return_code": 0, "timed_out": False, "oom_killed": False}


async def test_a_policy_that_cannot_be_held_is_refused_by_type(client: Client) -> None:
    answer = await client.ask({"op": "network", "network": {"mode": "allowlist", "allowed_hosts": ["example.org"]}})
    assert answer["error"] == "SandboxPolicyUnsupportedError"


async def test_a_sandbox_that_is_not_there_is_lost(client: Client) -> None:
    assert (await client.ask(EXEC, "trial__verifier__other"))["error"] == "SandboxLostError"


async def test_a_verifier_with_an_image_of_its_own_never_runs_in_the_agent_s(client: Client) -> None:
    answer = await client.ask(START | {"verifier": True, "own_image": True}, "trial__verifier__trial")
    assert answer["error"] == "SandboxImageMissingError"


async def test_calls_may_overlap(client: Client) -> None:
    answers = await asyncio.gather(*(client.ask(EXEC | {"command": f"sleep 0.2; exit {n}"}) for n in range(5)))
    assert [answer["return_code"] for answer in answers] == [0, 1, 2, 3, 4]


def test_every_fault_of_the_port_has_its_exception() -> None:
    faults = {f for f in vars(port).values() if isinstance(f, type) and issubclass(f, port.RuntimeFault)}
    assert set(FAULTS) == faults - {port.RuntimeFault, port.SandboxOutOfMemory}


def test_every_exception_is_the_overlay_s_and_the_taxonomy_knows_it() -> None:
    from app.domain.failures import CODES, OVERLAY
    from workers.dispatcher.harness.locate import patches_folder

    source = (patches_folder() / "overlay" / "seatrial_harness" / "errors.py").read_text()
    for name in {*FAULTS.values(), "AgentOutOfMemoryError", "VerifierOutOfMemoryError"}:
        assert f"class {name}(" in source
    known = {name for name in OVERLAY if f"class {name}(" in source}
    assert {OVERLAY[name] for name in known} <= set(CODES)
