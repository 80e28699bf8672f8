"""Folders with packs: each is told of, one that is refused stops no other, and a wrong name says what it may have meant."""

import asyncio
from pathlib import Path

import pytest

from tests.cli.rig import Shell, next_stream
from tests.http.story import Story
from tests.http.world import Team, ready_task


def make_pack(folder: Path, text: str = 'version = "1.0"\n') -> None:
    folder.mkdir(parents=True)
    (folder / "task.toml").write_text(text)
    (folder / "instruction.md").write_text(folder.name)


@pytest.fixture
def three(seatrial: Shell) -> Path:
    """A good pack, one that cannot be packed, and a good one, in this order."""
    folder = seatrial.folder / "packs"
    for name in ("a", "b", "c"):
        make_pack(folder / name)
    (folder / "b" / "link").symlink_to("/etc/passwd")
    return folder


async def build(team: Team, *, ready: tuple[bool, ...]) -> None:
    story, seen = Story(team.house, team.id), set[str]()
    for good in ready:
        revision_id = await next_stream(team, "revision", seen)
        await (story.ready(revision_id) if good else story.reject(revision_id))


@pytest.mark.usefixtures("three")
async def test_every_pack_is_pushed_and_each_refusal_told(seatrial: Shell, team: Team) -> None:
    done, _ = await asyncio.gather(seatrial("tasks", "push", "packs"), build(team, ready=(False, True)))
    assert done.code == 1
    lines = done.out.splitlines()
    assert [lines[0].split()[0], lines[1]] == ["c", "  warning: a warning"]
    assert "error: packs/a: the pack was rejected: pack.invalid" in done.err
    assert "error: packs/b: it cannot be packed: `link` is a link" in done.err
    assert done.err.splitlines()[-1] == "2 of 3 packs were refused"


@pytest.mark.usefixtures("three")
async def test_as_json_each_revision_is_a_line_also_a_rejected_one(seatrial: Shell, team: Team) -> None:
    done, _ = await asyncio.gather(seatrial("tasks", "push", "packs", "--json"), build(team, ready=(False, True)))
    assert done.code == 1
    assert [(one["task_name"], one["status"]) for one in done.lines] == [("a", "rejected"), ("c", "ready")]


@pytest.mark.usefixtures("three")
async def test_nothing_is_run_when_a_pack_was_refused(seatrial: Shell, team: Team) -> None:
    done, _ = await asyncio.gather(seatrial("run", "packs"), build(team, ready=(True, True)))
    assert done.code == 1
    assert done.err.splitlines()[-1] == "error: 1 of 3 packs were refused, so nothing was run"
    assert [line.split()[:2] for line in done.out.splitlines() if "warning" not in line] == [
        ["build", "a"],
        ["build", "c"],
    ]
    assert (await seatrial("runs", "list", "--json")).lines == []


async def test_warnings_are_told_of_a_pack_that_was_built_before(seatrial: Shell, team: Team) -> None:
    make_pack(seatrial.folder / "mine")
    await asyncio.gather(seatrial("tasks", "push", "mine"), build(team, ready=(True,)))
    again = await seatrial("run", "mine", "-d")
    assert "built before" in again.out
    assert "  warning: a warning" in again.out


async def test_a_pack_that_is_pushed_without_waiting_is_told_as_it_is(seatrial: Shell) -> None:
    make_pack(seatrial.folder / "mine")
    done = await seatrial("tasks", "push", "mine", "--no-wait")
    assert (done.code, done.out.split()[:2]) == (0, ["mine", "uploaded"])


async def test_an_agent_that_cannot_be_is_told_before_anything_is_built(seatrial: Shell, team: Team) -> None:
    make_pack(seatrial.folder / "mine")
    done = await seatrial("run", "mine", "-a", "orcle")
    assert (done.code, done.out) == (1, "")
    assert "did you mean oracle?" in done.err
    assert (await seatrial("tasks", "list", "--json")).lines == []


async def test_an_agent_that_lacks_its_key_is_warned_of_before_anything_is_built_and_its_run_accepted(
    seatrial: Shell, team: Team
) -> None:
    make_pack(seatrial.folder / "mine")
    (seatrial.folder / "mine" / "link").symlink_to("/etc/passwd")  # so that it cannot be packed
    refused = await seatrial("run", "mine", "-a", "claude-code", "-m", "anthropic/claude")
    assert refused.code == 1
    await ready_task(team)
    started = await seatrial("run", "hello", "-a", "claude-code", "-m", "anthropic/claude", "-d", "--json")
    for done in (refused, started):
        assert done.err.startswith(
            "Warning: claude-code needs a key for its model, and this version cannot give it one"
        )
        assert "Its trials will end as agent.key_missing" in done.err
    assert (started.code, started.json["agent"]["name"]) == (0, "claude-code")
    assert "Warning" not in (await seatrial("run", "hello", "-d")).err


async def test_a_wrong_name_says_what_it_may_have_meant(seatrial: Shell, team: Team) -> None:
    await ready_task(team)
    make_pack(seatrial.folder / "mine")
    make_pack(seatrial.folder / "packs" / "first")
    expected = {
        "helo": "there is no folder helo here, and no task of this name; did you mean hello?",
        "mime": "there is no folder mime here, and no task of this name; did you mean mine?",
        "nothing-like-it": "`seatrial tasks list` says which there are",
        "packs/frst": "there is no folder packs/frst; did you mean packs/first?",
        "mine/task.toml": "mine/task.toml is a file; give the folder with its task.toml, or the name of a task",
        "packs/first/environment": "there is no folder packs/first/environment",
    }
    for (what, words), done in zip(
        expected.items(), await asyncio.gather(*(seatrial("run", what) for what in expected)), strict=True
    ):
        assert (done.code, done.out) == (1, ""), (what, done)
        assert words in done.err, (what, done.err)


async def test_lint_tells_errors_warnings_and_notes_and_counts(seatrial: Shell, three: Path) -> None:
    (three / "a" / "task.toml").write_text('version = "1.0"\nbogus = 1\n')
    for part in ("environment/Dockerfile", "tests/test.sh", "solution/solve.sh"):
        (three / "a" / part).parent.mkdir()
        (three / "a" / part).write_text("FROM scratch\n")
    done = await seatrial("tasks", "lint", "packs")
    assert done.code == 1
    assert "packs/a: warning: bogus: " in done.out
    assert "packs/a: note: verifier.environment_mode: " in done.out
    assert "packs/b: error: packs/b: cannot be packed: `link` is a link" in done.out
    assert "packs/c: error: environment/Dockerfile: is missing" in done.out
    assert done.err == "2 of 3 packs cannot be used\n"
    levels = [one["level"] for one in (await seatrial("tasks", "lint", "packs/a", "--json")).lines]
    assert levels[0] == "warning"
    assert set(levels[1:]) == {"note"}
