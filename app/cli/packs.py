"""Folders with packs: found, packed, sent, built."""

import tempfile
import time
from pathlib import Path
from typing import Any

import click

from app.archives.folder import pack_folder
from app.cli import show
from app.cli.client import ApiError, Client, segment

TASK_FILE = "task.toml"
WAIT_SECONDS = 20


class BuildRejected(ApiError):
    """The pack cannot be built; the message is what the builder said."""


def find(folder: Path) -> list[Path]:
    """The packs in a folder: itself when it is one, else those right below it. Raises ClickException for none."""
    if (folder / TASK_FILE).is_file():
        return [folder]
    packs = sorted(one.parent for one in folder.glob(f"*/{TASK_FILE}"))
    if not packs:
        raise click.ClickException(f"{folder} is no task pack and holds none: a pack has a {TASK_FILE}")
    return packs


def outside() -> Path:
    """The folder for what a command leaves: this one, or the one around the pack that this one is in, since every file
    in a pack is a part of it."""
    here = Path.cwd()
    around = [
        Path(*[".."] * (depth + 1)) for depth, one in enumerate((here, *here.parents)) if (one / TASK_FILE).is_file()
    ]
    return around[-1] if around else Path()


def push(client: Client, folder: Path, name: str | None = None) -> dict[str, Any]:
    """Send a pack and make a revision of it, under `name` or its folder's; the revision, whatever its status."""
    task = name or folder.resolve().name
    with tempfile.TemporaryFile() as file:
        pack_folder(folder, file)
        size = file.tell()
        file.seek(0)
        upload = client.post("/v1/uploads")
        client.upload(f"/v1/uploads/{upload['id']}/content", file, size)
    made = client.post(f"/v1/tasks/{segment(task)}/revisions", {"upload": upload["id"]})
    return client.get(f"/v1/revisions/{made['revision_id']}")


def build(client: Client, revision: dict[str, Any], status: show.Status) -> dict[str, Any]:
    """Wait until a revision is ready. Raises BuildRejected with what the builder said."""
    started = time.monotonic()
    said = None
    while revision["status"] not in ("ready", "rejected"):
        if revision.get("failure") and said != revision["failure"]["code"]:
            said = revision["failure"]["code"]
            message = (revision.get("message") or "").strip()
            status.note(f"build   {show.failure(revision['failure'])} {message}; it is tried again")
        status.set(f"build   {revision.get('task_name') or ''} {revision['status']} {time.monotonic() - started:.0f} s")
        revision = client.get_waiting(f"/v1/revisions/{revision['id']}", WAIT_SECONDS)
    status.clear()
    if revision["status"] == "rejected":
        raise BuildRejected(_why(client, revision))
    return revision


def _why(client: Client, revision: dict[str, Any]) -> str:
    lines = [f"the pack was rejected: {show.failure(revision['failure'])}"]
    if revision.get("errors"):
        lines += [f"  {one['field'] or TASK_FILE}: {one['message']}" for one in revision["errors"]]
    elif revision.get("message"):
        lines.append(f"  {revision['message']}")
    if revision["failure"]["phase"] == "build":
        chunks = client.get(f"/v1/revisions/{revision['id']}/logs").get("items", [])
        tail = "".join(chunk["text"] for chunk in chunks).splitlines()[-20:]
        lines += ["  the end of the build's log:", *(f"    {one}" for one in tail)] if tail else []
    return "\n".join(lines)
