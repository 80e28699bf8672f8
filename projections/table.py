"""A table as its row Struct, and the statements that load, store and delete many rows of it at once.

The statements are made from the Struct rather than kept as files: they are the same for every table, and so cannot
disagree with it about a column. They take columns as arrays (unnest), because one statement a batch is what makes a
projector fast (reference: 100 events a batch, 22,000 events/s; a statement an event, 4,800).
"""

import datetime
import decimal
import functools
import operator
import types
import typing
from collections.abc import Callable, Collection, Iterator
from typing import Any, NewType

import msgspec

Json = NewType("Json", str)
"""JSON text, kept as it came."""

VIEWS, ASIDE = "views", "views_aside"
"""The schemas: what is served, and what is being rebuilt or verified."""

_TYPES: dict[Any, str] = {
    str: "text",
    int: "bigint",
    float: "double precision",
    bool: "boolean",
    Json: "json",
    decimal.Decimal: "numeric",
    datetime.datetime: "timestamptz",
}


class Table[Row: msgspec.Struct](msgspec.Struct, frozen=True):
    """A table of schema `views`. Its columns are the fields of `row`, in any order."""

    name: str
    row: type[Row]
    key: tuple[str, ...]
    """The primary key. Rows are loaded by its first column."""
    only_grows: bool = False
    """Every row is new and stays as it is: stored by COPY, which costs half."""
    derive: Callable[[Row], Row] | None = None
    """Fills columns that follow from others of the row: once when a batch is stored, instead of at every event."""
    key_of: Callable[[Row], Any] = operator.attrgetter("id")
    """The key of a row: set by itself."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "key_of", operator.attrgetter(*self.key))

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.row.__struct_fields__

    def load(self, schema: str) -> str:
        """$1 text[]: values of the first key column. Concurrency: the projector that loads is the only one that
        writes, because it holds the checkpoint."""
        return f"select {', '.join(self.columns)} from {schema}.{self.name} where {self.key[0]} = any ($1)"  # noqa: S608

    def store(self, schema: str) -> str:
        """$1…$n: an array a column, in the order of `columns`. Concurrency: as load."""
        columns = ", ".join(self.columns)
        arrays = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(_types(self.row), 1))
        changes = ", ".join(f"{name} = excluded.{name}" for name in self.columns if name not in self.key)
        return (
            f"insert into {schema}.{self.name} ({columns}) select * from unnest({arrays}) "  # noqa: S608
            f"on conflict ({', '.join(self.key)}) do update set {changes}"
        )

    def remove(self, schema: str) -> str:
        """$1 text[]: values of the first key column, which is the whole key of a table whose rows are removed."""
        return f"delete from {schema}.{self.name} where {self.key[0]} = any ($1)"  # noqa: S608

    def records(self, rows: Collection[Row]) -> Iterator[tuple[Any, ...]]:
        """The rows as COPY takes them."""
        return map(msgspec.structs.astuple, rows)

    def listing(self, schema: str) -> str:
        """All rows in the order of the key: the key's columns, and every column as text, called <name>_text. Ids are of
        collation C, so this is also Python's order."""
        texts = [
            f"trim_scale({name})::text as {name}_text" if kind == "numeric" else f"{name}::text as {name}_text"
            for name, kind in zip(self.columns, _types(self.row), strict=True)
        ]
        keys = ", ".join(self.key)
        return f"select {keys}, {', '.join(texts)} from {schema}.{self.name} order by {keys}"  # noqa: S608

    def arrays(self, rows: Collection[Row]) -> list[list[Any]]:
        """The rows, column by column."""
        return [list(map(operator.attrgetter(name), rows)) for name in self.columns]


@functools.cache
def _types(row: type[msgspec.Struct]) -> tuple[str, ...]:
    """The Postgres types of a Struct's fields."""
    return tuple(_TYPES[_present(hint)] for hint in typing.get_type_hints(row).values())


def _present(hint: Any) -> Any:
    """The type beside None."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        [hint] = [one for one in typing.get_args(hint) if one is not type(None)]
    return hint


def json(value: Any) -> Json:
    return Json(msgspec.json.encode(value, order="deterministic").decode())


def plain(text: str) -> str:
    """Text from outside as Postgres can hold it: without NUL."""
    return text.replace("\0", "�")
