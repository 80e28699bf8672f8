"""What one home knows of its running server: `<home>/run/`, all of it readable by its owner alone.

lock           held by the supervisor while it lives: who runs is a question to the kernel, never to a pid file
state.json     a State, replaced at every change; for `seatrial status` and for the command line to find the API
database-url   the URLs with their secrets, for children and operator commands
nats-url, nats-relay-url
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Generator
from pathlib import Path

import msgspec

from app.local.errors import AlreadyRunning


class ServerState(msgspec.Struct, frozen=True):
    """A server that we run, or (pid 0) one outside that we use."""

    name: str
    pid: int
    port: int
    restarts: int = 0


class ProcessState(msgspec.Struct, frozen=True):
    """A child with its roles. pid 0: it ended, and `last_exit` says how (an exit code, or minus a signal)."""

    name: str
    roles: tuple[str, ...]
    pid: int
    started_at: float
    restarts: int = 0
    last_exit: int | None = None


class State(msgspec.Struct, frozen=True):
    """`start_ticks` tells the supervisor from a later process with its pid. Times are seconds since 1970."""

    pid: int
    start_ticks: int
    started_at: float
    url: str
    ready: bool
    engine: str = ""
    servers: tuple[ServerState, ...] = ()
    processes: tuple[ProcessState, ...] = ()


def run_folder(home: Path) -> Path:
    return home / "run"


def key_file(home: Path) -> Path:
    """The API key of the local administrator, which the command line reads."""
    return home / "keys" / "local-admin"


def save(home: Path, state: State) -> None:
    from app.local.child import write_private  # what starts servers; the command line, which reads here, does without

    write_private(run_folder(home) / "state.json", msgspec.json.format(msgspec.json.encode(state), indent=2).decode())


def load(home: Path) -> State | None:
    """The state of the server that runs, or None when none does: a state that a killed one left behind does not count."""
    if not is_running(home):
        return None
    try:
        return msgspec.json.decode((run_folder(home) / "state.json").read_bytes(), type=State)
    except (OSError, msgspec.MsgspecError):
        return None  # it is just starting


def is_running(home: Path) -> bool:
    try:
        descriptor = os.open(run_folder(home) / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def already_running(home: Path) -> AlreadyRunning:
    other = load(home)
    where = f" (pid {other.pid}, {other.url})" if other else ""
    return AlreadyRunning(f"Seatrial is running already{where}; stop it with `seatrial down`.")


def await_ready(home: Path, patience_seconds: float = 120.0) -> State | None:
    """The state of a server that somebody else starts, when it is ready; None when it ended, or is not ready by then."""
    deadline = time.monotonic() + patience_seconds
    while is_running(home) and time.monotonic() < deadline:
        found = load(home)
        if found is not None and found.ready:
            return found
        time.sleep(0.1)
    return None


@contextlib.contextmanager
def only_one(home: Path, patience_seconds: float = 1.0) -> Generator[None]:
    """Be the one supervisor of a home. Raises AlreadyRunning, with where the other one is."""
    folder = run_folder(home)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + patience_seconds  # a question of `is_running` takes the lock for a moment
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                raise already_running(home) from None
        (folder / "state.json").unlink(missing_ok=True)
        try:
            yield
        finally:
            (folder / "state.json").unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot: field 22 of /proc/PID/stat (proc(5)). 0 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[19])
