"""A dispatcher's folder is its own: what a killed one left is cleared, what a living one has is never touched."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from workers.dispatcher import scratch

ROOT = Path(__file__).parents[2]
HOLDS = """
import asyncio, sys
from pathlib import Path
from workers.dispatcher import scratch
folder = Path(sys.argv[1])
async def main():
    async with scratch.held(folder):
        (folder / "trial").mkdir()
        (folder / "trial" / "output").write_text("x")
        print("held", flush=True)
        sys.stdin.read()
asyncio.run(main())
"""


def another(folder: Path) -> subprocess.Popen[bytes]:
    """A process that holds a folder and has a trial in it."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(folder)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


async def test_a_second_dispatcher_of_a_home_leaves_the_first_ones_trials_alone(tmp_path: Path) -> None:
    first = another(tmp_path / "scratch" / "a")
    try:
        async with scratch.held(tmp_path / "scratch" / "b"):
            assert (tmp_path / "scratch" / "a" / "trial" / "output").read_text() == "x"
        assert {path.name for path in (tmp_path / "scratch").iterdir()} == {"a"}
    finally:
        first.communicate(b"")
    assert list((tmp_path / "scratch").iterdir()) == []


async def test_what_a_killed_dispatcher_left_is_cleared_by_the_next(tmp_path: Path) -> None:
    killed = another(tmp_path / "scratch" / "a")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert (tmp_path / "scratch" / "a" / "trial" / "output").exists()
    async with scratch.held(tmp_path / "scratch" / "b"):
        assert {path.name for path in (tmp_path / "scratch").iterdir()} == {"b"}


async def test_files_and_links_go_and_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("x")
    (tmp_path / "scratch" / "0123456789abcdef.log").write_bytes(b"0" * 1000)
    (tmp_path / "scratch" / "link").symlink_to(tmp_path / "precious")
    os.mkfifo(tmp_path / "scratch" / "pipe")
    async with scratch.held(tmp_path / "scratch" / "b"):
        assert {path.name for path in (tmp_path / "scratch").iterdir()} == {"b"}
    assert (tmp_path / "precious" / "file").read_text() == "x"


def test_many_that_start_at_once_each_keep_their_folder(tmp_path: Path) -> None:
    held = [another(tmp_path / "scratch" / str(number)) for number in range(4)]
    try:
        for number in range(4):
            assert (tmp_path / "scratch" / str(number) / "trial" / "output").exists()
    finally:
        for process in held:
            process.communicate(b"")
