"""`python -m app.local up [--detach] | down | status [--json]`: what `seatrial up | down | status` runs."""

import argparse
import sys
import time

import msgspec

from app import settings
from app.local import engine, state
from app.local.docker_packages import Ask
from app.local.errors import AlreadyRunning, LocalError
from app.local.report import Report, to_terminal
from app.local.up import down, report_to, up, up_detached


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="seatrial", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    starting = commands.add_parser("up", help="start all processes of this machine")
    starting.add_argument("--detach", action="store_true", help="return when the server is ready")
    starting.add_argument("--restored", action="store_true", help="the database was restored from a backup")
    starting.add_argument("--report", type=int, metavar="FD", help=argparse.SUPPRESS)
    commands.add_parser("down", help="stop them")
    asking = commands.add_parser("status", help="say what runs")
    asking.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    report = Report(to_terminal)
    try:
        values = settings.load()
        match asked.command:
            case "down":
                if not down(values, report):
                    print("Seatrial is not running.")
            case "status":
                return _status(values, as_json=asked.json)
            case _ if asked.detach:
                up_detached(values, report, ask=_ask(), restored=asked.restored)
            case _:
                return _up(values, asked.report, restored=asked.restored)
    except AlreadyRunning as error:  # what was asked for is so
        print(error)
    except (LocalError, settings.SettingsInvalid) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _up(values: settings.Settings, descriptor: int | None, *, restored: bool) -> int:
    report = Report(to_terminal) if descriptor is None else Report(to_terminal, report_to(descriptor))
    try:
        up(values, report, ask=_ask(), detached=descriptor is not None, restored=restored)
    except LocalError as error:
        report.end(str(error))
        raise
    except KeyboardInterrupt:
        report.end("The start was interrupted.")
        return 130
    return 0


def _ask() -> Ask | None:
    return engine.confirm if sys.stdin.isatty() else None


def _status(values: settings.Settings, *, as_json: bool) -> int:
    """Exit 0 when a server runs, 3 when none does (as `systemctl status`)."""
    found = state.load(values.home_path)
    if as_json:
        print(msgspec.json.encode(found).decode())
    elif found is None:
        print("Seatrial is not running; start it with `seatrial up`.")
    else:
        print(f"Seatrial {'is ready' if found.ready else 'is starting'} at {found.url} (pid {found.pid})")
        for server in found.servers:
            print(f"  {server.name:<11} pid {server.pid:<8} port {server.port:<6} restarts {server.restarts}")
        for process in found.processes:
            age = f"up {time.time() - process.started_at:.0f} s" if process.pid else f"ended ({process.last_exit})"
            print(
                f"  {process.name:<11} pid {process.pid:<8} {age:<11} restarts {process.restarts}  {', '.join(process.roles)}"
            )
    return 0 if found is not None else 3


if __name__ == "__main__":
    sys.exit(main())
