"""Every way in which the door says no: one shape (RFC 9457, `application/problem+json`), one table of statuses.

A problem has a stable `code` for programs and a sentence with the remedy for people. It never repeats a body, a query or a
header; what is not there is called by its name in the path.
"""

import errno
import http
import re
import socket
import traceback
from collections.abc import Mapping
from typing import Any

import asyncpg
import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException

from app.bus.cursor import CursorInvalid
from app.commands.refusals import CommandRefused, FieldError, Kind
from app.eventlog.connect import LOST
from app.eventlog.model import LogUnavailable, WrongIncarnation
from app.http.state import context_of, fence
from app.objects import ObjectMissing, StoreFull, StoreUnavailable
from app.queries.pages import PageTokenInvalid
from app.queries.references import Ambiguous

log = structlog.get_logger()

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = "1"
NO_SUCH = re.compile(r"there is no such (?P<what>\w+)")
NAMED = {"artifact": "path", "upload": "upload_id"}
"""What a thing is called by in the path, where that is another word."""
SHOWN_CHARACTERS = 100


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """RFC 9457, section 3.1, and Seatrial's extensions."""

    type: str
    """/docs#problem-<code>."""
    title: str
    status: int
    detail: str
    code: str
    """Stable; what a program decides by."""
    request_id: str
    """Also in the header X-Request-Id and in the server's log."""
    retryable: bool = False
    """Whether the same request may succeed later, unchanged."""
    errors: tuple[FieldError, ...] = ()


class ProblemRaised(Exception):
    """A problem that the door itself sees."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: tuple[FieldError, ...] = (),
        retryable: bool = False,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail
        self.errors, self.retryable, self.headers = errors, retryable, headers or {}


STATUSES: dict[Kind, int] = {
    Kind.INVALID: 422,
    Kind.FORBIDDEN: 403,
    Kind.NOT_FOUND: 404,
    Kind.CONFLICT: 409,
    Kind.MISMATCH: 422,
    Kind.TOO_LARGE: 413,
    Kind.UNAVAILABLE: 503,
    Kind.FULL: 507,
}

FULL = ProblemRaised(
    507, "storage_full", "no space is left on the server; free some, then send the same request again", retryable=True
)
AWAY = ProblemRaised(
    503,
    "database_unavailable",
    "the database cannot be reached at the moment; send the same request again",
    retryable=True,
)
STORE_AWAY = ProblemRaised(
    503, "storage_unavailable", "the object store cannot be reached at the moment; send the same request again",
    retryable=True,
)  # fmt: skip


def of(error: BaseException) -> ProblemRaised | None:
    """The problem that an exception means; None for one that nobody foresaw."""
    match error:
        case ProblemRaised():
            return error
        case CommandRefused():
            return ProblemRaised(
                STATUSES[error.kind], error.code, error.detail, errors=error.errors, retryable=error.retryable
            )
        case CursorInvalid():
            return ProblemRaised(400, "cursor_invalid", str(error))
        case PageTokenInvalid():
            return ProblemRaised(400, "page_token_invalid", str(error))
        case Ambiguous():
            return ProblemRaised(409, "reference_ambiguous", str(error))
        case HTTPException():
            return _of_framework(error)
        case StoreFull() | asyncpg.DiskFullError():
            return FULL
        case StoreUnavailable():
            return STORE_AWAY
        case ObjectMissing():
            return ProblemRaised(404, "object_missing", "this file is not in the object store")
        case WrongIncarnation():
            detail = "the log was restored and this process is starting anew; send the same request again"
            return ProblemRaised(503, "restarting", detail, retryable=True)
        case OSError() if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return FULL
        case asyncpg.CharacterNotInRepertoireError() | asyncpg.UntranslatableCharacterError():
            return ProblemRaised(400, "request_invalid", "a text has a character that cannot be stored")
        case asyncpg.DataError():
            return None  # an InterfaceError too, but our fault
        case LogUnavailable() | asyncpg.QueryCanceledError() | asyncpg.InsufficientResourcesError():
            return AWAY
        case _ if isinstance(error, LOST) and _of_network(error):
            return AWAY
        case _:
            return None


NETWORK = frozenset({None, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN})
"""None: asyncio's summary of several addresses that failed."""


