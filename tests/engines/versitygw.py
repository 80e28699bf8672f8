"""A real S3 server on a folder: versitygw."""

import contextlib
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from pathlib import Path

import msgspec

from tests.engines.build import engine

ACCESS_KEY = "seatrial-test"
SECRET_KEY = "seatrial-test-secret"


FULL = 'mount -t tmpfs -o size="$1" none "$2" && mkdir "$2/small" && shift 2 && exec "$@"'


class S3Server(msgspec.Struct, frozen=True):
    endpoint: str
    data: Path
    """One folder a bucket."""
    process: subprocess.Popen[bytes]

    @property
    def port(self) -> int:
        return int(self.endpoint.rpartition(":")[2])


@contextlib.contextmanager
def s3_server(folder: Path, *, port: int = 0, disk_bytes: int | None = None) -> Generator[S3Server]:
    """Running until the block ends. Its buckets are folders of `data`: make one with `mkdir` before.

    `disk_bytes` gives it a disk of that size, which nobody else sees, with a bucket `small`.
    """
    binary = engine("versitygw")
    data, metadata = folder / "data", folder / "metadata"
    data.mkdir(parents=True, exist_ok=True)
    metadata.mkdir(exist_ok=True)
    if port == 0:
        with socket.socket() as chosen:
            chosen.bind(("127.0.0.1", 0))
            port = chosen.getsockname()[1]
    environment = {"PATH": os.environ["PATH"], "ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
    command = [str(binary), "--port", f"127.0.0.1:{port}", "posix", "--sidecar", str(metadata), str(data)]
    if disk_bytes is not None:
        enter = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--user", "--map-root-user"]
        command = [*enter, "sh", "-c", FULL, "sh", str(disk_bytes), str(data), *command]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as server,
    ):
        try:
            _wait(server, f"http://127.0.0.1:{port}", folder / "log")
            yield S3Server(endpoint=f"http://127.0.0.1:{port}", data=data, process=server)
        finally:
            server.kill()


def _wait(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except urllib.error.HTTPError:
            return  # it refuses who is nobody: it is up
        except OSError:
            if server.poll() is not None:
                raise RuntimeError(f"versitygw ended:\n{log.read_text()[-2000:]}") from None
            time.sleep(0.02)
        else:
            return
