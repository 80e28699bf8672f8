"""HTTP to the API: JSON in and out, pages, server-sent events that resume, uploads and downloads as streams.

The standard library's client: a richer one costs more to import than most commands take.
"""

import contextlib
import http.client
import json
import ssl
import sys
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, urlencode, urlsplit

import click

from app import settings as settings_module
from app.cli.sse import Event, read_events
from app.settings import Settings

TIMEOUT_SECONDS = 60.0
CHUNK_BYTES = 1024 * 1024
PROXY_AWAY = frozenset({502, 503, 504})
"""What a proxy before the API answers in its own words while the API is away."""
HINTS = {
    "runs": "`seatrial runs list` says which there are",
    "trials": "`seatrial runs show RUN` lists those of a run",
    "tasks": "`seatrial tasks list` says which there are",
    "agents": "`seatrial agents list` says which there are",
    "keys": "`seatrial keys list` says which there are",
}
"""Of things that are not there, by where they would be."""
RETRIES = 5
"""Of a request whose server is not reached, while it restarts."""
BUSY_SECONDS = 60.0
"""How long a request is repeated to a server that asks for it: the database behind it is away, or a view is behind."""
FOLLOW_SECONDS = 600.0
"""How long a stream that was there once is tried again: what it tells of goes on meanwhile."""


