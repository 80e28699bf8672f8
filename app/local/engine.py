"""The container engine of this machine: find the one that runs, else (as root on Debian) install and start one.

A running engine is never restarted, configured or replaced. Ours is a plain `dockerd` with its own data folder, on the usual
socket when nothing is there; it outlives us, because its images and the sandboxes of other homes do too. `python -m
app.local.engine` finds or starts it and prints where it is; `… stop` ends the one that we started.

Which packages, and why those: reference measurements of this project. Debian 12's own docker.io (20.10) has no buildx and an
old BuildKit; Debian 13's (26.1) runs on Debian 12's libc and runc, so it is taken where the machine's mirror offers it.
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
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from app.local import apt
from app.local.errors import EngineForbidden, EngineInstallFailed, EngineUnavailable, NoSpace
from app.settings import Settings

STANDARD_SOCKET = Path("/var/run/docker.sock")
STATE = Path("/var/lib/seatrial-engine")
"""Data folder, log and pid file of the engine that we start. Fixed: every home of the machine shares the engine."""
RUN = Path("/run/seatrial-engine")
ANSWER_SECONDS = 10.0
START_SECONDS = 60.0
SPACE_BYTES = 3 * 1024**3
NEWER = "trixie"
"""The release whose engine runs on bookworm too. runc is not taken from it: it needs a newer libc."""
NEWER_PACKAGES = ("docker.io", "docker-cli", "containerd", "docker-buildx")
COMMON_PACKAGES = ("iptables", "ca-certificates")

Progress = Callable[[str], None]
Ask = Callable[[str], bool]


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

    `progress` gets a line before each slow step; `ask` is put the question whether to install (None: no one to ask, so
    install). Raises EngineUnavailable or NoSpace with the remedy. Safe to call from several processes at once.
    """
    engine = find(settings)
    if engine is not None:
        return engine
    system = apt.release()
    if os.geteuid() != 0:
        how = (
            "run `sudo apt-get install docker.io`"
            if system.is_debian_like
            else "install Docker or Podman's Docker socket"
        )
        raise EngineUnavailable(f"No container engine runs and only root may install one; {how} and start it.")
    with _locked():
        engine = find(settings)
        if engine is not None:
            return engine
        if shutil.which("dockerd") is None:
            _install(system, progress, ask)
        progress("starting the container engine")
        return _start()


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


def _install(system: apt.Release, progress: Progress, ask: Ask | None) -> None:
    if not system.is_debian_like or not apt.has_apt():
        raise EngineUnavailable(
            "No container engine is installed; install Docker from your system's packages and start it."
        )
    _check_space(Path("/var/lib"))
    if ask is not None and not ask("No container engine is installed. Install docker.io with apt now?"):
        raise EngineUnavailable(
            "No container engine is installed; run `apt-get install docker.io`, or say yes next time."
        )
    progress("installing the container engine (docker.io)")
    newer = _newer_source(system)
    try:
        if newer is not None:
            try:
                _install_newer(newer)
                return
            except apt.CommandFailed as error:
                progress(f"this mirror has no usable {NEWER} engine ({error.line}); taking {system.codename}'s own")
        with apt.private() as packages:
            packages.update()
            packages.install(["docker.io", *COMMON_PACKAGES])
            with contextlib.suppress(apt.CommandFailed):  # not in every release; the engine builds without it too
                packages.install(["docker-buildx"])
    except apt.CommandFailed as error:
        raise EngineInstallFailed(f"apt could not install docker.io ({error.line}); install it by hand.") from error


def _newer_source(system: apt.Release) -> apt.Source | None:
    """The archive of NEWER on the mirror that this machine uses, when its own release is the one before."""
    if (system.distribution, system.codename) != ("debian", "bookworm"):
        return None
    own = apt.main_archive(apt.sources(), system.codename)
    return None if own is None else msgspec.structs.replace(own, suite=NEWER, components="main")


def _install_newer(source: apt.Source) -> None:
    with apt.private([source]) as packages:
        packages.update()
        packages.install([*(f"{name}/{NEWER}" for name in NEWER_PACKAGES), *COMMON_PACKAGES])


def _start() -> Engine:
    """Start dockerd, through systemd where that runs the machine (it knows the package's unit), else as a process of its own."""
    host = f"unix://{STANDARD_SOCKET}"
    if Path("/run/systemd/system").is_dir() and shutil.which("systemctl"):
        subprocess.run(["systemctl", "start", "docker"], check=False, capture_output=True, timeout=120)
        with contextlib.suppress(EngineUnavailable):
            return _wait(host, None)
    _check_space(STATE)
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


def _check_space(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < SPACE_BYTES:
        raise NoSpace(
            f"The container engine needs {SPACE_BYTES / 1e9:.0f} GB free under {folder} and finds {free / 1e9:.1f}; free some."
        )


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
