"""Evidence: what proves one evaluation. owed -> sealing -> sealed. Owed until sealed: it is tried for ever."""

import datetime
import enum
from typing import assert_never

import msgspec

from app.domain import policy
from app.domain.events import EvidenceFailed, EvidenceOwed, EvidenceSealed, EvidenceStarted, Installation
from app.domain.failures import Failure
from app.domain.refusal import Refused
from app.domain.registry import Draft, Event


class Status(enum.StrEnum):
    OWED = "owed"
    SEALING = "sealing"
    SEALED = "sealed"


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    status: Status
    evaluation_id: str
    run_id: str
    platform: Installation | None = None
    attempt: int = 0


def evolve(state: Evidence | None, happened: Event) -> Evidence | None:
    match happened:
        case EvidenceOwed():
            return Evidence(
                status=Status.OWED,
                evaluation_id=happened.evaluation_id,
                run_id=happened.run_id,
                platform=happened.platform,
            )
        case _ if state is None:
            return state
        case EvidenceStarted():
            return msgspec.structs.replace(state, status=Status.SEALING, attempt=happened.attempt)
        case EvidenceFailed():
            return msgspec.structs.replace(state, status=Status.OWED)
        case EvidenceSealed():
            return msgspec.structs.replace(state, status=Status.SEALED)
        case _:
            return state


class Owe(msgspec.Struct, frozen=True, kw_only=True):
    evaluation_id: str
    run_id: str
    platform: Installation | None = None


class Start(msgspec.Struct, frozen=True, kw_only=True):
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


Command = Owe | Start | Fail | Seal


def decide(state: Evidence | None, command: Command, now: datetime.datetime) -> tuple[Draft, ...] | Refused:
    if isinstance(command, Owe):
        return () if state is not None else (Draft(EvidenceOwed(**msgspec.structs.asdict(command))),)
    if state is None:
        return Refused("not_found", "no evidence is owed under this id")
    if state.status is Status.SEALED:
        return Refused("already_sealed", "this evidence was sealed before")
    match command:
        case Start():
            return (Draft(EvidenceStarted(attempt=state.attempt + 1, worker=command.worker, epoch=command.epoch)),)
        case Fail():
            failed = EvidenceFailed(
                attempt=state.attempt, failure=command.failure, retry_at=now + policy.backoff(state.attempt)
            )
            return (Draft(failed, {"message": command.message}),)
        case Seal():
            sealed = EvidenceSealed(
                evaluation_id=state.evaluation_id, run_id=state.run_id, **msgspec.structs.asdict(command)
            )
            return (Draft(sealed),)
        case _:
            assert_never(command)
