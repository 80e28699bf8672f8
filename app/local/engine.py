"""The container engine of this machine: find the one that runs, else (as root on Debian) install and start one.

A running engine is never restarted, configured or replaced. Ours is a plain `dockerd` with its own data folder, on the usual
socket when nothing is there; it outlives us, because its images and the sandboxes of other homes do too. `python -m
app.local.engine` finds or starts it and prints where it is; `… stop` ends the one that we started.
"""

import contextlib
import fcntl
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from app.local import apt, docker_packages
from app.local.docker_packages import Ask, Progress
from app.local.errors import EngineForbidden, EngineUnavailable, ToolMissing
from app.settings import Settings

STANDARD_SOCKET = Path("/var/run/docker.sock")
STATE = Path("/var/lib/seatrial-engine")
"""Data folder, log and pid file of the engine that we start. Fixed: every home of the machine shares the engine."""
RUN = Path("/run/seatrial-engine")
ANSWER_SECONDS = 10.0
START_SECONDS = 60.0


class Engine(msgspec.Struct, frozen=True):
    """An engine that answers. `host` is its address in Docker's form (unix:///… or tcp://…)."""

    host: str
    version: str
    api_version: str


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("engine", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def connection(host: str, timeout: float = ANSWER_SECONDS) -> http.client.HTTPConnection:
    """A new, unopened HTTP connection to an engine. Raises EngineUnavailable for an address of another kind."""
    address = urlsplit(host)
    if address.scheme == "unix":
        return _UnixConnection(address.path, timeout)
    if address.scheme in ("tcp", "http") and address.hostname:
        return http.client.HTTPConnection(address.hostname, address.port or 2375, timeout=timeout)
    raise EngineUnavailable(
        f"{host!r} is not an engine's address that we can use: give unix:///path or tcp://host:port."
    )


def probe(host: str, timeout: float = ANSWER_SECONDS) -> Engine:
    """Ask an engine for its version. Raises EngineUnavailable (EngineForbidden when the socket refuses this user)."""
    client = connection(host, timeout)
    try:
        client.request("GET", "/version", headers={"Host": "engine"})
        answer = client.getresponse()
        facts = json.loads(answer.read())
        return Engine(host=host, version=str(facts["Version"]), api_version=str(facts["ApiVersion"]))
    except PermissionError as error:
        raise EngineForbidden(
            f"{host} refuses this user; run `sudo usermod -aG docker {_user()}` and log in again."
        ) from error
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        raise EngineUnavailable(
            f"No container engine answers at {host}; start it, or set SEATRIAL_DOCKER_HOST to the one to use."
        ) from error
    finally:
        client.close()


def candidates(settings: Settings, environment: Mapping[str, str]) -> list[str]:
    """Where an engine may be, best first. A host that somebody set is the only candidate: nothing else is meant."""
    chosen = settings.docker_host or environment.get("DOCKER_HOST", "")
    if chosen:
        return [chosen]
    home = environment.get("HOME", "")
    paths = [STANDARD_SOCKET]
    if runtime := environment.get("XDG_RUNTIME_DIR"):
        paths.append(Path(runtime) / "docker.sock")
    if home:
        paths += [Path(home) / place for place in (".docker/run/docker.sock", ".docker/desktop/docker.sock")]
        paths += [
            Path(home) / place
            for place in (".colima/default/docker.sock", ".rd/docker.sock", ".orbstack/run/docker.sock")
        ]
    return [f"unix://{path}" for path in paths]


def find(settings: Settings, environment: Mapping[str, str] | None = None) -> Engine | None:
    """The engine that runs, or None. Raises EngineUnavailable when the one that is set does not answer or refuses us."""
    environment = os.environ if environment is None else environment
    hosts = candidates(settings, environment)
    if len(hosts) == 1:
        return probe(hosts[0])
    forbidden: EngineForbidden | None = None
    for host in hosts:
        try:
            return probe(host)
        except EngineForbidden as error:
            forbidden = error
        except EngineUnavailable:
            continue
    if forbidden is not None:
        raise forbidden
    return None


def ensure(settings: Settings, *, progress: Progress = lambda line: None, ask: Ask | None = None) -> Engine:
    """The engine of this machine, installed and started when there is none and we may.

    With it comes the command `docker buildx`, which builds. `progress` gets a line before each slow step; `ask` is put the
    question whether to install (None: no one to ask, so install). Raises EngineUnavailable, ToolMissing or NoSpace with the
    remedy. Safe to call from several processes at once.
    """
    engine = find(settings)
    if engine is not None and docker_packages.has_client():
        return engine
    system = apt.release()
    if os.geteuid() != 0:
        if engine is not None:
            raise ToolMissing("Building needs the command `docker buildx`; install it from your system's packages.")
        how = "run `sudo apt-get install docker.io`" if system.is_debian_like else "install Docker"
        raise EngineUnavailable(f"No container engine runs and only root may install one; {how} and start it.")
    with _locked():
        engine = find(settings)
        if engine is None and shutil.which("dockerd") is None:
            docker_packages.install_engine(system, progress, ask)
        if not docker_packages.has_client():
            docker_packages.install_client(system, progress, ask)
        if engine is None:
            progress("starting the container engine")
            engine = _start()
        return engine


def stop() -> bool:
    """End the engine that `ensure` started, with every container that runs in it. False when there is none."""
    pid = _our_pid()
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 30
    while _our_pid() is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    return _our_pid() is None


def _start() -> Engine:
    """Start dockerd, through systemd where that runs the machine (it knows the package's unit), else as a process of its own."""
    host = f"unix://{STANDARD_SOCKET}"
    if Path("/run/systemd/system").is_dir() and shutil.which("systemctl"):
        subprocess.run(["systemctl", "start", "docker"], check=False, capture_output=True, timeout=120)
        with contextlib.suppress(EngineUnavailable):
            return _wait(host, None)
    docker_packages.check_space(STATE)
    RUN.mkdir(parents=True, exist_ok=True, mode=0o711)
    # dockerd refuses to start when any process has the first pid now, and waits 10 s for a dead containerd with the second.
    for pid_file in (RUN / "dockerd.pid", RUN / "exec" / "containerd" / "containerd.pid"):
        if _running(pid_file, RUN / "exec") is None:
            pid_file.unlink(missing_ok=True)
    log = STATE / "dockerd.log"
    arguments = [
        "dockerd",
        *("--host", host),
        *("--data-root", str(STATE / "data")),
        *("--exec-root", str(RUN / "exec")),
        *("--pidfile", str(RUN / "dockerd.pid")),
        *("--log-level", "warn"),
        *("--default-address-pool", "base=172.18.0.0/15,size=24"),  # 512 networks instead of 31
        "--icc=false",  # sandboxes on the default bridge do not reach each other
    ]
    with log.open("ab") as output:
        process = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/", start_new_session=True
        )
    return _wait(host, process)


