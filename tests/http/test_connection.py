"""What one connection may ask, how long it may keep silent, and how many there may be."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import msgspec
import pytest
from litestar.types import Receive, Scope, Send

from app.http.connection import Bounds, Connection
from app.http.door import Door
from app.http.hub import Frame
from app.http.problems import Problem, ProblemRaised
from tests.http.sockets import Answer, parse
from tests.http.world import Server, Team, ready_task

NARROW = Bounds(connections=4, head_bytes=4_000, stall_seconds=0.3)
HASTY = Bounds(head_seconds=0.3, body_seconds=0.3, body_rate=1e6, linger_seconds=0.1)
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture
async def strict(server: Server) -> AsyncIterator[Server]:
    """The same house behind a door with narrow bounds."""
    async with Server(server.house).serving(NARROW) as serving:
        yield serving


@pytest.fixture
async def hasty(server: Server) -> AsyncIterator[Server]:
    """The same house behind a door with no patience."""
    async with Server(server.house).serving(HASTY) as serving:
        yield serving


async def opened(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))


async def asked(server: Server, *parts: bytes) -> list[Answer]:
    """All that comes back until the server closes."""
    reader, writer = await opened(server)
    with contextlib.suppress(ConnectionError):
        for part in parts:
            writer.write(part)
            await writer.drain()
    held = b""
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(1 << 16):
            held += piece
    writer.close()
    return parse(held)[0]


def refused(answers: list[Answer], status: int, code: str) -> None:
    problem = msgspec.json.decode(answers[-1].body, type=Problem)
    assert (answers[-1].status, problem.code) == (status, code), answers
    assert answers[-1].fields["connection"] == "close"
    assert answers[-1].fields["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "head",
    [GET + b"X: " + b"a" * 5_000 + b"\r\n\r\n", GET + b"X: " + b"a" * 500_000, GET + b"A: b\r\n" * 900 + b"\r\n",
     b"GET /" + b"a" * 5_000 + b" HTTP/1.1\r\n\r\n", b"\r\n" * 3_000],
    ids=["one field", "a field without an end", "many fields", "a target", "empty lines"],
)  # fmt: skip
async def test_a_head_has_a_bound(strict: Server, head: bytes) -> None:
    refused(await asked(strict, head), 431, "headers_too_large")


async def test_a_trailer_has_a_bound_too(strict: Server, team: Team) -> None:
    upload = (await team.api.post("/v1/uploads")).json()["id"]
    head = (
        f"PUT /v1/uploads/{upload}/content HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {team.keys['member']}\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    ).encode()
    refused(await asked(strict, head, b"1\r\nx\r\n0\r\nT: " + b"t" * 600_000), 431, "headers_too_large")


async def test_what_is_no_http_is_told_so(strict: Server) -> None:
    refused(await asked(strict, b"\x16\x03\x01nonsense\r\n\r\n"), 400, "request_malformed")


async def test_a_head_that_does_not_go_on_is_given_up(hasty: Server) -> None:
    refused(await asked(hasty, GET), 408, "request_timeout")
    assert await asked(hasty) == []  # who asks for nothing gets nothing


async def test_a_body_that_does_not_go_on_is_given_up(hasty: Server, team: Team) -> None:
    head = (
        f"POST /v1/keys HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {team.keys['admin']}\r\nContent-Length: 50\r\n\r\n"
    ).encode()
    refused(await asked(hasty, head, b'{"name":'), 408, "request_timeout")
    reader, writer = await opened(hasty)
    writer.write(head)
    held = b""
    with contextlib.suppress(ConnectionError):
        while not held:  # a byte now and then is too slow as well
            writer.write(b" ")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    held = await reader.read(1 << 16)
    writer.close()
    assert b" 408 " in held


async def test_a_body_that_was_refused_is_not_read_for_ever(hasty: Server) -> None:
    """The answer comes first; then the connection ends, however much more is said."""
    head = b"POST /v1/keys HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n"
    reader, writer = await opened(hasty)
    writer.write(head)
    assert b" 401 " in await reader.readline()
    with contextlib.suppress(ConnectionError):
        while not writer.transport.is_closing():
            writer.write(b"x" * 100)
            await writer.drain()
            await asyncio.sleep(0.01)
    writer.transport.abort()


async def test_only_so_many_requests_wait_behind_another(strict: Server) -> None:
    """Those that were taken get their answers first."""
    answers = await asked(strict, (GET + b"\r\n") * 200)
    refused(answers, 429, "too_many_pipelined")
    assert [one.status for one in answers[:-1]] == [200] * (NARROW.pipeline + 1)


@pytest.mark.parametrize(
    ("rest", "status", "code"),
    [
        (b"no request\r\n\r\n", 400, "request_malformed"),
        (GET + b"X: " + b"a" * 600_000, 431, "headers_too_large"),  # more than is read at once
        (GET, 408, "request_timeout"),
    ],
    ids=["garbage", "a large head", "half a head"],
)
async def test_a_refusal_comes_behind_the_answer_to_an_earlier_request(
    hasty: Server, monkeypatch: pytest.MonkeyPatch, rest: bytes, status: int, code: str
) -> None:
    """Whoever reads `try again` in the place of the answer to a POST would do everything twice.

    A body that is slow is no such case: it is not read, and its time not counted, while an earlier request is answered.
    """
    refusing = asyncio.Event()
    refuse, door = Connection._refuse, Door.__call__

    def noted(self: Connection, problem: ProblemRaised) -> None:
        refuse(self, problem)
        refusing.set()

    async def held(self: Door, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/healthz" or scope["method"] == "HEAD":
            await refusing.wait()
        await door(self, scope, receive, send)

    monkeypatch.setattr(Connection, "_refuse", noted)
    monkeypatch.setattr(Door, "__call__", held)
    async with asyncio.timeout(30):
        answers = await asked(hasty, GET + b"\r\n", rest)
    refused(answers, status, code)
    assert [one.status for one in answers[:-1]] == [200]


async def test_empty_lines_behind_a_request_do_not_cut_its_answer_off(hasty: Server, team: Team) -> None:
    reader, writer = await opened(hasty)
    writer.write(
        f"GET /v1/events?after=latest HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {team.keys['member']}\r\n"
        "Accept: text/event-stream\r\n\r\n".encode()
    )
    await reader.readuntil(b"retry: 2000\n")
    writer.write(b"\r\n")
    with contextlib.suppress(TimeoutError):  # until long after a head would have been given up
        async with asyncio.timeout(4 * HASTY.head_seconds):
            assert await reader.readuntil(b"never") == b"", "the answer was cut off"
    await team.api.post("/v1/uploads")
    await ready_task(team)
    await reader.readuntil(b"event: ")
    writer.transport.abort()


async def test_there_are_only_so_many_connections(strict: Server) -> None:
    held = [await opened(strict) for _ in range(NARROW.connections)]
    for _, writer in held:
        writer.write(GET)  # it is known to be there when the next one comes
    refused(await asked(strict), 503, "too_many_connections")
    for _, writer in held:
        writer.close()
    while (await asked(strict, GET + b"Connection: close\r\n\r\n"))[0].status == 503:
        await asyncio.sleep(0.02)


async def test_a_reader_who_takes_nothing_is_dropped_and_its_stream_ends(strict: Server, team: Team) -> None:
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    small.connect(("127.0.0.1", int(strict.url.rpartition(":")[2])))
    reader, writer = await asyncio.open_connection(sock=small)
    writer.write(
        f"GET /v1/events?after=latest HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {team.keys['member']}\r\n"
        "Accept: text/event-stream\r\n\r\n".encode()
    )
    assert b" 200 " in await reader.readline()
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    position = strict.hub.position
    while followers := [one for same in strict.hub._followers.values() for one in same]:
        position += 1
        followers[0].put(Frame(position, "trial.scored", b": " + b"x" * 30_000 + b"\n\n"))
        await asyncio.sleep(0.005)
    while strict.hub._open:
        await asyncio.sleep(0.005)
    writer.transport.abort()


async def test_a_team_has_only_so_many_streams_and_is_told_what_to_do(
    server: Server, team: Team, other_team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.hub, "team_streams", 2)
    headers = {"Accept": "text/event-stream"}
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(2):
            stream = team.api.stream("GET", "/v1/events?after=latest", headers=headers)
            assert (await stack.enter_async_context(stream)).status_code == 200
        third = await team.api.get("/v1/events?after=latest", headers=headers)
        assert (third.status_code, third.json()["code"]) == (429, "too_many_streams")
        assert "close some" in third.json()["detail"]
        assert third.headers["retry-after"]
        theirs = other_team.api.stream("GET", "/v1/events?after=latest", headers=headers)
        assert (await stack.enter_async_context(theirs)).status_code == 200
        assert (await team.api.get("/v1/events")).status_code == 200  # pages are not streams
    while server.hub._open:
        await asyncio.sleep(0.01)
    async with team.api.stream("GET", "/v1/events?after=latest", headers=headers) as again:
        assert again.status_code == 200


async def test_head_is_get_without_its_bytes_and_options_says_what_there_is(team: Team) -> None:
    for path in ("/healthz", "/v1/runs", "/v1/me", "/openapi.json"):
        got, head = await team.api.get(path), await team.api.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(got.content)) or path == "/v1/me"
        assert head.headers["content-type"] == got.headers["content-type"]
    stream = await team.api.head("/v1/events", headers={"Accept": "text/event-stream"})
    assert (stream.status_code, stream.content) == (200, b"")
    assert (await team.api.head("/v1/runs/7")).status_code == 404
    options = await team.api.options("/v1/runs")
    assert (options.status_code, options.headers["allow"]) == (204, "GET, HEAD, OPTIONS, POST")


async def test_the_front_says_where_to_go(team: Team) -> None:
    front = await team.api.get("/")
    assert front.json()["docs"] == "/docs"
    assert front.json()["openapi"] == "/openapi.json"
    browser = await team.api.get("/", headers={"Accept": "text/html,*/*"})
    assert (browser.status_code, browser.headers["location"]) == (303, "/docs")


async def test_what_is_not_there_is_called_by_its_name(team: Team) -> None:
    for path, name in (("/v1/runs/7", "run: 7"), ("/v1/tasks/none", "task: none"), ("/v1/trials/x/logs", "trial: x")):
        assert (await team.api.get(path)).json()["detail"] == f"there is no such {name}"
    gone = await team.api.post("/v1/runs/run_01m8q50sqgfr8rr3p2njew2ywc/cancel")
    assert gone.json()["detail"] == "there is no such run: run_01m8q50sqgfr8rr3p2njew2ywc"
