"""Folders with packs: found, packed, sent, built."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from app.cli import show
from app.cli.client import ApiError, Client, ConnectionLost, segment

TASK_FILE = "task.toml"
WAIT_SECONDS = 20
OF_THE_KEY = frozenset({401, 403})
"""What every other pack would be answered too."""


class BuildRejected(ApiError):
    """The pack cannot be built; the message is what the builder said."""

    def __init__(self, message: str, revision: dict[str, Any]) -> None:
        super().__init__(message)
        self.revision = revision


class Unpackable(click.ClickException):
    """The folder holds what no archive may: a link, a name that cannot be used, a file that cannot be read."""


class Pushed(NamedTuple):
    """What became of one pack: a revision, or why there is none that can be used."""

    folder: Path
    revision: dict[str, Any] | None = None
    error: click.ClickException | None = None
    known: bool = False
    """It was built before."""


def find(folder: Path) -> list[Path]:
    """The packs in a folder: itself when it is one, else those right below it. Raises ClickException for none."""
    if (folder / TASK_FILE).is_file():
        return [folder]
    packs = sorted(one.parent for one in folder.glob(f"*/{TASK_FILE}"))
    if not packs:
        raise click.ClickException(f"{folder} is no task pack and holds none: a pack has a {TASK_FILE}")
    return packs


def missing(what: str) -> str:
    """Why `what`, which has the form of a folder's path, is no folder with packs."""
    path = Path(what).expanduser()
    if path.exists():
        return f"{what} is a file; give the folder with its {TASK_FILE}, or the name of a task"
    near = nearest(
        path.name, [one.name for one in path.parent.iterdir() if one.is_dir()] if path.parent.is_dir() else []
    )
    hint = f"; did you mean {path.parent / near}?" if near else ""
    return f"there is no folder {what}{hint}"


def nearest(name: str, names: Sequence[str]) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(name, names, n=1)), None)


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
    import tempfile

    from app.archives.folder import pack_folder

    task = name or folder.resolve().name
    with tempfile.TemporaryFile() as file:
        try:
            pack_folder(folder, file)
        except (OSError, ValueError) as error:  # of the folder; ArchiveRefused is a ValueError
            raise Unpackable(f"it cannot be packed: {error}") from error
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
        raise BuildRejected(_why(client, revision), revision)
    return revision


def push_all(
    client: Client, folders: Sequence[Path], status: show.Status, *, name: str | None = None, wait: bool = True
) -> Iterator[Pushed]:
    """Push every pack, then (with `wait`) see each built, in the order of the folders: they build side by side, and one that
    is refused stops no other. What would be refused to each of them (the key, the server) is raised."""

    def send(folder: Path) -> Pushed:
        revision = push(client, folder, name)
        return Pushed(folder, revision, known=revision["status"] == "ready")

    sent: list[Pushed] = []
    for place, folder in enumerate(folders, start=1):
        if len(folders) > 1:
            status.set(f"push    {place}/{len(folders)} {folder.name}")
        sent.append(_attempt(folder, lambda folder=folder: send(folder)))
    status.clear()
    for one in sent:
        revision = one.revision
        if revision is None or not wait:
            yield one
        else:
            yield _attempt(
                one.folder,
                lambda one=one, revision=revision: one._replace(revision=build(client, revision, status)),
            )


def _attempt(folder: Path, action: Callable[[], Pushed]) -> Pushed:
    try:
        return action()
    except BuildRejected as error:
        return Pushed(folder, error.revision, error)
    except click.ClickException as error:
        if isinstance(error, ConnectionLost) or (isinstance(error, ApiError) and error.status in OF_THE_KEY):
            raise
        return Pushed(folder, None, error)


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
