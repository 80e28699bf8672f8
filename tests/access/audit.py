"""How new rows are recorded in the real log."""

from app.access.bootstrap import RowMade
from app.access.rows import OneConnection
from app.domain.registry import Meta
from app.eventlog.append import append_direct
from app.eventlog.drafts import unit_of
from app.eventlog.incarnation import current_incarnation


async def record(connection: OneConnection, made: tuple[RowMade, ...]) -> None:
    units = [unit_of(row.category, row.stream, row.team, 0, (row.draft,), Meta(actor=row.actor)) for row in made]
    outcomes = await append_direct(connection, units, await current_incarnation(connection))
    assert all(outcome.accepted for outcome in outcomes)
