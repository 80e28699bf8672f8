"""`seatrial admin audit | erase | events | restore | team`: arguments in, exit code out.

Found by the entry-point group `seatrial.admin`. They connect as the login of the settings (the owner of the schema), to the
external servers that are set, or to those that `seatrial up` runs for this home.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

import asyncpg
import msgspec

from app.admin.audit import run_audit
from app.admin.restore import run_restore
from app.admin.team import LARGEST, run_team
from app.bus import cursor, dead_letters
from app.eventlog.connect import LOST, connect
from app.eventlog.erase import ReasonInvalid
from app.eventlog.erase import erase as erase_private
from app.settings import Settings

NOT_DONE = 2


class NoServer(Exception):
    """No database is known: start `seatrial up`, or set SEATRIAL_DATABASE_URL."""


def audit(settings: Settings, arguments: list[str]) -> int:
    """Check the whole log: hashes, chains, signed checkpoints."""
    parser = argparse.ArgumentParser(prog="seatrial admin audit", description=audit.__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--held", type=Path, action="append", default=[], metavar="FILE",
        help="a checkpoint kept elsewhere; only with one can a truncated log be told from a short one",
    )  # fmt: skip
    asked = parser.parse_args(arguments)
    keys = settings.home_path / "keys" / "public"
    return _run(
        lambda: run_audit(
            _url(settings, "database"), keys_folder=keys, held=asked.held, as_json=asked.json, out=sys.stdout
        )
    )


def restore(settings: Settings, arguments: list[str]) -> int:
    """Begin a new life of the log, after its database was restored from a backup. Every process must then start anew."""
    parser = argparse.ArgumentParser(prog="seatrial admin restore", description=restore.__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--past",
        type=int,
        default=0,
        metavar="POSITION",
        help="the greatest position that anybody outside may have seen",
    )
    asked = parser.parse_args(arguments)
    return _run(
        lambda: run_restore(
            _url(settings, "database"),
            _url(settings, "nats"),
            past_position=asked.past,
            as_json=asked.json,
            out=sys.stdout,
        )
    )


def erase(settings: Settings, arguments: list[str]) -> int:
    """Take the private text of one event away, for ever. The log records that it was done; what it was is gone."""
    parser = argparse.ArgumentParser(prog="seatrial admin erase", description=erase.__doc__)
    parser.add_argument(
        "event", type=_position, help="its cursor, as `seatrial events --json` shows it, or its position"
    )
    parser.add_argument("reason", help="a code such as a ticket number; it is published, so no free text")
    asked = parser.parse_args(arguments)
    return _run(lambda: _erase(_url(settings, "database"), asked.event, asked.reason))


def events(settings: Settings, arguments: list[str]) -> int:
    """Effects that failed too often and are parked: list them, try them again, give them up."""
    parser = argparse.ArgumentParser(prog="seatrial admin events", description=events.__doc__)
    what = parser.add_subparsers(dest="what", required=True)
    listing = what.add_parser("list", help="what is parked")
    listing.add_argument("handler", nargs="?")
    listing.add_argument("--json", action="store_true", help="print JSON, one object a line")
    for name, words in (("replay", "try again"), ("skip", "give up")):
        one = what.add_parser(name, help=words)
        one.add_argument("handler")
        one.add_argument("position", nargs="?", type=int, help="default: all of the handler")
    asked = parser.parse_args(arguments)
    return _run(lambda: _events(_url(settings, "database"), asked))


def team(settings: Settings, arguments: list[str]) -> int:
    """Show a team, or set how many trials it may run at a time."""
    parser = argparse.ArgumentParser(prog="seatrial admin team", description=team.__doc__)
    parser.add_argument("team", help="its name or id")
    change = parser.add_mutually_exclusive_group()
    change.add_argument("--trial-limit", type=_limit, metavar="N", help="at most N trials at a time")
    change.add_argument("--no-trial-limit", action="store_true", help="as many as there are slots")
    parser.add_argument("--json", action="store_true", help="print JSON")
    asked = parser.parse_args(arguments)
    return _run(
        lambda: run_team(
            _url(settings, "database"),
            asked.team,
            change=asked.no_trial_limit or asked.trial_limit is not None,
            trial_limit=asked.trial_limit,
            as_json=asked.json,
            out=sys.stdout,
        )
    )


def _position(given: str) -> int:
    return int(given) if given.isdecimal() else cursor.parse(given.partition(".")[0]).position


def _limit(given: str) -> int:
    number = int(given) if given.isascii() and given.isdigit() else 0
    if not 1 <= number <= LARGEST:
        raise argparse.ArgumentTypeError(f"a number from 1 to {LARGEST} is needed, not {given!r}")
    return number


async def _erase(url: str, position: int, reason: str) -> int:
    connection = await connect(url, role="seatrial_eraser")
    try:
        recorded = await erase_private(connection, position, reason)
    except ReasonInvalid as error:
        print(error, file=sys.stderr)
        return NOT_DONE
    finally:
        await connection.close()
    if recorded is None:
        print(f"there is nothing to erase at position {position}: no such event, no private text, or erased before")
        return 1
    print(
        f"erased; recorded at position {recorded}. Older copies live in backups, and in the database until it vacuums"
    )
    return 0


async def _events(url: str, asked: argparse.Namespace) -> int:
    connection = await connect(url)
    try:
        match asked.what:
            case "replay":
                print(f"{await dead_letters.replay(connection, asked.handler, asked.position)} to be tried again")
            case "skip":
                print(f"{await dead_letters.skip(connection, asked.handler, asked.position)} given up")
            case _:
                letters = await dead_letters.dead_letters(connection, asked.handler, limit=1000)
                for letter in letters:
                    if asked.json:
                        print(msgspec.json.encode(letter).decode())
                    else:
                        print(
                            f"{letter.handler}  {letter.position}  {letter.stream}  {letter.error_code}  tried {letter.attempts}"
                        )
                if not letters and not asked.json:
                    print("nothing is parked")
    finally:
        await connection.close()
    return 0


def _run(main: Callable[[], Coroutine[None, None, int]]) -> int:
    try:
        return asyncio.run(main())
    except NoServer as error:
        print(error.__doc__, file=sys.stderr)
    except (asyncpg.PostgresError, *LOST) as error:
        print(f"the database does not answer: {error}", file=sys.stderr)
    return NOT_DONE


def _url(settings: Settings, server: str) -> str:
    """Of an external server, or of the one that runs for this home (`seatrial up` writes its URL there)."""
    external = settings.database_url if server == "database" else settings.nats_url
    if external:
        return external
    try:
        return (settings.home_path / "run" / f"{server}-url").read_text().strip()
    except OSError as error:
        raise NoServer from error
