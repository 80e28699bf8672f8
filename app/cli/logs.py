"""Output of trials and builds, as it was written or with where it came from."""

from typing import Any

import click

from app.cli import show
from app.cli.client import Client


def print_logs(client: Client, path: str, *, follow: bool, json_: bool) -> None:
    """The log at `path`; until the thing has ended, when followed."""
    if follow:
        for event in client.stream(path):
            _print(event.data, json_)
        return
    after: str | None = None
    while True:
        page = client.get(path, after=after)
        for chunk in page["items"]:
            _print(chunk, json_)
        after = page["after"]
        if not page["more"]:
            return


def _print(chunk: dict[str, Any], json_: bool) -> None:
    if json_:
        show.line(chunk)
        return
    if chunk.get("dropped"):
        click.echo(f"({chunk['dropped']} chunks are missing here; the archive has them)", err=True)
    click.echo(chunk["text"], nl=False)
