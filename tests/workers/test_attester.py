"""The attester: every terminal evaluation gets its evidence, whatever became of it, and equal inputs give equal bytes."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app import ids
from app.archives.stream import Stream, decompressed, file_chunks
from app.archives.tar import Kind, TarReader
from app.boot import House
from app.bus.work import due
from app.domain import run
from app.domain.events import EvidenceFailed, EvidenceSealed, Image
from app.domain.execution import ExecutionRecord
from app.domain.failures import failure
from app.evidence.archive import LIMITS
from app.evidence.check import Report, check
from app.images.packages import Inventory
from app.objects import keys
from app.vault.redaction import NOTHING
from tests.conformance.runtimes import IMAGE
from tests.workers import rig
from tests.workers.conftest import Open
from workers.attester.main import Attester
from workers.builder.build.docker import DockerBackend
from workers.builder.build.port import ImageUnreadable
from workers.dispatcher import keeping
from workers.foreman import Foreman
from workers.inventory import Inventories
from workers.streams import EVIDENCE, RUN, TRIAL

pytestmark = pytest.mark.docker


@pytest.fixture
async def backend(docker_host: str, tmp_path: Path) -> AsyncIterator[DockerBackend]:
    opened = DockerBackend(docker_host, tmp_path / "engine")
    yield opened
    await opened.close()


@pytest.fixture
async def image(backend: DockerBackend) -> Image:
    """One that the engine has."""
    facts = await backend._engine.image(IMAGE)  # pyright: ignore[reportPrivateUsage]
    assert facts is not None
    return Image(reference=facts.id, digest=facts.id, size_bytes=facts.size, architecture=facts.architecture)


@pytest.fixture
def attester(house: House, backend: DockerBackend) -> Attester:
    return Attester(house, backend)


async def execute(
    house: House, folder: Path, team: str, trial_id: str, *, rewards: dict[str, float] | None = None, code: str = ""
) -> None:  # fmt: skip
    """One execution of a trial, with all that it leaves, up to the event that it means."""
    state = await rig.state_of(house, TRIAL, trial_id)
    execution_id = await rig.begin(house, team, trial_id)
    files, log = folder / execution_id, folder / f"{execution_id}.log"
    (files / "artifacts").mkdir(parents=True)
    (files / "artifacts" / "hello.txt").write_text("Hello, world!\n")
    (files / "verifier.txt").write_text(f"execution {state.executions + 1}\n")
    log.write_text('{"text":"a line"}\n')
    kept = await keeping.keep(house.objects, execution_id, files, log, NOTHING)
    record = ExecutionRecord(
        execution_id=execution_id, trial_id=trial_id, evaluation_id=state.evaluation_id, run_id=state.run_id,
        execution=state.executions + 1, worker="wrk_a", started_at=house.clock.now(), finished_at=house.clock.now(),
        outcome="scored" if rewards else "errored", rewards=rewards, failure=failure(code) if code else None,
        message=None, validity=rig.VALIDITY, harness="0.26.0", harness_digest="sha256:" + "c" * 64,
        files_digest=kept.files_digest, files=len(kept.files), log_digest=kept.log_digest,
    )  # fmt: skip
    key, digest = await keeping.seal(house.objects, record)
    await rig.do(house, TRIAL, trial_id, team, keeping.meaning(record, key, digest))


async def owed(house: House, folder: Path, image: Image, ends: list[str]) -> str:
    """The id of the evidence of an evaluation with one trial for each end: scored, errored, retried, cancelled."""
    team, foreman = await rig.make_team(house), Foreman(house)
    run_id = await rig.start_run(house, team, trials=len(ends), image=image)
    await rig.settle(foreman)
    for trial_id, how in zip(rig.trials_of(run_id, 1, len(ends)), ends, strict=True):
        match how:
            case "scored":
                await execute(house, folder, team, trial_id, rewards={"reward": 1.0})
            case "errored":
                await execute(house, folder, team, trial_id, code="verifier.timed_out")
            case "retried":
                await execute(house, folder, team, trial_id, code="sandbox.lost")
                await execute(house, folder, team, trial_id, rewards={"reward": 0.5})
            case _:
                pass
    if "cancelled" in ends:
        await rig.do(house, RUN, run_id, team, run.Cancel())
    await rig.settle(foreman)
    return ids.derive("evidence", ids.derive("evaluation", run_id, 1), 1)


async def attest(attester: Attester, evidence_id: str) -> Any:
    """Let the attester do what is due; the last event of the evidence."""
    [one] = [one for one in await due(attester.house.pool, "evidence", 100) if one.work_id == evidence_id]
    await attester.handle(one)
    return (await rig.events_of(attester.house, evidence_id))[-1]


async def make_due(house: House, evidence_id: str) -> None:
    """Let the pause before the next try be over. No worker may do this: only the database's owner."""
    connection = await asyncpg.connect(house.settings.database_url)
    try:
        await connection.execute("update eventlog.work set due_at = now() where id = $1", evidence_id)
    finally:
        await connection.close()


