"""Finding the container engine, and saying in one sentence what is in the way."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from app.local import apt, docker_packages, engine
from app.local.errors import EngineForbidden, EngineUnavailable, NoSpace
from app.settings import Settings

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.docker


def test_the_running_engine_is_found_and_used_as_it_is(docker_host: str) -> None:
    found = engine.find(Settings(docker_host=docker_host))
    assert found is not None
    assert found.host == docker_host
    assert tuple(int(part) for part in found.api_version.split(".")) >= (1, 41)
    assert engine.ensure(Settings(docker_host=docker_host)) == found


def test_a_host_that_is_set_is_the_only_one_asked() -> None:
    assert engine.candidates(Settings(docker_host="unix:///a"), {"DOCKER_HOST": "unix:///b"}) == ["unix:///a"]
    assert engine.candidates(Settings(), {"DOCKER_HOST": "unix:///b", "HOME": "/h"}) == ["unix:///b"]


def test_the_usual_places_are_asked_the_standard_socket_first() -> None:
    found = engine.candidates(Settings(), {"HOME": "/h", "XDG_RUNTIME_DIR": "/r"})
    assert found[:2] == ["unix:///var/run/docker.sock", "unix:///r/docker.sock"]
    assert "unix:///h/.colima/default/docker.sock" in found
    assert engine.candidates(Settings(), {}) == ["unix:///var/run/docker.sock"]


def test_a_socket_that_nobody_listens_on_is_no_engine(tmp_path: Path) -> None:
    path = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    for host in (f"unix://{path}", f"unix://{tmp_path}/missing.sock"):
        with pytest.raises(EngineUnavailable, match="SEATRIAL_DOCKER_HOST"):
            engine.find(Settings(docker_host=host))


def test_another_program_on_the_port_is_no_engine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        with pytest.raises(EngineUnavailable):
            engine.probe(f"tcp://127.0.0.1:{stranger.getsockname()[1]}", timeout=0.2)


@pytest.mark.parametrize("host", ["ssh://somewhere", "docker.sock", "npipe:////./pipe/engine"])
def test_an_address_of_another_kind_is_refused_with_the_two_that_work(host: str) -> None:
    with pytest.raises(EngineUnavailable, match=r"unix:///path or tcp://host:port"):
        engine.probe(host)


def test_a_socket_that_refuses_this_user_is_told_apart(memory_folder: Path) -> None:
    folder = memory_folder / "closed"
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "engine.sock"))
        server.listen()
        child = os.fork()
        if child == 0:  # as an ordinary user, whoever runs the tests
            code = 1
            try:
                if os.geteuid() == 0:
                    os.setgroups([])
                    os.setgid(65534)
                    os.setuid(65534)
                else:
                    folder.chmod(0)
                engine.probe(f"unix://{folder}/engine.sock")
            except EngineForbidden as error:
                code = 0 if "usermod -aG docker" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    folder.chmod(0o700)


def test_a_pid_file_that_names_another_program_is_not_our_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "RUN", tmp_path)
    for text in (str(os.getpid()), "", "nonsense", "99999999"):
        (tmp_path / "dockerd.pid").write_text(text)
        assert engine._our_pid() is None
        assert engine.stop() is False


def test_too_little_disk_is_told_with_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_packages, "SPACE_BYTES", 10**18)
    with pytest.raises(NoSpace, match="1000000000 GB"):
        docker_packages.check_space(tmp_path)


def test_the_newer_engine_is_taken_for_the_release_before_it_from_the_same_mirror() -> None:
    assert docker_packages.newer_source(apt.Release("debian", (), "trixie")) is None
    assert docker_packages.newer_source(apt.Release("ubuntu", ("debian",), "noble")) is None
    own = apt.main_archive(apt.sources(), "bookworm")
    newer = docker_packages.newer_source(apt.Release("debian", (), "bookworm"))
    assert (newer is None) == (own is None)
    if newer is not None and own is not None:
        assert (newer.uri, newer.suite, newer.signed_by) == (own.uri, "trixie", own.signed_by)


OWN_ENGINE = """
import os, signal, subprocess, sys, time
from pathlib import Path
from app.local import apt, docker_packages, engine
from app.settings import Settings

folder = Path(sys.argv[1])
engine.STATE, engine.RUN, engine.STANDARD_SOCKET = folder / "state", folder / "run", folder / "engine.sock"
engine.candidates = lambda settings, environment: [f"unix://{folder}/engine.sock", f"unix://{folder}/other.sock"]

first = engine.ensure(Settings())
pid = engine._our_pid()
assert pid is not None
assert engine.ensure(Settings()) == first
assert engine._our_pid() == pid, "a running engine is used as it is"
os.kill(pid, signal.SIGKILL)
while engine._our_pid() is not None:
    time.sleep(0.01)
(folder / "run" / "dockerd.pid").write_text(str(os.getppid()))
assert engine.ensure(Settings()) == first, "a killed engine is started again, whoever has its pid now"
assert engine._our_pid() not in (None, pid)
assert engine.stop()
assert not engine.stop()
print("held")
"""


@pytest.mark.slow
def test_an_engine_of_ours_is_started_found_healed_and_stopped(memory_folder: Path, docker_host: str) -> None:
    """In a network namespace of its own, beside the machine's engine."""
    command = [
        "unshare",
        "--net",
        *([] if os.geteuid() == 0 else ["--map-root-user"]),
        sys.executable,
        "-c",
        OWN_ENGINE,
        str(memory_folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.stdout.strip() == "held", done.stderr
