"""One evaluation's evidence: two trials, the second with a lost first execution."""

import asyncio
import datetime
import hashlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from app.domain.agents import Agent, agent_digest
from app.domain.events import Image, Tally, Validity
from app.domain.failures import failure
from app.evidence.archive import EvidenceFile, EvidenceInputs, build_archive, execution_path
from app.evidence.provenance import (
    BuildRecord,
    ExecutionRecord,
    HarnessRecord,
    PackRecord,
    Platform,
    Provenance,
    StreamRecord,
    TrialRecord,
)

AGENT = Agent(name="oracle", model="provider/model", settings={"b": 1, "a": [2, {"z": 0, "y": 1}]})
IMAGE = Image(
    reference="sha256:" + "1" * 64,
    digest="sha256:" + "1" * 64,
    size_bytes=1000,
    architecture="amd64",
    base_images=("debian:bookworm-slim@sha256:" + "2" * 64,),
)
HARNESS = HarnessRecord(version="0.26.0", overlay_digest="sha256:" + "3" * 64)
AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.UTC)
VALIDITY = Validity(
    verifier_isolation="shared",
    egress="no-network",
    egress_probed=True,
    cpus=1.0,
    memory_mb=512,
    pids=256,
    digests_pinned=True,
    executions=1,
)


def execution(number: int, outcome: str) -> ExecutionRecord:
    return ExecutionRecord(
        execution_id=f"exe_{number}",
        number=number,
        worker="wrk_1",
        started_at=AT,
        ended_at=AT + datetime.timedelta(seconds=number),
        outcome=outcome,
        harness=HARNESS,
        result_digest="sha256:" + "4" * 64 if outcome == "scored" else None,
        failure=None if outcome == "scored" else failure("worker.lost"),
        timings_ms={"verify": 5, "agent": 10},
    )


PROVENANCE = Provenance(
    evaluation_id="evl_1",
    run_id="run_1",
    run_number=1,
    team="tem_1",
    ordinal=1,
    outcome="succeeded",
    tally=Tally(trials=2, scored=2),
    platform=Platform(version="0.1.0", instance="local", incarnation="i"),
    pack=PackRecord(task_id="tsk_1", revision_id="rev_1", pack_digest="sha256:5", archive_digest="sha256:6", files=5),
    build=BuildRecord(attempt=1, image=IMAGE, build_ms=1234),
    agent=AGENT,
    agent_digest=agent_digest(AGENT),
    trials=(
        TrialRecord(
            trial_id="trl_1",
            ordinal=1,
            outcome="scored",
            reward=1.0,
            rewards={"reward": 1.0, "a": 0.25},
            validity=VALIDITY,
            executions=(execution(1, "scored"),),
        ),
        TrialRecord(
            trial_id="trl_2",
            ordinal=2,
            outcome="scored",
            reward=0.0,
            rewards={"reward": 0.0},
            validity=VALIDITY,
            executions=(execution(1, "failed"), execution(2, "scored")),
        ),
    ),
    streams=(
        StreamRecord(stream="evaluation/evl_1", version=1, first_position=3, last_position=9, head_hash="ab"),
        StreamRecord(stream="trial/trl_1", version=5, first_position=4, last_position=8, head_hash="cd"),
    ),
)

CONTENTS = {
    execution_path(1, 1, "result.json"): b'{"reward":1}',
    execution_path(1, 1, "agent/oracle.txt"): b"hello\n" * 1000,
    execution_path(2, 1, "worker.log"): b"",
    execution_path(2, 2, "result.json"): b'{"reward":0}',
    execution_path(2, 2, "artifacts/app/hello world ü.bin"): bytes(range(256)) * 1000,
}
EVENTS = b'{"type":"trial.queued"}\n{"type":"trial.scored"}\n'
SBOM = b'{"bomFormat":"CycloneDX"}\n'


def file(path: str, content: bytes, *, piece: int = 65_536, stated: bytes | None = None) -> EvidenceFile:
    """`stated`: what its digest and size speak of, where that shall differ."""

    async def open_() -> AsyncIterator[bytes]:
        for at in range(0, len(content), piece):
            yield content[at : at + piece]

    stated = content if stated is None else stated
    return EvidenceFile(path, hashlib.sha256(stated).hexdigest(), len(stated), open_)


def inputs(*, reverse: bool = False, piece: int = 65_536) -> EvidenceInputs:
    paths = sorted(CONTENTS, reverse=reverse)
    files = tuple(file(path, CONTENTS[path], piece=piece) for path in paths)
    return EvidenceInputs(provenance=PROVENANCE, sbom=SBOM, events=EVENTS, files=files)


if __name__ == "__main__":
    sealed = asyncio.run(
        build_archive(Path(sys.argv[1]), inputs(reverse=sys.argv[2] == "reverse", piece=int(sys.argv[3])))
    )
    sys.stdout.write(sealed.sha256)
