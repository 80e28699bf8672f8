"""The topology is made, mended and never taken apart; what cannot be mended is refused by name."""

import msgspec
import pytest
from nats.js.api import ConsumerConfig, StorageType, StreamConfig

from app.bus import subjects, topology
from app.bus.connection import Bus, NatsUnreachable
from app.local.nats import Nats


async def test_it_is_made_once(nats_clean: str) -> None:
    made = await topology.ensure(nats_clean)
    assert made == [
        "created stream EVENTS",
        "created stream LOGS",
        "created consumer builds",
        "created consumer trials",
        "created consumer evidence",
    ]
    assert await topology.ensure(nats_clean) == []


async def test_what_has_drifted_is_mended_and_what_is_not_ours_is_kept(bus: Bus) -> None:
    await topology.ensure_through(bus.js)
    await bus.js.add_stream(StreamConfig(name="THEIRS", subjects=["theirs.>"]))
    await bus.js.add_consumer("EVENTS", ConsumerConfig(durable_name="theirs"))
    events = (await bus.js.stream_info("EVENTS")).config
    await bus.js.update_stream(events.evolve(max_age=60.0, max_bytes=10 * topology.MIB))
    trials = (await bus.js.consumer_info("EVENTS", "trials")).config
    await bus.js.add_consumer("EVENTS", trials.evolve(filter_subjects=["seatrial.events.x.>"], max_ack_pending=1))

    assert await topology.ensure_through(bus.js) == [
        "updated stream EVENTS: max_age, max_bytes",
        "updated consumer trials: filter_subjects, max_ack_pending",
    ]
    assert await topology.ensure_through(bus.js) == []
    mended = (await bus.js.stream_info("EVENTS")).config
    assert (mended.max_age, mended.max_bytes) == (7 * topology.DAY_SECONDS, topology.EVENTS.max_bytes)
    filters = (await bus.js.consumer_info("EVENTS", "trials")).config.filter_subjects
    assert filters == [subjects.events_of_type("trial.admitted"), subjects.events_of_type("trial.execution_failed")]
    assert await bus.js.stream_info("THEIRS")
    assert await bus.js.consumer_info("EVENTS", "theirs")


async def test_what_cannot_be_changed_is_refused_by_name(bus: Bus) -> None:
    config = topology.stream_config(topology.EVENTS).evolve(storage=StorageType.MEMORY, max_bytes=topology.MIB)
    await bus.js.add_stream(config)
    await bus.js.publish("seatrial.events.t.c.i.a.b", b"kept")
    with pytest.raises(topology.TopologyRefused, match=r"EVENTS\.storage is .*memory.* must be .*file") as refused:
        await topology.ensure_through(bus.js)
    assert refused.value.field == "storage"
    assert (await bus.js.stream_info("EVENTS")).state.messages == 1


async def test_each_kind_of_work_has_its_own_events(nats_clean: str) -> None:
    kinds = [spec.kind for spec in topology.WORK]
    events = [event for spec in topology.WORK for event in spec.events]
    assert kinds == ["build", "trial", "evidence"]
    assert len(events) == len(set(events))
    assert msgspec.json.encode(topology.WORK)  # plain data


async def test_without_a_server_it_says_so(own_nats: Nats) -> None:
    own_nats.stop()
    with pytest.raises(NatsUnreachable, match="correct SEATRIAL_NATS_URL"):
        await topology.ensure(own_nats.url, patience_seconds=0.5)


async def test_a_wrong_token_is_refused_without_naming_it(own_nats: Nats) -> None:
    with pytest.raises(NatsUnreachable, match="Authorization Violation") as refused:
        await topology.ensure(f"nats://wrong-secret@127.0.0.1:{own_nats.port}", patience_seconds=2)
    assert "wrong-secret" not in str(refused.value)
