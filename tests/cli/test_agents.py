"""`seatrial agents`, and runs that name a stored one."""

import asyncio
from pathlib import Path

from tests.cli.rig import Shell, play
from tests.http.world import Team, ready_task


async def test_an_agent_is_stored_listed_shown_and_run_by_its_name(seatrial: Shell, team: Team) -> None:
    await ready_task(team)
    create = ("agents", "create", "careful", "-a", "nop", "-m", "m", "--agent-version", "2", "--setting", "turns=9")
    made = await seatrial(*create, "--json")
    assert made.code == 0, made.err
    agent = {"name": "nop", "version": "2", "model": "m", "settings": {"turns": 9}}
    assert (made.json["created"], made.json["agent"]) == (True, agent)
    again, listed, shown, harness, as_json = await asyncio.gather(
        seatrial(*create),
        seatrial("agents", "list"),
        seatrial("agents", "show", "careful"),
        seatrial("agents", "list", "--harness"),
        seatrial("agents", "list", "--json"),
    )
    assert again.out.split() == ["careful", f"{made.json['agent_digest'][:19]}…", made.json["id"], "(stored", "before)"]
    assert [made.json["id"] in one.out and "turns" in one.out for one in (listed, shown)] == [True, True]
    assert {"oracle", "claude-code"} <= set(harness.out.split())
    assert [one["name"] for one in as_json.lines] == ["careful"]
    assert (await seatrial("agents", "show", made.json["id"], "--json")).json == as_json.lines[0]

    done, _ = await asyncio.gather(seatrial("run", "hello", "-a", "careful", "--no-archive", "--json"), play(team))
    assert done.code == 0, done.err
    assert (done.json["agent"], done.json["stored_agent"]) == (agent, {"id": made.json["id"], "name": "careful"})
    for command in (("runs", "show", "1"), ("runs", "list", "--agent", "careful")):
        assert "careful" in (await seatrial(*command)).out
    assert (await seatrial("runs", "list", "--agent", "absent")).out == "nothing\n"


async def test_what_cannot_be_is_told_in_words(seatrial: Shell, team: Team, tmp_path: Path) -> None:
    await ready_task(team)
    await seatrial("agents", "create", "careful", "-a", "nop")
    expected = {
        ("agents", "create", "careful", "-a", "oracle"): "another agent of this name",
        ("agents", "create", "oracle", "-a", "nop"): "an agent of the harness has this name",
        ("agents", "create", "mine", "-a", "orcle"): "did you mean oracle?",
        ("agents", "show", "absent"): "there is no such agent",
        ("agents", "show", "oracle"): "is an agent of the harness",
        ("run", "hello", "-a", "carefull"): "did you mean careful?",
        ("run", "hello", "-a", "careful", "-m", "m"): "careful is a stored agent, which pins its version, model",
    }
    viewer = Shell(team, tmp_path, role="viewer")
    refused, *said = await asyncio.gather(
        viewer("agents", "create", "mine", "-a", "nop"), *(seatrial(*command) for command in expected)
    )
    assert refused.code == 1
    for (command, words), done in zip(expected.items(), said, strict=True):
        assert (done.code, done.out) == (1, ""), (command, done)
        assert words in done.err, (command, done.err)
