"""`seatrial run`: what it prints, what it leaves in the folder, and what its exit code says."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from tests.cli.rig import Faults, Shell, ended, next_stream, play
from tests.http.story import Story
from tests.http.world import Team, ready_task


async def test_a_run_is_followed_to_its_score_and_its_evidence(seatrial: Shell, team: Team) -> None:
    await ready_task(team)
    done, _ = await asyncio.gather(seatrial("run", "hello", "-a", "oracle", "-k", "2"), play(team))
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith(f"run 1   2 trials  {team.server.url}/v1/runs/1")
    assert "trial 1 scored 1.0" in lines
    assert "trial 2 scored 1.0" in lines
    assert lines[-1].startswith("score 1.000   scored 2/2   ")
    assert lines[-1].endswith("   evidence seatrial-run-1.tar.zst")
    assert (seatrial.folder / "seatrial-run-1.tar.zst").read_bytes() == b"an archive"


async def test_the_output_of_a_single_trial_is_shown(seatrial: Shell, team: Team) -> None:
    await ready_task(team)
    done, _ = await asyncio.gather(seatrial("run", "hello", "--logs", "--no-archive"), play(team))
    assert done.code == 0, done.err
    assert os.listdir(seatrial.folder) == []
    assert "trial 1 scored 1.0" in done.out


async def test_as_json_one_document_says_it_all(seatrial: Shell, team: Team) -> None:
    await ready_task(team)
    done, run_id = await asyncio.gather(
        seatrial("run", "hello", "--json", "--name", "night", "--label", "a=b", "--setting", "n=3"), play(team)
    )
    assert done.code == 0, done.err
    said = done.json
    assert (said["id"], said["outcome"], said["name"], said["labels"]) == (run_id, "succeeded", "night", {"a": "b"})
    assert said["agent"]["settings"] == {"n": 3}
    assert said["evidence"] == "seatrial-run-1.tar.zst"


async def test_without_a_score_it_fails_and_says_why(seatrial: Shell, team: Team) -> None:
    await ready_task(team)
    done, _ = await asyncio.gather(seatrial("run", "hello", "--no-archive"), play(team, score=False))
    assert done.code == 1
    assert "trial 1 errored: verifier.reward_missing" in done.out
    assert "verifier.reward_missing: no reward" in done.out
    assert "errored 1 (task)" in done.out


async def test_a_cancelled_run_fails_though_something_scored(seatrial: Shell, team: Team) -> None:
    await ready_task(team)
    done, _ = await asyncio.gather(seatrial("run", "hello", "--no-archive"), play(team, cancelled=True))
    assert done.code == 1
    assert "score 1.000" in done.out


async def test_a_detached_run_is_accepted_and_followed_later(seatrial: Shell, team: Team) -> None:
    await ready_task(team)
    done = await seatrial("run", "hello", "-d")
    assert (done.code, done.out.splitlines()[0]) == (0, f"run 1   {team.server.url}/v1/runs/1")
    followed, _ = await asyncio.gather(seatrial("runs", "events", "-f", "1"), play(team))
    assert followed.code == 0
    assert "run.completed" in followed.out


async def test_following_all_events_begins_now_or_after_a_cursor(seatrial: Shell, team: Team) -> None:
    await ready_task(team)
    past = (await seatrial("events", "--json")).lines
    for arguments, first in (((), "run.requested"), (("--after", past[0]["cursor"]), past[1]["type"])):
        process = await seatrial.start("events", "-f", "--json", *arguments)
        assert process.stdout is not None
        async with asyncio.timeout(60):
            while not team.server.hub._open:
                await asyncio.sleep(0.01)
            if not arguments:
                await seatrial("run", "hello", "-d")
            told = json.loads(await process.stdout.readline())
            process.kill()
            await process.communicate()
            while team.server.hub._open:
                await asyncio.sleep(0.01)
        assert first in told["type"]


async def test_following_goes_on_over_cuts_outages_and_proxies_without_a_server(
    team: Team, tmp_path: Path, faulty_events: Faults
) -> None:
    """The run goes on meanwhile, and each end is told once."""
    await ready_task(team)
    faulty_events.faults = [0, 400, "busy", 900, "busy", "away", 2000, 0, 3000]
    process = await Shell(team, tmp_path, faulty_events.url).start("run", "hello", "-k", "3", "--no-archive")
    await play(team)
    done = await ended(process)
    assert done.code == 0, done.err
    assert [done.out.count(f"trial {n} scored") for n in (1, 2, 3)] == [1, 1, 1]
    assert faulty_events.met[:6] == [0, 400, "busy", 900, "busy", "away"]


@pytest.mark.parametrize("faults", [["busy", "away", 0], [260], [300, "busy"]])
async def test_evidence_is_fetched_whole_or_not_at_all(
    team: Team, tmp_path: Path, faulty_archive: Faults, faults: list[int | str]
) -> None:
    """Also when the connection ends in the middle, about which the library says nothing."""
    content = os.urandom(300_000)
    await ready_task(team)
    faulty_archive.faults = list(faults)
    done, _ = await asyncio.gather(
        Shell(team, tmp_path, faulty_archive.url)("run", "hello"), play(team, archive=content)
    )
    assert done.code == 0, done.err
    assert (tmp_path / "seatrial-run-1.tar.zst").read_bytes() == content
    assert os.listdir(tmp_path) == ["seatrial-run-1.tar.zst"]
    assert faulty_archive.met == faults


async def test_evidence_that_cannot_be_fetched_leaves_no_half_of_it(
    team: Team, tmp_path: Path, faulty_archive: Faults
) -> None:
    await ready_task(team)
    faulty_archive.faults = [300] * 100
    done, _ = await asyncio.gather(
        Shell(team, tmp_path, faulty_archive.url)("run", "hello"), play(team, archive=os.urandom(300_000))
    )
    assert done.code == 0, "the score is there"
    assert "the evidence could not be fetched" in done.err
    assert os.listdir(tmp_path) == []


def make_pack(folder: Path, name: str) -> None:
    (folder / name).mkdir()
    (folder / name / "task.toml").write_text('version = "1.0"\n')
    (folder / name / "instruction.md").write_text(name)


async def test_a_folder_is_pushed_and_built_first(seatrial: Shell, team: Team) -> None:
    make_pack(seatrial.folder, "mine")
    process = await seatrial.start("run", "mine", "--no-archive")
    await Story(team.house, team.id).ready(await next_stream(team, "revision", set()))
    await play(team)
    done = await ended(process)
    assert done.code == 0, done.err
    assert done.out.startswith("build   ")
    assert "score 1.000" in done.out


async def test_a_rejected_pack_says_what_is_wrong_with_it(seatrial: Shell, team: Team) -> None:
    make_pack(seatrial.folder, "mine")
    process = await seatrial.start("run", "mine")
    await Story(team.house, team.id).reject(await next_stream(team, "revision", set()))
    done = await ended(process)
    assert done.code == 1
    assert done.err.splitlines()[0].startswith("error: the pack was rejected: pack.invalid")
    assert "agent: no such key" in done.err
