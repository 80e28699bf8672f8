"""What a person is asked before an engine or its command is installed, and what the answers do.

No engine is on the machine that these tests make up: its sockets lead nowhere, and the only programs on its PATH are an apt-get
that notes what it was told and fails, and a dpkg-deb.
"""

import os
import sys
from pathlib import Path

import pytest

from app.local import apt
from tests.local.terminal import Done, environment, on_a_terminal

NO_ENGINE = """
import sys
from pathlib import Path
from app.local import demo, docker_packages, engine
from app.local.__main__ import main

folder = Path(sys.argv[1])
engine.STATE, engine.RUN, engine.STANDARD_SOCKET = folder / "state", folder / "run", folder / "engine.sock"
docker_packages.SPACE_BYTES = 0  # how much room there is is another test's
starts = {"engine": lambda: engine.main([]), "up": lambda: main(["up", "--detach"]), "demo": demo.main}
sys.exit(starts[sys.argv[2]]())
"""
APT = """#!/bin/sh
echo "$@" >>"$NOTED"
echo "E: The archive cannot be reached" >&2
exit 100
"""

pytestmark = pytest.mark.skipif(not apt.release().is_debian_like, reason="only Debian's family is asked")


class Machine:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.noted = folder / "noted"
        self.home = folder / "home"
        programs = folder / "bin"
        programs.mkdir()
        for name, text in (("apt-get", APT), ("dpkg-deb", "#!/bin/sh\n")):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self.environment = environment(
            PATH=str(programs),
            HOME=str(folder),
            XDG_RUNTIME_DIR=str(folder),
            NOTED=str(self.noted),
            SEATRIAL_HOME=str(self.home),
            SEATRIAL_HTTP_PORT="0",
        )

    def run(self, start: str, answer: str, **settings: str) -> Done:
        """As root, or as one who is root in a namespace of its own."""
        command = [sys.executable, "-c", NO_ENGINE, str(self.folder), start]
        if os.geteuid() != 0:
            command = ["/usr/bin/unshare", "--map-root-user", *command]
        return on_a_terminal(command, cwd=self.folder, env={**self.environment, **settings}, answer=answer)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


ENGINE_ASKED = "No container engine is installed. Install docker.io with apt now? [Y/n]"
CLIENT_ASKED = "Building needs docker-cli and docker-buildx. Install with apt now? [Y/n]"


@pytest.mark.parametrize("start", ["up", "demo"])
def test_no_is_answered_with_the_remedy_and_nothing_is_installed_or_started(machine: Machine, start: str) -> None:
    done = machine.run(start, "n")
    assert done.code == 1
    assert done.said.count(ENGINE_ASKED) == 1, done.said
    told = done.said.strip().splitlines()[-1].removeprefix("error: ")
    assert told == "No container engine is installed; run `apt-get install docker.io`, or say yes next time."
    assert not machine.noted.exists(), "apt was not asked"
    assert not (machine.home / "postgres").exists(), "and no server was started"


@pytest.mark.parametrize("answer", ["y", ""])
def test_yes_installs_and_what_apt_says_is_told(machine: Machine, answer: str) -> None:
    done = machine.run("engine", answer)
    assert done.code == 1
    assert done.said.count(ENGINE_ASKED) == 1, done.said
    assert "installing the container engine (docker.io)" in done.said
    told = done.said.strip().splitlines()[-1]
    assert told == "apt could not install docker.io (E: The archive cannot be reached); install it by hand."
    assert "update" in machine.noted.read_text()


@pytest.mark.docker
def test_the_command_that_builds_is_asked_for_too(machine: Machine, docker_host: str) -> None:
    """Where an engine runs and nobody installed what belongs to it."""
    done = machine.run("up", "n", SEATRIAL_DOCKER_HOST=docker_host)
    assert done.code == 1
    assert done.said.count(CLIENT_ASKED) == 1, done.said
    told = done.said.strip().splitlines()[-1].removeprefix("error: ")
    remedy = (
        "Building needs the command `docker buildx`; install docker-cli and docker-buildx from your system's packages."
    )
    assert told == remedy
    assert not machine.noted.exists()
    assert not (machine.home / "postgres").exists()
