"""`seatrial agents`: create, list, show; and how a command line says which agent it means."""

from typing import Any

import click

from app.cli import show
from app.cli.client import connect, segment
from app.cli.pairs import pairs


@click.group()
def agents() -> None:
    """Store agents under names, list and show them. A stored agent never changes: a new version of it is a new name."""


@agents.command()
@click.argument("name")
@click.option("-a", "--agent", required=True, help="The agent of the harness: a name, or package.module:Class.")
@click.option("-m", "--model", help="The model that the agent uses.")
@click.option("--agent-version", help="The agent's version.")
@click.option(
    "--setting", "settings", multiple=True, metavar="NAME=VALUE", help="An option of the agent; JSON or text."
)
@show.as_json
def create(
    name: str, agent: str, model: str | None, agent_version: str | None, settings: tuple[str, ...], json_: bool
) -> None:
    """Store an agent with its model, version and settings under NAME, for `seatrial run -a NAME`."""
    body = {"name": name, "agent": outright(agent, model, agent_version, settings)}
    made = connect(start=True, quiet=json_).post("/v1/agents", body)
    if json_:
        show.document(made)
        return
    there = "" if made["created"] else "  (stored before)"
    click.echo(f"{made['name']}  {show.short(made['agent_digest'])}  {made['id']}{there}")


@agents.command("list")
@click.option("--harness", is_flag=True, help="Those that the harness ships, instead of the stored ones.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@show.as_json
def list_(harness: bool, limit: int, json_: bool) -> None:
    """The team's stored agents, newest first."""
    client = connect()
    if harness:
        for name in client.get("/v1/agents", page_size=1)["harness"]:
            show.line({"name": name}) if json_ else click.echo(name)
        return
    found = client.pages("/v1/agents", limit=limit)
    if json_:
        for one in found:
            show.line(one)
        return
    show.table(
        ("name", "agent", "version", "model", "settings", "created", "id"),
        [
            (
                one["name"],
                one["agent"]["name"],
                one["agent"].get("version") or "-",
                one["agent"].get("model") or "-",
                show.text(one["agent"].get("settings") or "-"),
                show.when(one["created_at"]),
                one["id"],
            )
            for one in found
        ],
    )


@agents.command("show")
@click.argument("agent")
@show.as_json
def show_(agent: str, json_: bool) -> None:
    """A stored agent, by its name or its id."""
    one = connect().get(f"/v1/agents/{segment(agent)}")
    if json_:
        show.document(one)
        return
    pinned = one["agent"]
    show.facts(
        [
            ("name", one["name"]),
            ("id", one["id"]),
            ("agent", pinned["name"]),
            ("version", pinned.get("version")),
            ("model", pinned.get("model")),
            *[(f"setting {name}", value) for name, value in pinned.get("settings", {}).items()],
            ("digest", one["agent_digest"]),
            ("created", f"{show.when(one['created_at'])} by {one['created_by']}"),
        ]
    )


def meant(name: str, model: str | None, version: str | None, settings: tuple[str, ...]) -> Any:
    """The agent of a run: its name alone, which may be that of a stored one; or outright, with what was given beside it."""
    return outright(name, model, version, settings) if model or version or settings else name


def outright(name: str, model: str | None, version: str | None, settings: tuple[str, ...]) -> dict[str, Any]:
    said: dict[str, Any] = {"name": name}
    said |= {"settings": pairs(settings, parse=True)} if settings else {}
    said |= {"version": version} if version else {}
    return said | ({"model": model} if model else {})
