"""`seatrial events`: the events of the team, as CloudEvents or as a line each."""

import datetime
from typing import Any

import click

from app.cli import show
from app.cli.client import Client, connect

UNSAID = frozenset({"worker", "epoch"})
"""Of no interest to whoever reads along."""
LATEST = "latest"
"""In place of a cursor: only what comes."""


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on as they come.")
@click.option("--after", help="A cursor: begin after it.  [default: from the beginning, with -f from now on]")
@show.as_json
def events(follow: bool, after: str | None, json_: bool) -> None:
    """The events of the team, oldest first; with -f those that come."""
    client = connect()
    if follow and after is None:  # a cursor of its own: nothing that happens during a reconnect is left out
        after = client.get("/v1/events", after=LATEST)["after"]
    print_events(client, "/v1/events", follow=follow, json_=json_, after=after)


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
    click.echo(f"{time}  {kind:<24} {event['subject']}  {_brief(event['data'])}".rstrip())


def _brief(data: dict[str, Any]) -> str:
    """The short values of an event: numbers and words. Ids, digests, objects and what is not so are in the JSON."""
    shown: list[str] = []
    for name, value in data.items():
        if name == "failure" and isinstance(value, dict):
            shown.append(f"{name}={value['code']}")
        elif value is True:
            shown.append(name)
        elif name not in UNSAID and not name.endswith("_id") and value is not False and _is_short(value):
            shown.append(f"{name}={show.text(value)}")
    return " ".join(shown)


def _is_short(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= 31)
