"""The fork server: imports Harbor once, then forks one child per trial.

    python -I -m seatrial_harness.forkserver SOCKET_FD [MODULE…]

One thread and no event loop, so that a fork is safe. It is started with an environment that holds no secret, because that
stays readable in /proc/<child>/environ for ever, and it learns only ids: a child reads the rest from its own socket.

Messages on its SOCK_SEQPACKET socket: in `{"op": "spawn", "trial"}` with two descriptors (socket, output pipe),
`{"op": "kill", "trial", "signal"}`; out `ready`, `spawned`, `exit`, `refused`. End of stream: kill all children and exit.
"""

import array
import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any

from seatrial_harness import child, wire

PRELOAD = (
    "asyncio",
    "encodings.idna",
    "platform",
    "dirhash",  # Task.checksum imports it late, and it starts `git` when imported
    "harbor.agents.nop",
    "harbor.agents.oracle",
    "harbor.trial.multi_step",
    "harbor.trial.single_step",
    "harbor.trial.sync_trajectory",
    "harbor.trial.trial",
    "harbor.verifier.verifier",
    "seatrial_harness.channel",
    "seatrial_harness.environment",
    "seatrial_harness.verifier",
)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> None:
    """The kernel kills this process when the *thread* that started it ends; so the worker starts it from its main one."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(71)


class Server:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._children: dict[int, tuple[str, int]] = {}
        """pidfd -> (trial, pid). Pidfds and no SIGCHLD handler: a pid is not reused before its wait."""
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def say(self, **message: Any) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the worker is gone: the next read says so
            self._connection.send(json.dumps(message).encode())

    def serve(self) -> None:
        while True:
            for number, _ in self._poll.poll(5000):
                if number == self._connection.fileno():
                    self._take()
                else:
                    self._reap(number)
            self._end_strays()

    def _take(self) -> None:
        data, fds = _receive(self._connection)
        if not data:
            self._end_all()
        message = json.loads(data)
        if message["op"] == "spawn":
            self._spawn(message["trial"], fds)
        elif message["op"] == "kill":
            for trial, pid in self._children.values():
                if trial == message["trial"]:
                    _kill_group(pid, message["signal"])

    def _spawn(self, trial: str, fds: list[int]) -> None:
        try:
            threads = len(os.listdir("/proc/self/task"))
            if threads != 1 or len(fds) != 2:
                self.say(op="refused", trial=trial, why=f"{threads} threads and {len(fds)} descriptors")
                return
            me, pid = os.getpid(), os.fork()
            if pid == 0:
                try:
                    os.setsid()
                    die_with_parent(me)
                    child.main(fds[0], fds[1], trial, self)
                finally:
                    os._exit(72)
        finally:
            for number in fds:
                os.close(number)
        pidfd = os.pidfd_open(pid)
        self._children[pidfd] = (trial, pid)
        self._poll.register(pidfd, select.POLLIN)
        self.say(op="spawned", trial=trial, pid=pid)

    def _reap(self, pidfd: int) -> None:
        trial, pid = self._children.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        _kill_group(pid, signal.SIGKILL)  # what it left in its group; before the wait, which frees the number
        _, status, usage = os.wait4(pid, 0)
        self._end_strays()
        code = os.waitstatus_to_exitcode(status)
        self.say(
            op="exit",
            trial=trial,
            code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            peak_memory_bytes=usage.ru_maxrss * 1024,
        )

    def _end_strays(self) -> None:
        """Kill what a child started and left: being their subreaper, this process has become their parent."""
        mine = {pid for _, pid in self._children.values()}
        live = {trial for trial, _ in self._children.values()}
        for pid in _children_of(os.getpid()):
            if pid not in mine and _mark_of(pid) not in live:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)

    def _end_all(self) -> None:
        """The worker is gone: take every child along, and whatever they started."""
        for _, pid in self._children.values():
            _kill_group(pid, signal.SIGKILL)
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline and (left := _children_of(os.getpid())):
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, 0)
        os._exit(0)


def _kill_group(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, number)
        return
    with contextlib.suppress(OSError):  # it is not the leader of its group yet
        os.kill(pid, number)


def _children_of(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(number) for number in file.read().split()]


def _mark_of(pid: int) -> str | None:
    """The trial in whose environment a process was started; None when it has hidden that."""
    prefix = child.MARK.encode() + b"="
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        for variable in file.read().split(b"\0"):
            if variable.startswith(prefix):
                return variable.removeprefix(prefix).decode(errors="replace")
    return None


def _receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    fds = array.array("i")
    data, ancillary, _, _ = connection.recvmsg(64 * 1024, socket.CMSG_LEN(4 * fds.itemsize), socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    return data, list(fds)


def main() -> None:
    began = time.monotonic()
    parent = os.getppid()
    if parent:  # in its own PID namespace it has none, and dies with the process that made the namespace
        os.setsid()
        die_with_parent(parent)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    for name in (*PRELOAD, *sys.argv[2:]):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # 2.3 MB less per child: the collector does not touch the shared pages
    server = Server(socket.socket(fileno=int(sys.argv[1])))
    server.say(op="ready", import_seconds=time.monotonic() - began, protocol=1)
    server.serve()


__all__ = ["Server", "main", "wire"]

if __name__ == "__main__":
    main()
