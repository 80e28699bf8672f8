"""The operator commands as they are called: arguments in, words and an exit code out, on a real database."""

import asyncio
import json
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from app import ids
from app.access import rows
from app.admin import commands
from app.bus import dead_letters
from app.settings import Settings
from tests.eventlog.samples import opened, unit, write
from tests.eventlog.samples import rows as as_owner

Capture = pytest.CaptureFixture[str]


def run[T](main: Coroutine[Any, Any, T]) -> T:
    """These tests are not coroutines, because the commands start a loop of their own, as at a prompt."""
    return asyncio.run(main)


@pytest.fixture
def settings(database: str, tmp_path: Path) -> Settings:
    run(_events(database))
    return Settings(home=str(tmp_path), database_url=database)


async def _events(url: str) -> None:
    async with opened(url) as connection:
        await write(connection, unit("trl_a", count=3, private=b'{"text":"x"}'))


def test_the_audit_of_a_whole_log_is_clean(settings: Settings, capsys: Capture) -> None:
    assert commands.audit(settings, ["--json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []


def test_the_audit_finds_what_was_changed_behind_the_log(settings: Settings, capsys: Capture) -> None:
    run(
        as_owner(
            settings.database_url,
            "with off as (select set_config('session_replication_role', 'replica', false)) "
            "update eventlog.event set data = '{\"n\":2}' from off where version = 2",
        )
    )
    assert commands.audit(settings, []) == 1
    assert "trl_a" in capsys.readouterr().out


def test_parked_effects_are_listed_tried_again_and_given_up(settings: Settings, capsys: Capture) -> None:
    async def park() -> None:
        async with opened(settings.database_url) as connection:
            for position in (1, 2, 3):
                await dead_letters.park(connection, "publisher", position, "trl_a", "intake.refused", 5)

    assert commands.events(settings, ["list"]) == 0
    assert capsys.readouterr().out == "nothing is parked\n"
    run(park())
    assert commands.events(settings, ["list", "--json"]) == 0
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["handler"], one["position"], one["attempts"]) for one in listed] == [
        ("publisher", n, 5) for n in (1, 2, 3)
    ]
    assert commands.events(settings, ["replay", "publisher", "1"]) == 0
    assert commands.events(settings, ["skip", "publisher"]) == 0
    assert capsys.readouterr().out == "1 to be tried again\n3 given up\n"
    assert commands.events(settings, ["list", "nobody"]) == 0
    assert capsys.readouterr().out == "nothing is parked\n"


def test_a_restore_without_nats_needs_to_be_told_how_far_others_have_seen(settings: Settings, capsys: Capture) -> None:
    assert commands.restore(_without_nats(settings), ["--json"]) == 2
    assert "--past" in capsys.readouterr().out
    assert commands.restore(_without_nats(settings), ["--json", "--past", "50"]) == 0
    assert json.loads(capsys.readouterr().out)["first_position"] == 51


def test_a_team_is_limited_and_shown(settings: Settings, capsys: Capture) -> None:
    async def make() -> None:
        async with opened(settings.database_url) as connection:
            await rows.insert_team(connection, ids.new("team"), "sailors")

    run(make())
    assert commands.team(settings, ["sailors", "--trial-limit", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trial_limit"] == 2
    assert commands.team(settings, ["sailors", "--no-trial-limit"]) == 0
    assert "as many as there are slots" in capsys.readouterr().out
    assert commands.team(settings, ["pirates"]) == 1
    assert "no team pirates" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "arguments", "named"),
    [
        (commands.team, ["sailors", "--trial-limit", "0"], "--trial-limit"),
        (commands.team, ["sailors", "--trial-limit", "many"], "'many'"),
        (commands.team, ["sailors", "--trial-limit", "²"], "--trial-limit"),
        (commands.team, ["sailors", "--trial-limit", "3", "--no-trial-limit"], "not allowed with"),
        (commands.team, [], "team"),
        (commands.events, [], "what"),
        (commands.events, ["replay", "publisher", "first"], "position"),
        (commands.restore, ["--past", "x"], "--past"),
        (commands.audit, ["--unknown"], "--unknown"),
    ],
)
def test_a_wrong_argument_is_named(command: Any, arguments: list[str], named: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        command(Settings(), arguments)
    assert ended.value.code == 2
    assert named in capsys.readouterr().err


CALLS = [
    (commands.audit, []),
    (commands.events, ["list"]),
    (commands.restore, ["--past", "9"]),
    (commands.team, ["sailors"]),
    (commands.team, ["sailors", "--trial-limit", "1"]),
]


@pytest.mark.parametrize(("command", "arguments"), CALLS)
def test_without_a_server_one_is_told_what_to_start(
    command: Any, arguments: list[str], tmp_path: Path, capsys: Capture
) -> None:
    assert command(Settings(home=str(tmp_path)), arguments) == 2
    assert "seatrial up" in capsys.readouterr().err


@pytest.mark.parametrize(("command", "arguments"), CALLS)
def test_a_database_that_is_away_is_said_and_its_password_is_not(
    command: Any, arguments: list[str], tmp_path: Path, capsys: Capture
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"postgresql://seatrial:secret-word@127.0.0.1:{nobody.getsockname()[1]}/seatrial"
        away = Settings(home=str(tmp_path), database_url=url, nats_url="nats://127.0.0.1:1")
        assert command(away, arguments) == 2
    told = capsys.readouterr()
    assert "Connect call failed" in told.out + told.err
    assert "secret-word" not in told.out + told.err


def _without_nats(settings: Settings) -> Settings:
    return Settings(home=settings.home, database_url=settings.database_url, nats_url="nats://127.0.0.1:1")


def test_private_text_is_erased_once_and_the_audit_says_erased(settings: Settings, capsys: Capture) -> None:
    async def first() -> int:
        async with opened(settings.database_url) as connection:
            return await connection.fetchval("select min(position) from eventlog.event where private is not null")

    position = run(first())
    assert commands.erase(settings, [str(position), "ticket 7 of Ada"]) == 2
    assert "reason" in capsys.readouterr().err
    assert commands.erase(settings, [str(position), "ticket-7"]) == 0
    assert commands.erase(settings, [str(position), "ticket-7"]) == 1
    capsys.readouterr()
    assert commands.audit(settings, []) == 0
    assert f"the private parts of positions {position}: recorded" in capsys.readouterr().out
