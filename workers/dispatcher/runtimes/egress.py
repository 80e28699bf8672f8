"""What a sandbox can reach, seen from inside its network namespace: whether the policy that the engine reports really holds.

Nothing of the image is needed and no packet leaves: connecting a datagram socket asks the kernel for a route and sends nothing.
Root enters the namespace, with a thread that ends afterwards (measured: 1 ms). Others read the kernel's tables of it.

What is shown: under `no-network` that no interface but the loopback is up and no address of either protocol has a route; under
`public` that an interface is up and the open internet has a route. What lies behind that route is not shown: no stranger is
asked.
"""

import asyncio
import contextlib
import errno
import fcntl
import ipaddress
import os
import socket
import struct
import threading
from pathlib import Path

import structlog

from workers.dispatcher.runtimes.port import EgressSeen, NetworkMode

log = structlog.get_logger()

PLACES = {
    "public": "192.0.2.1",
    "public6": "2001:db8::1",
    "metadata": "169.254.169.254",
    "private": "10.255.255.254",
}
"""Addresses by what stands for them: of documentation (RFC 5737, 3849), the clouds' metadata service, and a private network."""
DISCARD_PORT = 9
SIOCGIFFLAGS, IFF_UP, IFF_LOOPBACK = 0x8913, 0x1, 0x8
RTF_UP, RTF_REJECT = 0x1, 0x200


def holds(mode: NetworkMode, seen: EgressSeen) -> bool:
    """Whether what was seen is what a policy promises. Never true for a policy that cannot be told this way."""
    match mode:
        case "no-network":
            return not seen.interfaces and not seen.routes
        case "public":
            return bool(seen.interfaces) and "public" in seen.routes
        case "allowlist":
            return False


async def look(pid: int, container: str) -> EgressSeen | None:
    """From inside the network namespace of the container whose first process is `pid`; None where we may not or cannot."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[EgressSeen | None] = loop.create_future()

    def tell(seen: EgressSeen | None) -> None:
        if not answer.done():
            answer.set_result(seen)

    def work() -> None:
        seen = None
        try:
            seen = _look(pid, container)
        except Exception as error:  # noqa: BLE001 - whatever it was, somebody waits for an answer
            log.warning("a sandbox's network could not be looked at", container=container[:12], error=repr(error))
        finally:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(tell, seen)

    # A thread of its own: it stays in the sandbox's namespace, and ends there.
    threading.Thread(target=work, name="egress", daemon=True).start()
    return await answer


def must_see(pid: int, container: str) -> bool:
    """Whether nothing can excuse that a sandbox's network was not seen: root, on the engine's own machine."""
    return os.geteuid() == 0 and is_first_process(pid, container)


def is_first_process(pid: int, container: str) -> bool:
    """Whether the engine is on this machine, and `pid` is a process of that container here."""
    try:
        return pid > 0 and container in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False


def _look(pid: int, container: str) -> EgressSeen | None:
    try:
        namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if not is_first_process(pid, container):  # asked after the opening: the number may be another's by now
                return None
            os.setns(namespace, os.CLONE_NEWNET)
        finally:
            os.close(namespace)
    except PermissionError:
        seen = _read(Path(f"/proc/{pid}/net"))
        return seen if is_first_process(pid, container) else None
    return _tried()


def _tried() -> EgressSeen:
    return EgressSeen(
        how="tried",
        interfaces=tuple(sorted(name for _, name in socket.if_nameindex() if _is_up(name))),
        routes=tuple(sorted(place for place, address in PLACES.items() if _has_route(address))),
    )


def _is_up(interface: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            told = fcntl.ioctl(asking, SIOCGIFFLAGS, struct.pack("16sH14x", interface.encode(), 0))
        except OSError as error:
            if error.errno == errno.ENODEV:  # it has gone since it was listed
                return False
            raise
    (flags,) = struct.unpack_from("H", told, 16)
    return bool(flags & IFF_UP) and not flags & IFF_LOOPBACK


def _has_route(address: str) -> bool:
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.connect((address, DISCARD_PORT))
    except OSError:  # ENETUNREACH; EAFNOSUPPORT where there is no such protocol
        return False
    return True


def _read(tables: Path) -> EgressSeen:
    """The same from the kernel's tables (proc_pid_net(5)). Interfaces are those that have a route."""
    found: list[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, str]] = []
    for line in (tables / "route").read_text().splitlines()[1:]:
        device, destination, _, flags, _, _, _, mask, *_ = line.split()
        if int(flags, 16) & (RTF_UP | RTF_REJECT) == RTF_UP:
            length = int(mask, 16).bit_count()
            found.append(
                (ipaddress.ip_network((int(destination, 16).to_bytes(4, "little"), length), strict=False), device)
            )
    if (table := tables / "ipv6_route").exists():
        for line in table.read_text().splitlines():
            destination, length, *_, flags, device = line.split()
            if int(flags, 16) & (RTF_UP | RTF_REJECT) == RTF_UP and device != "lo":
                network = ipaddress.ip_network((bytes.fromhex(destination), int(length, 16)), strict=False)
                found.append((network, device))
    return EgressSeen(
        how="read",
        interfaces=tuple(sorted({device for _, device in found if device != "lo"})),
        routes=tuple(
            sorted(
                place
                for place, address in PLACES.items()
                if any(ipaddress.ip_address(address) in network for network, _ in found)
            )
        ),
    )
