"""The network policy is held against what the sandbox itself shows, before the agent runs; one that does not hold is no score."""

import asyncio
import contextlib
import errno
import fcntl
import os
import socket
import struct
import threading
from pathlib import Path

import msgspec
import pytest

from tests.conformance.runtimes import eventually, spec
from tests.dispatcher.rig import Told, probe, sandboxes_of, trial, trial_spec
from workers.dispatcher.harness.model import AgentSpec
from workers.dispatcher.harness.server import Servers
from workers.dispatcher.runtimes import egress
from workers.dispatcher.runtimes.docker import DockerRuntime
from workers.dispatcher.runtimes.port import EgressSeen, NetworkPolicy, PolicyNotHeld

pytestmark = [pytest.mark.docker, pytest.mark.harness]

ROOT = os.geteuid() == 0
TUNSETIFF, SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK = 0x400454CA, 0x8914, 0x8916, 0x891C
IFF_TUN, IFF_UP = 0x1, 0x1


def open_a_way_out(pid: int) -> int:
    """Give a container's network an interface that its engine does not know, as a broken engine or plugin would.

    The interface lives as long as the descriptor that is returned.
    """
    made: list[int] = []

    def work() -> None:
        namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        os.setns(namespace, os.CLONE_NEWNET)
        os.close(namespace)
        tun = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", b"leak0", IFF_TUN | 0x1000))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            for request, address in ((SIOCSIFADDR, "10.9.9.9"), (SIOCSIFNETMASK, "255.0.0.0")):
                packed = struct.pack("16sHH4s8x", b"leak0", socket.AF_INET, 0, socket.inet_aton(address))
                fcntl.ioctl(asking, request, packed)
            fcntl.ioctl(asking, SIOCSIFFLAGS, struct.pack("16sH14x", b"leak0", IFF_UP))
        made.append(tun)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return made[0]


async def first_process(runtime: DockerRuntime, container: str) -> int:
    return int((await runtime._engine.call("GET", f"containers/{container}/json"))["State"]["Pid"])


PUBLIC = EgressSeen("tried", ("eth0",), ("metadata", "private", "public"))
NOTHING = EgressSeen("tried", (), ())


def in_ipv4(seen: EgressSeen) -> EgressSeen:
    """Without the internet of IPv6, which engines of some machines have too."""
    return msgspec.structs.replace(seen, routes=tuple(route for route in seen.routes if route != "public6"))


@pytest.mark.parametrize("mode", ["public", "no-network"])
async def test_what_a_sandbox_can_reach_is_seen_from_inside(mode: str, runtime: DockerRuntime) -> None:
    sandbox = runtime.sandbox(spec(network=NetworkPolicy(mode)))  # pyright: ignore[reportArgumentType]
    expected = {"public": PUBLIC, "no-network": NOTHING}
    try:
        told = await sandbox.start()
        assert told.egress is not None
        if ROOT:
            assert in_ipv4(told.egress) == expected[mode]
        pid = await first_process(runtime, sandbox.id)
        read = in_ipv4(egress._read(Path(f"/proc/{pid}/net")))
        assert (read.interfaces, read.routes) == (expected[mode].interfaces, expected[mode].routes)
        for other in ({*expected} - {mode}).pop(), mode:
            switched = await sandbox.set_network(NetworkPolicy(other))  # pyright: ignore[reportArgumentType]
            assert switched.egress is not None
            assert in_ipv4(switched.egress).routes == expected[other].routes
    finally:
        await sandbox.stop()


async def test_a_container_that_is_another_s_is_not_looked_at(runtime: DockerRuntime) -> None:
    """The engine may be on another machine, where the number means another process."""
    assert await egress.look(os.getpid(), "0" * 64) is None
    assert await egress.look(2**22 + 1, "0" * 64) is None
    sandbox = runtime.sandbox(spec())
    try:
        await sandbox.start()
        pid = await first_process(runtime, sandbox.id)
        assert await egress.look(pid, sandbox.id) is not None
        assert await egress.look(pid, "0" * 64) is None
        own = os.stat("/proc/self/ns/net").st_ino

        async def none_stays() -> bool:  # a thread answers before it ends
            found: set[int] = set()
            for path in Path("/proc/self/task").glob("*/ns/net"):
                with contextlib.suppress(FileNotFoundError):
                    found.add(path.stat().st_ino)
            return found == {own}

        await eventually(none_stays)
    finally:
        await sandbox.stop()


