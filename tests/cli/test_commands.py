"""Every command: text for people, JSON for programs, and an error that says what to do."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from app.cli import COMMANDS, help_text
from app.cli.group import Lazy
from app.cli.group import seatrial as whole
from tests.cli.rig import Shell, ended, play, python
from tests.http.world import Team, ready_task

WITHOUT_JSON = {"up", "down", "completion", "admin"}
"""`up` and `down` print nothing but what they do; each command of `admin` has options of its own."""


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from leaves(found, (*path, name))
    else:
        yield path, command


LEAVES = dict(leaves(whole))


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_takes_json_and_says_what_it_is_for(path: tuple[str, ...]) -> None:
    command = LEAVES[path]
    assert command.help
    options = {option for parameter in command.params for option in parameter.opts}
    assert ("--json" in options) != (path[0] in WITHOUT_JSON)


def test_the_help_texts_name_every_command() -> None:
    assert isinstance(whole, Lazy)
    assert {path[0] for path in LEAVES} == set(COMMANDS)


def test_the_help_that_imports_nothing_is_the_librarys_own() -> None:
    with whole.make_context("seatrial", ["runs"], terminal_width=80) as context:
        assert whole.get_help(context) == help_text()


async def test_help_costs_no_library(tmp_path: Path) -> None:
    code = "import sys; sys.argv = ['seatrial', '--help']; import app.cli; app.cli.main(); sys.exit('click' in sys.modules)"
    done = await ended(await python("-c", code, folder=tmp_path))
    assert (done.code, done.out) == (0, help_text() + "\n")


async def test_a_misspelt_command_is_told_with_the_nearest_one(tmp_path: Path) -> None:
    for words, near in (("rnus", "runs"), ("tsks", "tasks")):
        done = await ended(await python("-m", "app", words, folder=tmp_path))
        assert (done.code, f"Did you mean '{near}'?" in done.err) == (2, True)
        assert done.err.startswith("Usage: seatrial ")


async def test_a_shell_completes_commands(tmp_path: Path) -> None:
    script = await ended(await python("-m", "app", "completion", "bash", folder=tmp_path))
    assert "_SEATRIAL_COMPLETE=bash_complete" in script.out
    asked = {"_SEATRIAL_COMPLETE": "bash_complete", "COMP_WORDS": "seatrial runs li", "COMP_CWORD": "2"}
    assert (await ended(await python("-m", "app", folder=tmp_path, **asked))).out == "plain,list\n"


@pytest.fixture
async def ran(team: Team, seatrial: Shell) -> str:
    """A run that has ended; its id."""
    await ready_task(team)
    assert (await seatrial("run", "hello", "-d", "--name", "night")).code == 0
    return await play(team)


async def test_what_is_there_is_listed_and_shown(ran: str, seatrial: Shell) -> None:
    listed = await seatrial("runs", "list", "--json")
    assert [one["id"] for one in listed.lines] == [ran]
    shown = await seatrial("runs", "show", "1", "--json")
    [trial] = shown.json["trials_list"]
    assert (shown.json["id"], trial["reward"]) == (ran, 1.0)
    expected = {
        ("runs", "list"): "night",
        ("runs", "show", "1"): ran,
        ("runs", "show", ran[:12]): ran,
        ("trials", "show", trial["id"]): trial["id"],
        ("runs", "events", "1"): "trial.scored",
        ("runs", "logs", "1"): "world",
        ("trials", "logs", trial["id"]): "hello",
        ("tasks", "list"): "hello",
        ("tasks", "show", "hello"): "ready",
        ("events",): "run.requested",
    }
    texts = await asyncio.gather(*(seatrial(*command) for command in expected))
    programs = await asyncio.gather(*(seatrial(*command, "--json") for command in expected))
    for (command, words), text, program in zip(expected.items(), texts, programs, strict=True):
        assert (text.code, program.code) == (0, 0), (command, text.err, program.err)
        assert words in text.out, (command, text.out)
        assert program.json if command[1:2] == ("show",) else program.lines, command


async def test_the_output_of_several_trials_is_told_apart(seatrial: Shell, team: Team) -> None:
    await ready_task(team)
    await seatrial("run", "hello", "-d", "-k", "2")
    await play(team)
    trials = [one["id"] for one in (await seatrial("runs", "show", "1", "--json")).json["trials_list"]]
    shown = (await seatrial("runs", "logs", "1")).out
    assert shown == "".join(f"==> {one} <==\nhello\nworld\n" for one in trials)
    assert (await seatrial("trials", "logs", trials[0])).out == "hello\nworld\n"


async def test_an_event_says_what_it_is_about_on_one_short_line(ran: str, seatrial: Shell) -> None:
    lines = (await seatrial("runs", "events", "1")).out.splitlines()
    assert any(line.endswith("phase=agent") or "reward=1.0" in line for line in lines)
    assert [line for line in lines if "_id=" in line or "worker=" in line or line != line.rstrip()] == []


async def test_an_archive_is_fetched_where_one_wants_it(ran: str, seatrial: Shell) -> None:
    done = await seatrial("runs", "archive", "1", "-o", "here.tar.zst", "--json")
    assert done.json == {"path": "here.tar.zst", "size_bytes": 10, "run": ran}
    assert (seatrial.folder / "here.tar.zst").read_bytes() == b"an archive"
    assert "seatrial verify" in (await seatrial("runs", "archive", "1")).out


async def test_a_run_is_cancelled_and_repeated(seatrial: Shell, team: Team) -> None:
    await ready_task(team)
    await seatrial("run", "hello", "-d")
    assert (await seatrial("runs", "cancel", "1")).out == "run 1 is cancelling\n"
    assert (await seatrial("runs", "cancel", "1", "--json")).json["status"] == "cancelling"
    await play(team, score=False, cancelled=True)
    assert (await seatrial("runs", "retry", "1", "-d")).out == "run 2 repeats run 1\n"


async def test_a_retry_says_what_it_adopts_and_what_it_runs(seatrial: Shell, team: Team) -> None:
    await ready_task(team)
    await seatrial("run", "hello", "-k", "3", "-d")
    first = await play(team, failing=1)
    done, second = await asyncio.gather(seatrial("runs", "retry", "1"), play(team, after=first))
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert [line for line in lines if line.startswith("trial")] == [
        "trial 1 adopted, scored 1.0", "trial 2 adopted, scored 1.0", "trial 3 scored 1.0",
    ]  # fmt: skip
    assert lines[-1].startswith("score 1.000   scored 3/3   adopted 2, ran 1   ")
    shown = (await seatrial("runs", "show", "2")).out
    assert f"retries   {first}" in shown
    assert "adopted   2 scored trials" in shown
    assert shown.count("  adopted  ") == 2
    [trial, *_] = (await seatrial("runs", "show", second, "--json")).json["trials_list"]
    told = (await seatrial("trials", "show", trial["id"])).out
    assert ["adopted", "from", trial["adopted_from"]] in [line.split() for line in told.splitlines()]


async def test_a_key_is_made_listed_and_revoked(team: Team, tmp_path: Path) -> None:
    admin = Shell(team, tmp_path, role="admin")
    made = await admin("keys", "create", "robot", "--json")
    assert made.code == 0, made.err
    assert made.json["secret"].startswith("sea_")
    listed = await admin("keys", "list", "--json")
    assert "robot" in listed.out
    assert made.json["secret"] not in listed.out
    revoked = await admin("keys", "revoke", made.json["id"])
    assert revoked.code == 0, revoked.err


async def test_a_refusal_is_told_in_the_apis_own_words(seatrial: Shell, team: Team) -> None:
    expected = {
        ("runs", "show", "99"): "there is no such run: 99; `seatrial runs list` says which there are",
        ("trials", "logs", "trl_9"): "`seatrial runs show RUN` lists those of a run",
        ("tasks", "show", "absent"): "`seatrial tasks list` says which there are",
        ("run", "nothing-like-it"): "nothing-like-it",
        ("run", "hello", "-a", "orcle"): "did you mean oracle?",
        ("run", "no/such/folder"): "there is no folder no/such/folder",
        ("run", "hello", "--label", "x"): "NAME=VALUE is needed",
    }
    for (command, words), done in zip(
        expected.items(), await asyncio.gather(*(seatrial(*command) for command in expected)), strict=True
    ):
        assert (done.code, done.out) == (1, ""), (command, done)
        assert done.err.lower().startswith("error: "), (command, done.err)
        assert words in done.err, (command, done.err)


async def test_a_viewer_cannot_start_a_run_and_a_wrong_key_nothing(team: Team, tmp_path: Path) -> None:
    await ready_task(team)
    refused = await Shell(team, tmp_path, role="viewer")("run", "hello")
    assert refused.code == 1
    assert "role" in refused.err or "permission" in refused.err
    stranger = Shell(team, tmp_path)
    stranger.variables["SEATRIAL_API_KEY"] = "sea_wrong"
    unknown = await stranger("runs", "list")
    assert unknown.code == 1
    assert "sea_wrong" not in unknown.err


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, "seatrial up --detach"),
        ({"SEATRIAL_API_URL": "http://127.0.0.1:1"}, "set SEATRIAL_API_KEY"),
        ({"SEATRIAL_API_URL": "http://127.0.0.1:1", "SEATRIAL_API_KEY": "k"}, "does not answer"),
        ({"SEATRIAL_APIURL": "x"}, "SEATRIAL_APIURL is not a setting"),
        ({"SEATRIAL_HTTP_PORT": "many"}, "SEATRIAL_HTTP_PORT"),
    ],
)
async def test_without_a_server_one_is_told_what_to_do(variables: dict[str, str], words: str, tmp_path: Path) -> None:
    process = await python("-m", "app", "runs", "list", folder=tmp_path, SEATRIAL_HOME=str(tmp_path), **variables)
    done = await ended(process)
    assert (done.code, done.out) == (1, "")
    assert words in done.err


async def test_a_reader_that_goes_away_ends_the_command_quietly(ran: str, seatrial: Shell) -> None:
    process = await seatrial.start("events", "--json")
    assert process.stdout is not None
    await process.stdout.readline()
    process.stdout._transport.close()  # pyright: ignore
    done = await ended(process)
    assert "Traceback" not in done.err
