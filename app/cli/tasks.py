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
    """Send a pack (or every pack right below FOLDER) and build it.

    One that is refused stops no other; the exit code is then 1."""
    found = packs.find(folder)
    if name and len(found) > 1:
        raise click.ClickException(f"--name is for one pack; {folder} holds {len(found)}")
    client, status = connect(start=True, quiet=json_), show.Status(quiet=json_)
    refused = 0
    for one in packs.push_all(client, found, status, name=name, wait=wait):
        refused += one.error is not None
        if json_ and one.revision is not None:
            show.line(one.revision)
        if one.error is not None:
            where = f"{one.folder}: " if len(found) > 1 else ""
            status.note(f"error: {where}{one.error.format_message()}")
        elif not json_ and one.revision is not None:
            image = show.short(one.revision["image"]["digest"]) if one.revision["image"] else one.revision["status"]
            status.say(f"{one.revision['task_name']}  {image}  {one.revision['id']}")
            status.warn(one.revision["warnings"])
    if refused and len(found) > 1:
        status.note(f"{refused} of {len(found)} packs were refused")
    sys.exit(1 if refused else 0)


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
    """Check packs on this machine, without a server: errors, warnings, and notes on what a score will be worth.

    Exit 1 when one cannot be used.
    """
    broken = 0
    found = packs.find(folder)
    for pack in found:
        findings = _findings(pack)
        broken += any(level == "error" for level, _, _ in findings)
        for level, field, message in findings:
            if json_:
                show.line({"pack": str(pack), "level": level, "field": field, "message": message})
            else:
                click.echo(f"{pack}: {level}: {field or packs.TASK_FILE}: {message}")
        if not findings and not json_:
            click.echo(f"{pack}: good")
    if broken and len(found) > 1:
        click.echo(f"{broken} of {len(found)} packs cannot be used", err=True)
    sys.exit(1 if broken else 0)


def _findings(pack: Path) -> list[tuple[str, str, str]]:
    """Level (error, warning, note), field and message of all that is to be said about a pack."""
    from app.archives.folder import folder_listing
    from app.domain.pack import PackInvalid
    from app.domain.pack_lint import lint as lint_pack
    from app.domain.pack_parse import parse

    try:
        files = folder_listing(pack).paths
        parsed = parse((pack / packs.TASK_FILE).read_text(encoding="utf-8"), files)
    except PackInvalid as invalid:
        return [("error", one.field, one.message) for one in invalid.errors]
    except UnicodeDecodeError:
        return [("error", "", "is not UTF-8")]
    except (OSError, ValueError) as error:  # a link, a name that no archive can have, a file that cannot be read
        return [("error", str(pack), f"cannot be packed: {error}")]
    return [(one.severity.value, one.field, one.message) for one in lint_pack(parsed, files)]
