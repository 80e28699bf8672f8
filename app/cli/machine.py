"""up, down, status: the server of this machine. They start app.local, in this process or in one that outlives it."""

import sys

import click

from app.settings import Settings


@click.command()
@click.option("--detach", "-d", is_flag=True, help="Return when the server is ready.")
@click.option("--restored", is_flag=True, help="The database was restored from a backup: begin a new life of its log.")
@click.option("--report", type=int, hidden=True)
def up(detach: bool, restored: bool, report: int | None) -> None:
    """Start Seatrial on this machine: databases, bus, API and workers. Exit 0 when it runs, or ran already."""
    arguments = ["up", *(["--detach"] if detach else []), *(["--restored"] if restored else [])]
    arguments += ["--report", str(report)] if report is not None else []
    sys.exit(_local(arguments))


@click.command()
def down() -> None:
    """Stop the server of this machine; what runs is drained first."""
    sys.exit(_local(["down"]))


@click.command()
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def status(json_: bool) -> None:
    """Say what runs on this machine. Exit 0 when a server runs, 3 when none does."""
    sys.exit(_local(["status", *(["--json"] if json_ else [])]))


def start_detached(values: Settings, *, quiet: bool = False) -> None:
    """Start a server that outlives this command, saying what is done (`quiet`: on stderr).

    Raises ClickException with the remedy."""
    from app.local import state
    from app.local.engine import confirm
    from app.local.errors import AlreadyRunning, LocalError
    from app.local.report import Report, to_stderr, to_terminal
    from app.local.up import up_detached

    try:
        up_detached(values, Report(to_stderr if quiet else to_terminal), ask=confirm if sys.stdin.isatty() else None)
    except AlreadyRunning as error:
        if state.await_ready(values.home_path) is None:
            raise click.ClickException(f"{error} It does not get ready; see {values.home_path / 'logs'}.") from error
    except LocalError as error:
        raise click.ClickException(str(error)) from error


def _local(arguments: list[str]) -> int:
    from app.local.__main__ import main

    return main(arguments)
