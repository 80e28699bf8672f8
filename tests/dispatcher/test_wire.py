"""Frames come out as they went in, however the stream is cut; nothing that is no frame is believed."""

import asyncio
import json
import socket
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.dispatcher.harness import wire

HEADERS = st.dictionaries(
    st.text(max_size=20).filter(lambda key: key != "n"),
    st.none() | st.booleans() | st.integers() | st.text(),
    max_size=5,
)
FRAMES = st.lists(st.tuples(HEADERS, st.binary(max_size=2000)), max_size=6)


async def read_all(data: bytes, cuts: list[int]) -> list[tuple[wire.Header, bytes]]:
    reader = asyncio.StreamReader()
    found: list[tuple[wire.Header, bytes]] = []

    async def take() -> None:
        try:
            while True:
                found.append(await wire.read(reader))
        except asyncio.IncompleteReadError:
            return

    taking = asyncio.create_task(take())
    at = 0
    for cut in sorted(cuts):
        reader.feed_data(data[at : max(at, cut % (len(data) + 1))])
        at = max(at, cut % (len(data) + 1))
        await asyncio.sleep(0)
    reader.feed_data(data[at:])
    reader.feed_eof()
    await taking
    return found


@given(FRAMES, st.lists(st.integers(min_value=0, max_value=100_000), max_size=8))
def test_frames_come_out_as_they_went_in(frames: list[tuple[wire.Header, bytes]], cuts: list[int]) -> None:
    data = b"".join(wire.pack(header, body) for header, body in frames)
    found = asyncio.run(read_all(data, sorted(cut % (len(data) + 1) for cut in cuts)))
    assert [({k: v for k, v in header.items() if k != "n"}, body) for header, body in found] == frames


@given(st.binary(max_size=300))
def test_noise_is_never_believed(noise: bytes) -> None:
    """Whatever comes: a frame, the end, or BadFrame; and never a wait for more than it announces."""
    try:
        found = asyncio.run(read_all(noise, []))
    except wire.BadFrame:
        return
    for header, _ in found:
        assert isinstance(header, dict)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", wire.MAX_HEADER + 1),
        struct.pack(">I", 2) + b"[]",
        struct.pack(">I", 4) + b"nope",
        struct.pack(">I", 9) + b'{"n": -1}',
        struct.pack(">I", 12) + b'{"n": "text"}'[:12],
        wire.pack({"n": wire.MAX_BODY + 1}),
    ],
)
async def test_a_frame_that_lies_is_refused(data: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(data + b"x" * 64)
    reader.feed_eof()
    with pytest.raises(wire.BadFrame):
        await wire.read(reader)


def test_too_much_for_a_frame_is_refused_before_it_is_sent() -> None:
    with pytest.raises(wire.BadFrame, match="does not fit"):
        wire.pack({}, b"x" * (wire.MAX_BODY + 1))
    with pytest.raises(wire.BadFrame, match="does not fit"):
        wire.pack({"text": "x" * wire.MAX_HEADER})


@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_the_first_frame_is_read_without_a_byte_of_the_next(piece: int) -> None:
    ours, theirs = socket.socketpair()
    first: dict[str, Any] = {"trial": "x", "config": {"a": [1, 2]}}
    data = wire.pack(first) + wire.pack({"op": "cancel"})
    for at in range(0, len(data), piece):
        ours.sendall(data[at : at + piece])
    assert wire.read_first(theirs) == first
    rest = theirs.recv(1000)
    assert json.loads(rest[4:]) == {"op": "cancel"}
    ours.close()
    with pytest.raises(EOFError):
        wire.read_first(theirs)
    theirs.close()
