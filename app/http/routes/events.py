"""Events, as a page or as a stream: of the team, of a run, of a revision, of a trial."""

import difflib
import re
from collections.abc import AsyncGenerator
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get
from litestar.params import FromPath, QueryParameter
from litestar.response import Stream

from app.access import Permission
from app.boot import House
from app.bus import cursor
from app.commands.caller import Caller
from app.commands.refusals import FieldError
from app.domain.registry import catalogue
from app.http import answers, cursors, sse
from app.http.access import needs
from app.http.given import Given
from app.http.hub import Hub, Selection
from app.http.problems import ProblemRaised
from app.http.reading import DEFAULT_SIZE, PageSize, size_of
from app.http.routes.revisions import revision_of
from app.http.routes.runs import run_of
from app.http.routes.trials import trial_of
from app.http.state import context_of
from app.queries import events, revisions, runs, trials

READ = Permission.EVENTS_READ
LATEST = "latest"
STREAMS = (sse.MEDIA_TYPE,)
NOT_ACCEPTABLE = re.compile(r"q\s*=\s*0(\.0*)?")
"""RFC 9110, section 12.4.2."""

After = Annotated[
    str | None,
    QueryParameter(
        name="after",
        description="A cursor: `after` of a page, `cursor` of an event, or the id of a server-sent event. "
        f"`{LATEST}`: only what comes. Left out: from the beginning.",
        max_length=200,
    ),
]
TYPES = frozenset(name for name, _ in catalogue())
Types = Annotated[
    list[str] | None, QueryParameter(name="type", description="Of this type only, as `trial.scored`; may be repeated.")
]


@get(
    "/v1/events",
    opt=needs(READ, views=events.VIEWS, media_types=STREAMS, returns=answers.Events),
    tags=["events"],
    operation_id="listEvents",
)
async def list_events(
    request: Request[Any, Any, Any],
    house: Given[House],
    caller: Given[Caller],
    hub: Given[Hub],
    after: After = None,
    type_: Types = None,
    page_size: PageSize = DEFAULT_SIZE,
) -> Response[Any]:
    """The events of the team in the order of the log. With `Accept: text/event-stream` they go on as they happen."""
    selection = Selection(team=caller.team, types=tuple(type_ or ()))
    return await _answer(request, house, hub, selection, sse.never(), after, page_size, "/v1/events")


@get(
    "/v1/runs/{run:str}/events",
    opt=needs(READ, views=(*events.VIEWS, *runs.VIEWS), media_types=STREAMS, returns=answers.Events),
    tags=["events"],
    operation_id="listEventsOfRun",
)
async def list_events_of_run(
    request: Request[Any, Any, Any],
    house: Given[House],
    caller: Given[Caller],
    hub: Given[Hub],
    run: FromPath[str],
    after: After = None,
    type_: Types = None,
    page_size: PageSize = DEFAULT_SIZE,
) -> Response[Any]:
    """The events of a run and of all that belongs to it. A stream ends when the run has completed and its evidence is
    sealed."""
    found = await run_of(house, caller, run)
    selection = Selection(team=caller.team, correlation=found.id, types=tuple(type_ or ()))
    return await _answer(request, house, hub, selection, sse.RunEnds(), after, page_size, f"/v1/runs/{found.id}")


@get(
    "/v1/revisions/{revision:str}/events",
    opt=needs(READ, views=(*events.VIEWS, *revisions.VIEWS), media_types=STREAMS, returns=answers.Events),
    tags=["events"],
    operation_id="listEventsOfRevision",
)
async def list_events_of_revision(
    request: Request[Any, Any, Any],
    house: Given[House],
    caller: Given[Caller],
    hub: Given[Hub],
    revision: FromPath[str],
    after: After = None,
    type_: Types = None,
    page_size: PageSize = DEFAULT_SIZE,
) -> Response[Any]:
    """The events of a revision and its build. A stream ends when it is ready or rejected."""
    found = await revision_of(house, caller, revision)
    selection = Selection(team=caller.team, stream=found.id, types=tuple(type_ or ()))
    url = f"/v1/revisions/{found.id}"
    return await _answer(request, house, hub, selection, sse.revision_ends(), after, page_size, url)


