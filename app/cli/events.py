"""`seatrial events`: the events of the team, as CloudEvents or as a line each."""

import datetime
from typing import Any

import click

from app.cli import show
from app.cli.client import Client, connect

QUIET = frozenset({"id", "source", "specversion", "datacontenttype", "dataschema"})


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on as they come.")
@click.option("--after", help="A cursor: begin after it.")
@show.as_json
def events(follow: bool, after: str | None, json_: bool) -> None:
    """The events of the team, oldest first."""
    print_events(connect(), "/v1/events", follow=follow, json_=json_, after=after)


def print_events(client: Client, path: str, *, follow: bool, json_: bool, after: str | None = None) -> None:
    """The events at `path`; until the thing has ended, when followed."""
    if follow:
        for event in client.stream(path, after=after):
            _print(event.data, json_)
        return
    while True:
        page = client.get(path, after=after)
        for event in page["items"]:
            _print(event, json_)
        after = page["after"]
        if not page["more"]:
            return


def _print(event: dict[str, Any], json_: bool) -> None:
    if json_:
        show.line(event)
        return
    time = datetime.datetime.fromisoformat(event["time"]).astimezone().strftime("%H:%M:%S.%f")[:-3]
    kind = event["type"].removeprefix("seatrial.").rpartition(".v")[0]
    click.echo(f"{time}  {kind:<24} {event['subject']}  {_brief(event['data'])}")


def _brief(data: dict[str, Any]) -> str:
    """The short values of an event: numbers and words, no digests and objects."""
    return " ".join(
        f"{name}={value['code'] if name == 'failure' and isinstance(value, dict) else show.text(value)}"
        for name, value in data.items()
        if value is not None
        and (
            isinstance(value, (int, float, bool)) or name == "failure" or (isinstance(value, str) and len(value) <= 31)
        )
    )
