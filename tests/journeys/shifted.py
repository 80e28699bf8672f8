"""Seatrial whose clock can be set while it runs: `python -m tests.journeys.shifted up`, with libfaketime before everything.

Only wall clocks move: Python's in every process, and Postgres's own. Monotonic ones do not, as on a machine whose clock is
set. NATS (Go, without a C library) and the harness's children (their environment is explicit) keep the true time, as
other machines would.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.local import __main__ as local
from app.local import child

MODULE = "tests.journeys.shifted"
PRELOADED = "TESTS_LD_PRELOAD"
"""What a child gets as LD_PRELOAD. The supervisor goes without: it sleeps by `clock_nanosleep` until a monotonic time, which
libfaketime 0.9.10 spoils; and it looks at the wall clock only to tell people since when something runs."""
NAMES = (
    PRELOADED,
    "FAKETIME_TIMESTAMP_FILE",
    "FAKETIME_NO_CACHE",
    "DONT_FAKE_MONOTONIC",
    "FAKETIME_DONT_FAKE_MONOTONIC",
)
LIBRARY = "libfaketimeMT.so.1"

spawned = child.spawn


def library() -> Path:
    """libfaketime, installed from Debian's packages when it lacks. Fails with what to do."""
    found = _find()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-y", "-qq", "faketime"], check=False, capture_output=True)
        found = _find()
    assert found is not None, "libfaketime is missing: install the package faketime"
    return found


def _find() -> Path | None:
    return next((path for path in Path("/usr/lib").rglob(LIBRARY)), None)


def environment(file: Path) -> dict[str, str]:
    """`file`: says by how many seconds the clock is off, and may change at any time."""
    return dict(zip(NAMES, (str(library()), str(file), "1", "1", "1"), strict=True))


def spawn_shifted(
    arguments: Sequence[str | Path], *, environment: Mapping[str, str] | None = None, **more: Any
) -> "subprocess.Popen[bytes]":
    ours = {name: os.environ[name] for name in NAMES} | {"LD_PRELOAD": os.environ[PRELOADED]}
    return spawned(arguments, environment={**(os.environ if environment is None else environment), **ours}, **more)


if __name__ == "__main__":
    child.spawn = spawn_shifted
    sys.exit(local.main(sys.argv[1:]))
