"""One `docker buildx build` as a process: its command line, its environment, and its end."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

from workers.builder.build.port import BuildSpec, EngineUnavailable

REPOSITORY = "seatrial"
LABEL = "seatrial."
STOP_SECONDS = 5
PASSED_ON = ("PATH", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""Of our own environment, all that the docker command gets; the operator's registry logins come by DOCKER_CONFIG."""


@contextlib.asynccontextmanager
async def process(command: list[str], environment: dict[str, str]) -> AsyncGenerator[asyncio.subprocess.Process]:
    """A process of its own session, that is gone with all its children when the block is left."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise EngineUnavailable("the docker command is missing: install docker-cli and docker-buildx") from error
    try:
        yield process
    finally:
        if process.returncode is None:
            # buildx ends the build on the engine when it is asked to end; killed, its connection ends it too.
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.communicate(), STOP_SECONDS)
                    break


def environment(host: str, here: Path) -> dict[str, str]:
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return environment | {
        "HOME": str(here),
        "DOCKER_HOST": host,
        "DOCKER_CONFIG": os.environ.get("DOCKER_CONFIG") or str(Path("~/.docker").expanduser()),
        "BUILDX_CONFIG": str(here / "buildx"),
        "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
    }


def command(spec: BuildSpec, context: Path, file: Path, here: Path) -> list[str]:
    labels = {
        "instance": spec.instance,
        "team": spec.team,
        "revision": spec.revision,
        "pack": spec.pack_digest,
    }
    command = ["docker", "buildx", "build", "--builder", "default", "--progress", "rawjson", "--load"]
    command += ["--provenance=false", "--sbom=false", "--network", spec.network]
    command += ["--iidfile", str(here / "iid"), "--file", str(file), "--tag", f"{REPOSITORY}/{spec.revision}:latest"]
    for name, value in labels.items():
        command += ["--label", f"{LABEL}{name}={value}"]
    if spec.extra_ca is not None:
        command += ["--secret", f"id=ca,src={spec.extra_ca}"]
    return [*command, "--", str(context)]