def _wait(host: str, process: "subprocess.Popen[bytes] | None") -> Engine:
    deadline = time.monotonic() + (START_SECONDS if process is not None else 15)
    while time.monotonic() < deadline:
        try:
            return probe(host, timeout=5)
        except EngineUnavailable:
            if process is not None and process.poll() is not None:
                break
            time.sleep(0.1)
    log = STATE / "dockerd.log"
    if process is not None and process.poll() is None:
        process.terminate()
    raise EngineUnavailable(f"The container engine did not start ({_last_line(log)}); see {log}.")


def _our_pid() -> int | None:
    """The pid of the dockerd that we started, while it lives."""
    return _running(RUN / "dockerd.pid", RUN / "exec")


def _running(pid_file: Path, folder: Path) -> int | None:
    """The pid in a file, if a process with an argument in `folder` has it: not a zombie, nor another program by now."""
    try:
        pid = int(pid_file.read_text())
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if any(argument.startswith(os.fsencode(folder)) for argument in arguments) else None


@contextlib.contextmanager
def _locked() -> Generator[None]:
    STATE.mkdir(parents=True, exist_ok=True, mode=0o711)
    with (STATE / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return "no log"
    return next((line[-300:] for line in reversed(lines) if line.strip()), "empty log")


def _user() -> str:
    return os.environ.get("USER") or str(os.geteuid())


def confirm(question: str) -> bool:
    """Ask on the terminal; an empty answer means yes."""
    return input(f"{question} [Y/n] ").strip().lower() in ("", "y", "yes")


def main(arguments: list[str]) -> int:
    from app import settings
    from app.local.errors import LocalError

    if arguments == ["stop"]:
        print("stopped" if stop() else "no engine of ours runs")
        return 0
    try:
        ask = confirm if sys.stdin.isatty() else None
        engine = ensure(settings.load(), progress=lambda line: print(line, file=sys.stderr, flush=True), ask=ask)
    except (LocalError, settings.SettingsInvalid) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{engine.host}  docker {engine.version}  API {engine.api_version}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
