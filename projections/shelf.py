"""Rows of views that are being built, kept in memory from batch to batch, so that most are written once: by COPY.

A view that is built anew meets nearly every row several times within a few thousand events (a trial, from queued to
scored) and then never again. What lies on the shelf has been touched lately; what was not touched for the longest time
goes into its table, and comes back when an event needs it. Nobody else reads or writes these tables, so nothing here
needs a transaction: after a kill the tables are dropped.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from app.eventlog.connect import Connection
from projections.table import Table


class Shelf[Row]:
    """The rows of one table, by the first column of its key, the longest untouched first."""

    def __init__(self, table: Table[Any], connection: Connection, schema: str, most: int) -> None:
        self._table, self._connection, self._schema, self._most = table, connection, schema, most
        self._rows: dict[str, dict[Any, Row]] = {}
        self._changed: set[str] = set()
        self._written: set[str] = set()
        """Of the keys here, and of the gone ones, those that have rows in the table too."""
        self._gone: set[str] = set()
        self._spilled = False
        """Whether the table may have rows that are not here."""

    async def load(self, keys: Collection[str]) -> list[Row]:
        """All rows of these keys."""
        if self._spilled and (missing := [key for key in keys if key not in self._rows and key not in self._gone]):
            table = self._table
            for record in await self._connection.fetch(table.load(self._schema), missing):
                row = table.row(**record)
                self._rows.setdefault(record[table.key[0]], {})[table.key_of(row)] = row
                self._written.add(record[table.key[0]])
        return [row for key in keys if key in self._rows for row in self._rows[key].values()]

    async def keep(self, changed: Sequence[Row], removed: Iterable[str]) -> None:
        """Rows as they are now, and keys that have none any more. What is too much is written."""
        first = self._table.key[0]
        for row in changed:
            key = getattr(row, first)
            mine = self._rows.pop(key, {})
            mine[self._table.key_of(row)] = row
            self._rows[key] = mine  # behind all others
            self._changed.add(key)
        for key in removed:
            self._rows.pop(key, None)
            self._changed.discard(key)
            if key in self._written:
                self._gone.add(key)
        if len(self._rows) > self._most:
            await self.write(self._most // 2)

    async def write(self, left: int = 0) -> None:
        """Write what was not touched for the longest time, until rows of at most `left` keys are here."""
        table, connection = self._table, self._connection
        new, again = list[Row](), list[Row]()
        for key in list(self._rows)[: max(0, len(self._rows) - left)]:
            rows = self._rows.pop(key).values()
            if key in self._changed:
                (again if key in self._written else new).extend(rows)
            self._changed.discard(key)
            self._written.discard(key)
            self._spilled = True
        if self._gone:
            await connection.execute(table.remove(self._schema), list(self._gone))
            self._written -= self._gone
            self._gone.clear()
        if new:
            await copy(connection, table, new, self._schema)
        if again:
            await connection.execute(table.store(self._schema), *table.arrays(again))


class Shelves:
    """Where the fold of views aside finds and leaves its rows: a shelf for each table."""

    def __init__(self, connection: Connection, schema: str, most: int) -> None:
        self._connection, self._schema, self._most = connection, schema, most
        self._shelves: dict[Table[Any], Shelf[Any]] = {}

    def _of(self, table: Table[Any]) -> Shelf[Any]:
        if (shelf := self._shelves.get(table)) is None:
            shelf = self._shelves[table] = Shelf(table, self._connection, self._schema, self._most)
        return shelf

    async def load(self, table: Table[Any], keys: Collection[str]) -> list[Any]:
        return await self._of(table).load(keys)

    async def keep(self, table: Table[Any], changed: Sequence[Any], removed: Sequence[str]) -> None:
        if table.only_grows:
            await copy(self._connection, table, changed, self._schema)
        else:
            await self._of(table).keep(changed, removed)

    async def write(self) -> None:
        """Bring everything into the tables, and nothing is left here."""
        for shelf in self._shelves.values():
            await shelf.write()

    def forget(self, tables: Iterable[Table[Any]]) -> None:
        for table in tables:
            self._shelves.pop(table, None)


async def copy(connection: Connection, table: Table[Any], rows: Sequence[Any], schema: str) -> None:
    """Rows that are new."""
    if rows:
        await connection.copy_records_to_table(
            table.name, schema_name=schema, columns=table.columns, records=table.records(rows)
        )
