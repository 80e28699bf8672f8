"""What a view is, and how a batch of events is folded into its rows, in memory.

A fold needs the rows that the batch touches. `keys` names them, table by table, given the events and the rows loaded
before: a trial's event names the trial, the trial's row names the run, the run's row is then loaded. What was loaded is
folded by `apply`, and what changed is stored (batch.py).
"""

import collections
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from app.domain.registry import Event, UnknownEvent, decode, latest
from app.eventlog.model import Recorded
from projections.table import Table


class Inconsistent(Exception):
    """An event does not fit what the view has seen before. Verify the log (`seatrial admin audit`), then rebuild."""


class Happened(msgspec.Struct, frozen=True):
    """An event of the log, decoded. `event` is None when it could not be, and `error` says why."""

    recorded: Recorded
    event: Event | None
    error: str | None = None
    """unknown_event or event_malformed."""
    known: bool = True
    """Whether this process knows the type, be it in another version."""


class Poison(Exception):
    """A view cannot fold this event: it halts before it. Upgrade this process, or repair the cause and rebuild."""

    def __init__(self, view: str, index: int, happened: Happened, code: str) -> None:
        recorded = happened.recorded
        super().__init__(f"{code}: {recorded.type} at position {recorded.position}")
        self.view, self.index, self.recorded, self.code = view, index, recorded, code


class Rows:
    """The rows of one view that a batch touches, as they are now and which of them changed."""

    def __init__(self) -> None:
        self._rows = collections.defaultdict[str, dict[Any, Any]](dict)
        self._changed = collections.defaultdict[str, dict[Any, None]](dict)

    def loaded[Row: msgspec.Struct](self, table: Table[Row], rows: Iterable[Row]) -> None:
        self._rows[table.name].update((table.key_of(row), row) for row in rows)

    def get[Row: msgspec.Struct](self, table: Table[Row], key: Any) -> Row | None:
        return self._rows[table.name].get(key)

    def need[Row: msgspec.Struct](self, table: Table[Row], key: Any) -> Row:
        row = self._rows[table.name].get(key)
        if row is None:
            raise Inconsistent(f"{table.name} has no {key}")
        return row

    def put[Row: msgspec.Struct](self, table: Table[Row], row: Row) -> None:
        key, name = table.key_of(row), table.name
        self._rows[name][key] = row
        self._changed[name][key] = None

    def remove[Row: msgspec.Struct](self, table: Table[Row], key: str) -> None:
        self._rows[table.name].pop(key, None)
        self._changed[table.name][key] = None

    def all_of[Row: msgspec.Struct](self, table: Table[Row]) -> Iterable[Row]:
        return self._rows[table.name].values()

    def changed[Row: msgspec.Struct](self, table: Table[Row]) -> tuple[list[Row], list[Any]]:
        """The rows to store, and the keys to remove."""
        mine, keys = self._rows[table.name], self._changed[table.name]
        rows = [mine[key] for key in keys if key in mine]
        gone = [key for key in keys if key not in mine]
        return rows if table.derive is None else list(map(table.derive, rows)), gone


Keys = Callable[[Table[Any], Sequence[Happened], Rows], Iterable[str]]


class View(msgspec.Struct, frozen=True):
    name: str
    tables: tuple[Table[Any], ...]
    """In the order in which they are loaded."""
    events: tuple[type[Event], ...]
    """What it folds; empty: everything, without decoding it."""
    keys: Keys
    """Which rows of a table the events touch: values of the first column of its key."""
    apply: Callable[[Rows, Happened], None]
    types: frozenset[str] = frozenset()
    """Names of `events`: set by itself."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "types", frozenset(event.type for event in self.events))

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def checkpoint(self) -> str:
        return f"view.{self.name}"

    def concerning(self, batch: Sequence[Happened]) -> Sequence[Happened]:
        """What the view must look at. An event of an unknown type concerns every view that decodes."""
        if not self.events:
            return batch
        return [one for one in batch if one.recorded.type in self.types or not one.known]


def decoded(recorded: Recorded) -> Happened:
    try:
        return Happened(recorded, decode(recorded.type, recorded.schema_version, recorded.data))
    except UnknownEvent:
        return Happened(recorded, None, "unknown_event", known=_known(recorded.type))
    except msgspec.MsgspecError:
        return Happened(recorded, None, "event_malformed")


def _known(type_name: str) -> bool:
    try:
        return latest(type_name) > 0
    except KeyError:
        return False


def fold(view: View, rows: Rows, batch: Sequence[Happened]) -> None:
    """Apply events that all concern the view. Raises Poison, with its index in the batch; `rows` is then of no use."""
    for index, happened in enumerate(batch):
        if happened.event is None and view.events:
            raise Poison(view.name, index, happened, happened.error or "unknown_event")
        try:
            view.apply(rows, happened)
        except Inconsistent as error:
            raise Poison(view.name, index, happened, "inconsistent") from error
        except msgspec.MsgspecError as error:
            raise Poison(view.name, index, happened, "event_malformed") from error


def streams(_table: Table[Any], batch: Sequence[Happened], _rows: Rows) -> Iterable[str]:
    """Keys of a view with one row a stream."""
    return {happened.recorded.stream for happened in batch}
