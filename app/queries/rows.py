"""From a database record to a typed row: JSON columns are decoded, the rest is taken as it is."""

import functools
from collections.abc import Mapping
from typing import Any

import msgspec


def to[Row: msgspec.Struct](kind: type[Row], record: Mapping[str, Any]) -> Row:
    """The `kind` of a record, whose columns may be more than its fields."""
    json = _json_fields(kind)
    values = {
        name: msgspec.json.decode(value) if name in json and isinstance(value, str) else value
        for name, value in record.items()
    }
    return msgspec.convert(values, kind)


@functools.cache
def _json_fields(kind: type[msgspec.Struct]) -> frozenset[str]:
    """The fields that hold a Struct or a mapping: their column is `json`."""
    found = set[str]()
    for field in msgspec.structs.fields(kind):
        described = msgspec.inspect.type_info(field.type)
        choices = described.types if isinstance(described, msgspec.inspect.UnionType) else (described,)
        if any(isinstance(one, msgspec.inspect.StructType | msgspec.inspect.DictType) for one in choices):
            found.add(field.name)
    return frozenset(found)
