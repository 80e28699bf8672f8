"""A client that sends whatever it is given and reads what HTTP comes back: no library would send the half of it."""

import asyncio
import contextlib
import re
import socket
import struct

import msgspec

from tests.http.malformed import Abuse

PATIENCE_SECONDS = 60.0
HEAD = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r]*\r\n((?:[^\r\n]+\r\n)*)\r\n")


class Answer(msgspec.Struct, frozen=True):
    status: int
    fields: dict[str, str]
    """By names in lower case."""
    body: bytes


class Came(msgspec.Struct, frozen=True):
    """What came back: whole answers, and bytes that are not one (yet)."""

    answers: tuple[Answer, ...]
    rest: bytes
    closed: bool


async def send(port: int, abuse: Abuse) -> Came:
    """Send it all, whatever the server says meanwhile, and read until there are answers enough or the server closes.

    Raises TimeoutError when neither happens.
    """
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096 if not abuse.receives else 1 << 18)
    opened.setblocking(False)
    await asyncio.get_running_loop().sock_connect(opened, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=opened, limit=1 << 22)
    if not abuse.receives:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it goes with a reset
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            sending = asyncio.create_task(_write(writer, abuse))
            came = await _read(reader, abuse) if abuse.receives else Came((), b"", False)
            if abuse.receives:
                sending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sending
            return came
    finally:
        writer.transport.abort()


async def _write(writer: asyncio.StreamWriter, abuse: Abuse) -> None:
    with contextlib.suppress(OSError):  # the server has closed already
        for part in abuse.parts:
            if isinstance(part, float):
                await asyncio.sleep(part)
            else:
                writer.write(part)
                await writer.drain()
        if abuse.half_close:
            writer.write_eof()


async def _read(reader: asyncio.StreamReader, abuse: Abuse) -> Came:
    held = b""
    closed = False
    while True:
        answers, rest = parse(
            held, head_only=b"HEAD " in abuse.parts[0][:5] if isinstance(abuse.parts[0], bytes) else False
        )
        if b"\r\ncontent-type: text/event-stream" in rest:  # it has begun, and goes on
            answers.append(Answer(200, {}, b""))
            return Came(tuple(answers), rest, closed)
        if closed or len(answers) >= abuse.answers:
            return Came(tuple(answers), rest, closed)
        try:
            piece = await reader.read(1 << 16)
        except ConnectionError:
            piece = b""
        closed = not piece
        held += piece


def parse(held: bytes, *, head_only: bool = False) -> tuple[list[Answer], bytes]:
    """The whole answers in `held`, and what comes after them."""
    answers: list[Answer] = []
    while (found := HEAD.match(held)) is not None:
        fields = {
            name.decode("latin-1").lower(): value.strip().decode("latin-1")
            for name, _, value in (line.partition(b":") for line in found[2].split(b"\r\n") if line)
        }
        status, after = int(found[1]), held[found.end() :]
        if status == 100:
            held = after
            continue
        if head_only or status in (204, 304):
            body, held = b"", after
        elif "content-length" in fields:
            size = int(fields["content-length"])
            if len(after) < size:
                break
            body, held = after[:size], after[size:]
        elif fields.get("transfer-encoding") == "chunked" and (end := after.find(b"0\r\n\r\n")) >= 0:
            body, held = after[:end], after[end + 5 :]
        else:
            break
        answers.append(Answer(status, fields, body))
    return answers, held
