"""What the workers would do, told by the domain itself: every event here is one that a decider allows."""

import datetime
from typing import Any

import msgspec

from app import digests, ids
from app.boot import House
from app.bus.logs import LogChunk, encode
from app.domain import evaluation, evidence, revision, run, trial
from app.domain.events import Image, Result, Tally, Validity
from app.domain.execution import FILES, LOG, StoredFile
from app.domain.failures import failure
from app.domain.pack import ErrorCode, PackError
from app.domain.refusal import Refused
from app.domain.registry import Meta, decode
from app.eventlog.drafts import unit_of
from app.eventlog.model import NewWork
from app.eventlog.read import read_stream
from app.objects import keys
from workers.expansion import earlier_trials

IMAGE = Image(reference="sha256:" + "a" * 64, digest="sha256:" + "a" * 64, size_bytes=1, architecture="amd64")
VALIDITY = Validity(
    verifier_isolation="separate", egress="no-network", egress_probed=True, cpus=1.0, memory_mb=64, pids=64,
    digests_pinned=True, executions=1,
)  # fmt: skip


class Story:
    def __init__(self, house: House, team: str) -> None:
        self.house, self.team = house, team

    async def tell(self, category: str, stream: str, module: Any, command: Any, correlation: str, **unit: Any) -> int:
        """Decide and append; the position of the last event."""
        async with self.house.pool.acquire() as connection:
            recorded = await read_stream(connection, stream)
        state = None
        for one in recorded:
            state = module.evolve(state, decode(one.type, one.schema_version, one.data))
        now = datetime.datetime.now(datetime.UTC)
        timeless = module in (run, evaluation)
        drafts = module.decide(state, command) if timeless else module.decide(state, command, now)
        assert not isinstance(drafts, Refused), drafts
        assert drafts
        meta = Meta(actor="story", correlation=correlation)
        outcome = await self.house.appender.append(
            unit_of(category, stream, self.team, len(recorded), drafts, meta, **unit)
        )
        assert outcome.accepted, outcome
        return outcome.positions[-1]

    async def ready(self, revision_id: str) -> int:
        await self.tell("revision", revision_id, revision, revision.StartBuild(worker="w", epoch=1), revision_id)
        done = revision.FinishBuild(image=IMAGE, build_ms=5, warnings=("a warning",))
        return await self.tell("revision", revision_id, revision, done, revision_id)

    async def reject(self, revision_id: str) -> int:
        await self.tell("revision", revision_id, revision, revision.StartBuild(worker="w", epoch=1), revision_id)
        errors = (PackError("agent", ErrorCode.VALUE, "no such key"),)
        failed = revision.FailBuild(failure=failure("pack.invalid"), message="not a pack", errors=errors)
        return await self.tell("revision", revision_id, revision, failed, revision_id)

    async def expand(self, run_id: str) -> list[str]:
        """All evaluations and trials of a run; the ids of the trials that wait, in order: the others adopted a score."""
        async with self.house.pool.acquire() as connection:
            [first, *_] = await read_stream(connection, run_id)
            state = run.evolve(None, decode(first.type, first.schema_version, first.data))
            assert state is not None
            digest = digests.bytes_of(state.roster)
            members = await connection.fetchval("select members from seatrial.roster where digest = $1", digest)
            earlier = await earlier_trials(connection, state, range(1, state.evaluations + 1))
        made: list[str] = []
        for ordinal, member in enumerate(msgspec.json.decode(members, type=run.Roster).members, start=1):
            evaluation_id = ids.derive("evaluation", run_id, ordinal)
            create = evaluation.Create(run_id=run_id, run=state, ordinal=ordinal, member=member)
            await self.tell("evaluation", evaluation_id, evaluation, create, run_id)
            for number in range(1, state.trials + 1):
                trial_id = ids.derive("trial", evaluation_id, number)
                queue = trial.Queue(
                    run_id=run_id, evaluation_id=evaluation_id, revision_id=member.revision_id, ordinal=number,
                    earlier=earlier.get((ordinal, number)),
                )  # fmt: skip
                await self.tell("trial", trial_id, trial, queue, run_id, work=(NewWork(id=trial_id, kind="trial"),))
                if queue.earlier is None or queue.earlier.state.status is not trial.Status.SCORED:
                    made.append(trial_id)
        return made

    async def trials(self, run_id: str) -> int:
        """How many a run of one evaluation has."""
        async with self.house.pool.acquire() as connection:
            [first, *_] = await read_stream(connection, run_id)
        state = run.evolve(None, decode(first.type, first.schema_version, first.data))
        assert state is not None
        return state.trials

    async def start(self, run_id: str, trial_id: str) -> str:
        """Admit and start a trial; the id of its execution."""
        async with self.house.pool.acquire() as connection:
            begun = sum(one.type == "trial.started" for one in await read_stream(connection, trial_id))
        execution_id = ids.derive("execution", trial_id, begun + 1)
        if not begun:
            await self.tell("trial", trial_id, trial, trial.Admit(), run_id)
        start = trial.Start(execution_id=execution_id, worker="w", epoch=1)
        await self.tell("trial", trial_id, trial, start, run_id)
        return execution_id

    async def leave(
        self, trial_id: str, execution_id: str, number: int, files: dict[str, bytes], log: list[str]
    ) -> None:
        """What an execution leaves in the object store."""
        stored: list[StoredFile] = []
        for path, content in files.items():
            blob = await self.house.objects.put_blob(content)
            stored.append(StoredFile(path=path, sha256=blob.sha256, size_bytes=blob.size_bytes))
        await self.house.objects.put_new(keys.execution(execution_id, FILES), msgspec.json.encode(stored))
        lines = [encode(chunk) + b"\n" for chunk in chunks(trial_id, execution_id, number, log)]
        await self.house.objects.put_new(keys.execution(execution_id, LOG), b"".join(lines))

    async def score(self, run_id: str, trial_id: str, execution_id: str, reward: float = 1.0) -> int:
        result = Result(key=keys.execution(execution_id, "result.json"), digest="sha256:" + "b" * 64,
                        harness="0.26.0", harness_digest="sha256:" + "c" * 64, timings_ms={"agent": 7})  # fmt: skip
        scored = trial.Score(execution_id=execution_id, rewards={"reward": reward}, validity=VALIDITY, result=result)
        return await self.tell("trial", trial_id, trial, scored, run_id)

    async def fail(self, run_id: str, trial_id: str, execution_id: str) -> int:
        """End a trial errored: the task is at fault."""
        failed = trial.Fail(failure=failure("verifier.reward_missing"), message="no reward", execution_id=execution_id)
        return await self.tell("trial", trial_id, trial, failed, run_id)

    async def complete(self, run_id: str, ordinal: int, tally: Tally) -> str:
        """Complete an evaluation."""
        evaluation_id = ids.derive("evaluation", run_id, ordinal)
        await self.tell("evaluation", evaluation_id, evaluation, evaluation.Complete(tally=tally), run_id)
        return evaluation_id

    async def complete_run(self, run_id: str, tally: Tally, *, cancelled: bool = False) -> int:
        return await self.tell("run", run_id, run, run.Complete(tally=tally, cancelled=cancelled), run_id)

    async def seal(self, run_id: str, evaluation_id: str, archive: bytes) -> int:
        """Seal the evidence of an evaluation with this archive."""
        evidence_id = ids.derive("evidence", evaluation_id, 1)
        owe = evidence.Owe(evaluation_id=evaluation_id, run_id=run_id)
        await self.tell("evidence", evidence_id, evidence, owe, run_id)
        await self.tell("evidence", evidence_id, evidence, evidence.Start(worker="w", epoch=1), run_id)
        stored = await self.house.objects.put_blob(archive)
        seal = evidence.Seal(
            archive_key=stored.key,
            archive_digest=f"sha256:{stored.sha256}",
            archive_bytes=stored.size_bytes,
            manifest_digest="sha256:" + "d" * 64,
            provenance_digest="sha256:" + "e" * 64,
            sbom_digest="sha256:" + "f" * 64,
            files=3,
        )
        return await self.tell("evidence", evidence_id, evidence, seal, run_id)


def chunks(trial_id: str, execution_id: str, number: int, lines: list[str]) -> list[LogChunk]:
    """Log chunks of one execution, numbered as the workers do it."""
    first = (number - 1) * 10_000_000
    now = datetime.datetime.now(datetime.UTC)
    return [
        LogChunk(
            owner=trial_id, execution=execution_id, sequence=first + count, stream="stdout", phase="agent", time=now,
            text=text,
        )
        for count, text in enumerate(lines, start=1)
    ]  # fmt: skip
