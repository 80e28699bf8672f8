"""A command as a person runs it: on a terminal of its own, with an answer to what it asks."""

import os
import pty
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]


class Done(msgspec.Struct, frozen=True):
    code: int
    said: str
    """Everything that stood on the terminal, the answer that was typed included."""


def environment(**given: str) -> dict[str, str]:
    """Of a command of ours: the settings of whoever runs the tests are not its."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SEATRIAL_", "DOCKER_HOST"))}
    return {**kept, "PYTHONPATH": str(ROOT), **given}


def on_a_terminal(command: Sequence[str], *, cwd: Path, env: Mapping[str, str], answer: str | None = None) -> Done:
    """Run it to its end. It sees a terminal as its input, its output and its errors. `answer` is typed when it asks, once."""
    ours, its = pty.openpty()
    try:
        try:
            process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, cwd=cwd, env=env)
        finally:
            os.close(its)
        said = b""
        while chunk := _read(ours):
            said += chunk
            if answer is not None and said.endswith(b"[Y/n] "):
                os.write(ours, f"{answer}\n".encode())
                answer = None
        return Done(process.wait(), said.decode().replace("\r\n", "\n"))
    finally:
        os.close(ours)


def _read(terminal: int) -> bytes:
    """b"" when nobody has the other side open any more (Linux says EIO)."""
    try:
        return os.read(terminal, 64 * 1024)
    except OSError:
        return b""
