"""`seatrial keys`: create, list, revoke."""

import click

from app.cli import show
from app.cli.client import connect, segment


@click.group()
def keys() -> None:
    """Make, list and revoke API keys."""


@keys.command()
@click.argument("name")
@click.option("--role", type=click.Choice(["viewer", "member", "admin"]), default="member", show_default=True)
@click.option("--days", type=click.IntRange(1), help="Expires after this many days. Default: never.")
@show.as_json
def create(name: str, role: str, days: int | None, json_: bool) -> None:
    """Make a key. It is shown once, here, and kept nowhere."""
    body: dict[str, object] = {"name": name, "role": role}
    if days:
        import datetime

        body["expires_at"] = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)).isoformat()
    made = connect().post("/v1/keys", body)
    show.document(made) if json_ else click.echo(made["secret"])


@keys.command("list")
@show.as_json
def list_(json_: bool) -> None:
    """The team's keys."""
    found = list(connect().pages("/v1/keys"))
    if json_:
        show.document(found)
        return
    show.table(
        ("key", "name", "role", "created", "expires", "last used", "revoked"),
        [
            (
                one["id"],
                one["name"],
                one["role"] + (" operator" if one["operator"] else ""),
                show.when(one["created_at"]),
                show.when(one["expires_at"]),
                show.when(one["last_used_at"]),
                show.when(one["revoked_at"]),
            )
            for one in found
        ],
    )


@keys.command()
@click.argument("key")
@show.as_json
def revoke(key: str, json_: bool) -> None:
    """Make a key useless, at once and for ever."""
    made = connect().post(f"/v1/keys/{segment(key)}/revoke")
    show.document(made) if json_ else click.echo(f"{key} is revoked")
