"""Who comes in, and to what. There is no way to switch it off.

Each route names its permission in its `opt` (`needs`), or says that it is public (`PUBLIC`); tests/http/test_every_route.py finds
those that do neither. Another team's things answer 404, which the queries see to: they all take the team.
"""

import re
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from app.access import Denied, Permission, Principal, authenticate
from app.commands.caller import Caller, check
from app.http.problems import ProblemRaised
from app.http.state import context_of, process_of

PUBLIC: dict[str, Any] = {"public": True}
KEY_LENGTH = 255
TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
ACQUIRE_SECONDS = 5.0


def needs(permission: Permission, **more: Any) -> dict[str, Any]:
    """The `opt` of a route."""
    return {"permission": permission, **more}


async def let_in(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """The guard of every route. Runs before the body is read."""
    if (
        handler.opt.get("public") or connection.scope.get("method") == "OPTIONS"
    ):  # the framework's: which methods there are
        return
    permission: Permission = handler.opt["permission"]
    process = process_of(connection.app)
    async with process.house.pool.acquire(timeout=ACQUIRE_SECONDS) as database:
        answer = await authenticate(database, connection.headers.get("authorization"), clock=process.house.clock)
    if isinstance(answer, Denied):
        challenge = 'Bearer realm="seatrial"' + (
            "" if answer.code == "credentials_missing" else ', error="invalid_token"'
        )
        raise ProblemRaised(401, answer.code.value, answer.detail, headers={"WWW-Authenticate": challenge})
    context_of(connection.scope).principal = answer
    check(answer, permission)


def principal_of(scope: Any) -> Principal:
    """Of a request that was let in."""
    principal = context_of(scope).principal
    assert principal is not None, "the guard has let nobody in without a principal"
    return principal


def caller_of(connection: ASGIConnection[Any, Any, Any, Any]) -> Caller:
    """Who gives a command, and what came along in the headers."""
    key = connection.headers.get("idempotency-key")
    if key is not None and not (0 < len(key) <= KEY_LENGTH and key.isascii() and key.isprintable()):
        detail = f"Idempotency-Key is 1 to {KEY_LENGTH} printable ASCII characters"
        raise ProblemRaised(400, "idempotency_key_invalid", detail)
    trace = connection.headers.get("traceparent", "")
    return Caller(
        principal=principal_of(connection.scope),
        idempotency_key=key,
        traceparent=trace if TRACEPARENT.fullmatch(trace) else None,
    )
