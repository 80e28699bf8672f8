"""`seatrial up`, whole: real servers, real processes, killed and started again."""

import http.client
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.local import state
from app.local.supervisor import GROUPS
from tests.local.waiting import is_alive, wait_for

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.docker, pytest.mark.harness, pytest.mark.slow]


class Home:
    """A home of its own, and the commands of `python -m app.local` on it."""

    def __init__(self, folder: Path, docker_host: str, harness: Path) -> None:
        self.folder = folder
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SEATRIAL_")},
            "PYTHONPATH": str(ROOT),
            "SEATRIAL_HOME": str(folder),
            "SEATRIAL_HTTP_PORT": "0",
            "SEATRIAL_DOCKER_HOST": docker_host,
            "SEATRIAL_HARNESS_HOME": str(harness),
            "SEATRIAL_DRAIN_SECONDS": "30",
        }

    def run(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "app.local", *arguments],
            env={**self.environment, **environment},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    @property
    def state(self) -> state.State:
        found = state.load(self.folder)
        assert found is not None
        return found

    def has_healed(self, victim: "state.ServerState | state.ProcessState") -> bool:
        found = self.state
        now = {one.name: one for one in (*found.servers, *found.processes)}[victim.name]
        return now.pid not in (0, victim.pid) and now.restarts > victim.restarts

    def pids(self) -> list[int]:
        found = self.state
        return [found.pid, *(one.pid for one in (*found.servers, *found.processes))]


@pytest.fixture
def home(memory_folder: Path, docker_host: str, harness: Path, request: pytest.FixtureRequest) -> Iterator[Home]:
    made = Home(memory_folder / request.node.name[:60], docker_host, harness)
    yield made
    made.run("down")


def readyz(url: str) -> int:
    client = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    try:
        client.request("GET", "/readyz")
        return client.getresponse().status
    except OSError:
        return 0
    finally:
        client.close()


def test_up_status_and_down(home: Home) -> None:
    assert home.run("status").returncode == 3
    started = home.run("up", "--detach")
    assert started.returncode == 0, started.stdout + started.stderr
    steps = [line.split()[0] for line in started.stdout.splitlines()]
    for step in ("postgres", "nats", "schema", "streams", "engine", "harness", "processes"):
        assert step in steps
    assert home.state.ready
    assert readyz(home.state.url) == 200
    assert {process.name for process in home.state.processes} == {group.name for group in GROUPS}
    assert json.loads(home.run("status", "--json").stdout)["url"] == home.state.url

    for arguments in (("up",), ("up", "--detach")):
        again = home.run(*arguments)
        assert (again.returncode, f"running already (pid {home.state.pid}, " in again.stdout) == (0, True)

    secrets = [
        (home.folder / "postgres" / "password").read_bytes(),
        (home.folder / "nats" / "relay-password").read_bytes(),
        (home.folder / "nats" / "worker-password").read_bytes(),
        (home.folder / "keys" / "local-admin").read_bytes().strip(),
    ]
    for pid in home.pids():
        for name in ("cmdline", "environ"):
            content = Path(f"/proc/{pid}/{name}").read_bytes()
            assert [secret for secret in secrets if secret in content] == []
    for log in (home.folder / "logs").iterdir():
        assert [secret for secret in secrets if secret in log.read_bytes()] == []
    private = [*(home.folder / "run").iterdir(), home.folder / "keys" / "local-admin"]
    for path in private:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    pids = home.pids()
    stopped = home.run("down")
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    assert [pid for pid in pids if is_alive(pid)] == []
    assert "killed" not in (home.folder / "logs" / "up.log").read_text(), "every process ended by itself"
    assert "not running" in home.run("down").stdout


def test_every_kill_is_healed_and_a_killed_supervisor_leaves_nothing(home: Home) -> None:
    started = home.run("up", "--detach")
    assert started.returncode == 0, started.stdout + started.stderr
    url = home.state.url
    before = home.state
    for victims in ([before.servers[0]], [before.servers[1]], before.processes):
        for victim in victims:
            os.kill(victim.pid, signal.SIGKILL)
        wait_for(lambda victims=victims: all(home.has_healed(victim) for victim in victims), 60)
    wait_for(lambda: readyz(url) == 200)

    pids = home.pids()
    os.kill(home.state.pid, signal.SIGKILL)
    wait_for(lambda: not any(is_alive(pid) for pid in pids))
    assert home.run("status").returncode == 3
    again = home.run("up", "--detach")
    assert again.returncode == 0, again.stdout + again.stderr
    assert home.state.url == url, "the port is kept"


def test_a_port_that_is_taken_is_told_with_the_setting_and_nothing_stays(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = str(stranger.getsockname()[1])
        for arguments in (("up",), ("up", "--detach")):
            failed = home.run(*arguments, SEATRIAL_HTTP_PORT=port)
            assert failed.returncode == 1
            last = failed.stderr.strip().splitlines()[-1]
            assert f"error: Port {port} is taken" in last
            assert "SEATRIAL_HTTP_PORT" in last
        assert not home.folder.exists(), "nothing was written"


def test_an_interrupted_start_leaves_nothing(home: Home) -> None:
    starting = subprocess.Popen(
        [sys.executable, "-m", "app.local", "up"], env=home.environment, stdout=subprocess.PIPE, text=True, cwd="/"
    )
    assert starting.stdout is not None
    assert starting.stdout.readline().startswith("postgres")
    starting.send_signal(signal.SIGTERM)
    starting.communicate()
    assert starting.returncode in (0, 130)
    assert not state.is_running(home.folder)
    for name in ("postgres", "nats"):
        lease = home.folder / name / "lease"
        assert not lease.exists() or subprocess.run(["flock", "--nonblock", str(lease), "true"]).returncode == 0


def test_a_misspelt_setting_is_named(home: Home) -> None:
    failed = home.run("up", SEATRIAL_HTP_PORT="1")
    assert failed.returncode == 1
    assert "SEATRIAL_HTP_PORT" in failed.stderr


def test_external_servers_are_used_and_their_secrets_go_by_file(home: Home, database: str, nats_clean: str) -> None:
    started = home.run("up", "--detach", SEATRIAL_DATABASE_URL=database, SEATRIAL_NATS_URL=nats_clean)
    assert started.returncode == 0, started.stdout + started.stderr
    assert home.state.servers == ()
    assert not (home.folder / "postgres").exists()
    assert not (home.folder / "nats").exists()
    for process in home.state.processes:
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        assert database.encode() not in environment
        assert nats_clean.encode() not in environment
    assert home.run("down").returncode == 0


def test_a_database_that_does_not_answer_is_told_with_its_setting(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
    failed = home.run("up", SEATRIAL_DATABASE_URL=f"postgresql://user:secret@127.0.0.1:{port}/base")
    assert failed.returncode == 1
    assert "SEATRIAL_DATABASE_URL" in failed.stderr
    assert "secret" not in failed.stderr + failed.stdout
