"""A sandbox by plain `docker run`, `exec`, `cp` and `rm`: the least that Harbor needs of an engine, and no compose."""

import asyncio
import re
import shlex
from pathlib import Path
from typing import override

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities


class DockerRun(BaseEnvironment):
    @staticmethod
    @override
    def type() -> str:
        return "docker-run"

    @classmethod
    @override
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True, fractional_cpus=True)

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True)

    @override
    def _validate_definition(self) -> None:
        if not self.task_env_config.docker_image:
            raise ValueError("this environment class builds nothing: the task names a docker_image")

    @property
    def _name(self) -> str:
        return "bench-" + re.sub(r"[^a-zA-Z0-9_.-]", "-", self.session_id)

    @override
    async def start(self, force_build: bool) -> None:
        options = ["--rm", "--init", "--detach", "--name", self._name, "--entrypoint", "sleep"]
        if self._effective_cpus:
            options += ["--cpus", str(self._effective_cpus)]
        if self._effective_memory_mb:
            options += ["--memory", f"{self._effective_memory_mb}m"]
        if self._network_disabled:
            options += ["--network", "none"]
        for name, value in self._startup_env().items():
            options += ["--env", f"{name}={value}"]
        await _docker("run", *options, str(self.task_env_config.docker_image), "infinity")
        await self.ensure_dirs(self._mount_targets(writable_only=True))

    @override
    async def stop(self, delete: bool) -> None:
        await _docker("rm", "--force", self._name)

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        await self.exec(f"mkdir -p {shlex.quote(str(Path(target_path).parent))}", user="root")
        await _docker("cp", str(source_path), f"{self._name}:{target_path}")

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await self.exec(f"mkdir -p {shlex.quote(target_dir)}", user="root")
        await _docker("cp", f"{source_dir}/.", f"{self._name}:{target_dir}")

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        await _docker("cp", f"{self._name}:{source_path}", str(target_path))

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        Path(target_dir).mkdir(parents=True, exist_ok=True)
        await _docker("cp", f"{self._name}:{source_dir}/.", str(target_dir))

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        options: list[str] = []
        if folder := cwd or self.task_env_config.workdir:
            options += ["--workdir", folder]
        for name, value in (self._merge_env(env) or {}).items():
            options += ["--env", f"{name}={value}"]
        if (account := self._resolve_user(user)) is not None:
            options += ["--user", str(account)]
        async with asyncio.timeout(timeout_sec):
            return await _docker("exec", *options, self._name, "bash", "-c", command, check=False)


async def _docker(*arguments: str, check: bool = True) -> ExecResult:
    process = await asyncio.create_subprocess_exec(
        "docker", *arguments,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if check and process.returncode:
        raise RuntimeError(f"docker {arguments[0]} ended with {process.returncode}: {errors.decode()[-500:]}")
    return ExecResult(stdout=output.decode(), stderr=errors.decode(), return_code=process.returncode or 0)
