"""Servers as children of ours: they die with us, and their data folder has one owner at a time.

Two kernel guarantees replace pid files. *Tether*: the child asks for a signal at its parent's death, so that nothing survives
a supervisor that was killed. *Lease*: an flock on a file of the data folder, inherited by the server and all its children;
whoever gets it knows that no process of an earlier server lives, whatever pids their files name.
"""

import ctypes
import fcntl
import os
import pwd
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from app.local.errors import StoreInUse

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class User(msgspec.Struct, frozen=True):
    """An account of this machine."""

    uid: int
    gid: int

    @classmethod
    def named(cls, name: str) -> "User | None":
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            return None
        return cls(entry.pw_uid, entry.pw_gid)


def tether(death_signal: signal.Signals) -> Callable[[], None]:
    """For `preexec_fn`: send the child `death_signal` when the thread that started it ends, so start it from a lasting one;
    and have it leave no core dump.

    Set after the change of user, which would clear it. A parent that died before is noticed by its pid.
    """
    parent = os.getpid()

    def ask() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, death_signal)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # what it has in memory, passwords too, is for no file
        if os.getppid() != parent:
            os._exit(1)

    return ask


def spawn(
    arguments: Sequence[str | Path],
    *,
    log: Path,
    death_signal: signal.Signals,
    user: User | None = None,
    inherit: Sequence[int] = (),
    environment: Mapping[str, str] | None = None,
) -> "subprocess.Popen[bytes]":
    """Start a server in a session of its own, tethered to us, its output appended to `log` (made 0600)."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            [os.fspath(argument) for argument in arguments],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            cwd="/",
            env=environment,
            start_new_session=True,
            pass_fds=tuple(inherit),
            preexec_fn=tether(death_signal),
            user=None if user is None else user.uid,
            group=None if user is None else user.gid,
            extra_groups=None if user is None else [],
        )
    finally:
        os.close(descriptor)


def take_lease(path: Path, wait_seconds: float) -> int:
    """Lock the lease file and return its descriptor, to be handed to the server and then closed here.

    Waits for the last processes of a server that just died. Raises StoreInUse when somebody still holds it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(0.02)
                continue
            os.close(descriptor)
            raise StoreInUse(
                f"Another process uses the data in {path.parent}; stop it, or choose another home with SEATRIAL_HOME."
            ) from None
        return descriptor


def port_is_free(port: int, host: str = "127.0.0.1") -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: TIME_WAIT is no obstacle
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def choose_port(remembered: Path) -> int:
    """The port that this store used last, while it is free; else a free one, remembered from now on."""
    try:
        port = int(remembered.read_text())
        if 0 < port < 65536 and port_is_free(port):
            return port
    except (OSError, ValueError):
        pass
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    write_private(remembered, str(port))
    return port


def write_private(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Replace a file in one step, readable by nobody else at any time."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.unlink(missing_ok=True)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def last_line(log: Path) -> str:
    """The last line with text in a log, for an error message."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 8192))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return "no log"
    return next((line.strip()[-300:] for line in reversed(lines) if line.strip()), "empty log")


def end(process: "subprocess.Popen[bytes]", steps: Sequence[tuple[signal.Signals, float]]) -> int:
    """Send each signal in turn and wait its seconds, then kill. Returns the exit code."""
    for number, seconds in steps:
        if process.poll() is not None:
            break
        process.send_signal(number)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            continue
    if process.poll() is None:
        process.kill()
    return process.wait()
