"""Before a query: has the view reached what the caller has written? And which page is asked for?

A write answers with `Seatrial-Position`; a read that sends it back as `Seatrial-After` sees that write, or is told to come
again. A route names the views that it reads in its `opt`.
"""

import datetime
from typing import Annotated, Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.params import ParameterKwarg, QueryParameter

from app.commands.refusals import FieldError, not_found
from app.http.cursors import OtherLife, position_of
from app.http.problems import ProblemRaised
from app.http.state import context_of, process_of
from app.queries.pages import LARGEST, SIZE
from app.queries.snapshot import wait_for

AFTER = "seatrial-after"
POSITION = "Seatrial-Position"
WAIT_SECONDS = 5.0

PageToken = Annotated[
    str | None, QueryParameter(name="page_token", description="`next_page_token` of the page before.", max_length=500)
]
PageSize = Annotated[
    int, QueryParameter(name="page_size", description=f"At most {LARGEST} (more is taken as {LARGEST}).", ge=1)
]
DEFAULT_SIZE = SIZE


def size_of(page_size: int) -> int:
    return min(page_size, LARGEST)


def moment(name: str, given: datetime.datetime | None) -> datetime.datetime | None:
    """A time that was given as a query parameter, in UTC; without an offset it is taken as such. Raises ProblemRaised for
    one that no calendar of the database has."""
    try:
        if given is None or given.tzinfo is not None:
            return given and given.astimezone(datetime.UTC)
        return given.replace(tzinfo=datetime.UTC)
    except OverflowError as error:
        wrong = FieldError(f"query/{name}", "invalid", "is out of range: years 1 to 9999, in UTC")
        raise ProblemRaised(400, "request_invalid", "a parameter is wrong", errors=(wrong,)) from error


async def known_parameters(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """A guard: a misspelt query parameter would otherwise be ignored, and the answer be that to another question."""
    if any("\0" in str(value) for value in connection.path_params.values()):
        raise not_found("thing")  # Postgres knows no such text
    if any("\0" in value for value in connection.query_params.values()):
        raise ProblemRaised(400, "request_invalid", "a parameter has a NUL character")
    unknown = sorted(set(connection.query_params) - _parameters(handler))
    if unknown:
        known = ", ".join(sorted(_parameters(handler))) or "none"
        raise ProblemRaised(400, "unknown_parameter", f"unknown query parameters; this route knows: {known}")


async def caught_up(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """A guard: wait, for a bounded time, until the views of the route have reached `Seatrial-After`."""
    text, views = connection.headers.get(AFTER), handler.opt.get("views")
    if text is None or not views:
        return
    principal = context_of(connection.scope).principal
    assert principal is not None
    house = process_of(connection.app).house
    try:
        position = position_of(principal.team, house.incarnation, text)
    except OtherLife:
        return  # the log was restored since; there is nothing to wait for
    if not await wait_for(house.pool, views, position, WAIT_SECONDS):
        detail = "the read side has not yet seen what you wrote; send the same request again"
        raise ProblemRaised(503, "view_behind", detail, retryable=True)


def _parameters(handler: BaseRouteHandler) -> frozenset[str]:
    known: frozenset[str] | None = handler.opt.get("query_parameters")
    if known is None:
        known = frozenset(
            field.kwarg_definition.name or name
            for name, field in handler.parsed_fn_signature.parameters.items()
            if isinstance(field.kwarg_definition, ParameterKwarg) and isinstance(field.kwarg_definition, QueryParameter)
        )
        handler.opt["query_parameters"] = known
    return known
