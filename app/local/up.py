"""`seatrial up`: everything of one machine, started in order, watched until told to stop, stopped in order.

What is needed and lacks is made here: the data folders, the databases, the schema, the bus's streams, the first API key, the
container engine, the harness environment. Each is quick when it is there already.
"""

import contextlib
import http.client
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from app import digests
from app.local import child, engine, harness, state
from app.local.docker_packages import Ask
from app.local.errors import LocalError, ServerFailed, ToolMissing
from app.local.nats import Nats
from app.local.process import available
from app.local.report import End, Message, Report
from app.local.steps import (
    check_port,
    chosen,
    environment_of,
    free_http_port,
    make_home,
    prepare_schema,
    start_nats,
    start_postgres,
    write_urls,
)
from app.local.supervisor import STOPPING_SECONDS, Process, Server, Supervisor, bell, groups_of, import_path
from app.settings import PREFIX, Settings

READY_SECONDS = 90.0


def up(
    settings: Settings, report: Report, *, ask: Ask | None = None, detached: bool = False, restored: bool = False
) -> None:
    """Start everything, supervise until SIGTERM or SIGINT, stop everything. From the main thread.

    `detached` only changes what is said: nobody can press Ctrl-C. `restored`: the database was restored from a backup.

    Raises LocalError (or a KeyboardInterrupt during the start), with nothing left running.
    """
    home = settings.home_path
    started = time.monotonic()
    if not state.is_running(home):  # else the port is ours, and `only_one` says so
        check_port(settings)
    make_home(home)
    with state.only_one(home), bell() as ringing, contextlib.ExitStack() as stack:
        ringing.interrupting = True
        pid = os.getpid()
        facts = state.State(pid, state.start_ticks(pid), time.time(), settings.base_url, ready=False)
        state.save(home, facts)
        port = free_http_port(settings, home)
        servers: dict[str, Server] = {}
        database_url = start_postgres(settings, home, servers, stack, report)
        ringing.check()
        nats_url = start_nats(settings, home, servers, stack, report)
        ringing.check()
        prepare_schema(database_url, nats_url, home, report, restored=restored)
        ringing.check()
        with report.step("engine") as step:
            found = engine.ensure(settings, progress=step.progress, ask=ask)
            step.detail = f"docker {found.version} at {found.host}"
        ringing.check()
        with report.step("harness") as step:
            built = harness.build(settings.harness_path, step.progress)
            step.detail = f"Harbor {built.version}, overlay {digests.digits_of(built.digest)[:12]}"
        values = chosen(settings, home, found.host, port)
        if "api" not in available():
            raise ToolMissing("Seatrial's processes are not installed; run `make setup`, or install its wheel.")
        groups = groups_of(sorted(available()))
        processes = [Process(group, home / "logs") for group in groups]
        ringing.check()
        ringing.interrupting = False
        facts = msgspec.structs.replace(facts, url=values.base_url, engine=found.host)

        def environment() -> Mapping[str, str]:
            postgres, nats = servers.get("postgres"), servers.get("nats")
            write_urls(
                home,
                {
                    "database-url": postgres.url if postgres else database_url,
                    "nats-url": nats.worker_url if isinstance(nats, Nats) else nats_url,
                    "nats-relay-url": nats.url if nats else settings.nats_relay_url or nats_url,
                },
            )
            return environment_of(values, os.environ)

        def changed() -> None:
            nonlocal facts
            facts = msgspec.structs.replace(facts, servers=supervisor.servers(), processes=supervisor.processes())
            state.save(home, facts)

        supervisor = Supervisor(
            servers,
            processes,
            environment=environment,
            drain_seconds=settings.drain_seconds,
            say=report.say,
            changed=changed,
        )
        stack.pop_all()  # from here on the supervisor stops the servers
        try:
            with report.step("processes") as step:
                supervisor.start_processes()
                _await_api(values, supervisor, processes, lambda: ringing.stop)
                step.detail = " ".join(group.name for group in groups)
            if not ringing.stop:
                facts = msgspec.structs.replace(facts, ready=True)
                changed()
                report.say(f"Seatrial is ready after {time.monotonic() - started:.1f} s")
                report.say(f"  API    {values.base_url}/v1")
                report.say(f"  docs   {values.base_url}/docs")
                report.say(f"  key    {state.key_file(home)}")
                report.say(f"  logs   {home / 'logs'}")
                report.say(f"  stop   seatrial down{'' if detached else ' (or Ctrl-C here)'}")
                report.end()
                supervisor.watch(ringing)
        finally:
            report.say(f"stopping{'' if detached else ' (a second Ctrl-C does not wait for running work)'}")
            supervisor.stop(ringing)
            report.say("stopped")


