"""`make demo`, whole: from an empty home to a score that is proven, then again on what the first one left."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from app.local import state
from tests.journeys.engine import Engine
from tests.local.terminal import Done, environment, on_a_terminal
from tests.local.waiting import is_alive

pytestmark = [pytest.mark.docker, pytest.mark.harness, pytest.mark.slow]


class Place:
    """A home that nobody has used, and the empty folder that the demo is run from."""

    def __init__(self, folder: Path, docker_host: str, harness: Path) -> None:
        self.home = folder / "home"
        self.cwd = folder / "cwd"
        self.cwd.mkdir(parents=True)
        self.docker_host = docker_host
        self.environment = environment(
            SEATRIAL_HOME=str(self.home),
            SEATRIAL_HTTP_PORT="0",
            SEATRIAL_DOCKER_HOST=docker_host,
            SEATRIAL_HARNESS_HOME=str(harness),
        )

    def command(self, *arguments: str) -> Done:
        """What needs no terminal, its errors among what it says."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", *arguments],
            cwd=self.cwd,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return Done(done.returncode, done.stdout)

    def processes(self) -> list[str]:
        """The command lines of what lives and was started for this home."""
        mark, found = os.fsencode(self.home), list[str]()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                arguments, variables = ((process / name).read_bytes() for name in ("cmdline", "environ"))
            except OSError:
                continue
            if mark in arguments + variables and is_alive(int(process.name)):
                found.append(arguments.replace(b"\0", b" ").decode(errors="replace"))
        return found


@pytest.fixture(scope="module")
def place(memory_folder: Path, docker_host: str, harness: Path) -> Iterator[Place]:
    made = Place(memory_folder / "demo", docker_host, harness)
    yield made
    made.command("app.local", "down")


@pytest.fixture(scope="module")
def first(place: Place) -> tuple[Done, list[str]]:
    """The first demo, without a terminal, and which processes of it were left."""
    return place.command("app.local.demo"), place.processes()


@pytest.fixture(scope="module")
def second(place: Place, first: tuple[Done, list[str]]) -> Done:
    """The demo again on the same home, on a terminal."""
    assert first[0].code == 0, first[0].said
    return on_a_terminal([sys.executable, "-P", "-m", "app.local.demo"], cwd=place.cwd, env=place.environment)


def proven(done: Done, number: int) -> None:
    assert done.code == 0, done.said
    lines = done.said.splitlines()
    assert any(
        re.match(r"score 1\.000 +scored 1/1 .* evidence seatrial-run-" + f"{number}.tar.zst$", one) for one in lines
    )
    assert any(one.startswith(f"seatrial-run-{number}.tar.zst: whole; ") for one in lines), done.said
    assert any(re.match(r"score +1\.000 +\(1 of 1 scored\)$", one) for one in lines), done.said
    assert any(one.startswith("demo done after ") for one in lines), done.said


def test_a_first_demo_scores_proves_and_leaves_only_its_data(place: Place, first: tuple[Done, list[str]]) -> None:
    done, left = first
    proven(done, 1)
    assert "built before" not in done.said
    assert re.search(r"^down +pid \d+ ended", done.said, re.MULTILINE)
    assert "the server goes on" not in done.said
    assert left == []
    assert (place.cwd / "seatrial-run-1.tar.zst").is_file()


async def test_a_second_demo_reuses_what_is_there_and_on_a_terminal_its_server_goes_on(
    place: Place, second: Done
) -> None:
    proven(second, 2)
    for kept in (r"^schema +up to date ", r"^streams +up to date ", r"^build .* built before$"):
        assert re.search(kept, second.said, re.MULTILINE), second.said
    assert "the server goes on; stop it with `make down`" in second.said
    assert not re.search(r"^down ", second.said, re.MULTILINE)
    running = state.load(place.home)
    assert running is not None
    assert running.ready
    assert f"{running.url}/v1" in second.said

    engine = Engine(place.docker_host)
    try:
        connection = await asyncpg.connect((place.home / "run" / "database-url").read_text())
        try:
            engine.belongs_to(str(await connection.fetchval("select id from seatrial.installation")))
        finally:
            await connection.close()
        stopped = place.command("app", "down")
        assert stopped.code == 0, stopped.said
        assert not is_alive(running.pid)
        assert place.processes() == []
        assert await engine.left() == [], "of neither demo"
    finally:
        await engine.close()
