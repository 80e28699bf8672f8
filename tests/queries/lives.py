"""A database in which something has happened, folded into the views."""

import random

from app.eventlog.connect import Connection
from tests.projections.histories import World, history
from tests.projections.projecting import project, projector, write, writer


async def lived(url: str, seed: int, steps: int = 400, *, teams: int = 2) -> World:
    world = history(random.Random(seed), steps, teams=teams)
    async with writer(url) as log, projector(url) as connection:
        await write(log, world.units)
        await register(log, world)
        assert not await project(connection)
    return world


async def register(connection: Connection, world: World) -> None:
    """The registry's rows, as the commands write them beside the events."""
    for team in world.teams:
        await connection.execute("insert into seatrial.team (id, name) values ($1, $1)", team)
        await connection.execute(
            "insert into seatrial.agent (id, team, name, definition, digest, created_by)"
            " values ($1, $2, 'pinned', '{}', sha256('{}'), 'key_test')",
            world.agents[team],
            team,
        )
    for number, task in enumerate(world.tasks):
        await connection.execute(
            "insert into seatrial.task (id, team, name) values ($1, $2, $3)", task, world.team_of[task], f"t{number}"
        )