async def test_looking_always_answers(runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox's start waits for it: what goes wrong in its thread must not leave that waiting."""

    def broken(pid: int, container: str) -> EgressSeen:
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(egress, "_look", broken)
    async with asyncio.timeout(30):
        assert await egress.look(os.getpid(), "0" * 64) is None


def test_an_interface_that_has_gone_since_it_was_listed_is_not_up(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = socket.if_nameindex()
    before = egress._tried()
    monkeypatch.setattr(socket, "if_nameindex", lambda: [*listed, (99_999, "gone0")])
    assert egress._tried() == before


@pytest.mark.skipif(not ROOT, reason="only root enters a sandbox's network")
@pytest.mark.parametrize("failures", [1, 2])
async def test_a_sandbox_that_cannot_be_looked_into_is_looked_at_once_more_and_then_refused(
    failures: int, runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = egress._tried, [OSError(errno.EIO, "broken")] * failures

    def tried() -> EgressSeen:
        if left:
            raise left.pop()
        return real()

    monkeypatch.setattr(egress, "_tried", tried)
    sandbox = runtime.sandbox(spec(network=NetworkPolicy("no-network")))
    try:
        if failures == 1:
            assert (await sandbox.start()).egress == NOTHING
        else:
            with pytest.raises(PolicyNotHeld, match="could not be seen"):
                await sandbox.start()
    finally:
        await sandbox.stop()


@pytest.mark.skipif(not ROOT, reason="only root can break a sandbox's network behind the engine's back")
async def test_a_policy_that_does_not_hold_is_refused(runtime: DockerRuntime) -> None:
    sandbox = runtime.sandbox(spec(network=NetworkPolicy("no-network")))
    try:
        await sandbox.start()
        way_out = open_a_way_out(await first_process(runtime, sandbox.id))
        try:
            with pytest.raises(PolicyNotHeld, match="leak0; routes to private"):
                await sandbox.set_network(NetworkPolicy("no-network"))
        finally:
            os.close(way_out)
    finally:
        await sandbox.stop()


@pytest.mark.skipif(not ROOT, reason="only root can break a sandbox's network behind the engine's back")
async def test_a_trial_whose_policy_does_not_hold_ends_before_its_agent_runs(
    tmp_path: Path, runtime: DockerRuntime, servers: Servers
) -> None:
    """The pack allows its agent no network, the engine takes it away, and there is another way out all the same."""
    spec, told = trial_spec(tmp_path, "offline-agent", agent=probe(setup_until="go")), Told()
    running = asyncio.create_task(trial(spec, runtime, servers.of(AgentSpec()), told))
    await told.until(lambda: "agent_setup" in told.phases or running.done())
    (container,) = await sandboxes_of(runtime, spec)
    way_out = open_a_way_out(await first_process(runtime, container))
    (tmp_path / ".home" / "go").touch()
    try:
        seen = await running
    finally:
        os.close(way_out)
    assert [e.type for e in seen.exceptions] == ["SandboxPolicyNotHeldError"], seen
    assert "leak0" in seen.exceptions[0].message
    assert seen.rewards is None
    assert not (seen.files / "agent" / "seen.json").exists(), "the agent did not run"
    assert not seen.verifiers


@pytest.mark.parametrize(
    ("mode", "seen", "held"),
    [
        ("public", PUBLIC, True),
        ("public", EgressSeen("read", ("eth0",), ("public",)), True),
        ("public", NOTHING, False),
        ("public", EgressSeen("tried", ("eth0",), ("private",)), False),
        ("no-network", NOTHING, True),
        ("no-network", EgressSeen("tried", ("eth0",), ()), False),
        ("no-network", EgressSeen("tried", (), ("public6",)), False),
        ("no-network", PUBLIC, False),
        ("allowlist", PUBLIC, False),
        ("allowlist", NOTHING, False),
    ],
)
def test_a_policy_holds_only_when_it_was_seen_to(mode: str, seen: EgressSeen, held: bool) -> None:
    assert egress.holds(mode, seen) is held  # pyright: ignore[reportArgumentType]
