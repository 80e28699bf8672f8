"""Events of a team, a run, a revision or one stream, in the order of the log."""

from collections.abc import Sequence

import msgspec

from app.eventlog.connect import Pool
from app.eventlog.model import Recorded
from app.eventlog.read import read_positions
from app.queries.pages import LARGEST, SIZE, PageSizeInvalid
from app.queries.snapshot import snapshot
from app.queries.statements import statement

VIEWS = ("timeline",)


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """At most one of `correlation` and `stream`."""

    correlation: str | None = None
    """The id of a run, or of a revision: its own events, and those of all that belongs to it."""
    stream: str | None = None
    types: tuple[str, ...] = ()
    """Of these types; empty: all."""


class Events(msgspec.Struct, frozen=True):
    items: tuple[Recorded, ...]
    """Without private parts."""
    through: int
    """Every event that the filter takes, after the asked position and up to here, is in `items`: where to go on."""
    more: bool
    """Whether there are more already."""


async def events_page(
    pool: Pool, team: str, filters: Filter | None = None, *, after: int = 0, limit: int = SIZE
) -> Events:
    """At most `limit` events after a position."""
    filters = filters or Filter()
    if not 1 <= limit <= LARGEST:
        raise PageSizeInvalid(PageSizeInvalid.__doc__)
    if filters.stream is not None and filters.correlation is not None:
        raise ValueError("a filter takes a stream or a correlation, not both")
    types = list(filters.types) or None
    async with snapshot(pool, VIEWS) as seen:
        arguments = (team, after, limit + 1, types)
        if filters.stream is not None:
            name, arguments = "page_events_of_stream", (*arguments, filters.stream, seen.position)
        elif filters.correlation is not None:
            name, arguments = "page_events_correlated", (*arguments, filters.correlation)
        else:
            name = "page_events"
        positions = [record["position"] for record in await seen.connection.fetch(statement(name), *arguments)]
        items = tuple(await read_positions(seen.connection, positions[:limit]))
    more = len(positions) > limit
    return Events(items, positions[limit - 1] if more else max(after, seen.position), more)


class Counted(msgspec.Struct, frozen=True):
    by_type: dict[str, int]
    through: int
    """Counted up to here: less than was asked for when the view is behind."""


async def count_events(pool: Pool, team: str, correlation: str, types: Sequence[str], up_to: int) -> Counted:
    """How many events of these types there are, up to a position, of a run or a revision and all that belongs to it."""
    async with snapshot(pool, VIEWS) as seen:
        through = min(up_to, seen.position)
        records = await seen.connection.fetch(
            statement("count_events_correlated"), team, correlation, list(types), through
        )
    return Counted({record["type"]: record["events"] for record in records}, through)
