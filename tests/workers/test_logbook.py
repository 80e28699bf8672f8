"""A log keeps every line in order, or says that it is cut; a full disk never stops the work."""

import json
import resource
import signal
from pathlib import Path
from typing import Any

import pytest

from app import ids
from app.boot import House
from app.vault.redaction import Secrets
from workers import logbook
from workers.logbook import Logbook


def book(house: House, path: Path, **more: Any) -> Logbook:
    return Logbook(house, team=ids.new("team"), kind="trial", owner=ids.new("trial"), attempt=1, path=path, **more)


def lines(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes()
    assert content == b"" or content.endswith(b"\n")
    return [json.loads(line) for line in content.splitlines()]


async def test_every_line_is_kept_in_order(house: House, tmp_path: Path) -> None:
    written = book(house, tmp_path / "log")
    for number in range(500):
        written.write("agent", "stdout", f"line {number}\n")
    await written.close()
    await written.close()
    assert [line["text"] for line in lines(tmp_path / "log")] == [f"line {number}\n" for number in range(500)]
    assert not written.truncated


async def test_a_log_that_was_closed_takes_nothing_more(house: House, tmp_path: Path) -> None:
    written = book(house, tmp_path / "log")
    await written.close()
    written.write("agent", "stdout", "late\n")
    assert lines(tmp_path / "log") == []


async def test_a_log_ends_at_its_limit_and_says_so(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logbook, "LIMIT_BYTES", 1000)
    written = book(house, tmp_path / "log")
    for _ in range(100):
        written.write("agent", "stdout", "a line\n")
    await written.close()
    assert written.truncated
    assert 0 < (tmp_path / "log").stat().st_size <= 1000
    assert lines(tmp_path / "log")


async def test_a_disk_that_takes_no_more_ends_the_log_with_a_whole_line(house: House, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handled = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    written = book(house, tmp_path / "log", secrets=Secrets(["hunter2hunter2"]))
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        for number in range(100):
            written.write("agent", "stdout", f"line {number} hunter2hunter2\n")
        await written.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handled)
    assert written.truncated
    kept = [line["text"] for line in lines(tmp_path / "log")]
    assert kept == [f"line {number} [redacted]\n" for number in range(len(kept))]
    assert kept


async def test_a_device_without_space_leaves_an_empty_log_that_says_it_is_cut(house: House) -> None:
    written = book(house, Path("/dev/full"))
    written.write("agent", "stdout", "a line\n")
    await written.close()
    assert written.truncated
