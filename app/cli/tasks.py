"""`seatrial tasks`: push, list, show, lint."""

import sys
from pathlib import Path

import click

from app.cli import packs, show
from app.cli.client import connect, segment

Folder = click.Path(exists=True, file_okay=False, path_type=Path)


@click.group()
def tasks() -> None:
    """Push, list and check task packs."""


@tasks.command()
@click.argument("folder", type=Folder)
@click.option("--name", help="The task's name. Default: the folder's.")
@click.option("--wait/--no-wait", default=True, help="Wait until it is built.")
@show.as_json
def push(folder: Path, name: str | None, wait: bool, json_: bool) -> None:
    """Send a pack (or every pack right below FOLDER) and build it."""
    found = packs.find(folder)
    if name and len(found) > 1:
        raise click.ClickException(f"--name is for one pack; {folder} holds {len(found)}")
    client, status = connect(start=True), show.Status()
    for revision in [packs.push(client, one, name) for one in found]:
        ready = packs.build(client, revision, status) if wait else revision
        if json_:
            show.line(ready)
            continue
        image = show.short(ready["image"]["digest"]) if ready["image"] else ready["status"]
        status.say(f"{ready['task_name']}  {image}  {ready['id']}")
        for warning in ready["warnings"]:
            status.say(f"  warning: {warning}")


@tasks.command("list")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@show.as_json
def list_(limit: int, json_: bool) -> None:
    """The team's tasks, newest first."""
    found = connect().pages("/v1/tasks", limit=limit)
    if json_:
        for one in found:
            show.line(one)
        return
    show.table(
        ("task", "revisions", "ready", "evaluations", "created", "id"),
        [
            (
                one["name"] or "",
                str(one["revisions"]),
                "yes" if one["ready_revision"] else "no",
                str(one["evaluations"]),
                show.when(one["created_at"]),
                one["id"],
            )
            for one in found
        ],
    )


@tasks.command("show")
@click.argument("task")
@show.as_json
def show_(task: str, json_: bool) -> None:
    """A task and its revisions."""
    client = connect()
    one = client.get(f"/v1/tasks/{segment(task)}")
    revisions = list(client.pages(f"/v1/tasks/{segment(task)}/revisions"))
    if json_:
        show.document(one | {"revisions_list": revisions})
        return
    show.facts([("task", one["name"]), ("id", one["id"]), ("created", show.when(one["created_at"]))])
    click.echo()
    show.table(
        ("revision", "status", "pack", "image", "uploaded", "failure"),
        [
            (
                each["id"],
                each["status"],
                show.short(each["pack_digest"]),
                show.short((each["image"] or {}).get("digest")),
                show.when(each["uploaded_at"]),
                show.failure(each["failure"]),
            )
            for each in revisions
        ],
    )


@tasks.command()
@click.argument("folder", type=Folder)
@show.as_json
def lint(folder: Path, json_: bool) -> None:
    """Check packs on this machine, without a server. Exit 1 when one cannot be used."""
    from app.archives.folder import folder_listing
    from app.domain.pack import PackInvalid
    from app.domain.pack_lint import lint as lint_pack
    from app.domain.pack_parse import parse

    broken = False
    for pack in packs.find(folder):
        files = folder_listing(pack).paths
        findings: list[tuple[str, str, str]] = []
        try:
            parsed = parse((pack / packs.TASK_FILE).read_text(), files)
            findings = [("warning", one.field, one.message) for one in lint_pack(parsed, files)]
        except PackInvalid as invalid:
            broken = True
            findings = [("error", one.field, one.message) for one in invalid.errors]
        except UnicodeDecodeError:
            broken = True
            findings = [("error", "", "task.toml is not UTF-8")]
        for level, field, message in findings:
            if json_:
                show.line({"pack": str(pack), "level": level, "field": field, "message": message})
            else:
                click.echo(f"{pack}: {level}: {field or packs.TASK_FILE}: {message}")
        if not findings and not json_:
            click.echo(f"{pack}: good")
    sys.exit(1 if broken else 0)
