"""On a terminal: one line is written over while a run goes on, Ctrl-C leaves the run alone, and nothing is coloured for whom
it is not."""

import asyncio
import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.cli.rig import ROOT, SECONDS, Shell, play
from tests.http.world import Team, ready_task


class Terminal:
    """A command with a terminal of its own."""

    def __init__(self, shell: Shell, *arguments: str, **variables: str) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self._descriptor, other = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "app", *arguments],
            stdin=other,
            stdout=other,
            stderr=other,
            cwd=shell.folder,
            env=kept | {"PYTHONPATH": str(ROOT), "TERM": "xterm"} | shell.variables | variables,
            start_new_session=True,
        )
        os.close(other)
        self.text = ""

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        os.killpg(self._process.pid, signal.SIGINT)

    async def read_until(self, seen: Callable[[str], object]) -> None:
        async with asyncio.timeout(SECONDS):
            while not seen(self.text):
                self.text += (await asyncio.to_thread(os.read, self._descriptor, 65536)).decode(errors="replace")

    async def end(self) -> int:
        """The exit code."""
        with contextlib.suppress(OSError):  # EIO: nobody has the other end any more
            await self.read_until(lambda _: False)
        os.close(self._descriptor)
        return await asyncio.to_thread(self._process.wait)


async def test_time_passes_on_the_line_that_is_written_over(seatrial: Shell, team: Team) -> None:
    await ready_task(team)
    terminal = Terminal(seatrial, "run", "hello", "--no-archive")
    await terminal.read_until(re.compile(r"waiting for a slot  [1-9]\d* s").search)
    await play(team)
    assert await terminal.end() == 0
    assert "\r\x1b[2Ktrial 1 scored 1.0\r\n" in terminal.text
    assert terminal.text.rstrip().splitlines()[-1].startswith("score 1.000")


async def test_ctrl_c_leaves_the_run_and_says_how_to_go_on(seatrial: Shell, team: Team) -> None:
    await ready_task(team)
    terminal = Terminal(seatrial, "run", "hello", "-k", "2")
    await terminal.read_until(lambda text: "0/2 ended  waiting" in text)
    terminal.interrupt()
    assert await terminal.end() == 130
    assert "run 1 goes on; `seatrial runs events -f 1` follows it, `seatrial runs cancel 1` ends it" in terminal.text
    assert "Traceback" not in terminal.text
    assert (await seatrial("runs", "show", "1", "--json")).json["status"] != "cancelling"


@pytest.mark.parametrize(
    ("variables", "line", "colour"),
    [({"TERM": "dumb"}, False, False), ({"NO_COLOR": "1"}, True, False), ({}, True, True)],
    ids=["dumb", "no colour", "any other"],
)
async def test_a_terminal_gets_no_more_than_it_takes(
    seatrial: Shell, team: Team, variables: dict[str, str], line: bool, colour: bool
) -> None:
    await ready_task(team)
    terminal = Terminal(seatrial, "run", "hello", "--no-archive", **variables)
    await terminal.read_until(lambda text: "run 1 " in text)
    await play(team)
    assert await terminal.end() == 0
    assert ("\x1b[2K" in terminal.text) == line
    assert "\x1b[2m" not in terminal.text or colour
