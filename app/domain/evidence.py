"""Evidence: what proves one evaluation. (owed) -> sealing -> sealed. Owed until sealed: it is tried for ever."""

import datetime
import enum
from typing import assert_never

import msgspec

from app.domain import policy
from app.domain.events import EvidenceFailed, EvidenceSealed, EvidenceStarted
from app.domain.failures import Failure
from app.domain.refusal import Refused
from app.domain.registry import Draft, Event


class Status(enum.StrEnum):
    SEALING = "sealing"
    WAITING = "waiting"
    SEALED = "sealed"


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    status: Status
    evaluation_id: str
    run_id: str
    attempt: int


def evolve(state: Evidence | None, happened: Event) -> Evidence | None:
    match happened:
        case EvidenceStarted():
            return Evidence(
                status=Status.SEALING,
                evaluation_id=happened.evaluation_id,
                run_id=happened.run_id,
                attempt=happened.attempt,
            )
        case _ if state is None:
            return state
        case EvidenceFailed():
            return msgspec.structs.replace(state, status=Status.WAITING)
        case EvidenceSealed():
            return msgspec.structs.replace(state, status=Status.SEALED)
        case _:
            return state


class Start(msgspec.Struct, frozen=True, kw_only=True):
    evaluation_id: str
    run_id: str
    worker: str
    epoch: int


class Fail(msgspec.Struct, frozen=True, kw_only=True):
    failure: Failure
    message: str


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    archive_key: str
    archive_digest: str
    archive_bytes: int
    manifest_digest: str
    provenance_digest: str
    sbom_digest: str
    files: int


Command = Start | Fail | Seal


def decide(state: Evidence | None, command: Command, now: datetime.datetime) -> tuple[Draft, ...] | Refused:
    if state is not None and state.status is Status.SEALED:
        return Refused("already_sealed", "this evidence was sealed before")
    match command:
        case Start():
            attempt = 1 if state is None else state.attempt + 1
            return (Draft(EvidenceStarted(attempt=attempt, **msgspec.structs.asdict(command))),)
        case Fail():
            if state is None:
                return Refused("not_sealing", "nobody is sealing this evidence")
            return (
                Draft(
                    EvidenceFailed(
                        attempt=state.attempt, failure=command.failure, retry_at=now + policy.backoff(state.attempt)
                    ),
                    {"message": command.message},
                ),
            )
        case Seal():
            if state is None:
                return Refused("not_sealing", "nobody is sealing this evidence")
            sealed = EvidenceSealed(
                evaluation_id=state.evaluation_id, run_id=state.run_id, **msgspec.structs.asdict(command)
            )
            return (Draft(sealed),)
        case _:
            assert_never(command)
