"""Keeps the servers and processes of one home running, and ends them in order.

One thread, no event loop: children are tethered to the thread that starts them, so that nothing of ours outlives it
whatever ends it. A child that ends unasked is started again, at once the first time and then ever later; why it ended is said.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

import app
from app.local import child
from app.local.errors import LocalError
from app.local.state import ProcessState, ServerState

PAUSES_SECONDS = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
STEADY_SECONDS = 60.0
"""A child that lived this long starts again without a pause."""
KILL_SECONDS = 5.0
STUCK_SECONDS = 5.0
"""Between two questions whether a server that runs is of use."""
STOPPING_SECONDS = 45.0
"""A trial that the end of the drain stops: its outputs so far are fetched, its sandbox is removed, all of it is stored."""
LOG_LIMIT_BYTES = 32 * 1024**2


class Group(msgspec.Struct, frozen=True):
    """Roles that share a process. Groups of a lower `stage` are told to stop first, and waited for."""

    name: str
    roles: tuple[str, ...]
    stage: int
    ending_seconds: float = KILL_SECONDS
    """How long beyond the drain its process may take to end."""


GROUPS = (
    Group("api", ("api",), 3),
    Group("relay", ("relay",), 3),
    Group("projector", ("projector",), 3),
    Group("foreman", ("foreman", "scheduler", "clock"), 2),
    Group("builder", ("builder", "attester"), 1),
    Group("dispatcher", ("dispatcher", "reaper"), 1, STOPPING_SECONDS),
)
"""The roles of a home, in the order they start. Who works is stopped before who decides, and who tells comes last."""


def groups_of(roles: Sequence[str]) -> list[Group]:
    """The groups for the roles that are installed; one of its own for each that GROUPS does not know (a plugin's)."""
    installed = set(roles)
    known = {role for group in GROUPS for role in group.roles}
    found = [
        msgspec.structs.replace(group, roles=present)
        for group in GROUPS
        if (present := tuple(role for role in group.roles if role in installed))
    ]
    return found + [Group(role, (role,), 1) for role in sorted(installed - known)]


class Server(Protocol):
    """An embedded server: Postgres or NATS."""

    log: Path

    @property
    def url(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def pid(self) -> int | None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def poll(self) -> int | None: ...
    def is_stuck(self) -> bool:
        """Whether it runs, is of no use, and would be after a restart."""
        ...


class Watched[T]:
    """A server or a process, with the history of its ends."""

    def __init__(self, subject: T) -> None:
        self.subject = subject
        self.restarts = 0
        self.failures = 0
        self.started = 0.0
        self.asked = 0.0
        """When it was last asked whether it is stuck."""
        self.due: float | None = None
        """When to start it again (monotonic seconds); None while it runs."""

    def ended(self, now: float) -> float:
        """Note an end that nobody asked for. Returns the pause before the next start."""
        if now - self.started > STEADY_SECONDS:
            self.failures = 0
        pause = PAUSES_SECONDS[min(self.failures, len(PAUSES_SECONDS) - 1)]
        self.failures += 1
        self.due = now + pause
        return pause

    def begun(self, now: float) -> None:
        self.started = now
        self.due = None


class Process:
    """One child with a group of roles."""

    def __init__(self, group: Group, logs: Path) -> None:
        self.group = group
        self.log = logs / f"{group.name}.log"
        self.last_exit: int | None = None
        self.started_at = 0.0
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._popen.pid if self._popen is not None and self._popen.poll() is None else 0

    def start(self, environment: Mapping[str, str]) -> None:
        self._popen = child.spawn(
            # -P: a folder named like one of our packages under / or the working folder must not be imported
            [sys.executable, "-P", "-m", "app.local.process", ",".join(self.group.roles)],
            log=self.log,
            death_signal=signal.SIGKILL,  # a drain without its database would only linger; every role survives kill -9
            environment=environment,
        )
        self.started_at = time.time()

    def poll(self) -> int | None:
        return None if self._popen is None else self._popen.poll()

    def send(self, number: signal.Signals) -> None:
        if self._popen is not None and self._popen.poll() is None:
            self._popen.send_signal(number)


class Supervisor:
    """`say` gets a line for each thing a user should know; `changed` is called when a pid or a count has changed."""

    def __init__(
        self,
        servers: Mapping[str, Server],
        processes: Sequence[Process],
        *,
        environment: Callable[[], Mapping[str, str]],
        drain_seconds: float,
        say: Callable[[str], None],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._servers = {name: Watched(server) for name, server in servers.items()}
        self._processes = [Watched(process) for process in processes]
        self._environment = environment
        self._drain_seconds = drain_seconds
        self._say = say
        self._changed = changed

    def start_processes(self) -> None:
        environment = self._environment()
        for watched in self._processes:
            watched.subject.start(environment)
            watched.begun(time.monotonic())
        self._changed()

    def servers(self) -> tuple[ServerState, ...]:
        return tuple(
            ServerState(name, watched.subject.pid or 0, watched.subject.port, watched.restarts)
            for name, watched in self._servers.items()
        )

    def processes(self) -> tuple[ProcessState, ...]:
        return tuple(
            ProcessState(
                name=process.group.name,
                roles=process.group.roles,
                pid=process.pid,
                started_at=process.started_at,
                restarts=watched.restarts,
                last_exit=process.last_exit,
            )
            for watched in self._processes
            for process in (watched.subject,)
        )

    def turn(self) -> None:
        """Look at every child once: note ends, start what is due."""
        now = time.monotonic()
        before = (self.servers(), self.processes())
        for name, watched in self._servers.items():
            self._look_at_server(name, watched, now)
        for watched in self._processes:
            self._look_at_process(watched, now)
        if before != (self.servers(), self.processes()):
            self._changed()

    def watch(self, bell: "Bell") -> None:
        """Supervise until a signal asks to stop."""
        next_trim = time.monotonic()
        while not bell.stop:
            self.turn()
            if time.monotonic() > next_trim:
                self._trim_logs()
                next_trim = time.monotonic() + 60
            bell.wait(0.5)

    def stop(self, bell: "Bell") -> None:
        """End everything in order: each stage of processes may drain, then the servers. A second signal ends the patience."""
        for stage in sorted({watched.subject.group.stage for watched in self._processes}):
            stopping = [watched.subject for watched in self._processes if watched.subject.group.stage == stage]
            for process in stopping:
                process.send(signal.SIGTERM)
            patience = self._drain_seconds + max(process.group.ending_seconds for process in stopping)
            deadline = time.monotonic() + patience
            while any(process.pid for process in stopping) and time.monotonic() < deadline and not bell.hurry:
                bell.wait(0.1)
            for process in stopping:
                if process.pid:
                    self._say(f"{process.group.name} did not end in time and is killed")
                    process.send(signal.SIGKILL)
        for _name, watched in reversed(self._servers.items()):
            watched.subject.stop()

    def _look_at_server(self, name: str, watched: Watched[Server], now: float) -> None:
        server = watched.subject
        if watched.due is None:
            if now - watched.asked > STUCK_SECONDS and now - watched.started > STUCK_SECONDS:
                watched.asked = now
                if server.is_stuck():
                    self._say(f"{name} cannot write, though there is room: it is started anew")
                    server.stop()
            code = server.poll()
            if code is None:
                return
            pause = watched.ended(now)
            self._say(f"{name} {how_it_ended(code)} ({child.last_line(server.log)}); again in {pause:.1f} s")
        if watched.due is None or now < watched.due:
            return
        url = server.url
        try:
            server.start()
        except LocalError as error:
            pause = watched.ended(time.monotonic())
            self._say(f"{name}: {error} Trying again in {pause:.1f} s.")
            return
        watched.restarts += 1
        watched.begun(time.monotonic())
        if server.url != url:  # its port was taken meanwhile: every process has the old one
            for other in self._processes:
                other.subject.send(signal.SIGTERM)

    def _look_at_process(self, watched: Watched[Process], now: float) -> None:
        process = watched.subject
        if watched.due is None:
            code = process.poll()
            if code is None:
                return
            process.last_exit = code
            pause = watched.ended(now)
            self._say(f"{process.group.name} {how_it_ended(code)}; again in {pause:.1f} s, see {process.log}")
        if watched.due is not None and now >= watched.due:
            process.start(self._environment())
            watched.restarts += 1
            watched.begun(time.monotonic())

    def _trim_logs(self) -> None:
        """Keep each log and one before it. Writers append, so a log that was cut goes on at its start."""
        for log in [watched.subject.log for watched in (*self._servers.values(), *self._processes)]:
            with contextlib.suppress(OSError):
                if log.stat().st_size > LOG_LIMIT_BYTES:
                    child.write_private(log.with_name(f"{log.name}.1"), log.read_text(errors="replace"))
                    os.truncate(log, 0)


class Bell:
    """Signals as facts to look at: `stop` after the first SIGTERM, SIGINT or SIGHUP, `hurry` after the second.

    While `interrupting` the first also raises KeyboardInterrupt, to end a long step. Python drops an exception that is raised
    in a callback of its own (after a fork, in a finaliser), so whoever counts on it calls `check` too.
    """

    def __init__(self, wake: int) -> None:
        self.stop = False
        self.hurry = False
        self.interrupting = False
        self._wake = wake

    def check(self) -> None:
        """Raises KeyboardInterrupt when a signal has asked to stop."""
        if self.stop:
            raise KeyboardInterrupt

    def wait(self, seconds: float) -> None:
        """Sleep until a signal comes (also a child's end), at most that long."""
        ready, _, _ = select.select([self._wake], [], [], seconds)
        if ready:
            with contextlib.suppress(BlockingIOError):
                while os.read(self._wake, 4096):
                    pass

    def ring(self, number: int, _frame: object) -> None:
        if number != signal.SIGCHLD:
            self.hurry = self.stop
            self.stop = True
            if self.interrupting and not self.hurry:
                raise KeyboardInterrupt


@contextlib.contextmanager
def bell() -> Generator[Bell]:
    """Turn this process's signals into a Bell, for the main thread."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    ringing = Bell(reading)
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
    before = {number: signal.signal(number, ringing.ring) for number in numbers}
    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield ringing
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)


def how_it_ended(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit {code}"


def import_path() -> str:
    """Where children find our packages: the folder this program itself was imported from."""
    return str(Path(app.__file__).parents[1])
