"""Programs of the tests' own: a process that starts a server and waits to be killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def program() -> Iterator[Callable[[str], "subprocess.Popen[str]"]]:
    """Run Python code in a process of its own that can import the project; killed at the end of the test."""
    started: list[subprocess.Popen[str]] = []

    def run(code: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
