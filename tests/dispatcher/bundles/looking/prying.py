"""An agent that tries to reach what is none of its business, and writes down how each try went."""

import errno
import json
import os
import socket
import subprocess
from pathlib import Path

from harbor.agents.base import BaseAgent


def tried(action):
    """`done`, or the name of the error."""
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"


def connect(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(path)


def write(path):
    with open(path, "a") as file:
        file.write("x")


class Pry(BaseAgent):
    def __init__(self, *arguments, read=(), write=(), reach=(), signal=(), replace=(), then=None, **keywords):
        super().__init__(*arguments, **keywords)
        self.tries = {"read": read, "write": write, "reach": reach, "signal": signal, "replace": replace}
        self.then = then

    @staticmethod
    def name():
        return "pry"

    def version(self):
        return "1"

    async def setup(self, environment): ...

    async def run(self, instruction, environment, context):
        actions = {
            "read": lambda path: os.listdir(path) if os.path.isdir(path) else Path(path).read_bytes(),
            "write": write,
            "reach": connect,
            "signal": lambda pid: os.kill(pid, 0),
            "replace": lambda path: os.rename(path, f"{path}-gone"),
        }
        status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
        seen = {
            "went": {
                f"{verb} {what}": tried(lambda verb=verb, what=what: actions[verb](what))
                for verb, targets in self.tries.items()
                for what in targets
            },
            "status": {name: status[name] for name in ("Uid", "Gid", "Groups", "NoNewPrivs") if name in status}
            | {name: value for name, value in status.items() if name.startswith("Cap")},
            "processes": [name for name in os.listdir("/proc") if name.isdigit()],
            "of_others": [
                name
                for name in os.listdir("/proc")
                if name.isdigit() and os.stat(f"/proc/{name}").st_uid != os.getuid()
            ],
            "root": sorted(os.listdir("/")),
            "written": tried(lambda: write("relative")) + tried(lambda: write(os.environ["TMPDIR"] + "/a")),
            "shell": subprocess.run(["sh", "-c", "echo ran"], capture_output=True, check=False).stdout.decode(),
        }
        (self.logs_dir / "seen.json").write_text(json.dumps(seen))
        if self.then:
            await environment.exec(self.then)
