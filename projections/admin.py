"""`seatrial admin projections status | rebuild NAME… | verify NAME…`: for operators, on the database itself.

Found by the entry-point group `seatrial.admin`, because the command line may not import this package. NAME is a view;
`--all`, or the name `all`, means every view. However many they are, the log is read once. Exit codes: 0 all is well, 1 a view
is halted or differs from the log, 2 it could not be done.
"""

import argparse
import asyncio
import datetime
import sys
from collections.abc import Sequence
from typing import TextIO

import asyncpg
import msgspec

from app.eventlog.connect import LOST, connect
from app.local.state import run_folder
from app.settings import Settings
from projections import ledger
from projections.aside import Busy
from projections.catalogue import VIEWS
from projections.ledger import Halt
from projections.projector import LEADER, ROLE
from projections.rebuild import Unswappable, rebuild
from projections.statements import statement
from projections.verify import Difference, verify
from projections.view import Poison, View

WELL, UNWELL, NOT_DONE = 0, 1, 2


class Standing(msgspec.Struct, frozen=True):
    view: str
    position: int
    behind: int
    """Positions between it and the end of the log; the last ones may never get an event."""
    updated_at: datetime.datetime | None
    halted: Halt | None


class Status(msgspec.Struct, frozen=True):
    projecting: bool
    """Whether a projector leads."""
    last_position: int
    """Of the log."""
    views: tuple[Standing, ...]


def command(settings: Settings, argv: list[str], out: TextIO = sys.stdout) -> int:
    parser = argparse.ArgumentParser(
        prog="seatrial admin projections", description="Read models: look, rebuild, check."
    )
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")
    what = parser.add_subparsers(dest="what", required=True)
    parsers = [what.add_parser("status", help="how far each view is, and which are halted")]
    for name, text in (
        ("rebuild", "make views again from the log while they are served"),
        ("verify", "compare views with the log, row by row"),
    ):
        parsers.append(what.add_parser(name, help=text))
        parsers[-1].add_argument("views", nargs="*", metavar="NAME", help=f"of {', '.join(VIEWS)}")
        parsers[-1].add_argument("--all", action="store_true", help="every view")
    for one in parsers:  # before or after the word; suppressed, so that one does not undo the other
        one.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as refused:
        return NOT_DONE if refused.code else WELL
    wanted = list[View]() if arguments.what == "status" else _wanted(arguments.views, every=arguments.all)
    if wanted is None:
        out.write(f"name views, of {', '.join(VIEWS)}, or --all\n")
        return NOT_DONE
    url = _database_url(settings)
    if url is None:
        out.write("no database: start `seatrial up`, or set SEATRIAL_DATABASE_URL\n")
        return NOT_DONE
    try:
        if arguments.what == "status":
            return asyncio.run(_status(url, as_json=arguments.json, out=out))
        act = _rebuild if arguments.what == "rebuild" else _verify
        return asyncio.run(act(url, wanted, as_json=arguments.json, out=out))
    except (Busy, Unswappable) as error:
        out.write(f"{error}\n")
        return NOT_DONE
    except OSError as error:
        out.write(f"the database does not answer ({error}); does the server run? See `seatrial status`\n")
        return NOT_DONE
    except (*LOST, asyncpg.PostgresError) as error:
        out.write(f"the database did not do it: {error or type(error).__name__}\n")
        return NOT_DONE


async def read_status(url: str, views: Sequence[View] = tuple(VIEWS.values())) -> Status:
    connection = await connect(url, role=ROLE)
    try:
        checkpoints = {
            row["name"]: row
            for row in await connection.fetch(statement("read_checkpoints"), [view.checkpoint for view in views])
        }
        halted = await ledger.read_halted(connection)
        last = await connection.fetchval(statement("read_last_position"))
        standings: list[Standing] = []
        for view in views:
            row = checkpoints.get(view.checkpoint)
            position = row["position"] if row else 0
            updated = row["updated_at"] if row else None
            standings.append(Standing(view.name, position, max(0, last - position), updated, halted.get(view.name)))
        leads = await connection.fetchval(statement("read_leader"), LEADER)
        return Status(leads, last, tuple(standings))
    finally:
        await connection.close(timeout=5)


async def _status(url: str, *, as_json: bool, out: TextIO) -> int:
    status = await read_status(url)
    if as_json:
        out.write(msgspec.json.encode(status).decode() + "\n")
    else:
        out.write(f"projector  {'running' if status.projecting else 'not running'}\n")
        out.write(f"log        {status.last_position}\n")
        for one in status.views:
            state = "up to date" if not one.behind else f"{one.behind} behind"
            if one.halted is not None:
                halt = one.halted
                state = f"HALTED before {halt.position} ({halt.type} of {halt.stream}): {halt.error_code}"
            out.write(f"{one.view:<11}{one.position:>10}  {state}\n")
    return UNWELL if any(one.halted for one in status.views) else WELL


def _wanted(names: list[str], *, every: bool) -> list[View] | None:
    """The views that are meant, in the order of the catalogue; None when that is not clear."""
    if every or names == ["all"]:
        return list(VIEWS.values())
    if not names or not VIEWS.keys() >= set(names):
        return None
    return [view for name, view in VIEWS.items() if name in names]


async def _rebuild(url: str, views: list[View], *, as_json: bool, out: TextIO) -> int:
    built = await rebuild(url, views)
    for one in built:
        if as_json:
            out.write(msgspec.json.encode(one).decode() + "\n")
        elif one.halted is not None:
            out.write(f"{one.view}: left as it was: {_held(one.halted)}\n")
        else:
            out.write(f"{one.view}: rebuilt from {one.events} events up to {one.position} in {one.seconds:.1f} s\n")
    return UNWELL if any(one.halted for one in built) else WELL


async def _verify(url: str, views: list[View], *, as_json: bool, out: TextIO) -> int:
    verified = await verify(url, views)
    for found in verified:
        if as_json:
            out.write(msgspec.json.encode(found).decode() + "\n")
            continue
        if found.halted is not None:
            out.write(f"{found.view}: not compared: {_held(found.halted)}\n")
            continue
        verdict = "equal to the log" if not found.different else f"{found.different} rows differ from the log"
        out.write(f"{found.view}: {found.rows} rows up to {found.position}, {verdict}\n")
        for difference in found.first:
            out.write(f"  {_told(difference)}\n")
    return UNWELL if any(found.different or found.halted for found in verified) else WELL


def _held(halt: Halt) -> str:
    return f"{halt.error_code}: {halt.type} at position {halt.position} ({halt.stream}): {Poison.__doc__}"


def _told(difference: Difference) -> str:
    key = "/".join(map(str, difference.key))
    columns = "; ".join(
        f"{name}: {served!r}, by the log {logged!r}" for name, (served, logged) in difference.columns.items()
    )
    return f"{difference.table} {key} {difference.kind}" + (f" ({columns})" if columns else "")


def _database_url(settings: Settings) -> str | None:
    """As set, or as the server of this home has left it for operators."""
    if settings.database_url:
        return settings.database_url
    try:
        return (run_folder(settings.home_path) / "database-url").read_text().strip() or None
    except OSError:
        return None
