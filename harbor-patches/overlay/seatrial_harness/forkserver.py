"""The fork server: imports Harbor once, then forks one child per trial.

    python -I -m seatrial_harness.forkserver SOCKET_FD confine|plain [MODULE…]

One thread and no event loop, so that a fork is safe. It is started with an environment that holds no secret, because that
stays readable in /proc/<child>/environ for ever, and it learns only ids: a child reads the rest from its own socket.
With `confine` (as root, in a PID namespace of its own) each child becomes a user of its own (confine.py).

Messages on its SOCK_SEQPACKET socket: in `{"op": "spawn", "trial", "folder"}` with two descriptors (socket, output pipe),
`{"op": "kill", "trial", "signal"}`; out `ready` (`unconfined`: why, when it was asked for in vain), `spawned`, `exit`, `refused`,
`left` (processes of a trial could not be ended). End of stream: kill all children and exit.
"""

import array
import contextlib
import ctypes
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import sys
import time
from typing import Any, NamedTuple

from seatrial_harness import child, confine, wire

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


class Child(NamedTuple):
    trial: str
    folder: str
    pid: int
    user: int | None


class Server:
    def __init__(self, connection: socket.socket, *, confined: bool) -> None:
        self._connection = connection
        self._confined = confined
        self._children: dict[int, Child] = {}
        """By pidfd, and no SIGCHLD handler: a pid is not reused before its wait."""
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
            self._spawn(message["trial"], message["folder"], fds)
        elif message["op"] == "kill":
            for one in self._children.values():
                if one.trial == message["trial"]:
                    _kill_group(one.pid, message["signal"])

    def _spawn(self, trial: str, folder: str, fds: list[int]) -> None:
        try:
            threads = len(os.listdir("/proc/self/task"))
            if threads != 1 or len(fds) != 2:
                self.say(op="refused", trial=trial, why=f"{threads} threads and {len(fds)} descriptors")
                return
            me, user = os.getpid(), self._new_user()
            try:
                pid = os.fork()
            except OSError as error:  # no process or no memory left: one trial's loss, not that of all that run
                self.say(op="refused", trial=trial, why=f"no process for it: {error.strerror}")
                return
            if pid == 0:
                try:
                    os.setsid()
                    die_with_parent(me)
                    child.main(fds[0], fds[1], trial, self, user, lambda: die_with_parent(me))
                finally:
                    os._exit(72)
        finally:
            for number in fds:
                os.close(number)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            _kill_group(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self.say(op="refused", trial=trial, why=f"its process cannot be watched: {error.strerror}")
            return
        self._children[pidfd] = Child(trial, folder, pid, user)
        self._poll.register(pidfd, select.POLLIN)
        self.say(op="spawned", trial=trial, pid=pid)

    def _new_user(self) -> int | None:
        """One whom no living child has, and of whom no earlier trial can have left anything."""
        taken = {one.user for one in self._children.values()}
        while self._confined:
            if (user := confine.FIRST_USER + random.SystemRandom().randrange(confine.USERS)) not in taken:
                return user
        return None

    def _reap(self, pidfd: int) -> None:
        ended = self._children.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        _kill_group(ended.pid, signal.SIGKILL)  # what it left in its group; before the wait, which frees the number
        _, status, usage = os.wait4(ended.pid, 0)
        if ended.user is not None:
            if not confine.end_all_of(ended.user):
                self.say(op="left", trial=ended.trial)
            confine.forget(ended.folder)
        self._end_strays()
        code = os.waitstatus_to_exitcode(status)
        self.say(
            op="exit",
            trial=ended.trial,
            code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            peak_memory_bytes=usage.ru_maxrss * 1024,
        )

    def _end_strays(self) -> None:
        """Kill what a child started and left: being their subreaper, this process has become their parent."""
        mine = {one.pid for one in self._children.values()}
        live = {one.trial for one in self._children.values()}
        for pid in _children_of(os.getpid()):
            if pid not in mine and _mark_of(pid) not in live:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)

    def _end_all(self) -> None:
        """The worker is gone: take every child along, and whatever they started."""
        for one in self._children.values():
            _kill_group(one.pid, signal.SIGKILL)
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
    for name in (*PRELOAD, *sys.argv[3:]):
        importlib.import_module(name)
    wanted = sys.argv[2] == "confine"
    unconfined = confine.refusal(os.getcwd()) if wanted else None
    gc.collect()
    gc.freeze()  # 2.3 MB less per child: the collector does not touch the shared pages
    server = Server(socket.socket(fileno=int(sys.argv[1])), confined=wanted and unconfined is None)
    server.say(op="ready", import_seconds=time.monotonic() - began, protocol=1, unconfined=unconfined)
    server.serve()


__all__ = ["Server", "main", "wire"]

if __name__ == "__main__":
    main()
