"""A sandbox that is none: every call is done at once. What is left of a trial is Harbor's own time."""

from pathlib import Path
from typing import override

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities


class Nothing(BaseEnvironment):
    @staticmethod
    @override
    def type() -> str:
        return "nothing"

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
        """There is nothing to check."""

    @override
    async def start(self, force_build: bool) -> None:
        """There is nothing to start."""

    @override
    async def stop(self, delete: bool) -> None:
        """There is nothing to stop."""

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """It goes nowhere."""

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """It goes nowhere."""

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """There is none."""

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        Path(target_dir).mkdir(parents=True, exist_ok=True)

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        return ExecResult(stdout="", stderr="", return_code=0)
