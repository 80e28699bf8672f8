"""The command line: a thin client of the HTTP API, one module per group of commands.

Each command is imported when it is used, so that `seatrial --help` costs little. `up`, `down` and `status` start app.local,
`admin` starts app.admin: those work on this machine and on the database itself; everything else speaks HTTP only.
"""

import importlib
import sys

import click

COMMANDS = {
    "up": ("machine:up", "Start all processes of this machine."),
    "down": ("machine:down", "Stop them."),
    "status": ("machine:status", "Say what runs."),
    "run": ("run:run", "Run an agent on a folder, a task or several, and print the score."),
    "runs": ("runs:runs", "List, show, follow, cancel and repeat runs."),
    "trials": ("trials:trials", "Show trials, their logs and what they left."),
    "tasks": ("tasks:tasks", "Push, list and check task packs."),
    "agents": ("agents:agents", "Store agents under names, list and show them."),
    "keys": ("keys:keys", "Make, list and revoke API keys."),
    "events": ("events:events", "Print the events of the team, and follow them."),
    "verify": ("verify:verify", "Check an evidence archive offline."),
    "admin": ("admin:admin", "Operator commands on the log and the database themselves."),
}


class Lazy(click.Group):
    """A group whose commands are imported when they are called for; the help texts stand in COMMANDS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        return getattr(importlib.import_module(f"app.cli.{module}"), name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="seatrial", prog_name="seatrial")
def seatrial() -> None:
    """Run agent evaluations in sandboxes; get a score you can trust and prove."""


def main() -> None:
    try:
        seatrial(standalone_mode=False)
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except click.ClickException as error:
        if isinstance(error, click.UsageError):
            error.show()
        else:
            click.echo(f"error: {error.format_message()}", err=True)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
    except BrokenPipeError:  # `seatrial events | head`
        sys.stderr.close()
        sys.exit(141)