def up_detached(settings: Settings, report: Report, *, ask: Ask | None = None, restored: bool = False) -> None:
    """Start a supervisor that outlives us, and follow it until it is ready. Raises LocalError with what it says, and
    AlreadyRunning (that one may still be starting: `state.await_ready`).

    With `ask` the engine and its command are found or installed from here: the supervisor has no terminal to ask on.
    """
    home = settings.home_path
    if state.is_running(home):
        raise state.already_running(home)
    check_port(settings)
    make_home(home)
    if ask is not None:
        engine.ensure(settings, progress=report.say, ask=ask)
    reading, writing = os.pipe()
    log = home / "logs" / "up.log"
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "app.local",
                "up",
                "--report",
                str(writing),
                *(["--restored"] if restored else []),
            ],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            cwd="/",
            env={**os.environ, "PYTHONPATH": import_path(), PREFIX + "HOME": str(home)},
            start_new_session=True,
            pass_fds=(writing,),
        )
    finally:
        os.close(descriptor)
        os.close(writing)
    try:
        end = _follow(reading, report)
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    if end is None:
        raise ServerFailed(f"The server ended while it started ({child.last_line(log)}); see {log}.")
    if end.error is not None:
        process.wait()
        if state.is_running(home):  # another one was faster
            raise state.already_running(home)
        raise LocalError(end.error)
    report.end()


def _follow(descriptor: int, report: Report) -> End | None:
    """Say what the supervisor says. Returns how its start ended; None when it ended without a word."""
    decoder = msgspec.json.Decoder(Message)
    with os.fdopen(descriptor, "rb") as lines:
        for line in lines:
            message = decoder.decode(line)
            if isinstance(message, End):
                return message
            report.say(message.text)
    return None


def down(settings: Settings, report: Report) -> bool:
    """Stop the server of this home and wait for its end. False when none runs."""
    home = settings.home_path
    if not state.is_running(home):
        return False
    found = state.load(home)
    if found is None:
        raise LocalError("Seatrial is just starting or stopping; try again in a moment.")
    try:
        descriptor = os.pidfd_open(found.pid)
    except ProcessLookupError:
        return False
    try:
        if state.start_ticks(found.pid) != found.start_ticks:
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        with report.step("down") as step:
            patience_seconds = 3 * (settings.drain_seconds + 10) + STOPPING_SECONDS + 60
            ended, _, _ = select.select([descriptor], [], [], patience_seconds)  # readable when the process has ended
            step.detail = f"pid {found.pid} {'ended' if ended else 'does not end'}"
    finally:
        os.close(descriptor)
    if not ended:
        raise LocalError(
            f"Process {found.pid} does not end; see {home / 'logs'}, or end it with `kill -9 {found.pid}`."
        )
    return True


def _await_api(
    settings: Settings, supervisor: Supervisor, processes: Sequence[Process], stopping: Callable[[], bool]
) -> None:
    """Wait until the API says that it is ready."""
    host = "127.0.0.1" if settings.http_host in ("0.0.0.0", "::", "") else settings.http_host  # noqa: S104 - compared, not bound
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and not stopping():
        client = http.client.HTTPConnection(host, settings.http_port, timeout=5)
        try:
            client.request("GET", "/readyz")
            if client.getresponse().status == 200:
                return
        except (OSError, http.client.HTTPException):
            pass
        finally:
            client.close()
        supervisor.turn()
        time.sleep(0.05)
    if not stopping():
        log = next(process.log for process in processes if process.group.name == "api")
        last = child.last_line(log)
        raise ServerFailed(f"The API was not ready within {READY_SECONDS:.0f} s ({last}); see {log}.")


def report_to(descriptor: int) -> Callable[[Message], None]:
    """A sink for `up --report`: JSON lines into an inherited pipe, closed after the end of the start."""
    file = os.fdopen(descriptor, "wb", buffering=0)
    os.set_inheritable(descriptor, False)

    def send(message: Message) -> None:
        file.write(msgspec.json.encode(message) + b"\n")
        if isinstance(message, End):
            file.close()

    return send
