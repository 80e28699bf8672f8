"""An agent that looks around in its harness child, or waits, or leaves things behind. Runs in the harness environment."""

import asyncio
import gc
import hashlib
import importlib
import json
import os
import random
import ssl
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

from harbor.agents.base import BaseAgent


def digest(value):
    """Harbor scrubs secrets from all files, and so from this one's."""
    return hashlib.sha256(value.encode()).hexdigest()


def hits(needle: bytes) -> int:
    """How often the bytes stand in this process's own writable memory."""
    count = 0
    with open("/proc/self/mem", "rb", 0) as memory, open("/proc/self/maps") as maps:
        for line in maps.read().splitlines():
            span, permissions = line.split()[:2]
            if permissions.startswith("rw"):
                low, high = (int(end, 16) for end in span.split("-"))
                memory.seek(low)
                try:
                    count += memory.read(high - low).count(needle)
                except OSError:
                    continue
    return count - 1 if count else 0  # the needle itself


def where(module: str):
    """Who imported it: the fork server, which froze all that it had before it forked, this child, or nobody."""
    found = sys.modules.get(module)
    if found is None:
        return None
    return "child" if any(one is found for one in gc.get_objects()) else "server"


class Probe(BaseAgent):
    def __init__(
        self,
        *arguments,
        sleep=0.0,
        busy=False,
        command=None,
        strays=None,
        cut=False,
        raises=None,
        flood=0,
        scan=(),
        setup_seconds=0.0,
        setup_until=None,
        fill=None,
        strict=None,
        **keywords,
    ):
        super().__init__(*arguments, **keywords)
        self.sleep, self.busy, self.command, self.strays = float(sleep), busy, command, strays
        self.cut, self.raises, self.flood, self.setup_seconds = cut, raises, flood, setup_seconds
        self.setup_until, self.fill = setup_until, fill
        self.scan = [needle[::-1] for needle in scan]  # they come reversed: the scan must not find itself
        if strict is not None:
            raise TypeError(f"strict must not be {strict!r}")

    @staticmethod
    def name():
        return "probe"

    def version(self):
        return "1"

    async def setup(self, environment):
        await asyncio.sleep(self.setup_seconds)
        while self.setup_until and not Path(self.setup_until).exists():
            await asyncio.sleep(0.02)

    async def run(self, instruction, environment, context):
        seen = {
            "environ": dict(os.environ),
            "proc_environ": Path("/proc/self/environ").read_bytes().decode().split("\0"),
            "from_a_shell": os.popen("echo $HOME $SEATRIAL_TRIAL").read().split(),
            "fds": sorted(
                os.readlink(f"/proc/self/fd/{n}")
                for n in os.listdir("/proc/self/fd")
                if os.path.exists(f"/proc/self/fd/{n}")
            ),
            "threads": len(os.listdir("/proc/self/task")),
            "python_threads": [t.name for t in threading.enumerate()],
            "random": random.random(),
            "uuid": str(uuid.uuid4()),
            "urandom": os.urandom(8).hex(),
            "tls_random": ssl.RAND_bytes(8).hex(),
            "session": os.getsid(0),
            "pid": os.getpid(),
            "cwd": os.getcwd(),
            "modules": len(sys.modules),
            "litellm": where("litellm"),
            "agent_environment": {name: digest(value) for name, value in self.extra_env.items()},
            "processes": [p for p in os.listdir("/proc") if p.isdigit()],
            "code": [
                sys.modules["seatrial_harness.child"].__file__,
                importlib.import_module("harbor.metrics.mean").__file__,
            ],
            "found": {needle: hits(needle.encode()) for needle in self.scan},
        }
        (self.logs_dir / "seen.json").write_text(json.dumps(seen))
        sys.stdout.write("the probe is running\n")
        sys.stdout.flush()
        if self.strays:
            subprocess.Popen(["sleep", f"{self.strays}.1"])
            subprocess.Popen(["setsid", "sleep", f"{self.strays}.2"])
            subprocess.Popen(["setsid", "env", "-i", "/bin/sleep", f"{self.strays}.3"])
        if self.raises:
            raise type(self.raises, (RuntimeError,), {})("raised on purpose")
        if self.fill:
            heap = Path("heap")
            try:
                heap.write_bytes(bytes(8_000_000))
            finally:
                if self.fill == "and clear":
                    heap.unlink()
        if self.flood:
            await environment.exec(f"yes 0123456789 | head -c {self.flood}")
        if self.cut:
            from seatrial_harness.environment import Link

            Link.channel._writer.transport.abort()
        if self.busy:
            time.sleep(self.sleep)
        elif self.command:
            result = await environment.exec(self.command, timeout_sec=int(self.sleep) or None)
            (self.logs_dir / "said.json").write_text(json.dumps(result.model_dump()))
        else:
            await asyncio.sleep(self.sleep)


class Plain:
    """No agent: whoever makes one has called what is not to be called."""

    def __init__(self, args=(), **_):
        subprocess.run(args, check=True)


def make(**arguments):
    return Plain(**arguments)
