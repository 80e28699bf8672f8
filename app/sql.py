"""Statements as files: `sql/verb_noun.sql` in a room, each with a header comment that documents it."""

import functools
from collections.abc import Callable
from pathlib import Path


def statements_of(room: Path) -> Callable[[str], str]:
    """The loader of the folder `sql` in `room`: a name in, the text of its statement out, without its header."""

    @functools.cache
    def statement(name: str) -> str:
        lines = (room / "sql" / f"{name}.sql").read_text().splitlines()
        return "\n".join(line for line in lines if not line.startswith("--"))

    return statement
