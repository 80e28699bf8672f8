"""Output of trials and builds, as it was written or with where it came from."""

from typing import Any

import click

from app.cli import show
from app.cli.client import Client


def print_logs(client: Client, path: str, *, follow: bool, json_: bool, several: bool = False) -> None:
    """The log at `path`; until the thing has ended, when followed. `several`: of more than one trial, so that each change of
    trial is told."""
    printer = _Printer(json_=json_, several=several)
    if follow:
        for event in client.stream(path):
            printer.print(event.data)
        return
    after: str | None = None
    while True:
        page = client.get(path, after=after)
        for chunk in page["items"]:
            printer.print(chunk)
        after = page["after"]
        if not page["more"]:
            return


class _Printer:
    def __init__(self, *, json_: bool, several: bool) -> None:
        self._json, self._several = json_, several
        self._owner = ""

    def print(self, chunk: dict[str, Any]) -> None:
        if self._json:
            show.line(chunk)
            return
        if self._several and chunk["owner"] != self._owner:
            self._owner = chunk["owner"]
            click.echo(f"==> {self._owner} <==")
        if chunk.get("dropped"):
            click.echo(f"({chunk['dropped']} chunks are missing here; the archive has them)", err=True)
        click.echo(chunk["text"], nl=False)
