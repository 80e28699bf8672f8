"""What must exist in JetStream: two streams, and one shared consumer for each kind of work. Ensured, never deleted.

EVENTS is a window of seven days: Postgres is the archive. The consumers only hint that there is work to claim (work.py),
so they deliver a message once, and begin with what comes.
"""

import msgspec
import nats.js.errors
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)

from app.bus import subjects
from app.bus.connection import short_client

DAY_SECONDS = 86_400.0
MIB = 1024**2


class StreamSpec(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    subjects: tuple[str, ...]
    max_age_seconds: float
    max_bytes: int
    max_msg_size: int
    deny_delete: bool
    duplicate_window_seconds: float = 1.0
    """Short: the relay's expected sequence is what keeps a message from being stored twice, and after a purge a long
    window would refuse what has to be published again."""


class WorkSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of work, the events after which some may be due, and the consumer that hands these out. The work row has the
    id of the event's stream."""

    kind: str
    consumer: str
    events: tuple[str, ...]


EVENTS = StreamSpec(
    name="EVENTS",
    subjects=(subjects.EVENTS,),
    max_age_seconds=7 * DAY_SECONDS,
    max_bytes=8 * 1024 * MIB,
    max_msg_size=MIB,
    deny_delete=True,
)
LOGS = StreamSpec(
    name="LOGS",
    subjects=(subjects.LOGS,),
    max_age_seconds=DAY_SECONDS,
    max_bytes=1024 * MIB,
    max_msg_size=MIB,
    deny_delete=False,
)
STREAMS = (EVENTS, LOGS)
WORK = (
    WorkSpec(kind="build", consumer="builds", events=("revision.uploaded", "revision.build_failed")),
    WorkSpec(kind="trial", consumer="trials", events=("trial.admitted", "trial.execution_failed")),
    WorkSpec(kind="evidence", consumer="evidence", events=("evidence.owed", "evidence.failed")),
)


class TopologyRefused(Exception):
    """A stream or consumer exists with a property that cannot be changed. Nothing was deleted: look at it, then remove
    it by hand (EVENTS is published again from Postgres) and start again."""

    def __init__(self, name: str, field: str, found: object, wanted: object) -> None:
        super().__init__(f"{name}.{field} is {found!r} and must be {wanted!r}, which cannot be changed in place")
        self.name, self.field = name, field


async def ensure(nats_url: str, *, patience_seconds: float = 10) -> list[str]:
    """Make or update what is missing or differs; says what was done. Raises NatsUnreachable, TopologyRefused, or an
    error of JetStream's own (nats.errors.Error)."""
    async with short_client(nats_url, patience_seconds) as client:
        return await ensure_through(client.jetstream(timeout=patience_seconds))


async def ensure_through(js: JetStreamContext) -> list[str]:
    """The same through a connection that is there."""
    done: list[str] = []
    for stream in STREAMS:
        done += await _ensure_stream(js, stream)
    for work in WORK:
        done += await _ensure_consumer(js, work)
    return done


async def _ensure_stream(js: JetStreamContext, spec: StreamSpec) -> list[str]:
    wanted = stream_config(spec)
    try:
        found = (await js.stream_info(spec.name)).config
    except nats.js.errors.NotFoundError:
        await js.add_stream(wanted)
        return [f"created stream {spec.name}"]
    for field in ("storage", "retention", "deny_delete"):
        if getattr(found, field) != getattr(wanted, field):
            raise TopologyRefused(spec.name, field, getattr(found, field), getattr(wanted, field))
    changed = [
        field
        for field in ("subjects", "max_age", "max_bytes", "max_msg_size", "discard", "allow_direct", "duplicate_window")
        if getattr(found, field) != getattr(wanted, field)
    ]
    if not changed:
        return []
    await js.update_stream(found.evolve(**{field: getattr(wanted, field) for field in changed}))
    return [f"updated stream {spec.name}: {', '.join(changed)}"]


async def _ensure_consumer(js: JetStreamContext, spec: WorkSpec) -> list[str]:
    wanted = consumer_config(spec)
    try:
        found = (await js.consumer_info(EVENTS.name, spec.consumer)).config
    except nats.js.errors.NotFoundError:
        await js.add_consumer(EVENTS.name, wanted)
        return [f"created consumer {spec.consumer}"]
    name = f"{EVENTS.name}/{spec.consumer}"
    for field in ("deliver_policy", "ack_policy", "deliver_subject"):
        if getattr(found, field) != getattr(wanted, field):
            raise TopologyRefused(name, field, getattr(found, field), getattr(wanted, field))
    changed = [
        field
        for field in ("filter_subjects", "ack_wait", "max_deliver", "max_ack_pending", "inactive_threshold")
        if getattr(found, field) != getattr(wanted, field)
    ]
    if not changed:
        return []
    await js.add_consumer(EVENTS.name, found.evolve(**{field: getattr(wanted, field) for field in changed}))
    return [f"updated consumer {spec.consumer}: {', '.join(changed)}"]


def stream_config(spec: StreamSpec) -> StreamConfig:
    return StreamConfig(
        name=spec.name,
        subjects=list(spec.subjects),
        storage=StorageType.FILE,
        retention=RetentionPolicy.LIMITS,
        discard=DiscardPolicy.OLD,
        max_age=spec.max_age_seconds,
        max_bytes=spec.max_bytes,
        max_msg_size=spec.max_msg_size,
        duplicate_window=spec.duplicate_window_seconds,
        deny_delete=spec.deny_delete,
        allow_direct=True,
    )


def consumer_config(spec: WorkSpec) -> ConsumerConfig:
    return ConsumerConfig(
        durable_name=spec.consumer,
        deliver_policy=DeliverPolicy.NEW,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=10,
        max_deliver=1,
        max_ack_pending=10_000,
        filter_subjects=[subjects.events_of_type(event) for event in spec.events],
    )
