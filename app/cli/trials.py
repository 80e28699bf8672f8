"""`seatrial trials`: show, logs, events, artifacts, cancel."""

from pathlib import Path, PurePosixPath

import click

from app.cli import show
from app.cli.client import connect, segment
from app.cli.events import print_events
from app.cli.logs import print_logs


@click.group()
def trials() -> None:
    """Show trials, their logs and what they left. TRIAL is an id or a prefix of one."""


@trials.command("show")
@click.argument("trial")
@show.as_json
def show_(trial: str, json_: bool) -> None:
    """A trial, its validity and its executions."""
    client = connect()
    one = client.get(f"/v1/trials/{segment(trial)}")
    executions = client.get(f"/v1/trials/{one['id']}/executions")["items"]
    if json_:
        show.document(one | {"executions_list": executions})
        return
    show.facts(
        [
            ("trial", one["id"]),
            ("run", one["run_id"]),
            ("status", one["status"]),
            ("adopted from", one["adopted_from"]),
            ("recovered", True if one["recovered"] else None),
            ("reward", show.reward(one["reward"]) if one["reward"] is not None else None),
            ("rewards", one["rewards"]),
            ("failure", show.failure(one["failure"]) if one["failure"] else None),
            ("message", one["message"]),
            ("queued", show.when(one["queued_at"])),
            ("took", show.took(one["started_at"], one["ended_at"])),
            ("phases", _phases(one["timings_ms"]) or None),
            *((f"validity {name}", value) for name, value in (one["validity"] or {}).items()),
        ]
    )
    click.echo()
    show.table(
        ("try", "status", "phase", "took", "failure", "worker", "execution"),
        [
            (
                str(each["number"]),
                each["status"],
                each["phase"] or "-",
                show.took(each["started_at"], each["ended_at"]),
                show.failure(each["failure"]),
                each["worker"],
                each["id"],
            )
            for each in executions
        ],
    )


def _phases(timings_ms: dict[str, int]) -> dict[str, str]:
    """In the order in which they are passed; what we have no place for, last."""
    order = {name: place for place, name in enumerate(show.PHASES)}
    names = sorted(timings_ms, key=lambda name: order.get(name, len(order)))
    return {name: f"{timings_ms[name]} ms" for name in names}


@trials.command()
@click.argument("trial")
@click.option("-f", "--follow", is_flag=True, help="Go on until the trial has ended.")
@show.as_json
def logs(trial: str, follow: bool, json_: bool) -> None:
    """The output of a trial, over all its executions."""
    client = connect()
    one = client.get(f"/v1/trials/{segment(trial)}")
    print_logs(client, one["logs_url"], follow=follow, json_=json_)


@trials.command()
@click.argument("trial")
@click.option("-f", "--follow", is_flag=True, help="Go on until the trial has ended.")
@show.as_json
def events(trial: str, follow: bool, json_: bool) -> None:
    """What happened to a trial."""
    client = connect()
    one = client.get(f"/v1/trials/{segment(trial)}")
    print_events(client, one["events_url"], follow=follow, json_=json_)


@trials.command()
@click.argument("trial")
@click.argument("path", required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Where to put the file. Default: its name, here.")
@show.as_json
def artifacts(trial: str, path: str | None, output: Path | None, json_: bool) -> None:
    """List what a trial left, or fetch one file of it."""
    client = connect()
    one = client.get(f"/v1/trials/{segment(trial)}")
    if path:
        destination = output or Path(PurePosixPath(path).name)
        client.download(f"{one['artifacts_url']}/{'/'.join(map(segment, path.split('/')))}", destination)
        click.echo(f"{destination}  {destination.stat().st_size} bytes")
        return
    found = client.get(one["artifacts_url"])["items"]
    if json_:
        show.document(found)
        return
    show.table(
        ("bytes", "sha256", "path"), [(str(each["size_bytes"]), each["sha256"][:12], each["path"]) for each in found]
    )


@trials.command()
@click.argument("trial")
@show.as_json
def cancel(trial: str, json_: bool) -> None:
    """End a trial. One that has ended stays as it is."""
    made = connect().post(f"/v1/trials/{segment(trial)}/cancel")
    show.document(made) if json_ else click.echo(f"trial {made['id']} is {made['status']}")
