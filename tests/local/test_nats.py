"""Embedded NATS: one owner a folder, no orphan, a start after every end."""

import asyncio
import os
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import nats.errors
import pytest
from nats import connect

from app.bus.topology import ensure
from app.local import nats as module
from app.local.errors import PortTaken, StoreInUse
from app.local.nats import Nats
from tests.journeys.small_disk import small_disk
from tests.local.waiting import is_alive, wait_for


@pytest.fixture
def folder(memory_folder: Path, request: pytest.FixtureRequest) -> Path:
    return memory_folder / request.node.name[:60] / "nats"


@pytest.fixture
def server(folder: Path) -> Iterator[Nats]:
    server = Nats(folder, sync_interval="always")
    server.start()
    yield server
    server.stop()


async def publish(url: str) -> int:
    client = await connect(url)
    try:
        context = client.jetstream()
        await context.add_stream(name="KEPT", subjects=["kept"])
        return (await context.publish("kept", b"")).seq
    finally:
        await client.close()


async def test_kill_9_loses_nothing_and_keeps_the_port(server: Nats) -> None:
    url = server.url
    assert await publish(url) == 1
    os.kill(server.pid, signal.SIGKILL)
    wait_for(lambda: server.poll() is not None)
    server.start()
    assert server.url == url
    assert await publish(url) == 2


async def test_a_second_server_on_one_folder_is_refused_and_harms_nothing(
    server: Nats, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEASE_SECONDS", 0.1)
    with pytest.raises(StoreInUse, match="SEATRIAL_HOME"):
        Nats(folder).start()
    assert await publish(server.url) == 1


async def test_nothing_survives_a_killed_supervisor(folder: Path, program) -> None:
    supervisor = program(
        "from pathlib import Path; from app.local.nats import Nats; import time\n"
        f"server = Nats(Path({str(folder)!r})); server.start(); print(server.pid, flush=True); time.sleep(600)"
    )
    pid = int(supervisor.stdout.readline())
    assert is_alive(pid)
    supervisor.kill()
    supervisor.wait()
    again = Nats(folder)
    again.start()  # waits for the end of the other
    try:
        assert not is_alive(pid)
        assert await publish(again.url) == 1
    finally:
        again.stop()


async def test_only_the_password_opens_the_door(server: Nats, folder: Path) -> None:
    for name in ("relay-password", "worker-password", "nats.conf"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    with pytest.raises((nats.errors.Error, OSError)):
        await connect(server.url.replace((folder / "relay-password").read_text(), "wrong"), allow_reconnect=False)


def test_no_secret_in_arguments_environment_or_log(server: Nats, folder: Path) -> None:
    for user in ("relay", "worker"):
        secret = (folder / f"{user}-password").read_text().encode()
        for name in ("cmdline", "environ"):
            assert secret not in Path(f"/proc/{server.pid}/{name}").read_bytes()
        assert secret not in server.log.read_bytes()


async def test_only_the_relays_user_publishes_events_or_takes_them_away(server: Nats) -> None:
    await ensure(server.url)
    refused: list[Exception] = []

    async def on_error(error: Exception) -> None:
        refused.append(error)

    worker = await connect(server.worker_url, error_cb=on_error)
    try:
        await worker.publish("seatrial.events.team.run.x.run.requested", b"{}")
        await worker.publish("$JS.API.STREAM.PURGE.EVENTS", b"")
        await worker.publish("seatrial.logs.team.trial.x", b"{}")
        await worker.flush()
        await asyncio.sleep(0.1)
        assert len(refused) == 2
        assert all("permissions violation" in str(error).lower() for error in refused)
        state = (await worker.jetstream().stream_info("EVENTS")).state
        assert state.messages == 0
    finally:
        await worker.close()


def test_a_port_that_was_asked_for_and_is_taken_is_named(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        with pytest.raises(PortTaken, match=str(port)):
            Nats(folder, port=port).start()


async def test_a_folder_with_odd_characters_in_its_name_works(memory_folder: Path) -> None:
    server = Nats(memory_folder / 'a "quoted" name' / "nats")
    server.start()
    try:
        assert await publish(server.url) == 1
        assert (memory_folder / 'a "quoted" name' / "nats" / "jetstream").is_dir()
    finally:
        server.stop()


async def test_a_server_that_met_a_full_disk_is_known_to_be_stuck_once_there_is_room_and_a_restart_heals_it(
    memory_folder: Path,
) -> None:
    with small_disk(memory_folder / "nats-full", 48 * 1024**2) as disk:
        server = Nats(disk.folder)
        server.start()
        try:
            before = await publish(server.url)
            assert not server.is_stuck()
            disk.fill()
            await until_refused(server.url)
            assert not server.is_stuck(), "a restart would not help yet"
            disk.empty()
            await asyncio.to_thread(wait_for, server.is_stuck)
            server.stop()
            assert not server.is_stuck(), "it does not run"
            server.start()
            assert await publish(server.url) > before
        finally:
            server.stop()


async def until_refused(url: str) -> None:
    """Publish until nothing more is stored: an error, or no answer (which this server gives)."""
    client = await connect(url)
    try:
        context = client.jetstream(timeout=1)
        for _ in range(100):
            try:
                await context.publish("kept", b"x" * 4096)
            except nats.errors.Error:
                return
        raise AssertionError("a full disk takes all")
    finally:
        await client.close()
