"""Output of trials and builds, as a page or as a stream."""

from typing import Annotated, Any

from litestar import Request, Response, get
from litestar.params import FromPath, QueryParameter

from app.access import Permission
from app.boot import House
from app.commands.caller import Caller
from app.domain.execution import LOG
from app.domain.trial import ENDS, Status
from app.http import answers, logs, run_logs, sse
from app.http.access import needs
from app.http.given import Given
from app.http.hub import Hub
from app.http.problems import ProblemRaised
from app.http.reading import DEFAULT_SIZE, PageSize, size_of
from app.http.routes.events import streamed, wants_stream
from app.http.routes.revisions import revision_of
from app.http.routes.runs import run_of
from app.http.routes.trials import trial_of
from app.objects import keys
from app.queries import revisions, runs, trials

READ = Permission.LOGS_READ
STREAMS = (sse.MEDIA_TYPE,)
LARGEST = 2**53

After = Annotated[
    int,
    QueryParameter(name="after", description="The sequence of a chunk: what comes after it.", ge=0, le=LARGEST),
]
AfterPlace = Annotated[
    str | None,
    QueryParameter(name="after", description="`after` of a page, or the id of a server-sent event.", max_length=50),
]


@get(
    "/v1/trials/{trial:str}/logs",
    opt=needs(READ, views=trials.VIEWS_OF_EXECUTIONS, media_types=STREAMS, returns=answers.Logs),
    tags=["logs"],
    operation_id="listLogsOfTrial",
)
async def list_logs_of_trial(
    request: Request[Any, Any, Any],
    house: Given[House],
    caller: Given[Caller],
    hub: Given[Hub],
    trial: FromPath[str],
    after: After = 0,
    page_size: PageSize = DEFAULT_SIZE,
) -> Response[Any]:
    """The output of a trial, over all its executions. A stream ends with the trial."""
    found = await trial_of(house, caller, trial)

    async def read() -> logs.Owner:
        return await owner_of_trial(house, caller, found.id)

    return await _answer(request, house, hub, caller.team, read, after, page_size, f"/v1/trials/{found.id}")


@get(
    "/v1/revisions/{revision:str}/logs",
    opt=needs(READ, views=revisions.VIEWS, media_types=STREAMS, returns=answers.Logs),
    tags=["logs"],
    operation_id="listLogsOfRevision",
)
async def list_logs_of_revision(
    request: Request[Any, Any, Any],
    house: Given[House],
    caller: Given[Caller],
    hub: Given[Hub],
    revision: FromPath[str],
    after: After = 0,
    page_size: PageSize = DEFAULT_SIZE,
) -> Response[Any]:
    """The output of a revision's build, over all attempts. A stream ends when it is ready or rejected."""
    identifier = (await revision_of(house, caller, revision)).id

    async def read() -> logs.Owner:
        row = await revision_of(house, caller, identifier)
        return logs.Owner(
            kind="revision",
            id=row.id,
            team=caller.team,
            archives=tuple(keys.build(row.id, f"{attempt}.jsonl") for attempt in range(1, row.attempt + 1)),
            ended=row.status in ("ready", "rejected"),
            ends=("revision.ready", "revision.rejected"),
            views=revisions.VIEWS,
        )

    return await _answer(request, house, hub, caller.team, read, after, page_size, f"/v1/revisions/{identifier}")


@get(
    "/v1/runs/{run:str}/logs",
    opt=needs(READ, views=(*runs.VIEWS, *trials.VIEWS_OF_EXECUTIONS), media_types=STREAMS, returns=answers.Logs),
    tags=["logs"],
    operation_id="listLogsOfRun",
)
async def list_logs_of_run(
    request: Request[Any, Any, Any],
    house: Given[House],
    caller: Given[Caller],
    hub: Given[Hub],
    run: FromPath[str],
    after: AfterPlace = None,
    page_size: PageSize = DEFAULT_SIZE,
) -> Response[Any]:
    """The output of a run, trial by trial in their order. A stream ends with the run; to see trials side by side, follow
    each one's own log."""
    found = await run_of(house, caller, run)
    of_run = run_logs.RunLog(
        house, hub, found.id, lambda trial_id: owner_of_trial(house, caller, trial_id), caller.team
    )
    if wants_stream(request):
        place = run_logs.parse(request.headers.get("last-event-id") or after)
        return streamed(request, hub, caller.team, of_run.stream(place, url=f"/v1/runs/{found.id}"))
    page = await of_run.page(run_logs.parse(after), size_of(page_size))
    return Response(answers.Logs(items=page.items, after=str(page.after), more=page.more))


async def owner_of_trial(house: House, caller: Caller, trial_id: str) -> logs.Owner:
    trial = await trial_of(house, caller, trial_id)
    executions = await trials.executions_of(house.pool, caller.team, trial_id)
    return logs.Owner(
        kind="trial",
        id=trial.adopted_from or trial.id,  # what it said when it ran
        team=caller.team,
        archives=tuple(keys.execution(one.id, LOG) for one in (executions.item if executions else ())),
        ended=Status(trial.status).ended,
        ends=tuple(sorted(ENDS)),
        views=trials.VIEWS_OF_EXECUTIONS,
    )


async def _answer(
    request: Request[Any, Any, Any],
    house: House,
    hub: Hub,
    team: str,
    read: logs.Reader,
    after: int,
    page_size: int,
    url: str,
) -> Response[Any]:
    if wants_stream(request):
        after = _last_id(request, after)
        return streamed(request, hub, team, logs.stream(house, hub, read, after, url=url))
    page = await logs.page(house, await read(), after, size_of(page_size))
    last = page.items[-1].sequence if page.items else after
    return Response(answers.Logs(items=page.items, after=str(last), more=page.more))


def _last_id(request: Request[Any, Any, Any], after: int) -> int:
    """Where a stream that broke off goes on."""
    mark = request.headers.get("last-event-id")
    if not mark:
        return after
    if not (mark.isdecimal() and len(mark) <= len(str(LARGEST)) and int(mark) <= LARGEST):
        raise ProblemRaised(400, "cursor_invalid", "the last id of a log stream is the sequence of a chunk")
    return int(mark)


HANDLERS = (list_logs_of_trial, list_logs_of_revision, list_logs_of_run)
