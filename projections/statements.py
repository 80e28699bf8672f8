"""Loads the statements of `sql/`, one a file, each with a header comment that documents it."""

import functools
from pathlib import Path

FOLDER = Path(__file__).parent / "sql"


@functools.cache
def statement(name: str) -> str:
    """The text of sql/NAME.sql without its header."""
    lines = (FOLDER / f"{name}.sql").read_text().splitlines()
    return "\n".join(line for line in lines if not line.startswith("--"))
