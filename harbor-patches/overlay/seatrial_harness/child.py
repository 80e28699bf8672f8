"""One trial in a forked child. `main` never returns.

The first frame carries everything: `trial` (UUID), `config` (Harbor's TrialConfig), `environment` (all variables),
`variables` (the names among them that the pack may use), `folder`, `own` (what in it is the child's to write), `reads` (what
else it may see), `transfer`, `bundle`, `network_modes`, `switches_network`. The fork server has seen none of it.

Ends with 0 after `result`, 75 after `cancelled`, 70 after `failed`; anything else is a loss.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from seatrial_harness import confine, wire

MARK = "SEATRIAL_TRIAL"
"""In the environment of a child and of everything that it starts: whose they are."""
DONE, FAILED, CANCELLED = 0, 70, 75

_parents_objects: list[object] = []
"""Descriptors closed below belong to objects of the fork server; they must not be finalised here (a number is reused)."""


def main(
    connection: int, output: int, trial: str, keep: object, user: int | None, die_with_parent: Callable[[], None]
) -> None:
    """Become the child of `trial`: its socket and its output pipe are given by number.

    `user`: whom to become (confine.py); None: to stay as we are. `die_with_parent` is done again after that, because the kernel
    forgets it with every change of user.
    """
    _parents_objects.append(keep)
    code = FAILED
    try:
        first = _enter(connection, output, trial, user)
        die_with_parent()
        code = asyncio.run(_run(*first))
    except BaseException:  # noqa: BLE001 - the last frame of this process: whatever it was, say it and leave
        traceback.print_exc()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)  # no finalisers and no atexit: they are the parent's


def _enter(connection: int, output: int, trial: str, user: int | None) -> tuple[socket.socket, wire.Header]:
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for name in os.listdir("/proc/self/fd"):
        if (number := int(name)) > 2 and number != connection:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(number)
    with contextlib.suppress(OSError):  # rather this child than the worker
        Path("/proc/self/oom_score_adj").write_text("500")
    channel = socket.socket(fileno=connection)
    channel.setblocking(True)
    first = wire.read_first(channel)
    if user is not None:
        try:
            confine.enter(
                user, own=first["own"], folder=first["folder"], readable=first["reads"],
                temporary=first["environment"]["TMPDIR"],
            )  # fmt: skip
        except OSError as error:
            why = f"the child cannot be confined: {error}"
            channel.sendall(wire.pack({"ev": "failed", "type": "HarnessUnavailable", "message": why}))
            raise
    os.environ.clear()  # also for C code and for what this process starts
    os.environ.update(first["environment"])
    os.environ[MARK] = trial
    time.tzset()
    import tempfile

    tempfile.tempdir = None
    os.umask(0o022)
    os.chdir(first["environment"]["HOME"])
    channel.sendall(wire.pack({"ev": "hello", "pid": os.getpid(), "confined": user is not None}))
    return channel, first


async def _run(connection: socket.socket, first: wire.Header) -> int:
    from seatrial_harness.channel import Channel
    from seatrial_harness.environment import Link
    from seatrial_harness.errors import name_of

    connection.setblocking(False)
    channel = Channel(*await asyncio.open_connection(sock=connection))
    Link.channel = channel
    Link.folder = Path(first["transfer"])
    Link.network_modes = frozenset(first["network_modes"])
    Link.switches_network = bool(first["switches_network"])
    if first.get("bundle"):
        sys.path.insert(0, first["bundle"])

    reasons: list[str] = []
    made: list[Any] = []
    task = asyncio.create_task(_trial(channel, first, made))

    def cancel(why: str) -> None:
        if not reasons:  # once: Harbor recovers the outputs after the first, and a second would break that
            reasons.append(why)
            task.cancel()

    channel.on_cancel = cancel
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, cancel, "SIGTERM")
    try:
        await task
    except asyncio.CancelledError:
        await channel.tell({"ev": "cancelled", "why": reasons[0] if reasons else "", "began": bool(made)})
        return CANCELLED
    except Exception as error:  # noqa: BLE001 - Harbor could not begin: it has written no result
        with contextlib.suppress(OSError):  # our output may be on the disk that is full
            traceback.print_exc()
        await channel.tell({"ev": "failed", "type": name_of(error), "message": str(error)[:4000]})
        return FAILED
    await channel.send({"ev": "result"})
    return DONE


async def _trial(channel: Any, first: wire.Header, made: list[Any]) -> None:
    """Make Harbor's trial and run it to its end; its result is in its folder then."""
    from harbor.models.trial.config import TrialConfig
    from harbor.trial.hooks import TrialEvent
    from harbor.trial.trial import Trial

    config = TrialConfig.model_validate(first["config"])
    _check(config, frozenset(first["variables"]))
    with _typed_agent_errors():
        trial = await Trial.create(config, trial_id=uuid.UUID(first["trial"]))
    made.append(trial)

    for event in TrialEvent:

        async def hook(told: Any, name: str = event.value) -> None:
            steps = told.result.step_results
            await channel.tell({"ev": "hook", "event": name, "step": steps[-1].step_name if steps else None})

        trial.add_hook(event, hook)

    async def logged(entry: Any) -> None:
        """Nothing to do: that there is a subscriber makes Harbor mark the phases whose output is a log."""

    trial.add_log_callback(logged)
    await trial.run()


