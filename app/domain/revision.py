"""A revision: one immutable uploaded pack, and its build. uploaded -> building -> ready | rejected."""

import datetime
import enum
from typing import assert_never

import msgspec

from app.domain import failures, policy
from app.domain.events import (
    BuildFailed,
    BuildStarted,
    Image,
    RevisionReady,
    RevisionRejected,
    RevisionUploaded,
)
from app.domain.failures import UNKNOWN, Failure, Fault, Retry
from app.domain.pack import PackError
from app.domain.pack_report import told_errors, told_warnings
from app.domain.refusal import Refused
from app.domain.registry import Draft, Event

SCOPE = "revision"
"""Of reservations: of one task and one pack there is one revision."""


def pack_key(task_id: str, pack_digest: str) -> str:
    """The name that a revision reserves in SCOPE."""
    return f"{task_id}/{pack_digest}"


class Status(enum.StrEnum):
    UPLOADED = "uploaded"
    BUILDING = "building"
    READY = "ready"
    REJECTED = "rejected"


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    status: Status
    task_id: str
    pack_digest: str
    object_key: str
    attempt: int = 0
    image: Image | None = None


def evolve(state: Revision | None, happened: Event) -> Revision | None:
    match happened:
        case RevisionUploaded():
            return Revision(
                status=Status.UPLOADED,
                task_id=happened.task_id,
                pack_digest=happened.pack_digest,
                object_key=happened.object_key,
            )
        case _ if state is None:
            return state
        case BuildStarted():
            return msgspec.structs.replace(state, status=Status.BUILDING, attempt=happened.attempt)
        case BuildFailed():
            return msgspec.structs.replace(state, status=Status.UPLOADED)
        case RevisionReady():
            return msgspec.structs.replace(state, status=Status.READY, image=happened.image)
        case RevisionRejected():
            return msgspec.structs.replace(state, status=Status.REJECTED)
        case _:
            return state


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    task_id: str
    pack_digest: str
    archive_digest: str
    archive_bytes: int
    object_key: str
    files: int


class StartBuild(msgspec.Struct, frozen=True, kw_only=True):
    worker: str
    epoch: int


class FinishBuild(msgspec.Struct, frozen=True, kw_only=True):
    image: Image
    build_ms: int
    log_key: str | None = None
    warnings: tuple[str, ...] = ()


class FailBuild(msgspec.Struct, frozen=True, kw_only=True):
    failure: Failure
    message: str
    errors: tuple[PackError, ...] = ()
    """What is wrong with the pack, field by field."""
    log_key: str | None = None


Command = Upload | StartBuild | FinishBuild | FailBuild


def decide(state: Revision | None, command: Command, now: datetime.datetime) -> tuple[Draft, ...] | Refused:
    match command:
        case Upload():
            if state is not None:
                return Refused("already_exists", "this revision was uploaded before")
            return (Draft(RevisionUploaded(**msgspec.structs.asdict(command))),)
        case StartBuild():
            if state is None or state.status not in (Status.UPLOADED, Status.BUILDING):
                return Refused("not_buildable", "only an uploaded revision that is neither ready nor rejected is built")
            return (Draft(BuildStarted(attempt=state.attempt + 1, worker=command.worker, epoch=command.epoch)),)
        case FinishBuild():
            if state is None or state.status is not Status.BUILDING:
                return Refused("not_building", "this revision is not being built")
            told = msgspec.json.encode(told_warnings(command.warnings)).decode()
            private = {"warnings": told} if command.warnings else None
            return (
                Draft(
                    RevisionReady(
                        attempt=state.attempt,
                        image=command.image,
                        build_ms=command.build_ms,
                        log_key=command.log_key,
                        warnings=len(command.warnings),
                    ),
                    private,
                ),
            )
        case FailBuild():
            if state is None or state.status is not Status.BUILDING:
                return Refused("not_building", "this revision is not being built")
            private = {"message": command.message}
            if command.errors:
                private["errors"] = msgspec.json.encode(told_errors(command.errors)).decode()
            if _is_tried_again(command.failure, state.attempt):
                retry_at = now + policy.backoff(state.attempt)
                return (Draft(BuildFailed(attempt=state.attempt, failure=command.failure, retry_at=retry_at), private),)
            return (
                Draft(
                    RevisionRejected(attempt=state.attempt, failure=command.failure, log_key=command.log_key), private
                ),
            )
        case _:
            assert_never(command)


def _is_tried_again(failed: Failure, attempts: int) -> bool:
    """An outage that we know is waited for, however long: the pack is not to blame. What nobody foresaw is not."""
    known = failed.fault is Fault.PLATFORM and failed.retry is Retry.NEW_EXECUTION and failed.code != UNKNOWN
    return known or failures.may_retry(failed, attempts)
