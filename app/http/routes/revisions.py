"""Tasks and their revisions."""

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from app.access import Permission
from app.boot import House
from app.commands import revisions as commands
from app.commands.caller import Caller, permission_of
from app.commands.refusals import not_found
from app.http import answers, shapes, waiting
from app.http.access import needs
from app.http.given import Given
from app.http.hub import Hub
from app.http.reading import DEFAULT_SIZE, PageSize, PageToken, size_of
from app.http.writing import answered
from app.queries import revisions, tasks
from app.queries.pages import Page
from app.queries.snapshot import wait_for

READ = Permission.TASKS_READ
ENDS = ("revision.ready", "revision.rejected")


class NewRevision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Make a revision of what was uploaded."""

    upload: str
    """The id of an upload whose content was sent."""


@get("/v1/tasks", opt=needs(READ, views=tasks.VIEWS), tags=["tasks"], operation_id="listTasks")
async def list_tasks(
    house: Given[House],
    caller: Given[Caller],
    page_size: PageSize = DEFAULT_SIZE,
    page_token: PageToken = None,
) -> answers.Listed[answers.Task]:
    """The tasks of the team, newest first."""
    page = await tasks.page(house.pool, caller.team, page_size=size_of(page_size), page_token=page_token)
    return answers.Listed(items=tuple(map(shapes.task, page.items)), next_page_token=page.next_page_token)


@get("/v1/tasks/{task:str}", opt=needs(READ, views=tasks.VIEWS), tags=["tasks"], operation_id="getTask")
async def get_task(house: Given[House], caller: Given[Caller], task: FromPath[str]) -> answers.Task:
    """A task by its name or id."""
    return shapes.task(await _task(house, caller, task))


@get(
    "/v1/tasks/{task:str}/revisions",
    opt=needs(READ, views=(*tasks.VIEWS, *revisions.VIEWS)),
    tags=["tasks"],
    operation_id="listRevisions",
)
async def list_revisions(
    house: Given[House],
    caller: Given[Caller],
    task: FromPath[str],
    status: Annotated[str | None, QueryParameter(name="status")] = None,
    page_size: PageSize = DEFAULT_SIZE,
    page_token: PageToken = None,
) -> answers.Listed[answers.Revision]:
    """The revisions of a task, newest first."""
    found = await _task(house, caller, task)
    page: Page[revisions.Revision] = await revisions.page(
        house.pool,
        caller.team,
        revisions.Filter(task_id=found.id, status=status),
        page_size=size_of(page_size),
        page_token=page_token,
    )
    return answers.Listed(items=tuple(map(shapes.revision, page.items)), next_page_token=page.next_page_token)


@post(
    "/v1/tasks/{task:str}/revisions",
    opt=needs(permission_of(commands.finalize), waits=True),
    status_code=202,
    tags=["tasks"],
    operation_id="createRevision",
)
async def create_revision(
    request: Request[Any, Any, Any],
    house: Given[House],
    caller: Given[Caller],
    hub: Given[Hub],
    task: FromPath[str],
    data: JSONBody[NewRevision],
) -> Response[commands.Finalized]:
    """Make a revision of an upload and queue its build: 202. The same content again is the same revision: 200.

    The task is made when its name is new. `Prefer: wait=N` answers when the build has ended, or after N seconds.
    """
    seconds = waiting.wanted(request)
    done = await commands.finalize(house, caller, task, data.upload)
    status = 202 if done.result.created else 200
    location = f"/v1/revisions/{done.result.revision_id}"
    response = answered(done, done.result, house.incarnation, status=status, location=location)
    seen = done.position or hub.position
    if seconds and await wait_for(house.pool, revisions.VIEWS, seen, seconds):
        waited = await _waited(request, house, caller, hub, done.result.revision_id)
        response.headers.update(waited.headers)
    return response


@get(
    "/v1/revisions/{revision:str}",
    opt=needs(READ, views=revisions.VIEWS, waits=True),
    tags=["tasks"],
    operation_id="getRevision",
)
async def get_revision(
    request: Request[Any, Any, Any],
    house: Given[House],
    caller: Given[Caller],
    hub: Given[Hub],
    revision: FromPath[str],
) -> Response[answers.Revision]:
    """A revision by its id. `Prefer: wait=N` answers when it is ready or rejected, or after N seconds."""

    waited = await _waited(request, house, caller, hub, revision)
    return Response(shapes.revision(waited.row), headers=waited.headers)


async def _waited(
    request: Request[Any, Any, Any], house: House, caller: Caller, hub: Hub, reference: str
) -> waiting.Waited[revisions.Revision]:
    """The revision, as soon as its build has ended if the caller would wait for that."""

    async def read() -> revisions.Revision:
        return await revision_of(house, caller, reference, private=True)

    return await waiting.until(
        request,
        hub,
        caller.team,
        read,
        of=lambda row: row.id,
        ended=lambda row: row.status in ("ready", "rejected"),
        types=ENDS,
        views=revisions.VIEWS,
    )


async def revision_of(house: House, caller: Caller, reference: str, *, private: bool = False) -> revisions.Revision:
    found = await revisions.get(house.pool, caller.team, reference, private=private)
    if found is None:
        raise not_found("revision")
    return found.item


async def _task(house: House, caller: Caller, reference: str) -> tasks.Task:
    found = await tasks.get(house.pool, caller.team, reference)
    if found is None:
        raise not_found("task")
    return found.item


HANDLERS = (list_tasks, get_task, list_revisions, create_revision, get_revision)
