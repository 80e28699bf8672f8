"""Loads the statements of `sql/`, one a file, each with a header comment that documents it."""

import functools
import importlib.resources


@functools.cache
def statement(name: str) -> str:
    """The text of sql/NAME.sql."""
    return importlib.resources.files("app.commands").joinpath("sql", f"{name}.sql").read_text()
