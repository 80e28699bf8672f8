"""Evaluations and trials: what is known of them, and cancelling a trial."""

from typing import Annotated

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, QueryParameter

from app import ids
from app.access import Permission
from app.boot import House
from app.commands import trials as commands
from app.commands.caller import Caller, permission_of
from app.commands.refusals import not_found
from app.http import answers, shapes
from app.http.access import needs
from app.http.given import Given
from app.http.reading import DEFAULT_SIZE, PageSize, PageToken, size_of
from app.http.writing import answered
from app.queries import evaluations, trials

READ = Permission.RUNS_READ


class Executions(msgspec.Struct, frozen=True, kw_only=True):
    """All tries of a trial, the first one first."""

    items: tuple[answers.Execution, ...]


@get(
    "/v1/evaluations/{evaluation:str}",
    opt=needs(READ, views=evaluations.VIEWS),
    tags=["runs"],
    operation_id="getEvaluation",
)
async def get_evaluation(house: Given[House], caller: Given[Caller], evaluation: FromPath[str]) -> answers.Evaluation:
    """An evaluation by its id, or a prefix of it that is the only one."""
    return shapes.evaluation(await evaluation_of(house, caller, evaluation))


@get(
    "/v1/evaluations/{evaluation:str}/trials",
    opt=needs(READ, views=(*evaluations.VIEWS, *trials.VIEWS)),
    tags=["runs"],
    operation_id="listTrialsOfEvaluation",
)
async def list_trials(
    house: Given[House],
    caller: Given[Caller],
    evaluation: FromPath[str],
    status: Annotated[str | None, QueryParameter(name="status")] = None,
    page_size: PageSize = DEFAULT_SIZE,
    page_token: PageToken = None,
) -> answers.Listed[answers.Trial]:
    """The trials of an evaluation, in order."""
    found = await evaluation_of(house, caller, evaluation)
    page = await trials.page(
        house.pool,
        caller.team,
        trials.Filter(evaluation_id=found.id, status=status),
        page_size=size_of(page_size),
        page_token=page_token,
        private=True,
    )
    return answers.Listed(items=tuple(map(shapes.trial, page.items)), next_page_token=page.next_page_token)


@get("/v1/trials/{trial:str}", opt=needs(READ, views=trials.VIEWS), tags=["runs"], operation_id="getTrial")
async def get_trial(house: Given[House], caller: Given[Caller], trial: FromPath[str]) -> answers.Trial:
    """A trial by its id, or a prefix of it that is the only one."""
    return shapes.trial(await trial_of(house, caller, trial))


@get(
    "/v1/trials/{trial:str}/executions",
    opt=needs(READ, views=trials.VIEWS_OF_EXECUTIONS),
    tags=["runs"],
    operation_id="listExecutions",
)
async def list_executions(house: Given[House], caller: Given[Caller], trial: FromPath[str]) -> Executions:
    """Every try of a trial, all kept."""
    return Executions(items=tuple(map(shapes.execution, await executions_of(house, caller, trial))))


@post(
    "/v1/trials/{trial:str}/cancel",
    opt=needs(permission_of(commands.cancel), views=trials.VIEWS),
    status_code=202,
    tags=["runs"],
    operation_id="cancelTrial",
)
async def cancel_trial(house: Given[House], caller: Given[Caller], trial: FromPath[str]) -> Response[commands.TrialNow]:
    """Cancel one trial: one that waits ends at once, one that runs is told to stop. First end wins."""
    # Commands need the log alone: only what is no full id is looked up in the view.
    trial_id = trial if ids.is_id("trial", trial) else (await trial_of(house, caller, trial)).id
    done = await commands.cancel(house, caller, trial_id)
    return answered(done, done.result, house.incarnation, status=202, location=f"/v1/trials/{trial_id}")


async def evaluation_of(house: House, caller: Caller, reference: str) -> evaluations.Evaluation:
    found = await evaluations.get(house.pool, caller.team, reference)
    if found is None:
        raise not_found("evaluation")
    return found.item


async def trial_of(house: House, caller: Caller, reference: str) -> trials.Trial:
    found = await trials.get(house.pool, caller.team, reference, private=True)
    if found is None:
        raise not_found("trial")
    return found.item


async def executions_of(house: House, caller: Caller, reference: str) -> tuple[trials.Execution, ...]:
    found = await trials.executions_of(
        house.pool, caller.team, (await trial_of(house, caller, reference)).id, private=True
    )
    if found is None:
        raise not_found("trial")
    return found.item


HANDLERS = (get_evaluation, list_trials, get_trial, list_executions, cancel_trial)
