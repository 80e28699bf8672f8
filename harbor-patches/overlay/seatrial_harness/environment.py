"""Harbor's environment class that owns no sandbox: every call is a request to the worker, which does."""

import asyncio
import contextlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, override

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.models.task.config import NetworkPolicy

from seatrial_harness import transfer
from seatrial_harness.channel import Channel
from seatrial_harness.errors import CommandTimedOutError, SandboxLostError, SandboxPolicyUnsupportedError

TESTS = "/tests"
KEEP_OUTPUT_BYTES = 16 * 1024 * 1024
"""Of one command and stream, for Harbor; what comes after it still goes to the live log."""

# What Harbor's oracle and verifier run: a script with its output in a file (harbor.utils.scripts).
_TO_FILE = re.compile(r"\A\((?P<script>.+)\) > (?P<file>\S+|'[^']+') 2>&1\Z", re.DOTALL)


class Link:
    """What the child knows of its worker; set once, before Harbor makes its first environment."""

    channel: Channel
    folder: Path
    """Where files wait for their transfer; worker and child share it."""
    network_modes: frozenset[str] = frozenset()
    switches_network: bool = False
    numbers = itertools.count(1)


class RemoteEnvironment(BaseEnvironment):
    """One sandbox of a trial. Its name for the worker is the part of Harbor's session id after the trial's name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._timeouts_as_code = False
        self._downloaded: dict[tuple[str, Path], dict[str, tuple[int, int]]] = {}
        super().__init__(*args, **kwargs)
        self.last_exec_oom_killed = False
        self.image_has_tests = False

    @staticmethod
    @override
    def type() -> str:
        return "seatrial"

    @classmethod
    @override
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True, fractional_cpus=True)

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        allowlist = "allowlist" in Link.network_modes
        return EnvironmentCapabilities(
            disable_internet="no-network" in Link.network_modes,
            network_allowlist=allowlist,
            network_allowlist_hostnames=allowlist,
            network_allowlist_wildcard_hostnames=allowlist,
            network_allowlist_ipv4_addresses=allowlist,
            network_allowlist_ipv6_addresses=allowlist,
            network_allowlist_ipv4_cidrs=allowlist,
            network_allowlist_ipv6_cidrs=allowlist,
            dynamic_network_policy=Link.switches_network,
        )

    @override
    def _validate_definition(self) -> None:
        """Nothing to check: the worker decides which image runs."""

    @override
    def validate_network_policy_support(self, network_policy: NetworkPolicy | None = None) -> None:
        try:
            super().validate_network_policy_support(network_policy)
        except ValueError as error:
            raise SandboxPolicyUnsupportedError(str(error)) from error

    # -- life

    @property
    def is_verifier(self) -> bool:
        return "__verifier__" in self.session_id

    async def _call(self, op: str, **arguments: Any) -> dict[str, Any]:
        return await Link.channel.call(op, sandbox=self.session_id, **arguments)

    @override
    async def start(self, force_build: bool) -> None:
        config = self.task_env_config
        answer = await self._call(
            "start",
            looks_for=[TESTS],
            verifier=self.is_verifier,
            own_image=self.is_verifier and not self._enable_environment_dir_upload,
            image=config.docker_image,
            workdir=config.workdir,
            cpus=self._effective_cpus,
            memory_mb=self._effective_memory_mb,
            storage_mb=self._effective_storage_mb,
            environment=self._startup_env(),
            network=_policy(self._network_policy),
            folders=self._mount_targets(writable_only=True),
        )
        self.image_has_tests = TESTS in answer["present"]
        await self._upload_environment_dir_after_start()

    @override
    async def stop(self, delete: bool) -> None:
        await self._call("stop")

    async def kill_strays(self) -> int:
        """End every process in the sandbox but its first; how many there were."""
        return int((await self._call("strays"))["strays"])

    @override
    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        await self._call("network", network=_policy(network_policy))

    # -- commands

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        self.last_exec_oom_killed = False
        live = self._output_callback() is not None  # Harbor logs this phase; the worker passes the output on
        script = _TO_FILE.match(command) if live else None
        kept: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}

        async def on_output(stream: str, data: bytes) -> None:
            if not script:
                kept[stream] += data[: max(0, KEEP_OUTPUT_BYTES - len(kept[stream]))]

        as_user = self._resolve_user(user)
        answer = await Link.channel.call(
            "exec",
            on_output,
            sandbox=self.session_id,
            command=_followed(script) if script else command,
            cwd=cwd or self.task_env_config.workdir,
            environment=self._merge_env(env) or {},
            user=None if as_user is None else str(as_user),
            timeout=timeout_sec,
            live=live,
        )
        self.last_exec_oom_killed = bool(answer.get("oom_killed"))
        if answer.get("timed_out"):
            if not self._timeouts_as_code:
                raise CommandTimedOutError(f"the command timed out after {timeout_sec} seconds")
            answer["return_code"] = 124
        return ExecResult(
            stdout=kept["stdout"].decode(errors="replace"),
            stderr=kept["stderr"].decode(errors="replace"),
            return_code=answer["return_code"],
        )

    @override
    async def run_healthcheck(self, healthcheck: Any = None) -> None:
        """A health check that takes too long is one that fails, as with Docker's own."""
        self._timeouts_as_code = True
        try:
            await super().run_healthcheck(healthcheck)
        finally:
            self._timeouts_as_code = False

    # -- files

    @contextlib.contextmanager
    def _parcel(self) -> Iterator[Path]:
        path = Link.folder / f"{next(Link.numbers)}.tar"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        target = Path(target_path)
        with self._parcel() as parcel:
            await asyncio.to_thread(transfer.pack_file, Path(source_path), parcel, target.name)
            await self._call("put", folder=str(target.parent), file=parcel.name)

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        source = Path(source_dir)
        was = self._downloaded.get((str(target_dir), source))
        if was is not None and was == await asyncio.to_thread(transfer.snapshot, source):
            return  # Harbor sends the agent's logs back: only what has changed since they came is news
        with self._parcel() as parcel:
            await asyncio.to_thread(transfer.pack_folder, source, parcel)
            await self._call("put", folder=str(target_dir), file=parcel.name)

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        with self._parcel() as parcel:
            await self._call("get", path=str(source_path), file=parcel.name)
            await asyncio.to_thread(transfer.unpack_file, parcel, Path(target_path))

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        target = Path(target_dir)
        with self._parcel() as parcel:
            await self._call("get", path=f"{str(source_dir).rstrip('/')}/.", file=parcel.name)
            left_out = await asyncio.to_thread(transfer.unpack_folder, parcel, target)
        if left_out:
            self.logger.warning(
                "left %d links or devices out of %s, such as %s", len(left_out), source_dir, left_out[0]
            )
        else:
            self._downloaded[str(source_dir), target] = await asyncio.to_thread(transfer.snapshot, target)


