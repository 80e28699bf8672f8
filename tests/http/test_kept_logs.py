"""An archived log is read from the middle: the same chunks as from its beginning, at a cost that does not grow."""

import datetime
from collections.abc import AsyncIterator
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.bus.logs import LogChunk, encode
from app.http import kept_logs
from app.objects import Stored
from app.objects.files import FileStore

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class Counting:
    """A store, and how many bytes were asked of it."""

    def __init__(self, store: FileStore) -> None:
        self.store, self.read, self.reads = store, 0, 0

    async def open(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        self.reads += 1
        async for piece in self.store.open(key, start=start, end=end):
            self.read += len(piece)
            yield piece


def line(sequence: int, text: str) -> bytes:
    chunk = LogChunk(owner="trl_x", sequence=sequence, stream="stdout", phase="agent", time=NOW, text=text)
    return encode(chunk) + b"\n"


async def kept(folder: Path, content: bytes) -> tuple[Counting, Stored]:
    store = FileStore(folder)
    key = f"executions/exe_{len(content)}/log.jsonl"
    await store.delete(key)
    return Counting(store), await store.put_new(key, content)


async def after(counting: Counting, stored: Stored, sequence: int, limit: int) -> list[int]:
    found: list[int] = []
    async for chunk in kept_logs.chunks_after(counting, stored, sequence):  # type: ignore[arg-type]
        found.append(chunk.sequence)
        if len(found) >= limit:
            break
    return found


async def test_a_page_costs_the_same_wherever_it_lies(tmp_path: Path) -> None:
    many = 40_000
    counting, stored = await kept(
        tmp_path, b"".join(line(number, "x" * (number % 200)) for number in range(1, many + 1))
    )
    assert stored.size_bytes > 7 * 1024**2
    costs: list[int] = []
    for place in (0, many // 3, many // 2, many - 60):
        counting.read = counting.reads = 0
        assert await after(counting, stored, place, 50) == list(range(place + 1, place + 51))
        costs.append(counting.read)
        assert counting.reads <= 12
    assert max(costs) < 3 * 1024**2
    counting.reads = 0
    assert await after(counting, stored, many, 50) == []
    assert counting.reads <= 12


@given(
    texts=st.lists(st.integers(0, 5_000), max_size=30),
    steps=st.lists(st.integers(1, 4), min_size=30, max_size=30),
    place=st.integers(0, 130),
    window=st.integers(1, 3_000),
    probe=st.integers(1, 6_000),
    junk=st.booleans(),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
async def test_it_finds_what_reading_from_the_beginning_finds(
    tmp_path: Path, texts: list[int], steps: list[int], place: int, window: int, probe: int, junk: bool
) -> None:
    """Whatever the sizes of lines, windows and probes, and with lines between that are no chunks."""
    sequence, content, sequences = 0, b"", []
    for size, step in zip(texts, steps, strict=False):
        sequence += step
        sequences.append(sequence)
        content += line(sequence, "y" * size) + (b"no chunk\n" if junk else b"")
    before = kept_logs.WINDOW_BYTES, kept_logs.PROBE_BYTES
    kept_logs.WINDOW_BYTES, kept_logs.PROBE_BYTES = window, probe
    try:
        counting, stored = await kept(tmp_path, content)
        assert await after(counting, stored, place, 1_000) == [one for one in sequences if one > place]
    finally:
        kept_logs.WINDOW_BYTES, kept_logs.PROBE_BYTES = before


async def test_a_file_that_is_gone_has_nothing(tmp_path: Path) -> None:
    counting, stored = await kept(tmp_path, line(1, "a"))
    await counting.store.delete(stored.key)
    assert await after(counting, stored, 0, 10) == []


async def test_a_file_is_described_once(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    key = "executions/exe_1/log.jsonl"
    assert await kept_logs.described(store, key) is None  # it may come yet
    stored = await store.put_new(key, line(1, "a"))
    assert await kept_logs.described(store, key) == stored
    await store.delete(key)
    assert await kept_logs.described(store, key) == stored
