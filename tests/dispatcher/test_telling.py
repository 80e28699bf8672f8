"""Phases and output reach the listener in order, and a listener can never hold up a trial."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.dispatcher.harness import telling
from workers.dispatcher.harness.model import LogChunk, Phase
from workers.dispatcher.harness.telling import Output, Teller

Heard = list[Phase | LogChunk]


class Listener:
    def __init__(self) -> None:
        self.heard: Heard = []
        self.open = asyncio.Event()
        self.open.set()

    async def phase(self, phase: Phase) -> None:
        self.heard.append(phase)

    async def chunk(self, chunk: LogChunk) -> None:
        await self.open.wait()
        self.heard.append(chunk)

    @property
    def text(self) -> str:
        return "".join(item.text for item in self.heard if isinstance(item, LogChunk))


def chunk(text: str, phase: Phase = "agent") -> LogChunk:
    return LogChunk(phase, "stdout", "agent", text)


async def test_phases_and_output_keep_their_order() -> None:
    listener = Listener()
    teller = Teller(listener.phase, listener.chunk)
    teller.phase("agent")
    teller.chunk(chunk("one"))
    teller.phase("verify")
    teller.chunk(chunk("two", "verify"))
    await teller.close()
    assert listener.heard == ["agent", chunk("one"), "verify", chunk("two", "verify")]


async def test_what_does_not_fit_is_dropped_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "WAITING_CHARACTERS", 100)
    listener = Listener()
    listener.open.clear()
    teller = Teller(listener.phase, listener.chunk)
    for _ in range(10):
        teller.chunk(chunk("x" * 30))
        await asyncio.sleep(0)
    teller.phase("verify")
    listener.open.set()
    await asyncio.sleep(0.05)
    teller.chunk(chunk("after", "verify"))
    await teller.close()
    assert listener.text.count("x") < 300
    missing = 300 - listener.text.count("x")
    assert f"[{missing} characters are missing here" in listener.text
    assert listener.text.endswith("after")
    assert "verify" in listener.heard, "a phase is never dropped"


async def test_a_listener_that_never_answers_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "CLOSE_SECONDS", 0.1)
    listener = Listener()
    listener.open.clear()
    teller = Teller(listener.phase, listener.chunk)
    teller.chunk(chunk("never heard"))
    await teller.close()
    assert listener.heard == []


@given(st.text(max_size=60), st.lists(st.integers(min_value=1, max_value=5), max_size=80))
def test_characters_that_a_frame_cuts_are_put_together(text: str, sizes: list[int]) -> None:
    async def run() -> str:
        listener = Listener()
        teller = Teller(listener.phase, listener.chunk)
        output, data, at = Output(teller, "stdout", "agent"), text.encode(errors="replace"), 0
        for size in sizes:
            output.feed(data[at : at + size], "agent", None)
            at += size
        output.feed(data[at:], "agent", None, final=True)
        await teller.close()
        return listener.text

    assert asyncio.run(run()) == text.encode(errors="replace").decode()
