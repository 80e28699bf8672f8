"""The judge itself: it finds nothing in a good history, and what was broken in a bad one."""

import datetime
from collections.abc import Callable

import pytest

from app.domain.agents import Agent
from app.domain.events import (
    EvaluationCompleted,
    EvaluationCreated,
    EvidenceOwed,
    EvidenceSealed,
    ExecutionFailed,
    Image,
    Result,
    RunCompleted,
    RunRequested,
    Tally,
    TrialErrored,
    TrialQueued,
    TrialScored,
    TrialStarted,
    Validity,
)
from app.domain.failures import failure
from app.domain.registry import Event
from tests.journeys.history import Happened, History, complaints

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DIGEST = "sha256:" + "0" * 64
AGENT = Agent(name="oracle")
IMAGE = Image(reference="image", digest=DIGEST, size_bytes=1, architecture="amd64")
LOST = failure("worker.lost")
VALID = Validity(
    verifier_isolation="shared", egress="public", egress_probed=False, cpus=None, memory_mb=None, pids=None,
    digests_pinned=True, executions=1,
)  # fmt: skip


def started(execution: str, number: int) -> TrialStarted:
    return TrialStarted(execution_id=execution, execution=number, worker="wrk", epoch=number)


def failed(execution: str, number: int) -> ExecutionFailed:
    return ExecutionFailed(execution_id=execution, execution=number, failure=LOST, retry_at=NOW)


def scored(execution: str, *, recovered: bool = False, result_of: str | None = None) -> TrialScored:
    key = f"executions/{result_of or execution}/result.json"
    result = Result(key=key, digest=DIGEST, harness="0", harness_digest=DIGEST)
    return TrialScored(
        execution_id=execution, execution=1, reward=1.0, rewards={"reward": 1.0}, validity=VALID, result=result,
        recovered=recovered,
    )  # fmt: skip


def queued(ordinal: int) -> TrialQueued:
    return TrialQueued(run_id="run", evaluation_id="evl", revision_id="rev", ordinal=ordinal)


TALLY = Tally(trials=3, scored=2, errored={"platform": 1})

GOOD: tuple[tuple[str, Event], ...] = (
    ("run", RunRequested(number=1, agent=AGENT, agent_digest=DIGEST, trials=3, roster=DIGEST, evaluations=1)),
    (
        "evl",
        EvaluationCreated(
            run_id="run", ordinal=1, task_id="tsk", revision_id="rev", pack_digest=DIGEST, image=IMAGE, agent=AGENT,
            agent_digest=DIGEST, trials=3,
        ),
    ),
    *((f"trl-{number}", queued(number)) for number in (1, 2, 3)),
    ("trl-1", started("exe-1", 1)),
    ("trl-2", started("exe-2", 1)),
    ("trl-3", started("exe-3", 1)),
    ("trl-1", scored("exe-1")),
    ("trl-2", failed("exe-2", 1)),
    ("trl-2", started("exe-2b", 2)),
    ("trl-2", scored("exe-2", recovered=True)),
    ("trl-3", TrialErrored(failure=LOST, executions=1, execution_id="exe-3")),
    ("evl", EvaluationCompleted(run_id="run", outcome="succeeded", tally=TALLY)),
    ("evd", EvidenceOwed(evaluation_id="evl", run_id="run")),
    ("run", RunCompleted(outcome="succeeded", evaluations=1, tally=TALLY)),
    (
        "evd",
        EvidenceSealed(
            evaluation_id="evl", run_id="run", archive_key="a", archive_digest=DIGEST, archive_bytes=1,
            manifest_digest=DIGEST, provenance_digest=DIGEST, sbom_digest=DIGEST, files=1,
        ),
    ),
)  # fmt: skip

type Log = list[tuple[str, Event]]


def judged(log: Log) -> list[str]:
    return complaints(History([Happened(position, *one) for position, one in enumerate(log, 1)]))


def test_a_good_history_has_no_complaint() -> None:
    assert judged(list(GOOD)) == []


def at(log: Log, stream: str, kind: type[Event]) -> int:
    return next(index for index, (name, event) in enumerate(log) if name == stream and isinstance(event, kind))


def without(stream: str, kind: type[Event]) -> Callable[[Log], None]:
    return lambda log: log.pop(at(log, stream, kind)) and None


def twice(stream: str, kind: type[Event]) -> Callable[[Log], None]:
    return lambda log: log.append(log[at(log, stream, kind)])


def instead(stream: str, kind: type[Event], event: Event) -> Callable[[Log], None]:
    def change(log: Log) -> None:
        log[at(log, stream, kind)] = (stream, event)

    return change


def before(stream: str, kind: type[Event], event: Event) -> Callable[[Log], None]:
    return lambda log: log.insert(at(log, stream, kind), (stream, event))


def too_early(log: Log) -> None:
    log.insert(at(log, "trl-1", TrialScored), log.pop(at(log, "evl", EvaluationCompleted)))


WRONG = Tally(trials=3, scored=3)


@pytest.mark.parametrize(
    ("breaking", "complaint"),
    [
        (without("trl-1", TrialScored), "trl-1: ended 0 times"),
        (twice("trl-1", TrialScored), "trl-1: ended 2 times"),
        (before("trl-1", TrialScored, started("exe-1b", 2)), "trl-1: execution 2 began while another ran"),
        (instead("trl-2", ExecutionFailed, failed("exe-9", 1)), "trl-2: an execution failed that did not run"),
        (instead("trl-2", TrialScored, scored("exe-2")), "trl-2: scored by an execution that did not run"),
        (instead("trl-2", TrialScored, scored("exe-1", recovered=True)), "trl-2: scored by an execution that did not run"),
        (instead("trl-1", TrialScored, scored("exe-1", result_of="exe-2")), "trl-1: scored with the result of another"),
        (instead("trl-1", TrialScored, scored("exe-1", result_of="exe-2")), "the result executions/exe-2/result.json counts 2"),
        (instead("evl", EvaluationCompleted, EvaluationCompleted(run_id="run", outcome="succeeded", tally=WRONG)), "evl: says"),
        (instead("run", RunCompleted, RunCompleted(outcome="succeeded", evaluations=1, tally=WRONG)), "run: says"),
        (without("run", RunCompleted), "run has not come to its end"),
        (without("evd", EvidenceSealed), "evd has not come to its end"),
        (twice("evd", EvidenceSealed), "evl: its evidence was sealed 2 times"),
        (twice("evl", EvaluationCompleted), "evl: created 1 times, completed 2 times"),
        (twice("run", RunCompleted), "run: completed 2 times"),
        (too_early, "evl: completed before its last trial had ended"),
        (without("trl-3", TrialQueued), "evl: 2 trials and not 3"),
        (instead("trl-2", TrialStarted, started("exe-2", 2)), "trl-2: execution 2 is the 1. to begin"),
    ],
)  # fmt: skip
def test_a_broken_history_is_complained_of(breaking: Callable[[Log], None], complaint: str) -> None:
    log = list(GOOD)
    breaking(log)
    assert any(one.startswith(complaint) for one in judged(log)), judged(log)