def _check(config: Any, variables: frozenset[str]) -> None:
    """Refuse a pack that Harbor cannot read, or that names a variable which it was not given.

    Harbor would resolve `${NAME}` from this process's environment, which also holds what is none of the pack's business.
    """
    from harbor.models.task.task import Task
    from harbor.utils.env import get_required_host_vars

    from seatrial_harness.errors import TaskInvalidError, VariableMissingError

    try:
        task = Task(config.task.path).config
    except Exception as error:
        raise TaskInvalidError(f"Harbor cannot read the pack: {error}") from error
    tables = [("environment", task.environment.env), ("verifier", task.verifier.env)]
    if task.verifier.environment is not None:
        tables.append(("verifier.environment", task.verifier.environment.env))
    if config.agent.name == "oracle":
        tables.append(("solution", task.solution.env))
    for step in task.steps or []:
        tables.append((f"steps.{step.name}.verifier", step.verifier.env))
        if step.verifier.environment is not None:
            tables.append((f"steps.{step.name}.verifier.environment", step.verifier.environment.env))
    for table, values in tables:
        for name, default in get_required_host_vars(values):
            if name not in variables and default is None:
                raise VariableMissingError(f"{table}.env: the variable {name} has no value")
            if name not in variables and name in os.environ:
                raise VariableMissingError(f"{table}.env: the variable {name} is not for packs to read")


@contextlib.contextmanager
def _typed_agent_errors() -> Iterator[None]:
    """While Harbor makes a trial, tell apart an agent that does not exist from one that does not take its settings.

    Harbor calls whatever class an import path names; here only an agent is called.
    """
    from harbor.agents.base import BaseAgent
    from harbor.agents.factory import AgentFactory

    from seatrial_harness.errors import AgentSettingsError, AgentUnknownError

    find, make = AgentFactory.get_agent_class_from_config, AgentFactory.create_agent_from_config

    def typed_make(config: Any, **arguments: Any) -> Any:
        name = config.name or config.import_path
        try:
            found = find(config)
        except Exception as error:
            raise AgentUnknownError(f"agent {name}: {error}") from error
        if not issubclass(found, BaseAgent):
            raise AgentUnknownError(f"agent {name}: this class is no agent (harbor.agents.base.BaseAgent)")
        try:
            return make(config, **arguments)
        except Exception as error:
            raise AgentSettingsError(f"agent {name}: {error}") from error

    AgentFactory.create_agent_from_config = staticmethod(typed_make)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        AgentFactory.create_agent_from_config = make
