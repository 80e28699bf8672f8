"""`seatrial admin team NAME [--trial-limit N | --no-trial-limit]`: shows a team, and says how many trials it may run at a time.

The row and its audit event (team.limited) are one transaction. Trials that run go on; the limit holds from the next
admission on.
"""

from typing import TextIO

import asyncpg
import msgspec

from app.access import rows
from app.domain.events import TeamLimited
from app.domain.registry import Draft, Meta
from app.eventlog.append import append_direct, ring
from app.eventlog.connect import LOST, Session, connect
from app.eventlog.drafts import unit_of
from app.eventlog.incarnation import current_incarnation
from app.eventlog.read import read_stream

DONE, NO_TEAM, NOT_DONE = 0, 1, 2
"""Exit codes."""
LARGEST = 1_000_000
TRIES = 8


class Contended(Exception):
    """Others write the team's stream at the same moment, again and again. Try again."""


async def find(url: str, name: str) -> rows.Team | None:
    """The team of this name or id."""
    connection = await connect(url)
    try:
        return await rows.find_team(connection, name)
    finally:
        await connection.close()


async def limit(url: str, name: str, trial_limit: int | None) -> rows.Team | None:
    """Set the limit (None: there is none) and return the team; None when there is no such team.

    A limit that is set already is left, so the command can be repeated when its answer was lost. Raises Contended, or what
    the database raises.
    """
    connection = await connect(url)
    try:
        for _ in range(TRIES):
            team = await rows.find_team(connection, name)
            if team is None or await _limited(connection, team, trial_limit):
                return await rows.find_team(connection, name)
        raise Contended(Contended.__doc__)
    finally:
        await connection.close()


async def _limited(connection: Session, team: rows.Team, trial_limit: int | None) -> bool:
    """One try. False: the team's stream has moved on, and nothing was written."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        done = True
        if await rows.limit_team(connection, team.id, trial_limit):
            version = len(await read_stream(connection, team.id))
            happened = (Draft(TeamLimited(trial_limit=trial_limit)),)
            unit = unit_of("team", team.id, team.id, version, happened, Meta(actor="operator"))
            done = (await append_direct(connection, (unit,), await current_incarnation(connection)))[0].accepted
    except BaseException:
        await transaction.rollback()
        raise
    await (transaction.commit() if done else transaction.rollback())
    await ring(connection)
    return done


async def run_team(url: str, name: str, *, change: bool, trial_limit: int | None, as_json: bool, out: TextIO) -> int:
    """Change or show, and say how it is now; an exit code."""
    try:
        team = await (limit(url, name, trial_limit) if change else find(url, name))
    except (Contended, asyncpg.PostgresError, *LOST) as error:
        out.write(f"not changed: {error}\n")
        return NOT_DONE
    if team is None:
        out.write(f"there is no team {name}\n")
        return NO_TEAM
    out.write(msgspec.json.encode(team).decode() + "\n" if as_json else text(team))
    return DONE


def text(team: rows.Team) -> str:
    most = "as many as there are slots" if team.trial_limit is None else str(team.trial_limit)
    return f"team    {team.name}  {team.id}\ntrials  {most} at a time\nruns    {team.last_run_number}\n"
