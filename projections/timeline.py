"""Which events concern a team, and which a run or a revision: the index behind every list of events.

It takes every event without decoding its data, so it also serves those of types that this process does not know yet.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from app.domain.registry import decode_meta
from projections.table import Table
from projections.view import Happened, Rows, View

ROOTS = frozenset({"run", "revision"})
"""Categories of streams that others are correlated to; their own events are correlated to themselves."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    team: str
    position: int
    stream: str
    type: str
    correlation: str | None


ENTRY = Table("timeline", Entry, ("team", "position"), only_grows=True)


def keys(_table: Table[Any], _batch: Sequence[Happened], _rows: Rows) -> Iterable[str]:
    return ()


def apply(rows: Rows, happened: Happened) -> None:
    recorded = happened.recorded
    correlation = decode_meta(recorded.meta).correlation
    if correlation is None and recorded.category in ROOTS:
        correlation = recorded.stream
    entry = Entry(
        team=recorded.team,
        position=recorded.position,
        stream=recorded.stream,
        type=recorded.type,
        correlation=correlation,
    )
    rows.put(ENTRY, entry)


VIEW = View(name="timeline", tables=(ENTRY,), events=(), keys=keys, apply=apply)
