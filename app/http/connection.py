"""One connection of a client, as far as HTTP itself goes: what a head may have, how long anybody may keep silent, how many
may be open at a time.

uvicorn's protocol sets no bound to a head, waits for ever for the rest of a request, and for ever for a reader who takes
nothing; its own refusals are plain text. Here each of these has a bound, and whoever goes beyond it is told in the one
shape that problems have. Nothing of a request is repeated.
"""

import asyncio
import resource
from typing import Any, Never

import msgspec
import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from app.http import problems
from app.http.door import HEADERS, request_id
from app.http.problems import ProblemRaised

log = structlog.get_logger("http")


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Of each connection; `connections` is of the process."""

    connections: int = 4_000
    head_bytes: int = 32 * 1024
    """Of the request line and all header fields, and of all trailer fields."""
    head_seconds: float = 10.0
    """From the first byte of a request until its head is whole; as long, a fresh connection may keep silent."""
    body_seconds: float = 30.0
    """How long a body may stand still, unless it is we who do not read on."""
    body_rate: float = 500.0
    """Bytes a second that a body keeps on the average, once it has taken longer than `body_seconds`."""
    stall_seconds: float = 30.0
    """How long a reader may take nothing at all while bytes wait for it."""
    linger_seconds: float = 2.0
    """How long the rest of a body is read and forgotten after it was refused, so that the client sees the answer."""
    pipeline: int = 32
    """Requests that wait behind one that is being answered."""


HEAD_TOO_LARGE = ProblemRaised(
    431, "headers_too_large", "the request line and the header fields are more than this server takes"
)
TOO_SLOW = ProblemRaised(
    408, "request_timeout", "the request stopped coming; send it again, without pauses", retryable=True
)
TOO_MANY_CONNECTIONS = ProblemRaised(
    503, "too_many_connections", "this server has as many connections as it takes; come again later", retryable=True
)
TOO_MANY_PIPELINED = ProblemRaised(
    429, "too_many_pipelined", "wait for answers before you send more requests on one connection", retryable=True
)
MALFORMED = ProblemRaised(400, "request_malformed", "this is no HTTP request")
FIELD_BYTES = 4
"""Of a field beside its name and value."""
SPARE_FILES = 200
"""Open files that are not connections of clients."""


def capacity(wanted: int) -> int:
    """How many connections this process can have: as many as `wanted`, and as the system lets it open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - SPARE_FILES))


class Refused(Exception):
    """Raised inside the parser, which makes an error of its own of it."""