def _of_network(error: BaseException) -> bool:
    """An OSError of a file is no lost connection."""
    if not isinstance(error, OSError):
        return True
    return isinstance(error, ConnectionError | TimeoutError | socket.gaierror) or error.errno in NETWORK


def _of_framework(error: HTTPException) -> ProblemRaised:
    status = error.status_code
    match error:
        case NotFoundException():
            return ProblemRaised(404, "not_found", "there is nothing at this path; GET /docs shows what there is")
        case MethodNotAllowedException():
            return ProblemRaised(
                405, "method_not_allowed", "this path takes other methods", headers=error.headers or {}
            )
        case _ if status == http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return ProblemRaised(413, "body_too_large", "the body is larger than this route takes")
        case _ if any(field.pointer.startswith("body/") for field in _parameters(error)):
            return ProblemRaised(400, "body_missing", "this route takes a JSON body")  # what is there, request.py reads
        case _ if status < 500:
            return ProblemRaised(status, "request_invalid", "a parameter is wrong", errors=_parameters(error))
        case _:
            return ProblemRaised(status, "internal", "something went wrong on the server")


def _parameters(error: HTTPException) -> tuple[FieldError, ...]:
    """What Litestar says about parameters: their names and what was expected, never their values."""
    found: list[FieldError] = []
    for one in error.extra if isinstance(error.extra, list) else []:
        if isinstance(one, dict):
            entry: dict[str, Any] = one
            source = entry.get("source", "query")
            where = f"{getattr(source, 'value', source)}/{entry.get('key', '')}"
            found.append(FieldError(where, "invalid", str(entry.get("message", "is wrong"))))
    return tuple(found)


def respond(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """The exception handler of the whole application."""
    context = context_of(request.scope)
    problem = of(error)
    if isinstance(error, WrongIncarnation):
        fence(request.app)
    if problem is None:
        log.error("unexpected", request_id=context.request_id, error=type(error).__name__, where=_where(error))
        detail = "something went wrong on the server; its log has the request id"
        problem = ProblemRaised(500, "internal", detail)
    context.problem = problem.code
    return response(problem, context.request_id, _missing(problem, request.scope.get("path_params", {})))


def _missing(problem: ProblemRaised, parameters: Mapping[str, Any]) -> str:
    """The detail; of a thing that is not there, with what it was called in the path."""
    found = NO_SUCH.fullmatch(problem.detail)
    name = None if found is None else parameters.get(found["what"], parameters.get(NAMED.get(found["what"], "")))
    if name is None:
        return problem.detail
    shown = str(name).removeprefix("/")
    return f"{problem.detail}: {shown if len(shown) <= SHOWN_CHARACTERS else shown[:SHOWN_CHARACTERS] + '…'}"


def response(problem: ProblemRaised, request_id: str, detail: str | None = None) -> Response[bytes]:
    body = Problem(
        type=f"/docs#problem-{problem.code}",
        title=http.HTTPStatus(problem.status).phrase,
        status=problem.status,
        detail=problem.detail if detail is None else detail,
        code=problem.code,
        request_id=request_id,
        retryable=problem.retryable,
        errors=problem.errors,
    )
    headers = dict(problem.headers)
    if problem.retryable:
        headers.setdefault("Retry-After", RETRY_SECONDS)
    return Response(msgspec.json.encode(body), status_code=problem.status, media_type=MEDIA_TYPE, headers=headers)


def _where(error: BaseException) -> list[str]:
    """The frames of an exception, without its message and without locals: either may hold what was sent."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames[-12:]]
