"""Starting, watching, cancelling and repeating runs."""

import datetime
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from app import ids
from app.access import Permission
from app.boot import House
from app.commands import runs as commands
from app.commands.caller import Caller, Done, permission_of
from app.commands.members import Wanted
from app.commands.refusals import not_found
from app.domain import model_access, policy
from app.domain.agents import agent_digest
from app.http import answers, shapes, waiting
from app.http.access import needs
from app.http.given import Given
from app.http.hub import Hub
from app.http.reading import DEFAULT_SIZE, PageSize, PageToken, moment, size_of
from app.http.routes.agents import AgentRef
from app.http.writing import answered
from app.queries import agents, evaluations, runs, trials
from app.queries.snapshot import wait_for

READ = Permission.RUNS_READ
ENDS = ("run.completed",)
Short = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
AGENT = "The name or id of a stored agent, else the name of an agent of the harness."


class TaskRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task by name or id, and one of its revisions; without one, the latest that is ready."""

    task: Short
    revision: Short | None = None


class WantedAgent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The agent of a run that is still to be."""

    agent: Short | AgentRef
    """As in a run."""


class NewRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a run shall be."""

    tasks: Annotated[
        tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | TaskRef, ...],
        msgspec.Meta(min_length=1, max_length=policy.MAXIMUM_EVALUATIONS),
    ]
    agent: Short | AgentRef
    """Outright; or as a string the name or id of a stored agent, else the name of one of the harness or an import path."""
    trials: Annotated[int, msgspec.Meta(ge=1, le=policy.MAXIMUM_TRIALS)] = 1
    """Per task."""
    name: Short | None = None
    labels: Annotated[
        dict[Annotated[str, msgspec.Meta(min_length=1, max_length=63)], Annotated[str, msgspec.Meta(max_length=255)]],
        msgspec.Meta(max_length=32),
    ] = {}
    priority: Annotated[int, msgspec.Meta(ge=-100, le=100)] = 0
    """Higher first."""
    deadline_seconds: Annotated[int, msgspec.Meta(ge=1, le=30 * 24 * 3600)] | None = None
    """The run is cancelled when it has not ended by then."""


@post(
    "/v1/runs",
    opt=needs(permission_of(commands.start), waits=True),
    status_code=202,
    request_max_body_size=4 * 1024**2,
    tags=["runs"],
    operation_id="startRun",
)
async def start_run(
    request: Request[Any, Any, Any],
    house: Given[House],
    caller: Given[Caller],
    hub: Given[Hub],
    data: JSONBody[NewRun],
) -> Response[commands.RunNow]:
    """Start a run. Every task needs a ready revision, else 409 names those that have none.

    `Prefer: wait=N` answers when the run has ended, or after N seconds.
    """
    waiting.wanted(request)  # refused before anything is written
    what = commands.Start(
        tasks=tuple(Wanted(one) if isinstance(one, str) else Wanted(one.task, one.revision) for one in data.tasks),
        agent=data.agent if isinstance(data.agent, str) else data.agent.pinned(),
        trials=data.trials,
        name=data.name,
        labels=data.labels,
        priority=data.priority,
        deadline_seconds=data.deadline_seconds,
    )
    return await _made(request, house, caller, hub, await commands.start(house, caller, what))


@post(
    "/v1/runs/check-agent",
    opt=needs(permission_of(commands.choose_agent)),
    status_code=200,
    tags=["runs"],
    operation_id="checkAgent",
)
async def check_agent(house: Given[House], caller: Given[Caller], data: JSONBody[WantedAgent]) -> answers.CheckedAgent:
    """The agent that a run would have, with a warning when it lacks what it cannot work without; 422 when there is none of
    this name. To be asked before a pack is built. Writes nothing."""
    chosen = await commands.choose_agent(
        house, caller, data.agent if isinstance(data.agent, str) else data.agent.pinned()
    )
    return answers.CheckedAgent(
        agent=chosen.agent,
        agent_digest=agent_digest(chosen.agent),
        agent_id=chosen.id,
        warning=model_access.warning(chosen.agent),
    )


@get("/v1/runs", opt=needs(READ, views=runs.VIEWS_OF_TASK), tags=["runs"], operation_id="listRuns")
async def list_runs(
    house: Given[House],
    caller: Given[Caller],
    status: Annotated[str | None, QueryParameter(name="status")] = None,
    outcome: Annotated[str | None, QueryParameter(name="outcome")] = None,
    agent: Annotated[str | None, QueryParameter(name="agent", description=AGENT)] = None,
    task: Annotated[str | None, QueryParameter(name="task", description="A task's id.")] = None,
    created_after: Annotated[datetime.datetime | None, QueryParameter(name="created_after")] = None,
    created_before: Annotated[datetime.datetime | None, QueryParameter(name="created_before")] = None,
    page_size: PageSize = DEFAULT_SIZE,
    page_token: PageToken = None,
) -> answers.Listed[answers.Run]:
    """The runs of the team, newest first. `created_after` is inclusive, `created_before` is not."""
    stored = None if agent is None else await agents.get(house.pool, caller.team, agent)
    page = await runs.page(
        house.pool,
        caller.team,
        runs.Filter(
            status=status,
            outcome=outcome,
            agent=None if stored else agent,
            agent_id=stored.id if stored else None,
            task_id=task,
            created_after=moment("created_after", created_after),
            created_before=moment("created_before", created_before),
        ),
        page_size=size_of(page_size),
        page_token=page_token,
        private=True,
    )
    return answers.Listed(items=tuple(map(shapes.run, page.items)), next_page_token=page.next_page_token)


@get("/v1/runs/{run:str}", opt=needs(READ, views=runs.VIEWS, waits=True), tags=["runs"], operation_id="getRun")
async def get_run(
    request: Request[Any, Any, Any],
    house: Given[House],
    caller: Given[Caller],
    hub: Given[Hub],
    run: FromPath[str],
) -> Response[answers.Run]:
    """A run by its number, its id, or a prefix of the id that is the only one. `Prefer: wait=N` waits for its end."""

    async def read() -> runs.Run:
        return await run_of(house, caller, run)

    waited = await waiting.until(
        request, hub, caller.team, read, of=lambda row: row.id, ended=_ended, types=ENDS, views=runs.VIEWS
    )
    return Response(shapes.run(waited.row), headers=waited.headers)


@post(
    "/v1/runs/{run:str}/cancel",
    opt=needs(permission_of(commands.cancel), views=runs.VIEWS),
    status_code=202,
    tags=["runs"],
    operation_id="cancelRun",
)
async def cancel_run(house: Given[House], caller: Given[Caller], run: FromPath[str]) -> Response[commands.RunNow]:
    """Ask for the end of a run. What has ended stays as it is."""
    run_id = await _id_of(house, caller, run)
    done = await commands.cancel(house, caller, run_id)
    return answered(done, done.result, house.incarnation, status=202, location=f"/v1/runs/{run_id}")


@post(
    "/v1/runs/{run:str}/retry",
    opt=needs(permission_of(commands.retry), views=runs.VIEWS, waits=True),
    status_code=202,
    tags=["runs"],
    operation_id="retryRun",
)
async def retry_run(
    request: Request[Any, Any, Any],
    house: Given[House],
    caller: Given[Caller],
    hub: Given[Hub],
    run: FromPath[str],
) -> Response[commands.RunNow]:
    """Run again what an ended run left unscored: a new run of the same tasks, agent and trials, which adopts the trials that
    scored. The old one stays as it ended."""
    waiting.wanted(request)  # refused before anything is written
    run_id = await _id_of(house, caller, run)
    return await _made(request, house, caller, hub, await commands.retry(house, caller, run_id))


@get(
    "/v1/runs/{run:str}/evaluations",
    opt=needs(READ, views=(*runs.VIEWS, *evaluations.VIEWS)),
    tags=["runs"],
    operation_id="listEvaluations",
)
async def list_evaluations(
    house: Given[House],
    caller: Given[Caller],
    run: FromPath[str],
    status: Annotated[str | None, QueryParameter(name="status")] = None,
    outcome: Annotated[str | None, QueryParameter(name="outcome")] = None,
    page_size: PageSize = DEFAULT_SIZE,
    page_token: PageToken = None,
) -> answers.Listed[answers.Evaluation]:
    """The evaluations of a run, in its order."""
    found = await run_of(house, caller, run)
    page = await evaluations.page(
        house.pool,
        caller.team,
        evaluations.Filter(run_id=found.id, status=status, outcome=outcome),
        page_size=size_of(page_size),
        page_token=page_token,
    )
    return answers.Listed(items=tuple(map(shapes.evaluation, page.items)), next_page_token=page.next_page_token)


@get(
    "/v1/runs/{run:str}/trials",
    opt=needs(READ, views=(*runs.VIEWS, *trials.VIEWS)),
    tags=["runs"],
    operation_id="listTrialsOfRun",
)
async def list_trials(
    house: Given[House],
    caller: Given[Caller],
    run: FromPath[str],
    status: Annotated[str | None, QueryParameter(name="status")] = None,
    failure: Annotated[str | None, QueryParameter(name="failure", description="A failure's code.")] = None,
    page_size: PageSize = DEFAULT_SIZE,
    page_token: PageToken = None,
) -> answers.Listed[answers.Trial]:
    """The trials of a run, in the order in which they were queued."""
    found = await run_of(house, caller, run)
    page = await trials.page(
        house.pool,
        caller.team,
        trials.Filter(run_id=found.id, status=status, failure_code=failure),
        page_size=size_of(page_size),
        page_token=page_token,
        private=True,
    )
    return answers.Listed(items=tuple(map(shapes.trial, page.items)), next_page_token=page.next_page_token)


async def run_of(house: House, caller: Caller, reference: str) -> runs.Run:
    found = await runs.get(house.pool, caller.team, reference, private=True)
    if found is None:
        raise not_found("run")
    return found.item


async def _id_of(house: House, caller: Caller, reference: str) -> str:
    """For commands, which need the log alone: only what is no full id is looked up in the view."""
    return reference if ids.is_id("run", reference) else (await run_of(house, caller, reference)).id


def _ended(row: runs.Run) -> bool:
    return row.status == "completed"


async def _made(
    request: Request[Any, Any, Any], house: House, caller: Caller, hub: Hub, done: Done[commands.RunNow]
) -> Response[commands.RunNow]:
    """The answer to a new run; when the caller would wait, as the run is then."""
    result, headers = done.result, {}
    seconds = waiting.wanted(request)
    if seconds and done.position is not None and await wait_for(house.pool, runs.VIEWS, done.position, seconds):

        async def read() -> runs.Run:
            return await run_of(house, caller, result.id)

        waited = await waiting.until(
            request, hub, caller.team, read, of=lambda row: row.id, ended=_ended, types=ENDS, views=runs.VIEWS
        )
        headers = waited.headers
        result = msgspec.structs.replace(result, status=waited.row.status, outcome=waited.row.outcome)
    response = answered(done, result, house.incarnation, status=202, location=f"/v1/runs/{result.id}")
    response.headers.update(headers)
    return response


HANDLERS = (
    start_run,
    check_agent,
    list_runs,
    get_run,
    cancel_run,
    retry_run,
    list_evaluations,
    list_trials,
)