class Connection(HttpToolsProtocol):
    """uvicorn makes one for each client, by `functools.partial(Connection, bounds=…)`."""

    def __init__(self, *given: Any, bounds: Bounds, **more: Any) -> None:
        super().__init__(*given, **more)
        self._bounds = bounds
        self._refusal = MALFORMED
        """What is said when the parser takes no more."""
        self._closed = False
        self._owed: ProblemRaised | None = None
        """A refusal that waits for the answers before it; nothing that comes is read any more."""
        self._answering: RequestResponseCycle | None = None
        """The request whose answer is next; uvicorn's own `cycle` is the one that came last."""
        self._in_head = self._in_body = False
        """Of the request that comes: its head has begun; what belongs to that has."""
        self._fields = 0
        """Bytes of the head so far, or of the trailer."""
        self._unparsed = 0
        """Bytes in which the parser has found nothing whole yet."""
        self._body_bytes, self._body_began, self._silent_since = 0, 0.0, 0.0
        self._waits: asyncio.TimerHandle | None = None
        """Ends the connection when the request does not go on."""
        self._stalls: asyncio.TimerHandle | None = None
        """Ends the connection when the reader does not."""

    # ------------------------------------------------------------ what the transport says

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._bounds.connections:
            self._refuse(TOO_MANY_CONNECTIONS)
        else:
            self._wait(self._bounds.head_seconds)

    def data_received(self, data: bytes) -> None:
        if self._closed or self._owed is not None:
            return
        if self._in_body:
            self._body_bytes += len(data)
            self._silent_since = self.loop.time()
        elif self._waits is None and not self._is_answering:
            self._wait(self._bounds.head_seconds)  # whatever comes before a request (empty lines) begins its time too
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > self._bounds.head_bytes:
            self._refuse(HEAD_TOO_LARGE)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unwatch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)
        self._tell()

    # ------------------------------------------------------------ what the parser finds

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._in_body, self._fields, self._unparsed = True, False, 0, 0
        self._wait(self._bounds.head_seconds)

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        if not self._in_body:  # a trailer is no header of the request
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= self._bounds.pipeline:
            self._give_up(TOO_MANY_PIPELINED)
        self._in_head, self._in_body, self._fields, self._unparsed = False, True, 0, 0
        self._body_bytes, self._body_began = 0, self.loop.time()
        self._silent_since = self._body_began
        self._wait(self._bounds.body_seconds)
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body, self._unparsed = False, 0
        self._wait(None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()  # the next one begins, if one waits
        if self._owed is not None and not self._is_answering:
            self._refuse(self._owed)
        if self._in_body and not self._closed:  # it was answered before it had come: nobody reads on
            self._wait(self._bounds.linger_seconds)

    def send_400_response(self, msg: str) -> None:
        """uvicorn calls it, with a text of its own, for everything that the parser does not take."""
        self._refuse(self._refusal)

    def _count(self, size: int) -> None:
        self._unparsed = 0
        self._fields += size + FIELD_BYTES
        if self._fields > self._bounds.head_bytes:
            self._give_up(HEAD_TOO_LARGE)

    def _give_up(self, problem: ProblemRaised) -> Never:
        self._refusal = problem
        raise Refused

    # ------------------------------------------------------------ ends

    def _wait(self, seconds: float | None) -> None:
        """The request has to go on within `seconds`; None: nothing is waited for."""
        if self._waits is not None:
            self._waits.cancel()
        self._waits = None if seconds is None else self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        self._waits = None
        if not self._in_body:
            if self._in_head or self._unparsed:
                self._refuse(TOO_SLOW)
            else:
                self.transport.close()  # it has asked for nothing
        elif self.cycle.response_complete:
            self._abort()
        elif (left := self._body_seconds_left()) > 0:
            self._wait(left)
        else:
            self._refuse(TOO_SLOW)

    def _body_seconds_left(self) -> float:
        if self.flow.read_paused:  # it is we who are slow
            self._silent_since = self.loop.time()
            return self._bounds.body_seconds
        now, bounds = self.loop.time(), self._bounds
        silence = self._silent_since + bounds.body_seconds - now
        pace = self._body_began + bounds.body_seconds + self._body_bytes / bounds.body_rate - now
        return min(silence, pace)

    def _watch(self, waiting_bytes: int) -> None:
        self._unwatch()
        self._stalls = self.loop.call_later(self._bounds.stall_seconds, self._look, waiting_bytes)

    def _unwatch(self) -> None:
        if self._stalls is not None:
            self._stalls.cancel()
            self._stalls = None

    def _look(self, before: int) -> None:
        self._stalls = None
        now = self.transport.get_write_buffer_size()
        if now < before:
            self._watch(now)
            return
        log.info("reader dropped", reason="took nothing", waiting_bytes=now)
        self._abort()

    def _refuse(self, problem: ProblemRaised) -> None:
        """Say so and close: behind the answers to earlier requests, for whoever reads takes each answer for that to its
        oldest request. An answer that has begun is cut off instead."""
        if self._closed or self.transport.is_closing():
            return
        log.info("connection refused", problem=problem.code)
        under_way = self._answering
        if under_way is not None and self._is_answering:
            if under_way.response_started:
                self._abort()
                return
            if not (self._in_body and under_way is self.cycle):
                if self._in_body:
                    self.pipeline.popleft()  # the one that is refused: it came last
                self._in_head = self._in_body = False
                self._owed = self._owed or problem
                self._wait(None)
                return
        self._end()
        self._tell()
        self.transport.write(written(problem))
        self.transport.close()

    @property
    def _is_answering(self) -> bool:
        return self._answering is not None and not self._answering.response_complete

    def _abort(self) -> None:
        """Close without waiting for anybody to take what is left."""
        self._end()
        self.transport.abort()

    def _tell(self) -> None:
        """Whoever works on an answer hears that nobody waits for it any more, and writes nothing more."""
        for cycle in (self._answering, self.cycle):
            if cycle is not None and not cycle.response_complete:  # pyright: ignore[reportUnnecessaryComparison]
                cycle.disconnected = True
                cycle.message_event.set()

    def _end(self) -> None:
        self._closed = True
        self._wait(None)
        self._unwatch()


def written(problem: ProblemRaised) -> bytes:
    """The whole answer, for a request that got no further than this."""
    number = request_id()
    answer = problems.response(problem, number)
    body: bytes = answer.content
    fields = [
        *HEADERS,
        (b"content-type", problems.MEDIA_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-request-id", number.encode()),
        (b"connection", b"close"),
        *((name.lower().encode(), value.encode()) for name, value in answer.headers.items()),
    ]
    return STATUS_LINE[problem.status] + b"".join(b"%s: %s\r\n" % field for field in fields) + b"\r\n" + body
