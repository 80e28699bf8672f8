"""A container engine of the test's own, to be killed: a second dockerd with its own data, sockets, pid file and network.

It lives in a network namespace of its own, because a second engine in the machine's would write the first one's firewall
chains anew; so its sandboxes reach nobody, which no pack of these tests needs. The machine's engine is never touched.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Generator
from pathlib import Path

from app.local import child
from app.local.baseimage import TEST_BASE
from app.local.engine import probe
from app.local.errors import EngineUnavailable

START_SECONDS = 90.0
END_SECONDS = 30.0


class OwnEngine:
    """`folder`: an empty one on a file system that can be an overlay's upper layer (tmpfs is), with a short path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = f"unix://{folder / 'engine.sock'}"
        assert len(self.host) < 100, f"a socket's path is at most 107 bytes: {self.host}"
        self.log = folder / "dockerd.log"
        self._network: subprocess.Popen[bytes] | None = None
        self._dockerd: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def running(self, shared_host: str) -> Generator["OwnEngine"]:
        """With the tests' base image, taken from the machine's engine."""
        assert os.geteuid() == 0, (
            "an engine of the test's own needs root (network namespace, mounts): run the tests as root"
        )
        assert shutil.which("dockerd"), "there is no dockerd on this machine"
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._open_network()
            self.start(keep_containers=False)
            self._load(shared_host)
            yield self
        finally:
            self.end()

    @property
    def pid(self) -> int | None:
        return None if self._dockerd is None or self._dockerd.poll() is not None else self._dockerd.pid

    def start(self, *, keep_containers: bool) -> None:
        """Start dockerd and wait until it answers. `keep_containers`: those that live are taken over, not ended."""
        assert self._network is not None
        for pid_file in (self.folder / "dockerd.pid", self.folder / "exec" / "containerd" / "containerd.pid"):
            if not self._is_ours(pid_file):
                pid_file.unlink(missing_ok=True)
        self._dockerd = child.spawn(
            [
                *("nsenter", f"--net=/proc/{self._network.pid}/ns/net", "dockerd"),
                *("--host", self.host),
                *("--data-root", self.folder / "data"),
                *("--exec-root", self.folder / "exec"),
                *("--pidfile", self.folder / "dockerd.pid"),
                *("--default-address-pool", "base=172.30.0.0/16,size=24"),
                *("--log-level", "warn"),
                "--icc=false",
                *(["--live-restore"] if keep_containers else []),
            ],
            log=self.log,
            death_signal=signal.SIGKILL,
            environment=dict(os.environ),
        )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                probe(self.host, timeout=5)
                return
            except EngineUnavailable:
                assert self._dockerd.poll() is None, f"dockerd did not start: {self.log.read_text()[-2000:]}"
                assert time.monotonic() < deadline, f"dockerd does not answer: {self.log.read_text()[-2000:]}"
                time.sleep(0.05)

    def kill(self, *, containers: bool) -> None:
        """SIGKILL the engine, and with `containers` all that it ever started: shims and what runs in the containers."""
        assert self._dockerd is not None
        self._dockerd.kill()
        self._dockerd.wait()
        if containers:
            self._kill_rest()

    def end(self) -> None:
        """Nothing of it is left afterwards: no process, no mount, no folder."""
        if self._dockerd is not None:
            with contextlib.suppress(ProcessLookupError):
                self._dockerd.send_signal(signal.SIGCONT)
            child.end(self._dockerd, [(signal.SIGTERM, END_SECONDS)])
        self._kill_rest()
        if self._network is not None:
            self._network.kill()
            self._network.wait()
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            if (mount := line.split()[1]).startswith(f"{self.folder}/"):
                subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    # ------------------------------------------------------------ parts

    def _open_network(self) -> None:
        self._network = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "ip link set lo up 2>/dev/null; echo open; exec sleep infinity"],
            stdout=subprocess.PIPE,
            preexec_fn=child.tether(signal.SIGKILL),
        )
        assert self._network.stdout is not None
        assert self._network.stdout.readline() == b"open\n", "no network namespace can be made here"

    def _load(self, shared_host: str) -> None:
        with subprocess.Popen(["docker", "--host", shared_host, "save", TEST_BASE], stdout=subprocess.PIPE) as saved:
            subprocess.run(
                ["docker", "--host", self.host, "load"],
                stdin=saved.stdout,
                check=True,
                capture_output=True,
                timeout=120,
            )
        assert saved.returncode == 0

    def _kill_rest(self) -> None:
        """Everything whose arguments name our folder, and all below it: containerd, shims, what the shims have started."""
        deadline = time.monotonic() + END_SECONDS
        while rest := self._rest():
            for pid in rest:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert time.monotonic() < deadline, f"these do not end: {rest}"
            time.sleep(0.02)

    def _rest(self) -> list[int]:
        parents: dict[int, int] = {}
        named: set[int] = set()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if state in "ZX":
                continue
            parents[int(entry.name)] = int(parent)
            ours = os.fsencode(self.folder)
            if os.path.basename(arguments[0]) in (
                b"dockerd",
                b"containerd",
                b"containerd-shim-runc-v2",
                b"runc",
            ) and any(ours in argument for argument in arguments):
                named.add(int(entry.name))

        def below(pid: int) -> bool:
            while pid in parents:
                if pid in named:
                    return True
                pid = parents[pid]
            return False

        return [pid for pid in parents if below(pid)]

    def _is_ours(self, pid_file: Path) -> bool:
        try:
            pid = int(pid_file.read_text())
        except (OSError, ValueError):
            return False
        return pid in self._rest()