async def opened(house: House, sealed: EvidenceSealed, folder: Path) -> tuple[Report, dict[str, bytes]]:
    """The archive, checked, and its members."""
    path = folder / ids.new("upload")
    with path.open("wb") as file:
        async for chunk in house.objects.open(sealed.archive_key):
            file.write(chunk)
    report = check(path)
    members: dict[str, bytes] = {}
    reader = TarReader(Stream(decompressed(file_chunks(path), LIMITS)))
    for member in reader:
        if member.kind is Kind.FILE:
            members[member.name] = b"".join(reader.data())
    return report, members


@pytest.mark.parametrize(
    ("ends", "outcome"),
    [
        (["scored", "retried"], "succeeded"),
        (["errored", "errored"], "failed"),
        (["scored", "cancelled"], "cancelled"),
        (["cancelled"], "cancelled"),
    ],
    ids=["succeeded", "failed", "cancelled in part", "cancelled before anything began"],
)
async def test_every_terminal_evaluation_gets_evidence(
    house: House, attester: Attester, image: Image, tmp_path: Path, ends: list[str], outcome: str
) -> None:
    evidence_id = await owed(house, tmp_path, image, ends)
    sealed = await attest(attester, evidence_id)
    assert isinstance(sealed, EvidenceSealed)
    report, members = await opened(house, sealed, tmp_path)
    assert report.ok, report.problems
    assert report.provenance is not None
    assert f"sha256:{report.sha256}" == sealed.archive_digest
    assert report.provenance.outcome == outcome
    executions = {"scored": 1, "errored": 1, "retried": 2, "cancelled": 0}
    assert [len(one.executions) for one in report.provenance.trials] == [executions[how] for how in ends]
    assert sum(name.endswith("/result.json") for name in members) == sum(executions[how] for how in ends)
    sbom = json.loads(members["sbom.cdx.json"])
    assert (sbom["bomFormat"], sbom["specVersion"]) == ("CycloneDX", "1.6")
    row = await rig.row_of(house, evidence_id)
    assert (row["owner"], row["due_at"]) == (None, None)


async def test_the_archive_holds_the_events_that_lead_to_it_and_no_private_text(
    house: House, attester: Attester, image: Image, tmp_path: Path
) -> None:
    evidence_id = await owed(house, tmp_path, image, ["errored"])
    sealed = await attest(attester, evidence_id)
    _, members = await opened(house, sealed, tmp_path)
    lines = [json.loads(line) for line in members["events.jsonl"].splitlines()]
    types = [line["type"] for line in lines]
    assert [line["position"] for line in lines] == sorted(line["position"] for line in lines)
    assert types.count("run.requested") == types.count("evaluation.completed") == types.count("trial.errored") == 1
    assert "run.completed" not in types  # it may come before or after: nothing that can still change goes in
    assert b"the pack wants" not in members["events.jsonl"]


async def test_two_attesters_make_the_same_bytes(
    house: House, attester: Attester, image: Image, tmp_path: Path, open_another: Open, docker_host: str
) -> None:
    """The second one later, in another house, after more has happened, and with an engine that has lost the image."""
    evidence_id = await owed(house, tmp_path, image, ["scored", "errored", "retried"])
    state = await rig.state_of(house, EVIDENCE, evidence_id)
    first = await attester._archive(state)  # pyright: ignore[reportPrivateUsage]
    await owed(house, tmp_path, image, ["scored"])
    away = DockerBackend(f"unix://{tmp_path}/nobody.sock", tmp_path / "other")
    other = Attester(await open_another(), away)
    assert await other._archive(state) == first  # pyright: ignore[reportPrivateUsage]
    await away.close()


async def test_an_engine_that_is_away_delays_the_evidence(
    house: House, attester: Attester, image: Image, tmp_path: Path
) -> None:
    evidence_id = await owed(house, tmp_path, image, ["scored"])
    away = DockerBackend(f"unix://{tmp_path}/nobody.sock", tmp_path / "away")
    failed = await attest(Attester(house, away), evidence_id)
    assert isinstance(failed, EvidenceFailed)
    assert failed.failure.code == "build.engine_unavailable"
    await away.close()
    await make_due(house, evidence_id)
    sealed = await attest(attester, evidence_id)
    assert isinstance(sealed, EvidenceSealed)
    assert (await rig.types_of(house, evidence_id)).count("evidence.sealed") == 1


async def test_an_image_that_is_gone_is_no_reason_to_owe_for_ever(
    house: House, attester: Attester, tmp_path: Path
) -> None:
    """The SBOM says that the packages are not known, and says so from now on for every archive of that image."""
    evidence_id = await owed(house, tmp_path, rig.IMAGE, ["scored"])
    sealed = await attest(attester, evidence_id)
    assert isinstance(sealed, EvidenceSealed)
    report, members = await opened(house, sealed, tmp_path)
    assert report.ok, report.problems
    known = b"".join(members["sbom.cdx.json"].split())
    assert b"pkg:deb" not in known
    assert await attester.inventories.of(rig.IMAGE.reference, rig.IMAGE.digest) is None


