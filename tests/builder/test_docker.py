"""The docker backend: the conformance suite, and what only an engine can get wrong."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.builder.registry import SERVED
from tests.conformance.build_backends import Build, BuildBackendConformance, Lines, gone, processes_with
from workers.builder.build import docker, port
from workers.builder.build.docker import DockerBackend
from workers.builder.build.port import BuildSpec

pytestmark = pytest.mark.docker
ROOT = Path(__file__).parents[2]


@pytest.fixture
def base(docker_host: str) -> str:
    from app.local.baseimage import TEST_BASE

    return TEST_BASE


@pytest.fixture
async def backend(docker_host: str, tmp_path: Path) -> AsyncIterator[DockerBackend]:
    opened = DockerBackend(docker_host, tmp_path / "scratch")
    yield opened
    await opened.close()
    await asyncio.to_thread(forget_fetched, docker_host)
    assert list((tmp_path / "scratch").iterdir()) == [], "a build left files in the scratch folder"


def forget_fetched(docker_host: str) -> None:
    """Remove the images that came from registries of this process: others beside it have theirs."""
    docker = ["docker", "--host", docker_host]
    fetched: list[str] = []
    while SERVED:
        listing = [*docker, "images", "--filter", f"reference={SERVED.pop()}/served/image", "--format", "{{.ID}}"]
        fetched += subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split()
    if fetched:
        subprocess.run([*docker, "rmi", "--force", *fetched], capture_output=True, check=False)


class TestDocker(BuildBackendConformance):
    async def test_an_image_carries_the_labels_of_its_revision(
        self, backend: DockerBackend, base: str, spec: Build, lines: Lines, docker_host: str
    ) -> None:
        made = spec(f"FROM {base}\nLABEL a=b\n")
        built = await backend.build(made, lines)
        command = ["docker", "--host", docker_host, "inspect", "-f", "{{json .Config.Labels}}", built.image.reference]
        labels = msgspec.json.decode(subprocess.run(command, capture_output=True, check=True).stdout)
        assert labels["seatrial.revision"] == made.revision
        assert (labels["seatrial.instance"], labels["seatrial.team"], labels["a"]) == ("test", "tem_x", "b")

    async def test_an_engine_that_goes_away_during_a_build_is_not_the_task_s_fault(
        self, base: str, spec: Build, lines: Lines, docker_host: str, tmp_path: Path
    ) -> None:
        async with cable(docker_host, tmp_path / "cable.sock") as cut:
            backend = DockerBackend(f"unix://{tmp_path / 'cable.sock'}", tmp_path / "scratch")
            argument = f"4{uuid.uuid4().int % 10**8:08}"
            task = asyncio.create_task(backend.build(spec(f"FROM {base}\nRUN echo begun; sleep {argument}\n"), lines))
            await lines.seen("begun")
            cut()
            with pytest.raises(port.EngineUnavailable):
                await task
            await gone(f"sleep {argument}")
            await backend.close()

    async def test_a_killed_worker_leaves_no_build_running(
        self, base: str, spec: Build, docker_host: str, tmp_path: Path
    ) -> None:
        argument = f"4{uuid.uuid4().int % 10**8:08}"
        made: BuildSpec = spec(f"FROM {base}\nRUN while true; do echo running; sleep 0.{argument}; done\n")
        code = (
            "import asyncio, pathlib, sys\n"
            "from workers.builder.build.docker import DockerBackend\n"
            "from workers.builder.build.port import BuildSpec\n"
            "async def log(line): print(line.text, flush=True)\n"
            "async def main():\n"
            "    backend = DockerBackend(sys.argv[1], pathlib.Path(sys.argv[2]))\n"
            "    await backend.build(BuildSpec(revision=sys.argv[3], team='t', instance='i', pack_digest='sha256:0',\n"
            "        context=pathlib.Path(sys.argv[4]), pull=False), log)\n"
            "asyncio.run(main())\n"
        )
        command = [sys.executable, "-c", code, docker_host, tmp_path / "other", made.revision, made.context]
        worker = await asyncio.create_subprocess_exec(*map(str, command), stdout=asyncio.subprocess.PIPE, cwd=ROOT)
        assert worker.stdout is not None
        while (await worker.stdout.readline()).strip() != b"running":
            pass
        assert processes_with(argument)
        worker.send_signal(signal.SIGKILL)
        await worker.wait()
        await gone(argument)


async def test_an_engine_that_is_away_is_unavailable(tmp_path: Path) -> None:
    backend = DockerBackend(f"unix://{tmp_path}/none.sock", tmp_path / "scratch")
    (tmp_path / "Dockerfile").write_text("FROM x\n")
    spec = BuildSpec(revision="rev_x", team="t", instance="i", pack_digest="sha256:0", context=tmp_path)
    for made in (spec, msgspec.structs.replace(spec, context=None, image="debian:12")):
        with pytest.raises(port.EngineUnavailable):
            await backend.build(made, Lines())
    with pytest.raises(port.EngineUnavailable):
        await backend.inventory("debian:12")
    with pytest.raises(port.EngineUnavailable):
        await backend.remove("rev_x")
    await backend.close()


@pytest.mark.parametrize("host", ["", "http://", "ssh://host", "/var/run/docker.sock"])
async def test_an_address_that_is_none_is_unavailable(host: str, tmp_path: Path) -> None:
    with pytest.raises(port.EngineUnavailable):
        DockerBackend(host, tmp_path / "scratch")


async def test_without_the_docker_command_the_engine_is_unavailable(
    docker_host: str, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    backend = DockerBackend(docker_host, tmp_path / "scratch")
    (tmp_path / "Dockerfile").write_text(f"FROM {base}\n")
    spec = BuildSpec(revision="rev_x", team="t", instance="i", pack_digest="sha256:0", context=tmp_path, pull=False)
    with pytest.raises(port.EngineUnavailable, match="docker command"):
        await backend.build(spec, Lines())
    await backend.close()


async def test_a_docker_command_without_buildx_is_told_as_it_is(
    docker_host: str, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\necho \"docker: 'buildx' is not a docker command.\" >&2\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    backend = DockerBackend(docker_host, tmp_path / "scratch")
    (tmp_path / "Dockerfile").write_text(f"FROM {base}\n")
    spec = BuildSpec(revision="rev_x", team="t", instance="i", pack_digest="sha256:0", context=tmp_path, pull=False)
    with pytest.raises(port.EngineUnavailable, match="buildx"):
        await backend.build(spec, Lines())
    await backend.close()


async def test_an_engine_whose_disk_is_full_is_not_the_task_s_fault(
    backend: DockerBackend, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker, "FREE_BYTES", 1 << 60)
    (tmp_path / "Dockerfile").write_text(f"FROM {base}\nRUN exit 1\n")
    spec = BuildSpec(revision="rev_x", team="t", instance="i", pack_digest="sha256:0", context=tmp_path, pull=False)
    with pytest.raises(port.EngineUnavailable, match="disk"):
        await backend.build(spec, Lines())


async def test_what_a_caller_s_log_raises_passes_through(backend: DockerBackend, base: str, tmp_path: Path) -> None:
    """An OSError of the caller's own is not taken for one of the engine."""

    async def full(line: port.BuildLine) -> None:
        raise OSError(28, "no space left on device")

    (tmp_path / "Dockerfile").write_text(f"FROM {base}\nRUN echo {uuid.uuid4()}\n")
    spec = BuildSpec(revision="rev_x", team="t", instance="i", pack_digest="sha256:0", context=tmp_path, pull=False)
    with pytest.raises(OSError, match="no space"):
        await backend.build(spec, full)


@contextlib.asynccontextmanager
async def cable(host: str, path: Path) -> AsyncGenerator:
    """A socket that leads to the engine, until it is cut."""
    writers: set[asyncio.StreamWriter] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.write_eof()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(host.removeprefix("unix://"))
        writers.update((writer, back))
        await asyncio.gather(copy(reader, back), copy(there, writer))
        for end in (writer, back):
            end.close()

    server = await asyncio.start_unix_server(connected, path)

    def cut() -> None:
        server.close()
        path.unlink(missing_ok=True)
        for writer in writers:
            writer.transport.abort()

    try:
        yield cut
    finally:
        server.close()
