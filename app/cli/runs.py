"""`seatrial runs`: list, show, logs, events, cancel, retry, archive."""

import sys
import time
from pathlib import Path
from typing import Any

import click

from app.cli import packs, show
from app.cli.client import connect, segment
from app.cli.events import print_events
from app.cli.logs import print_logs
from app.cli.run import EXIT, Follower, follow_or_leave, summary


@click.group()
def runs() -> None:
    """List, show, follow, cancel and repeat runs. RUN is a number, an id or a prefix of one."""


@runs.command("list")
@click.option("--status", type=click.Choice(["requested", "running", "cancelling", "completed"]))
@click.option("--outcome", type=click.Choice(["succeeded", "failed", "cancelled"]))
@click.option("--agent", help="The name of a stored agent, or else of one of the harness.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@show.as_json
def list_(status: str | None, outcome: str | None, agent: str | None, limit: int, json_: bool) -> None:
    """The team's runs, newest first."""
    found = connect().pages("/v1/runs", status=status, outcome=outcome, agent=agent, limit=limit)
    if json_:
        for one in found:
            show.line(one)
        return
    show.table(
        ("run", "status", "agent", "tasks", "trials", "score", "scored", "created", "name"),
        [
            (
                str(one["number"]),
                one["outcome"] or one["status"],
                (one["stored_agent"] or one["agent"])["name"],
                str(one["evaluations"]),
                str(one["trials"] * one["evaluations"]),
                show.number((one["score"] or {}).get("mean")),
                f"{(one['score'] or {}).get('scored', 0)}/{one['trials'] * one['evaluations']}",
                show.when(one["created_at"]),
                one["name"] or "",
            )
            for one in found
        ],
    )


@runs.command("show")
@click.argument("run")
@show.as_json
def show_(run: str, json_: bool) -> None:
    """A run, its evaluations and its trials."""
    client = connect()
    one = client.get(f"/v1/runs/{segment(run)}")
    evaluations = list(client.pages(f"/v1/runs/{one['id']}/evaluations"))
    trials = list(client.pages(f"/v1/runs/{one['id']}/trials"))
    if json_:
        show.document(one | {"evaluations_list": evaluations, "trials_list": trials})
        return
    score, stored = one["score"] or {}, one["stored_agent"]
    show.facts(
        [
            ("run", f"{one['number']}  {one['id']}"),
            ("name", one["name"]),
            ("labels", one["labels"] or None),
            ("status", one["outcome"] or one["status"]),
            ("agent", one["agent"]["name"] if stored is None else f"{stored['name']} ({one['agent']['name']})"),
            ("model", one["agent"].get("model")),
            ("score", f"{show.number(score.get('mean'))} (standard error {show.number(score.get('standard_error'))})"),
            ("coverage", f"{score.get('scored', 0)} of {one['trials'] * one['evaluations']} scored"),
            ("retries", one["derived_from"]),
            ("adopted", f"{one['adopted']} scored trials" if one["adopted"] else None),
            ("errored", score.get("errored") or None),
            ("created", show.when(one["created_at"])),
            ("took", show.took(one["created_at"], one["ended_at"])),
        ]
    )
    click.echo()
    show.table(
        ("#", "task", "status", "score", "scored", "evidence", "evaluation"),
        [
            (
                str(each["ordinal"]),
                each["task_name"] or each["task_id"],
                each["outcome"] or each["status"],
                show.number((each["score"] or {}).get("mean")),
                f"{(each['score'] or {}).get('scored', 0)}/{each['trials']}",
                each["evidence"] or "-",
                each["id"],
            )
            for each in evaluations
        ],
    )
    click.echo()
    _trials(evaluations, trials)


def _trials(evaluations: list[dict[str, Any]], trials: list[dict[str, Any]]) -> None:
    ordinals = {each["id"]: each["ordinal"] for each in evaluations}
    show.table(
        ("trial", "status", "reward", "tries", "took", "failure", "id"),
        [
            (
                f"{ordinals.get(one['evaluation_id'], '?')}.{one['ordinal']}",
                "adopted" if one["adopted_from"] else one["status"],
                show.reward(one["reward"]),
                str(one["executions"]),
                show.took(one["started_at"], one["ended_at"]),
                show.failure(one["failure"]),
                one["id"],
            )
            for one in trials
        ],
    )


@runs.command()
@click.argument("run")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@show.as_json
def logs(run: str, follow: bool, json_: bool) -> None:
    """The output of a run's trials."""
    client = connect()
    one = client.get(f"/v1/runs/{segment(run)}")
    several = one["trials"] * one["evaluations"] > 1
    print_logs(client, one["logs_url"], follow=follow, json_=json_, several=several)


@runs.command()
@click.argument("run")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@show.as_json
def events(run: str, follow: bool, json_: bool) -> None:
    """What happened in a run, in the order of the log."""
    client = connect()
    one = client.get(f"/v1/runs/{segment(run)}")
    print_events(client, one["events_url"], follow=follow, json_=json_)


@runs.command()
@click.argument("run")
@show.as_json
def cancel(run: str, json_: bool) -> None:
    """End a run. What has ended stays as it is."""
    made = connect().post(f"/v1/runs/{segment(run)}/cancel")
    show.document(made) if json_ else click.echo(f"run {made['number']} is {made['status']}")


@runs.command()
@click.argument("run")
@click.option("--detach", "-d", is_flag=True, help="Return when the run is accepted.")
@show.as_json
def retry(run: str, detach: bool, json_: bool) -> None:
    """Run again what an ended run left unscored, in a new run that adopts the scores that there are."""
    client = connect()
    made = client.post(f"/v1/runs/{segment(run)}/retry")
    if detach:
        show.document(made) if json_ else click.echo(f"run {made['number']} repeats run {run}")
        return
    started, status = time.monotonic(), show.Status(quiet=json_)
    follow_or_leave(Follower(client, made, status, quiet=json_, logs=False))
    ended = client.get(f"/v1/runs/{made['id']}")
    show.document(ended) if json_ else status.say(summary(ended, time.monotonic() - started, None))
    sys.exit(EXIT.get(ended["outcome"], 1))


@runs.command()
@click.argument("run")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Where to. Default: seatrial-run-N.tar.zst here.")
@show.as_json
def archive(run: str, output: Path | None, json_: bool) -> None:
    """Fetch the evidence of a run."""
    client = connect()
    one = client.get(f"/v1/runs/{segment(run)}")
    suffix = "tar.zst" if one["evaluations"] == 1 else "tar"
    if one["status"] != "completed":
        raise click.ClickException(f"run {one['number']} is {one['status']}; its evidence is there when it has ended")
    path = output or packs.outside() / f"seatrial-run-{one['number']}.{suffix}"
    client.download(one["archive_url"], path)
    if json_:
        show.document({"path": str(path), "size_bytes": path.stat().st_size, "run": one["id"]})
        return
    click.echo(f"{path}  {path.stat().st_size} bytes; check it with `seatrial verify {path}`")
