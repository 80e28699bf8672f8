"""Several packs in one folder, packs that cannot be built, and a retry of what went wrong: as a user does it."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.admin.team import limit
from app.domain.events import RunRequested, TrialErrored
from app.evidence.check import check
from tests.journeys.api import Problem
from tests.journeys.history import History
from tests.journeys.holds import eventually, everything_holds
from tests.journeys.packs import script, write_pack
from tests.journeys.system import ROOT, System

pytestmark = [pytest.mark.docker, pytest.mark.harness, pytest.mark.slow]


async def seatrial(system: System, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command line, in a folder, as the user of the system's home."""
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-P", "-m", "app", *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "SEATRIAL_HOME": str(system.home)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


async def test_a_folder_of_packs_is_one_run_with_one_archive_of_all(system: System, tmp_path: Path) -> None:
    packs = tmp_path / "packs"
    write_pack(packs / "right")
    write_pack(packs / "half", reward="0.5")
    script(write_pack(packs / "wrong") / "solution" / "solve.sh", "echo I give up")
    done = await seatrial(system, tmp_path, "run", "packs", "-a", "oracle", "-k", "2", "--json")
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    assert run["evaluations"] == 3
    assert run["score"]["mean"] == pytest.approx(0.5)
    assert run["score"]["coverage"] == 1.0
    scores = {
        one["task_name"]: one["score"]["mean"] async for one in system.api.pages(f"/v1/runs/{run['id']}/evaluations")
    }
    assert scores == {"right": 1.0, "half": 0.5, "wrong": 0.0}
    subprocess.run(["tar", "-xf", run["evidence"]], cwd=tmp_path, check=True)
    archives = sorted(tmp_path.rglob("*.tar.zst"))
    assert len(archives) == 3
    for archive in archives:
        checked = await seatrial(system, tmp_path, "verify", str(archive))
        assert checked.returncode == 0, checked.stdout
    await everything_holds(system)


async def test_a_pack_that_cannot_be_built_starts_no_run(system: System, tmp_path: Path) -> None:
    broken = write_pack(tmp_path / "broken", dockerfile="FROM seatrial-test-base:1\nRUN echo it went wrong && exit 7\n")
    before = [one["id"] async for one in system.api.pages("/v1/runs")]
    done = await seatrial(system, tmp_path, "run", str(broken), "-a", "oracle")
    assert done.returncode != 0
    assert "build.step_failed" in done.stderr
    assert "it went wrong" in done.stderr
    with pytest.raises(Problem) as refused:
        await system.api.start(["broken"])
    assert refused.value.status == 409
    assert "broken" in json.dumps(refused.value.body)
    assert [one["id"] async for one in system.api.pages("/v1/runs")] == before
    await everything_holds(system)


async def test_a_retry_runs_what_has_no_score_and_nothing_else(system: System, quick: str, tmp_path: Path) -> None:
    pack = write_pack(tmp_path / "verdictless")
    script(pack / "tests" / "test.sh", "exit 3")
    assert (await system.api.built(pack, pack.name))["status"] == "ready"
    first = await system.api.completed(await system.api.start([quick, pack.name], trials=2))
    assert first["tally"] == {"trials": 4, "scored": 2, "errored": {"task": 2}, "cancelled": 0}
    again = await system.api.completed(await system.api.post(f"/v1/runs/{first['id']}/retry"))
    assert (again["derived_from"], again["adopted"]) == (first["id"], 2)
    assert again["tally"] == {"trials": 4, "scored": 2, "errored": {"task": 2}, "cancelled": 0}
    history = await everything_holds(system)
    assert _failures(history, again["id"]) == ["verifier.exited"] * 2
    assert sorted(history.executions_of_run(again["id"])) == [0, 0, 1, 1]
    assert [one.event for one in history.of(again["id"], RunRequested)]
    with pytest.raises(Problem) as refused:
        await system.api.post(f"/v1/runs/{(await system.api.completed(await system.api.start([quick])))['id']}/retry")
    assert refused.value.code == "nothing_to_retry"


async def test_a_retry_adopts_what_scored_and_its_archive_proves_it(
    system: System, quick: str, endless: str, tmp_path: Path
) -> None:
    """Also where both are of one evaluation: of a run of two trials one is cancelled, the other scores."""
    team = (await system.api.get("/v1/me"))["team"]
    before = await system.api.start([endless])
    await _trials(system, before, 1)
    await limit(system.database_url, team, 1)  # so that the endless one holds up the two until one of them is cancelled
    try:
        first = await system.api.start([quick], trials=2)
        kept, cancelled = [one["id"] for one in await _trials(system, first, 2)]
        assert (await system.api.post(f"/v1/trials/{cancelled}/cancel"))["status"] == "cancelled"
    finally:
        await limit(system.database_url, team, None)
        await system.api.post(f"/v1/runs/{before['id']}/cancel")
    first = await system.api.completed(first)
    assert (first["outcome"], first["tally"]["scored"]) == ("cancelled", 1)
    done = await seatrial(system, tmp_path, "runs", "retry", str(first["number"]))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "trial 1 adopted, scored 1.0" in lines
    assert "   scored 2/2   adopted 1, ran 1   " in lines[-1]
    [again, *_] = [one async for one in system.api.pages("/v1/runs") if one["derived_from"] == first["id"]]
    history = await everything_holds(system)
    assert history.executions_of_run(again["id"]) == [0, 1]
    fetched = await seatrial(system, tmp_path, "runs", "archive", str(again["number"]), "-o", "here.tar.zst")
    assert fetched.returncode == 0, fetched.stderr
    checked = await seatrial(system, tmp_path, "verify", "here.tar.zst")
    assert checked.returncode == 0, checked.stdout
    assert "1 of these scores" in checked.stdout
    archive = check(tmp_path / "here.tar.zst")
    assert archive.provenance is not None
    assert archive.manifest is not None
    assert [one.adopted_from for one in archive.provenance.trials] == [kept, None]
    assert {f"trials/{number}/executions/1/result.json" for number in (1, 2)} <= {
        one.path for one in archive.manifest.files
    }


async def _trials(system: System, run: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """The trials of a run, as soon as there are so many."""
    found: list[dict[str, Any]] = []

    async def made() -> bool:
        found[:] = [one async for one in system.api.pages(f"/v1/runs/{run['id']}/trials")]
        return len(found) == count

    await eventually(made, 60, "the trials of the run are queued")
    return found


def _failures(history: History, run: str) -> list[str]:
    ends = [history.end(trial) for trial in history.trials_of_run(run)]
    return [end.failure.code for end in ends if isinstance(end, TrialErrored)]
