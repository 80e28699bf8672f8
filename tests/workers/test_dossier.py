"""What goes into an archive is what the log vouches for: whoever seals it, whenever, and nothing of it may be missing."""

import datetime
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from app import ids
from app.boot import House
from app.domain import trial
from app.domain.events import EvidenceOwed, Installation, Result, TrialCancelled
from app.domain.execution import FILES, LOG, RESULT, ExecutionRecord
from app.domain.registry import Draft, Meta
from app.eventlog.drafts import unit_of
from app.evidence.archive import EvidenceInputs, SourceChanged, build_archive
from app.evidence.check import Code, check
from app.objects import keys
from app.vault.redaction import NOTHING
from tests.workers import rig
from tests.workers.conftest import Open
from workers.attester.dossier import Dossier, gather
from workers.attester.records import Incomplete
from workers.dispatcher import keeping
from workers.foreman import Foreman
from workers.streams import EVIDENCE, TRIAL, load

NOW = datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC)


async def leave(house: House, folder: Path, trial_id: str, execution_id: str, run_id: str) -> Result:
    """Store what an execution leaves, as a dispatcher does."""
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "answer.txt").write_text("42")
    (folder / "log").write_text('{"text": "hello"}\n')
    kept = await keeping.keep(house.objects, execution_id, folder / "files", folder / "log", NOTHING)
    record = ExecutionRecord(
        execution_id=execution_id, trial_id=trial_id, evaluation_id="evl_x", run_id=run_id, execution=1, worker="wrk_a",
        started_at=NOW, finished_at=NOW, outcome="scored", rewards={"reward": 1.0}, validity=rig.VALIDITY,
        harness="0.26.0", harness_digest="sha256:" + "c" * 64, files_digest=kept.files_digest, files=1,
        log_digest=kept.log_digest,
    )  # fmt: skip
    key, digest = await keeping.seal(house.objects, record)
    return Result(key=key, digest=digest, harness=record.harness, harness_digest=record.harness_digest)


async def completed(house: House, folder: Path, agent_id: str | None = None) -> tuple[str, str]:
    """A run with one scored trial, up to its owed evidence; the ids of the evaluation and of the execution."""
    team, foreman = await rig.make_team(house), Foreman(house)
    run_id = await rig.start_run(house, team, agent_id=agent_id)
    await rig.settle(foreman)
    [trial_id] = rig.trials_of(run_id)
    execution_id = await rig.begin(house, team, trial_id)
    result = await leave(house, folder, trial_id, execution_id, run_id)
    score = trial.Score(execution_id=execution_id, rewards={"reward": 1.0}, validity=rig.VALIDITY, result=result)
    await rig.do(house, TRIAL, trial_id, team, score)
    await rig.settle(foreman)
    return ids.derive("evaluation", run_id, 1), execution_id


async def owed(house: House, evaluation_id: str) -> Installation | None:
    state = (await load(house, EVIDENCE, ids.derive("evidence", evaluation_id, 1))).state
    assert state is not None
    return state.platform


async def sealed(dossier: Dossier, path: Path) -> str:
    inputs = EvidenceInputs(provenance=dossier.provenance, sbom=b"{}", events=dossier.events, files=dossier.files)
    return (await build_archive(path, inputs)).sha256


