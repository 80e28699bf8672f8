"""The API in a process of its own, as the supervisor starts it: it can be killed, and its memory can be read."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from pathlib import Path
from typing import Self

import httpx
import msgspec

from app.settings import Settings
from tests.http.ports import held_port

SERVE = """
import asyncio, functools, sys
import uvloop
from app.http import serve
from app.settings import load
serve.Bounds = functools.partial(serve.Bounds, **{bounds!r})
uvloop.run(serve.main(load(), asyncio.Event()))
"""


class Apart:
    """`async with Apart(settings)` starts it on the settings' port and leaves none behind.

    `bounds` replace some of those of app/http/connection.py: nobody wants to wait half a minute for a reader to be dropped.
    """

    def __init__(self, settings: Settings, **bounds: float) -> None:
        self.settings = settings
        self.environment = os.environ | {
            "SEATRIAL_HOME": settings.home,
            "SEATRIAL_DATABASE_URL": settings.database_url,
            "SEATRIAL_NATS_URL": settings.nats_url,
            "SEATRIAL_HTTP_PORT": str(settings.http_port),
            "SEATRIAL_TEAM_STREAMS": str(settings.team_streams),
            "SEATRIAL_UPLOAD_LIMIT_BYTES": str(settings.upload_limit_bytes),
        }
        self.log = Path(settings.home) / "apart.log"
        self._script = SERVE.replace("{bounds!r}", repr(bounds))
        self.process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    def settings_elsewhere(self) -> Settings:
        """The same on another port."""
        return msgspec.structs.replace(self.settings, http_port=held_port())

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", self._script, env=self.environment, stdout=log, stderr=log
            )

    async def ready(self) -> None:
        """Wait until it serves."""
        assert self.process is not None
        async with httpx.AsyncClient(
            base_url=self.settings.base_url, timeout=20, verify=False, trust_env=False
        ) as client:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if (await client.get("/readyz")).status_code == 200:
                        return
                assert self.process.returncode is None, "it has ended"
                await asyncio.sleep(0.02)

    async def kill(self) -> None:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    @property
    def resident_bytes(self) -> int:
        return self._status("VmRSS")

    @property
    def peak_bytes(self) -> int:
        """The most that it had since `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        assert self.process is not None
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def _status(self, name: str) -> int:
        assert self.process is not None
        found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text(), re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024
