"""Each command names its permission and checks it, whatever the door has done before."""

import inspect
from types import ModuleType

import pytest

from app.access import Permission, Principal, Role
from app.commands import agents, keys, revisions, runs, trials, uploads
from app.commands.caller import PERMISSIONS, Caller, permission_of
from app.commands.refusals import CommandRefused, Kind

ROOMS: tuple[ModuleType, ...] = (agents, keys, revisions, runs, trials, uploads)
COMMANDS = [keys.create, keys.revoke, revisions.finalize, runs.start, runs.retry, runs.cancel, trials.cancel]
COMMANDS += [uploads.open_upload, uploads.receive, agents.create]
ASKING = {"app.commands.runs.choose_agent"}
"""Writes nothing, and is anybody's who may read."""


def test_the_list_of_commands_is_complete() -> None:
    named = {f"{command.__module__}.{command.__qualname__}" for command in COMMANDS}
    assert named | ASKING == {name for name in PERMISSIONS if name.startswith("app.commands.")}
    changing = {"create", "revoke", "finalize", "start", "retry", "cancel", "open_upload", "receive"}
    for room in ROOMS:
        for name, function in inspect.getmembers(room, inspect.iscoroutinefunction):
            if function.__module__ == room.__name__ and name in changing:
                assert f"{room.__name__}.{name}" in named


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command.__module__}.{command.__name__}")
async def test_a_viewer_gives_no_command(command) -> None:
    viewer = Caller(Principal(actor="key_x", team="tem_x", role=Role.VIEWER))
    arguments = [None] * (len(inspect.signature(command).parameters) - 2)
    with pytest.raises(CommandRefused) as caught:
        await command(None, viewer, *arguments)
    assert (caught.value.kind, caught.value.code) == (Kind.FORBIDDEN, "permission_missing")
    assert permission_of(command).value in caught.value.detail
    assert permission_of(command) in Permission
