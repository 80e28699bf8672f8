"""`python -m app.local.process ROLE[,ROLE…]`: run some roles in one process until SIGTERM or SIGINT.

A role is an entry point of the group `seatrial.processes`: `async main(settings, stop)`. Roles of one process share its event
loop and its fate: when one ends unasked, the others are told to stop and the process ends with an error, for the
supervisor (or Kubernetes) to start it anew.
"""

import asyncio
import importlib.metadata
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence

import structlog
import uvloop

from app import logs, settings

GROUP = "seatrial.processes"
Main = Callable[[settings.Settings, asyncio.Event], Awaitable[None]]

log = structlog.get_logger()


class RoleUnknown(ValueError):
    """No such process. The message names those there are."""


def available() -> dict[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}


def load(roles: Sequence[str]) -> dict[str, Main]:
    points = available()
    unknown = [role for role in roles if role not in points]
    if unknown or not roles:
        raise RoleUnknown(
            f"no such process: {', '.join(unknown) or '(none named)'}. Known: {', '.join(sorted(points))}"
        )
    return {role: points[role].load() for role in roles}


async def run(mains: dict[str, Main], values: settings.Settings, stop: asyncio.Event) -> bool:
    """Run the roles until `stop`. Returns whether all of them ended because they were told to."""
    failed = False

    async def one(role: str, main: Main) -> None:
        nonlocal failed
        try:
            await main(values, stop)
            if not stop.is_set():
                failed = True
                log.error("role ended unasked", role=role)
        except Exception:  # the door of a process: logged, and the process ends with an error
            failed = True
            log.exception("role failed", role=role)
        finally:
            stop.set()

    async with asyncio.TaskGroup() as group:
        for role, main in mains.items():
            group.create_task(one(role, main), name=role)
    return not failed


async def _main(mains: dict[str, Main], values: settings.Settings) -> bool:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return await run(mains, values, stop)


def main(arguments: Sequence[str]) -> int:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # what we have in memory, passwords and keys too, is for no file
    try:
        values = settings.load()
        logs.configure(values)
        mains = load([role for argument in arguments for role in argument.split(",") if role])
    except (settings.SettingsInvalid, RoleUnknown) as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if uvloop.run(_main(mains, values)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
