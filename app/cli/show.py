"""What commands print: tables for people, `--json` for programs, plain lines where there is no terminal."""

import datetime
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

import click

PHASES = ("provision", "agent_setup", "agent", "collect", "verify", "teardown")
"""Of an execution, in their order."""

as_json = click.option("--json", "json_", is_flag=True, help="Print JSON, one document or one line an item.")


def document(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def line(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they must be; the last one is not padded."""
    if not rows:
        click.echo("nothing")
        return
    lines = [[heading.upper() for heading in headings], *[list(row) for row in rows]]
    widths = [max(len(one[column]) for one in lines) for column in range(len(headings))]
    for one in lines:
        padded = [cell.ljust(width) for cell, width in zip(one[:-1], widths[:-1], strict=True)]
        click.echo("  ".join([*padded, one[-1]]).rstrip())


def facts(pairs: Sequence[tuple[str, Any]]) -> None:
    """Name and value, a line each; what is None is left out."""
    shown = [(name, text(value)) for name, value in pairs if value is not None and value != ""]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"{name.ljust(width)}  {value}")


def text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return reward(value)
    if isinstance(value, dict):
        return " ".join(f"{key}={text(one)}" for key, one in value.items())
    if isinstance(value, list):
        return ", ".join(text(one) for one in cast(list[Any], value)) or "none"
    return str(value)


def number(value: float | None) -> str:
    """A score: three digits."""
    return "-" if value is None else f"{value:.3f}"


def reward(value: float | None) -> str:
    """A reward as short as it is: 1.0, 0.5, 0.3333."""
    return "-" if value is None else str(round(value, 4))


def short(digest: str | None) -> str:
    """sha256:9f2c… of a digest."""
    if not digest:
        return "-"
    name, _, rest = digest.partition(":")
    return f"{name}:{rest[:12]}…" if rest else digest[:12]


def when(stamp: str | None) -> str:
    """A time of the API in local time, to the second."""
    if not stamp:
        return "-"
    return datetime.datetime.fromisoformat(stamp).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def took(begin: str | None, end: str | None) -> str:
    if not begin or not end:
        return "-"
    seconds = (datetime.datetime.fromisoformat(end) - datetime.datetime.fromisoformat(begin)).total_seconds()
    return f"{seconds:.1f} s"


class Status:
    """One line that is written over on a terminal, and not written at all without one, nor where JSON is printed."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._live = sys.stdout.isatty() and not quiet and os.environ.get("TERM") != "dumb"
        self._shown = False

    @property
    def live(self) -> bool:
        """Whether there is such a line at all."""
        return self._live

    def set(self, words: str) -> None:
        if self._live:
            click.echo(f"\r\x1b[2K{words[: _columns() - 1]}", nl=False)
            self._shown = True

    def clear(self) -> None:
        if self._shown:
            click.echo("\r\x1b[2K", nl=False)
            self._shown = False

    def say(self, words: str, style: Callable[[str], str] = str) -> None:
        """A line that stays, above the status."""
        self.clear()
        click.echo(style(words) if self._live else words)

    def warn(self, warnings: Sequence[str]) -> None:
        for one in warnings:
            self.say(f"  warning: {one}")

    def note(self, words: str) -> None:
        """A line for people, beside what is printed for programs."""
        self.clear()
        click.echo(words, err=True)


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns


def dim(words: str) -> str:
    return words if os.environ.get("NO_COLOR") else click.style(words, dim=True)


def failure(one: dict[str, Any] | None) -> str:
    """`verifier.timed_out (verify, task)`."""
    return "-" if not one else f"{one['code']} ({one['phase']}, {one['fault']})"
