"""Frames between a worker and a harness child: 4 bytes of header length, a JSON header, `header["n"]` raw bytes.

Spoken by both sides. This file is the only source: harbor-patches/build.py copies it into the harness environment, so it
uses the standard library alone. Files do not travel here but by the trial's transfer folder; bodies are output and logs.

Worker to child: the first frame (see child.py); `{"id", …answer}` or `{"id", "error", "message"}`;
`{"id", "out": "stdout"|"stderr"}` with a body; `{"op": "cancel", "why"}`.
Child to worker: `{"op", "id", "sandbox", …}` for start, exec, put, get, network, strays, stop; `{"op": "abort", "id"}`;
`{"ev": "hello"|"hook"|"verifier"|"result"|"cancelled"|"failed", …}`.
"""

import asyncio
import json
import socket
import struct
from typing import Any

MAX_HEADER = 4 * 1024 * 1024
MAX_BODY = 1024 * 1024

Header = dict[str, Any]


class BadFrame(ValueError):
    """The other side does not speak this protocol, or its frame is too long."""


def pack(header: Header, body: bytes = b"") -> bytes:
    """One frame; written in one call, so that frames of concurrent calls never mix."""
    if len(body) > MAX_BODY:
        raise BadFrame(f"a body of {len(body)} bytes does not fit into a frame")
    raw = json.dumps({**header, "n": len(body)} if body else header).encode()
    if len(raw) > MAX_HEADER:
        raise BadFrame(f"a header of {len(raw)} bytes does not fit into a frame")
    return struct.pack(">I", len(raw)) + raw + body


async def read(reader: asyncio.StreamReader) -> tuple[Header, bytes]:
    """The next frame. Raises asyncio.IncompleteReadError at the end of the stream, BadFrame."""
    (size,) = struct.unpack(">I", await reader.readexactly(4))
    header = _header(size, await reader.readexactly(_checked(size)))
    length = header.get("n", 0)
    if not isinstance(length, int) or not 0 <= length <= MAX_BODY:
        raise BadFrame("a frame announces an impossible body")
    return header, await reader.readexactly(length) if length else b""


def read_first(connection: socket.socket) -> Header:
    """The first frame, which has no body: for a child that has no event loop yet. Never reads past it."""
    (size,) = struct.unpack(">I", _exactly(connection, 4))
    return _header(size, _exactly(connection, _checked(size)))


def _checked(size: int) -> int:
    if size > MAX_HEADER:
        raise BadFrame(f"a frame announces a header of {size} bytes")
    return size


def _header(size: int, raw: bytes) -> Header:
    try:
        header = json.loads(raw)
    except ValueError as error:
        raise BadFrame(f"a header of {size} bytes is not JSON") from error
    if not isinstance(header, dict):
        raise BadFrame("a header is not an object")
    return header


def _exactly(connection: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        part = connection.recv(size - len(got))
        if not part:
            raise EOFError("the worker closed before the first frame")
        got += part
    return got
