"""The Docker runtime holds what every runtime holds, and what only an engine can do to it."""

import asyncio
import json
import os
from typing import Any

import pytest

from app.settings import Settings
from tests.conformance.runtimes import INSTANCE, RuntimeConformance, StraysConformance, labels, out, run, spec
from workers.dispatcher.runtimes import docker, docker_sandbox
from workers.dispatcher.runtimes.docker import NETWORK, DockerRuntime, open_runtime
from workers.dispatcher.runtimes.orphans import remove_unstarted
from workers.dispatcher.runtimes.port import EngineUnavailable, StartFailed

WORKER = """
import asyncio, sys
from app.settings import Settings
from tests.conformance.runtimes import labels, spec
from workers.dispatcher.runtimes.docker import open_runtime

async def main():
    runtime = await open_runtime(Settings(docker_host=%r))
    sandbox = runtime.sandbox(spec(image=sys.argv[3], labels=labels(execution=sys.argv[1], instance=sys.argv[2])))
    await sandbox.start()
    print("up", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""

pytestmark = pytest.mark.docker


class TestStraysByTheEngine(StraysConformance):
    """As where the engine is on another machine, or the worker is not root: by a command in the sandbox."""

    @pytest.fixture(autouse=True)
    def elsewhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(docker_sandbox, "from_outside", lambda pid, container: None)


class TestDocker(RuntimeConformance):
    @pytest.fixture
    def from_outside(self) -> bool:
        return os.geteuid() == 0

    @pytest.fixture
    def worker_script(self, docker_host: str) -> str:
        return WORKER % docker_host

    async def test_sandboxes_do_not_see_each_other(self, make: Any) -> None:
        one, other = await make(), await make()
        await out(one, "httpd -p 8080 -h /")
        address = await out(one, "hostname -i")
        assert "root" in await out(one, f"wget -q -O- http://{address}:8080/etc/passwd")
        result, _, _ = await run(other, f"wget -T 2 -q -O- http://{address}:8080/etc/passwd")
        assert result.return_code != 0

    async def test_the_sandboxes_network_is_made_when_it_is_missing(self, runtime: DockerRuntime) -> None:
        await runtime._engine.call("GET", "networks/" + NETWORK)
        was, docker.NETWORK = NETWORK, f"{NETWORK}-{INSTANCE}"
        try:
            made = await asyncio.gather(*(runtime._public_network() for _ in range(3)))
            assert set(made) == {docker.NETWORK}
            found = await runtime._engine.call("GET", "networks/" + docker.NETWORK)
            assert found["Options"]["com.docker.network.bridge.enable_icc"] == "false"
        finally:
            await runtime._engine.call("DELETE", "networks/" + docker.NETWORK)
            docker.NETWORK = was

    async def test_a_command_that_names_no_user_runs_as_the_image_s(self, runtime: DockerRuntime, make: Any) -> None:
        """The sandbox's first process is root's; that must not make root of the agent."""
        engine, base, reference = runtime._engine, await make(), f"seatrial-test-user:{INSTANCE}"
        repository, _, tag = reference.partition(":")
        params = {"container": base.id, "repo": repository, "tag": tag, "changes": "USER agent"}
        await engine.call("POST", "commit", params=params, body={})
        try:
            sandbox = await make(image=reference)
            assert await out(sandbox, "id -un") == "agent"
            assert await out(sandbox, "id -un", user="0") == "root"
            result, _, _ = await run(sandbox, "setsid sleep 408 & sleep 409", timeout_seconds=0.5)
            assert result.timed_out
            assert "sleep" not in await out(sandbox, "ps -o args | grep '[s]leep 40' || true")
            await run(sandbox, "setsid sleep 410 >/dev/null 2>&1 &")
            assert await sandbox.kill_strays() == 1
            await sandbox.stop()
        finally:
            await engine.call("DELETE", f"images/{reference}", params={"force": "1"})

    async def test_a_work_folder_that_is_a_file_is_told_as_a_failed_start(self, runtime: DockerRuntime) -> None:
        sandbox = runtime.sandbox(spec(workdir="/etc/passwd"))  # a file, where a folder must be
        with pytest.raises(StartFailed):
            await sandbox.start()
        await sandbox.stop()
        assert sandbox.id not in {info.id for info in await runtime.list_sandboxes(INSTANCE)}

    async def test_a_container_that_was_never_started_is_removed_when_it_is_old(self, runtime: DockerRuntime) -> None:
        """What a worker leaves that is killed between create and start: no lifeline is on it yet."""
        sandbox = runtime.sandbox(spec())
        engine = runtime._engine
        created = await engine.call(
            "POST",
            "containers/create",
            body={
                "Image": spec().image,
                "Cmd": ["true"],
                "Labels": {"seatrial.instance": INSTANCE, "seatrial.execution": "exe_x", "seatrial.expires": "1"},
            },
        )
        info = next(i for i in await runtime.list_sandboxes(INSTANCE) if i.id == created["Id"])
        assert info.state == "created"
        assert await remove_unstarted(runtime, INSTANCE, now=info.created_at + 30, older_seconds=60) == 0
        assert await remove_unstarted(runtime, INSTANCE, now=info.created_at + 90, older_seconds=60) == 1
        assert created["Id"] not in {i.id for i in await runtime.list_sandboxes(INSTANCE)}
        await sandbox.stop()

    async def test_the_orphan_sweep_leaves_running_sandboxes_alone(self, runtime: DockerRuntime, make: Any) -> None:
        sandbox = await make()
        await remove_unstarted(runtime, INSTANCE, now=2**40, older_seconds=60)
        assert await out(sandbox, "echo still here") == "still here"

    async def test_the_engine_s_own_view_holds_no_more_than_asked(self, runtime: DockerRuntime, make: Any) -> None:
        sandbox = await make(memory_mb=64, cpus=1.0)
        seen = await runtime._engine.call("GET", f"containers/{sandbox.id}/json")
        host = seen["HostConfig"]
        assert not seen["Mounts"]
        assert not host["Binds"]
        assert not host["Privileged"]
        assert not host["Devices"]
        assert host["MemorySwap"] == host["Memory"] == 64 * 1024 * 1024
        assert host["LogConfig"]["Type"] == "none"
        assert "docker.sock" not in json.dumps(seen)

    async def test_many_sandboxes_at_once_each_keep_their_lifeline(self, runtime: DockerRuntime, make: Any) -> None:
        """aiohttp's default of 100 connections would hang here: a lifeline holds one for as long as it lives."""
        assert runtime._engine.docker.session.connector.limit == 0
        sandboxes = await asyncio.gather(*(make() for _ in range(6)))
        said = await asyncio.gather(*(out(s, "hostname") for s in sandboxes for _ in range(2)))
        assert len(set(said)) == 6


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("unix:///nowhere/docker.sock", "no container engine answers at unix:///nowhere/docker.sock"),
        ("tcp://127.0.0.1:9", "no container engine answers at tcp://127.0.0.1:9"),
        ("docker.sock", "unix:// or tcp://"),
    ],
)
async def test_an_engine_that_is_not_there_says_where_it_was_sought(host: str, says: str) -> None:
    with pytest.raises(EngineUnavailable, match=says):
        await open_runtime(Settings(docker_host=host))


def test_labels_are_distinct_per_sandbox() -> None:
    assert labels() != labels()