@get(
    "/v1/trials/{trial:str}/events",
    opt=needs(READ, views=(*events.VIEWS, *trials.VIEWS), media_types=STREAMS, returns=answers.Events),
    tags=["events"],
    operation_id="listEventsOfTrial",
)
async def list_events_of_trial(
    request: Request[Any, Any, Any],
    house: Given[House],
    caller: Given[Caller],
    hub: Given[Hub],
    trial: FromPath[str],
    after: After = None,
    type_: Types = None,
    page_size: PageSize = DEFAULT_SIZE,
) -> Response[Any]:
    """The events of a trial. A stream ends with the trial."""
    found = await trial_of(house, caller, trial)
    selection = Selection(team=caller.team, stream=found.id, types=tuple(type_ or ()))
    url = f"/v1/trials/{found.id}"
    return await _answer(request, house, hub, selection, sse.trial_ends(), after, page_size, url)


def wants_stream(request: Request[Any, Any, Any]) -> bool:
    """Whether the caller asks for server-sent events rather than for a page."""
    for wanted in request.headers.get("accept", "").lower().split(","):
        name, *parameters = (part.strip() for part in wanted.split(";"))
        if name == sse.MEDIA_TYPE:
            return not any(NOT_ACCEPTABLE.fullmatch(parameter) for parameter in parameters)
    return False


def streamed(request: Request[Any, Any, Any], hub: Hub, team: str, content: AsyncGenerator[bytes]) -> Response[Any]:
    """The answer that is a stream. Raises ProblemRaised when the team has too many."""
    context = context_of(request.scope)
    if context.head:
        return Response(b"", media_type=sse.MEDIA_TYPE, headers=dict(sse.HEADERS))
    context.streamed = True
    context.at_end.enter_context(hub.place(team))
    return Stream(sse.calm(content, context), media_type=sse.MEDIA_TYPE, headers=dict(sse.HEADERS))


async def _answer(
    request: Request[Any, Any, Any],
    house: House,
    hub: Hub,
    selection: Selection,
    ends: sse.Ends,
    after: str | None,
    page_size: int,
    url: str,
) -> Response[Any]:
    if unknown := [one for one in selection.types if one not in TYPES]:
        near = difflib.get_close_matches(unknown[0], sorted(TYPES), n=1)
        hint = f"; did you mean `{near[0]}`?" if near else ", as `trial.scored`"
        wrong = FieldError("query/type", "unknown_type", f"is no type of event{hint}")
        raise ProblemRaised(400, "request_invalid", "a parameter is wrong", errors=(wrong,))
    stream = wants_stream(request)
    mark = (request.headers.get("last-event-id") if stream else None) or after
    try:
        position = hub.position if mark == LATEST else _position(selection.team, house, mark)
    except cursors.OtherLife as error:
        if stream:
            return streamed(request, hub, selection.team, sse.restart(url))
        detail = "this cursor is of a time before the log was restored; begin again without it"
        raise ProblemRaised(410, "cursor_expired", detail) from error
    if stream:
        content = sse.events(house, hub, selection, position, ends, url=url)
        return streamed(request, hub, selection.team, content)
    filters = events.Filter(correlation=selection.correlation, stream=selection.stream, types=selection.types)
    page = await events.events_page(house.pool, selection.team, filters, after=position, limit=size_of(page_size))
    items = tuple(msgspec.Raw(hub.envelope(recorded)) for recorded in page.items)
    body = answers.Events(items=items, after=cursor.write(house.incarnation, page.through), more=page.more)
    return Response(body)


def _position(team: str, house: House, mark: str | None) -> int:
    return 0 if mark is None else cursors.position_of(team, house.incarnation, mark)


HANDLERS = (list_events, list_events_of_run, list_events_of_revision, list_events_of_trial)