class ApiError(click.ClickException):
    """The API refused (its problem document says why), or could not be reached."""

    def __init__(
        self, message: str, *, status: int = 0, code: str = "", problem: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.problem = status, code, problem or {}

    @property
    def retryable(self) -> bool:
        return bool(self.problem.get("retryable")) or (not self.problem and self.status in PROXY_AWAY)

    def show(self, file: Any = None) -> None:
        click.echo(f"error: {self.format_message()}", file=file or sys.stderr)


class ConnectionLost(ApiError):
    """The server was not reached, or went away in the middle of an answer."""

    @property
    def retryable(self) -> bool:
        return True


class Patience:
    """How often and how long one thing is tried again."""

    def __init__(self) -> None:
        self._begun, self._failures, self._seconds = time.monotonic(), 0, BUSY_SECONDS

    def reached(self) -> None:
        """It worked, and what is lost from now on is worth waiting for."""
        self._begun, self._failures, self._seconds = time.monotonic(), 0, FOLLOW_SECONDS

    def wait(self, error: ApiError) -> None:
        """Pause before the next try. Raises `error` when there is to be none."""
        self._failures += 1
        never_there = isinstance(error, ConnectionLost) and self._seconds < FOLLOW_SECONDS
        too_often = never_there and self._failures > RETRIES
        if not error.retryable or too_often or time.monotonic() - self._begun > self._seconds:
            raise error
        time.sleep(min(2.0, 0.1 * 2 ** min(self._failures - 1, 8)))


class Client:
    """One server and one key. `position` is that of our latest write: every read after it shows it."""

    def __init__(self, url: str, key: str) -> None:
        address = urlsplit(url.rstrip("/"))
        self._address = address._replace(netloc=address.netloc.rpartition("@")[2])  # a password in it is for no message
        self.url, self._key = self._address.geturl(), key
        self.position: str | None = None

    def get(self, path: str, **query: Any) -> Any:
        return self._json("GET", path, query=query)

    def get_waiting(self, path: str, seconds: int) -> Any:
        """The thing when it has ended, or as it is after `seconds`."""
        return self._json("GET", path, headers={"Prefer": f"wait={seconds}"})

    def post(self, path: str, body: Any = None) -> Any:
        """A command. Sent again with the same idempotency key when nobody knows whether it arrived."""
        return self._json("POST", path, body=body, headers={"Idempotency-Key": str(uuid.uuid4())})

    def pages(self, path: str, *, limit: int | None = None, **query: Any) -> Iterator[Any]:
        """The items of a list, page by page, at most `limit`."""
        token: str | None = None
        while True:
            size = 200 if limit is None else min(200, limit)
            page = self.get(path, page_size=size, page_token=token, **query)
            yield from page["items"][:limit]
            limit = None if limit is None else limit - len(page["items"])
            token = page.get("next_page_token")
            if not token or (limit is not None and limit <= 0):
                return

    def upload(self, path: str, file: BinaryIO, size: int) -> Any:
        """PUT a file as the raw body. The same bytes sent again get the same answer."""
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}

        def send() -> Any:
            file.seek(0)
            with self._answer("PUT", path, body=file, headers=headers) as answer, self._reaching():
                return json.loads(answer.read())

        return self._repeated(send)

    def download(self, path: str, destination: Path) -> None:
        """GET into a file; a file that is there is replaced when the new one is complete."""
        aside = destination.with_name(f".{destination.name}.partial")

        def fetch() -> None:
            with self._answer("GET", path) as answer, aside.open("wb") as file:
                while chunk := self._read(answer):
                    file.write(chunk)

        try:
            self._repeated(fetch)
            aside.replace(destination)
        finally:
            aside.unlink(missing_ok=True)

    def stream(self, path: str, **query: Any) -> Generator[Event]:
        """Server-sent events, over all reconnects and outages, each once; returns after `end`. After a restore of the
        server's database they begin again."""
        last: str | None = None
        patience = Patience()
        while True:
            headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
            try:
                with self._answer("GET", path, query=query, headers=headers) as answer, self._reaching():
                    patience.reached()
                    for event in read_events(answer):
                        patience.reached()
                        last = event.id or last
                        if event.name == "end":
                            return
                        if event.name == "resync":  # our cursors mean nothing any more
                            last, self.position, query = None, None, query | {"after": None}
                        if event.name in ("reconnect", "resync"):
                            break
                        if isinstance(event.data, dict):  # what we saw happen, our next reads shall show
                            self.position = event.data.get("cursor", self.position)
                        yield event
            except ApiError as error:
                patience.wait(error)
            else:
                time.sleep(0.1)

    def _json(
        self, method: str, path: str, *, body: Any = None, query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:  # fmt: skip
        encoded = None if body is None else json.dumps(body).encode()
        sent = dict(headers or {}) | ({"Content-Type": "application/json"} if encoded is not None else {})

        def ask() -> Any:
            with self._answer(method, path, body=encoded, query=query, headers=sent) as answer, self._reaching():
                content = answer.read()
            return json.loads(content) if content else None

        return self._repeated(ask)

    def _repeated[T](self, action: Callable[[], T]) -> T:
        """What `action` returns, tried again as long as that may help. Raises ApiError."""
        patience = Patience()
        while True:
            try:
                return action()
            except ApiError as error:
                patience.wait(error)

    @contextlib.contextmanager
    def _reaching(self) -> Generator[None]:
        """Around what touches the network, and nothing else: raises ConnectionLost."""
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionLost(
                f"{self.url} does not answer ({error}); is it running? See `seatrial status`"
            ) from error

    def _read(self, answer: http.client.HTTPResponse) -> bytes:
        """The next piece; empty at the end. The library says nothing when a body ends too early."""
        with self._reaching():
            chunk = answer.read(CHUNK_BYTES)
            if not chunk and answer.length:
                raise http.client.IncompleteRead(b"", answer.length)
        return chunk

    @contextlib.contextmanager
    def _answer(
        self, method: str, path: str, *, body: Any = None, query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Generator[http.client.HTTPResponse]:  # fmt: skip
        """The answer when it is a success; raises ApiError with the problem's own words otherwise."""
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = self._address.path + path + (f"?{urlencode(given, doseq=True)}" if given else "")
        sent = {"Authorization": f"Bearer {self._key}", "Accept": "application/json"} | dict(headers or {})
        if self.position and method == "GET":
            sent["Seatrial-After"] = self.position
        connection = self._connect()
        try:
            with self._reaching():
                connection.request(method, target, body=body, headers=sent)
                answer = connection.getresponse()
                if answer.version >= 11 and answer.length is None and not answer.chunked:
                    raise http.client.IncompleteRead(b"")  # the headers broke off, about which the library says nothing
                refused = _refused(answer, path) if answer.status >= 400 else None
            self.position = answer.headers.get("Seatrial-Position") or self.position
            if refused is not None:
                raise refused
            yield answer
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._address.hostname or "127.0.0.1", self._address.port
        if self._address.scheme == "https":
            return http.client.HTTPSConnection(
                host, port, timeout=TIMEOUT_SECONDS, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)


def segment(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")


def connect(*, start: bool = False, quiet: bool = False) -> Client:
    """The server of the settings, or the one of this machine. `start`: start that one when none runs, and say so (`quiet`:
    beside what is printed for programs)."""
    try:
        values = settings_module.load()
    except settings_module.SettingsInvalid as error:
        raise click.ClickException(str(error)) from error
    if values.api_url:
        if not values.api_key:
            raise click.ClickException("SEATRIAL_API_URL is set; set SEATRIAL_API_KEY (or SEATRIAL_API_KEY_FILE) too")
        return Client(values.api_url, values.api_key)
    return _local(values, start=start, quiet=quiet)


def _local(values: Settings, *, start: bool, quiet: bool) -> Client:
    from app.local import state

    running = state.load(values.home_path)
    if (running is None or not running.ready) and state.is_running(values.home_path):
        running = state.await_ready(values.home_path)  # somebody starts it at this moment
    if running is None or not running.ready:
        if not start:
            raise click.ClickException("no server runs on this machine; start one with `seatrial up --detach`")
        from app.cli.machine import start_detached

        start_detached(values, quiet=quiet)
        running = state.load(values.home_path)
    try:
        key = values.api_key or state.key_file(values.home_path).read_text().strip()
    except OSError as error:
        raise click.ClickException(f"{state.key_file(values.home_path)}: {error.strerror}") from error
    return Client(running.url if running else values.base_url, key)


def _refused(answer: http.client.HTTPResponse, path: str) -> ApiError:
    content = answer.read(64 * 1024)
    try:
        problem = json.loads(content)
    except ValueError:
        problem = {}
    if not isinstance(problem, dict) or not problem.get("detail"):
        return ApiError(f"the API answered {answer.status} {answer.reason}", status=answer.status)
    lines = [str(problem["detail"])]
    for one in problem.get("errors") or ():
        words = one.get("detail") or one.get("message") or ""
        if words != problem["detail"]:
            lines.append(f"  {one.get('pointer') or one.get('field') or ''}: {words}")
    hint = HINTS.get(path.split("/")[2] if path.count("/") > 1 else "")
    if problem.get("code") == "not_found" and hint:
        lines[0] += f"; {hint}"
    return ApiError("\n".join(lines), status=answer.status, code=str(problem.get("code", "")), problem=problem)
