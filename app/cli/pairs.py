"""Options that are given as NAME=VALUE, any number of times."""

import contextlib
import json
from typing import Any

import click


def pairs(given: tuple[str, ...], *, parse: bool = False) -> dict[str, Any]:
    """`parse`: a value that is JSON is what it says, any other a text."""
    found: dict[str, Any] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise click.ClickException(f"{one!r}: NAME=VALUE is needed")
        if parse:
            with contextlib.suppress(ValueError):
                found[name] = json.loads(value)
                continue
        found[name] = value
    return found