async def test_two_attesters_of_different_kinds_seal_the_same_archive(
    house: House, open_another: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation_id, _ = await completed(house, tmp_path / "left")
    one = await gather(house, evaluation_id, await owed(house, evaluation_id))
    other = msgspec.structs.replace(
        await open_another(),
        settings=msgspec.structs.replace(house.settings, instance="renamed"),
        incarnation=uuid.uuid4(),
    )
    monkeypatch.setattr("importlib.metadata.version", lambda _: "99.0")
    two = await gather(other, evaluation_id, await owed(other, evaluation_id))
    assert await sealed(one, tmp_path / "one") == await sealed(two, tmp_path / "two")
    assert (one.provenance.platform.instance, one.provenance.platform.incarnation) == (
        house.settings.instance, str(house.incarnation),
    )  # fmt: skip


@pytest.mark.parametrize("agent_id", [None, ids.new("agent")], ids=["outright", "stored"])
async def test_the_provenance_says_which_stored_agent_the_run_named(
    house: House, tmp_path: Path, agent_id: str | None
) -> None:
    evaluation_id, _ = await completed(house, tmp_path / "left", agent_id)
    provenance = (await gather(house, evaluation_id, None)).provenance
    assert (provenance.agent_id, provenance.agent) == (agent_id, rig.ORACLE)


async def test_evidence_that_was_owed_before_it_named_its_platform_is_sealed_too(house: House, tmp_path: Path) -> None:
    evaluation_id, _ = await completed(house, tmp_path / "left")
    [first, *_] = await rig.events_of(house, ids.derive("evidence", evaluation_id, 1))
    assert isinstance(first, EvidenceOwed)
    assert first.platform is not None
    dossier = await gather(house, evaluation_id, None)
    assert dossier.provenance.platform.version == "unknown"
    await sealed(dossier, tmp_path / "archive")


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def rewrite(path: Path) -> None:
    """Other bytes, as long as before and as readable."""
    content = path.read_bytes()
    path.write_bytes(content.replace(b"4", b"5").replace(b"hello", b"jello").replace(b"1.0", b"0.9"))
    assert path.read_bytes() != content


@pytest.mark.parametrize("harm", [Path.unlink, shorten, rewrite], ids=["lost", "shortened", "rewritten"])
@pytest.mark.parametrize("name", [RESULT, FILES, LOG])
async def test_what_an_execution_stored_is_all_there_or_nothing_is_sealed(
    name: str, harm: Callable[[Path], None], house: House, tmp_path: Path
) -> None:
    evaluation_id, execution_id = await completed(house, tmp_path / "left")
    stored = Path(house.settings.home) / "objects" / keys.execution(execution_id, name)
    stored.chmod(0o600)
    harm(stored)
    with pytest.raises((Incomplete, SourceChanged), match=name):
        await sealed(await gather(house, evaluation_id, await owed(house, evaluation_id)), tmp_path / "archive")
    assert not (tmp_path / "archive").exists()


# ---------------------------------------------------------------- a retry


async def retried(house: House, folder: Path) -> tuple[str, str, str]:
    """A retried run: its first trial adopted, its second run anew; the ids of its evaluation and of what it adopted: the
    trial, and the execution that scored."""
    team, foreman = await rig.make_team(house), Foreman(house)
    old = await rig.start_run(house, team, trials=2)
    await rig.settle(foreman)
    ran, lost = rig.trials_of(old, 1, 2)
    execution_id = await score(house, folder / "first", team, ran, old)
    await rig.end(house, team, lost, "sandbox.lost")
    await rig.settle(foreman)
    new = await rig.retry(house, team, old)
    await rig.settle(foreman)
    await score(house, folder / "second", team, rig.trials_of(new, 1, 2)[1], new)
    await rig.settle(foreman)
    return ids.derive("evaluation", new, 1), ran, execution_id


async def score(house: House, folder: Path, team: str, trial_id: str, run_id: str) -> str:
    execution_id = await rig.begin(house, team, trial_id)
    result = await leave(house, folder, trial_id, execution_id, run_id)
    done = trial.Score(execution_id=execution_id, rewards={"reward": 1.0}, validity=rig.VALIDITY, result=result)
    await rig.do(house, TRIAL, trial_id, team, done)
    return execution_id


async def test_what_an_adopted_trial_left_is_in_the_archive_with_the_events_that_tell_of_it(
    house: House, open_another: Open, tmp_path: Path
) -> None:
    evaluation_id, ran, execution_id = await retried(house, tmp_path)
    dossier = await gather(house, evaluation_id, await owed(house, evaluation_id))
    adopted, own = dossier.provenance.trials
    adopting, second = (ids.derive("trial", evaluation_id, number) for number in (1, 2))
    assert (adopted.trial_id, adopted.adopted_from, adopted.reward, adopted.ordinal) == (adopting, ran, 1.0, 1)
    assert [one.execution_id for one in adopted.executions] == [execution_id]
    assert (own.trial_id, own.adopted_from) == (second, None)
    assert {file.path for file in dossier.files} >= {
        f"trials/{number}/executions/1/{name}" for number in (1, 2) for name in (RESULT, FILES, LOG, "files/answer.txt")
    }
    lines = [msgspec.json.decode(line) for line in dossier.events.splitlines()]
    assert [line["position"] for line in lines] == sorted(line["position"] for line in lines)
    told = {line["stream"]: line for line in lines}  # the last of each
    assert [line["type"] for line in lines if line["stream"] == adopting] == ["trial.adopted"]
    assert told[ran]["type"] == "trial.scored"
    assert msgspec.json.decode(told[adopting]["data"])["head_hash"] == told[ran]["hash"]
    began = msgspec.json.decode(next(line for line in lines if line["stream"] == ran)["data"])["evaluation_id"]
    assert [line["type"] for line in lines if line["stream"] == began] == ["evaluation.created"]
    assert {stream.stream for stream in dossier.provenance.streams} == set(told)
    assert await sealed(dossier, tmp_path / "one") == await sealed(
        await gather(await open_another(), evaluation_id, await owed(house, evaluation_id)), tmp_path / "two"
    )
    assert check(tmp_path / "one").ok


async def test_what_an_adopted_trial_left_must_still_be_there(house: House, tmp_path: Path) -> None:
    evaluation_id, _, execution_id = await retried(house, tmp_path)
    (Path(house.settings.home) / "objects" / keys.execution(execution_id, RESULT)).unlink()
    with pytest.raises(Incomplete, match=RESULT):
        await gather(house, evaluation_id, await owed(house, evaluation_id))


async def test_a_trial_that_is_not_as_it_was_when_it_was_adopted_proves_nothing(house: House, tmp_path: Path) -> None:
    """Somebody who may do what no process may wrote on in its stream."""
    evaluation_id, ran, _ = await retried(house, tmp_path)
    [first, *_] = [one for one in await rig.log_of(house) if one.stream == ran]
    version = len(await rig.events_of(house, ran))
    more = unit_of("trial", ran, first.team, version, (Draft(TrialCancelled()),), Meta(actor="forger"))
    assert (await house.appender.append(more)).accepted
    with pytest.raises(Incomplete, match="not as it was"):
        await gather(house, evaluation_id, await owed(house, evaluation_id))


async def test_an_archive_that_adopts_a_trial_without_saying_where_the_log_has_it_does_not_check(
    house: House, tmp_path: Path
) -> None:
    evaluation_id, ran, _ = await retried(house, tmp_path)
    dossier = await gather(house, evaluation_id, await owed(house, evaluation_id))
    streams = tuple(one for one in dossier.provenance.streams if one.stream != ran)
    silent = msgspec.structs.replace(dossier.provenance, streams=streams)
    await sealed(msgspec.structs.replace(dossier, provenance=silent), tmp_path / "archive")
    [problem] = check(tmp_path / "archive").problems
    assert (problem.code, ran in problem.detail) == (Code.BAD_PROVENANCE, True)
