"""The command line: a thin client of the HTTP API, one module per group of commands.

Each command is imported when it is used, and `seatrial --help` imports nothing at all. `up`, `down` and `status` start
app.local, `admin` starts app.admin: those work on this machine and on the database itself; everything else speaks HTTP only.
"""

import os
import sys

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
    "completion": ("completion:completion", "Print the completion of a shell."),
    "admin": ("admin:admin", "Operator commands on the log and the database themselves."),
}

ABOUT = "Run agent evaluations in sandboxes; get a score you can trust and prove."
WIDTH = 80
"""Of the help text as it stands here; on a narrower terminal the library wraps it."""


def help_text() -> str:
    """What `seatrial --help` prints: a test holds it equal to the library's own."""
    width = max(map(len, COMMANDS))
    return "\n".join(
        [
            "Usage: seatrial [OPTIONS] COMMAND [ARGS]...",
            "",
            f"  {ABOUT}",
            "",
            "Options:",
            "  --version   Show the version and exit.",
            "  -h, --help  Show this message and exit.",
            "",
            "Commands:",
            *(f"  {name.ljust(width)}  {text}" for name, (_, text) in COMMANDS.items()),
        ]
    )


def main() -> None:
    if sys.argv[1:] in (["--help"], ["-h"]) and "COLUMNS" not in os.environ and _columns() >= WIDTH:
        print(help_text())
        return
    from app.cli.group import run_command

    run_command()


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except OSError:
        return WIDTH
