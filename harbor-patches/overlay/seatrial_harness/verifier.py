"""The verifier: ends what the agent left running, then grades as Harbor does, and reads the reward as hostile input."""

import shlex
import stat
from pathlib import Path
from typing import Any, override

from harbor.models.task.verifier_mode import resolve_verifier_environment_definition
from harbor.models.verifier.result import VerifierResult
from harbor.verifier.verifier import RewardFileNotFoundError, Verifier, VerifierOutputParseError

from seatrial_harness.environment import Link, RemoteEnvironment
from seatrial_harness.errors import VerifierExitError, VerifierOutOfMemoryError

MAX_REWARD_BYTES = 64 * 1024
MAX_REWARDS = 256
MAX_NAME = 256

_CLEAR = (
    "set -e; for d in /logs /logs/verifier; do "
    'if [ -L "$d" ] || [ ! -d "$d" ]; then rm -rf -- "$d"; mkdir "$d"; fi; done; chmod 777 /logs/verifier; '
    "cd /logs/verifier; rm -rf -- reward.txt reward.json test-stdout.txt"
)


class SeatrialVerifier(Verifier):
    @override
    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        # Harbor does not tell a verifier class of somebody else's that its image holds the tests already.
        environment = self.environment
        if isinstance(environment, RemoteEnvironment) and environment.is_verifier:
            steps = {step.name: step for step in self.task.config.steps or []}
            definition = resolve_verifier_environment_definition(
                self.task.config, self.task.paths, steps.get(self.step_name) if self.step_name else None
            )
            self._skip_tests_upload = definition is not None and definition.bundled_tests

    @override
    async def verify(self) -> VerifierResult:
        environment = self.environment
        if not isinstance(environment, RemoteEnvironment):
            return await super().verify()
        facts: dict[str, Any] = {
            "isolation": "separate" if environment.is_verifier else "shared",
            "strays_killed": 0 if environment.is_verifier else await environment.kill_strays(),
            "step": self.step_name,
        }
        watched = _Watched(environment, self.trial_paths.test_stdout_path.name)
        self.environment = watched  # pyright: ignore[reportAttributeAccessIssue] - it is the environment, seen through
        try:
            return await super().verify()
        except RewardFileNotFoundError as error:
            if watched.oom_killed:
                raise VerifierOutOfMemoryError("the test script ran out of memory and left no reward") from error
            if watched.exit_code:
                raise VerifierExitError(f"the test script ended with {watched.exit_code} and left no reward") from error
            raise
        finally:
            self.environment = environment
            facts |= {"exit_code": watched.exit_code, "reward_file": self._reward_file()}
            await Link.channel.tell({"ev": "verifier", **facts})

    @override
    async def _remove_reward_files(self) -> None:
        """Put right what the agent may have prepared where the tests and the reward belong.

        Links and files in the place of folders go, and so do stale rewards whatever they are. /tests goes as a whole
        unless it came with the image: Harbor would copy the tests over what it finds there. Other files in
        /logs/verifier stay, as with Harbor: a collect hook may have put them there.
        """
        environment = self.environment
        keep_tests = environment.is_verifier or environment.image_has_tests
        result = await environment.exec(_CLEAR + ("" if keep_tests else "; rm -rf -- /tests"), user="root")
        if result.return_code != 0:
            raise RuntimeError(f"the place of the reward cannot be cleared: {result.stderr or result.stdout}")
        self.trial_paths.reward_text_path.unlink(missing_ok=True)
        self.trial_paths.reward_json_path.unlink(missing_ok=True)

    def _reward_file(self) -> str | None:
        for path in (self.trial_paths.reward_json_path, self.trial_paths.reward_text_path):
            if path.exists():
                return path.name
        return None

    @override
    def _parse_reward_text(self) -> dict[str, float | int]:
        _check(self.trial_paths.reward_text_path)
        return super()._parse_reward_text()

    @override
    def _parse_reward_json(self) -> dict[str, float | int]:
        path = self.trial_paths.reward_json_path
        _check(path)
        try:
            rewards: object = super()._parse_reward_json()
        except RecursionError as error:
            raise VerifierOutputParseError(f"{path.name} is nested too deep") from error
        if not isinstance(rewards, dict) or not rewards:
            raise VerifierOutputParseError(f"{path.name} is not an object of numbers")
        if len(rewards) > MAX_REWARDS or any(len(name) > MAX_NAME for name in rewards):
            raise VerifierOutputParseError(f"{path.name} has too many rewards, or too long a name")
        try:
            return {name: float(value) for name, value in rewards.items()}
        except OverflowError as error:
            raise VerifierOutputParseError(f"{path.name} holds a number that is not finite") from error


def _check(path: Path) -> None:
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise VerifierOutputParseError(f"{path.name} is not a regular file")
    if found.st_size > MAX_REWARD_BYTES:
        raise VerifierOutputParseError(f"{path.name} has {found.st_size} bytes; {MAX_REWARD_BYTES} are allowed")


class _Watched:
    """The environment, remembering how the test script ended: Harbor's verifier does not keep that."""

    def __init__(self, environment: RemoteEnvironment, output_name: str) -> None:
        self._environment = environment
        self._output_name = output_name
        self.exit_code: int | None = None
        self.oom_killed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    async def exec(self, command: str, **arguments: Any) -> Any:
        result = await self._environment.exec(command, **arguments)
        if command.endswith(" 2>&1") and shlex.split(command)[-2].endswith(self._output_name):
            self.exit_code = result.return_code
            self.oom_killed = self._environment.last_exec_oom_killed
        return result
