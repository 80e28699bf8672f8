"""`seatrial admin`: hands over to the operator commands, which read the log and the database directly.

They are found by the entry-point group `seatrial.admin` (`command(settings, arguments) -> exit code`), because those of the
views live in a package that `app` does not import.
"""

import importlib.metadata
import sys

import click

GROUP = "seatrial.admin"
ABOUT = {
    "audit": "Check the whole log: hashes, chains, signed checkpoints.",
    "erase": "Take the private text of one event away.",
    "events": "Effects that failed too often: list, replay, skip.",
    "projections": "Read models: status, verify, rebuild.",
    "restore": "After the database was restored from a backup.",
    "team": "Show a team, or limit how many trials it runs at a time.",
}
"""Said here, so that the list costs no imports."""


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def admin(arguments: tuple[str, ...]) -> None:
    """Operator commands: projections, audit, events, restore, team. They work on this installation's database."""
    from app import settings as settings_module

    points = {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}
    if not arguments or arguments[0] in ("-h", "--help"):
        click.echo("Usage: seatrial admin COMMAND …\n\nCommands (each has a --help of its own):")
        for name in sorted(points):
            click.echo(f"  {name:<12} {ABOUT.get(name, '')}".rstrip())
        return
    if arguments[0] not in points:
        raise click.ClickException(f"no such operator command: {arguments[0]}. Known: {', '.join(sorted(points))}")
    try:
        values = settings_module.load()
    except settings_module.SettingsInvalid as error:
        raise click.ClickException(str(error)) from error
    command = points[arguments[0]].load()
    sys.exit(command(values, list(arguments[1:])))