def _policy(policy: NetworkPolicy) -> dict[str, Any]:
    return {"mode": policy.network_mode.value, "allowed_hosts": list(policy.allowed_hosts)}


def _followed(script: re.Match[str]) -> str:
    """The same command, with a reader beside it that copies the file to our output as it grows.

    The script itself stays in the foreground and writes to the file as before: through a pipe (`| tee`) it would run
    differently, and a process that it leaves behind would keep the pipe open. The reader ends when its input closes, not
    by a line on it: `read -t` can lose what comes in the moment of its timeout. Where bash cannot set the reader up, the
    command runs alone.
    """
    file, run = script["file"], f"({script['script']}) > {script['file']} 2>&1"
    reader = "exec 2>/dev/null; while IFS= read -r -t 0.2 _; [ $? -gt 128 ]; do cat <&8; done; cat <&8"
    return (
        f"if {{ : >{file} && exec 8<{file} 9> >({reader}); }} 2>/dev/null; then\n"
        "reader=$!\n"
        f"{run} 8<&- 9>&-; code=$?\n"
        'exec 9>&-; wait "$reader" 2>/dev/null; exit "$code"\n'
        f"else {run}; fi"
    )


class NoEnvironment(RemoteEnvironment):
    """No sandbox and no round trips: what the harness itself costs, for measuring."""

    @override
    async def start(self, force_build: bool) -> None: ...

    @override
    async def stop(self, delete: bool) -> None: ...

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None: ...

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None: ...

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        raise FileNotFoundError(source_path)

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None: ...

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        if self.is_verifier:
            raise SandboxLostError("this trial has no sandbox")
        return ExecResult(stdout="", stderr="", return_code=0)
