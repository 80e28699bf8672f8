"""The outermost layer, plain ASGI: an id for each request, its log line, its counts, and headers that every answer has.

One line a request: method, route template, status, milliseconds, request id, who. Never a body, never a query string, never
the path itself, which may hold names.
"""

import time
import uuid
from collections.abc import Iterable
from typing import Any

import structlog
from litestar import Litestar
from litestar.routes import HTTPRoute
from litestar.types import HTTPResponseStartEvent, Message, Receive, Scope, Send

from app import ids
from app.http.metrics import Metrics
from app.http.state import KEY, Context

log = structlog.get_logger("http")

QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class Door:
    """The ASGI application that uvicorn serves; `litestar` is what is behind it."""

    def __init__(self, litestar: Litestar, metrics: Metrics) -> None:
        self.litestar, self.metrics = litestar, metrics
        self.methods = methods_of(litestar)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.litestar(scope, receive, send)
            return
        context = Context(request_id=request_id())
        passed: dict[str, Any] = {**scope, KEY: context}
        if scope["method"] == "HEAD":  # answered as GET is; the server sends no body
            context.head, passed["method"] = True, "GET"
        began, status = time.perf_counter(), 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _dress(message, context, self.methods.get(passed.get("path_template", "")))
            await send(message)

        try:
            await self.litestar(passed, receive, answer)  # pyright: ignore[reportArgumentType]
        finally:
            context.at_end.close()
            self._note(passed, context, status, time.perf_counter() - began)

    def _note(self, scope: dict[str, Any], context: Context, status: int, seconds: float) -> None:
        route = scope.get("path_template") or "none"
        method = "HEAD" if context.head else scope["method"] if scope["method"] in METHODS else "other"
        self.metrics.requests.labels(method, route, str(status)).inc()
        if not context.streamed:
            self.metrics.seconds.labels(method, route).observe(seconds)
        if context.problem:
            self.metrics.problems.labels(context.problem).inc()
        if route in QUIET and status < 400:
            return
        line: dict[str, Any] = {
            "method": method,
            "route": route,
            "status": status or "gone",  # the client went away before there was an answer
            "ms": round(seconds * 1000, 1),
            "request_id": context.request_id,
        }
        if context.principal is not None:
            line |= {"actor": context.principal.actor, "team": context.principal.team}
        if context.problem:
            line["problem"] = context.problem
        log.info("request", **line)


METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def methods_of(litestar: Litestar) -> dict[str, bytes]:
    """What `Allow` says of each path. The framework's own word leaves out HEAD, and what another handler of the path takes."""
    methods: dict[str, set[str]] = {}
    for route in litestar.routes:
        if isinstance(route, HTTPRoute):
            taken = methods.setdefault(route.path_format, set())
            taken.update(str(one) for handler in route.route_handlers for one in handler.http_methods)
            if "GET" in taken:
                taken.add("HEAD")
    return {path: ", ".join(sorted(taken)).encode() for path, taken in methods.items()}


def _with_head(allow: bytes) -> bytes:
    return allow + b", HEAD" if b"GET" in allow and b"HEAD" not in allow else allow


def request_id() -> str:
    value: uuid.UUID = ids.uuid7()
    return value.hex


def _dress(message: HTTPResponseStartEvent, context: Context, allow: bytes | None) -> None:
    headers = [
        (name, allow or _with_head(value) if name.lower() == b"allow" else value) for name, value in message["headers"]
    ]
    present = {name.lower() for name, _ in headers}
    own: Iterable[tuple[bytes, bytes]] = (*HEADERS, (b"x-request-id", context.request_id.encode()))
    headers.extend((name, value) for name, value in own if name not in present)
    if b"cache-control" not in present:
        headers.append((b"cache-control", b"no-store"))  # an answer is for one team, and true for a moment
    message["headers"] = headers