async def test_evidence_delivered_twice_is_sealed_once(
    house: House, attester: Attester, image: Image, tmp_path: Path, open_another: Open
) -> None:
    evidence_id = await owed(house, tmp_path, image, ["scored"])
    [one] = [one for one in await due(house.pool, "evidence", 100) if one.work_id == evidence_id]
    other = Attester(await open_another(), attester.inventories.backend)
    await asyncio.gather(attester.handle(one), other.handle(one), attester.handle(one))
    await other.handle(one)
    assert await rig.types_of(house, evidence_id) == ["evidence.owed", "evidence.started", "evidence.sealed"]


@pytest.mark.parametrize("name", ["result.json", "files.json", "log.jsonl"])
async def test_what_the_store_has_lost_is_owed_until_it_is_restored(
    house: House, attester: Attester, image: Image, tmp_path: Path, name: str
) -> None:
    evidence_id = await owed(house, tmp_path, image, ["scored"])
    state = await rig.state_of(house, EVIDENCE, evidence_id)
    [started] = [event for event in await rig.events_of(house, ids.derive("trial", state.evaluation_id, 1))
                 if event.type == "trial.started"]  # fmt: skip
    key = keys.execution(started.execution_id, name)  # type: ignore[attr-defined]
    content = b"".join([chunk async for chunk in house.objects.open(key)])
    await house.objects.delete(key)
    failed = await attest(attester, evidence_id)
    assert isinstance(failed, EvidenceFailed)
    assert (failed.failure.code, failed.failure.fault) == ("store.corrupt", "platform")
    await house.objects.put_new(key, content[:-1] + b" ")  # restored, but not as it was
    await make_due(house, evidence_id)
    assert isinstance(await attest(attester, evidence_id), EvidenceFailed)
    await house.objects.delete(key)
    await house.objects.put_new(key, content)
    await make_due(house, evidence_id)
    assert isinstance(await attest(attester, evidence_id), EvidenceSealed)


async def test_the_loop_seals_what_is_owed(house: House, attester: Attester, image: Image, tmp_path: Path) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(attester.run(stop))
    evidence = [await owed(house, tmp_path, image, ["scored"]) for _ in range(3)]

    async def all_sealed() -> bool:
        return all(["evidence.sealed" in await rig.types_of(house, one) for one in evidence])

    await rig.eventually(all_sealed)
    stop.set()
    await running


# ---------------------------------------------------------------- inventories


class Counting(DockerBackend):
    """The real engine, counted; `fault` is raised instead of an answer."""

    reads = 0
    fault: Exception | None = None

    async def inventory(self, reference: str) -> Inventory:
        self.reads += 1
        if self.fault is not None:
            raise self.fault
        return await super().inventory(reference)


@pytest.fixture
async def counting(docker_host: str, tmp_path: Path) -> AsyncIterator[Counting]:
    opened = Counting(docker_host, tmp_path / "counting")
    yield opened
    await opened.close()


async def test_an_image_is_read_once(house: House, open_another: Open, counting: Counting, image: Image) -> None:
    found = await Inventories(house, counting).record(image.reference, image.digest)
    assert found is not None
    again = Inventories(await open_another(), counting)
    assert await again.of(image.reference, image.digest) == found
    assert await again.record(image.reference, image.digest) == found
    assert counting.reads == 1


async def test_one_that_cannot_be_read_is_not_read_again_but_by_a_new_build(
    house: House, counting: Counting, image: Image
) -> None:
    inventories = Inventories(house, counting)
    counting.fault = ImageUnreadable("too large")
    assert await inventories.record(image.reference, image.digest) is None
    assert await inventories.of(image.reference, image.digest) is None
    assert counting.reads == 1
    counting.fault = None
    found = await inventories.record(image.reference, image.digest)
    assert found is not None
    assert await inventories.of(image.reference, image.digest) == found


async def test_a_lost_inventory_is_made_again(house: House, counting: Counting, image: Image) -> None:
    inventories = Inventories(house, counting)
    found = await inventories.record(image.reference, image.digest)
    key = await house.pool.fetchval("select object_key from seatrial.sbom_cache")
    await house.objects.delete(key)
    assert await inventories.of(image.reference, image.digest) == found
    assert await house.objects.stat(key) is not None


async def test_of_two_that_read_at_once_the_first_counts(
    house: House, open_another: Open, counting: Counting, image: Image
) -> None:
    """One could read the image, the other one found it gone: both archives say the same."""
    first, second = Inventories(house, counting), Inventories(await open_another(), counting)
    found = await first.of(image.reference, image.digest)
    late = await second._remember(image.digest, None, None)  # pyright: ignore[reportPrivateUsage]
    assert late == found
    assert await second.of(image.reference, image.digest) == found
