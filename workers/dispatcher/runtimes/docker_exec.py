"""Commands in a container: streamed, timed, and really ended when they must end.

The engine has no call that ends an exec; closing its stream leaves the process running. So each command carries a token
in its environment, which its children inherit, and ending it means ending all that carry the token or share a session
with one that does.
"""

import asyncio
import contextlib
import secrets
from typing import Any

import aiohttp
import msgspec
from aiodocker import DockerError
from aiodocker.execs import Exec
from aiodocker.stream import Message, Stream

from workers.dispatcher.runtimes.docker_engine import Engine, EngineRefused
from workers.dispatcher.runtimes.port import EngineUnavailable, ExecRefused, ExecSpec, Output, SandboxLost

TOKEN = "SEATRIAL_EXEC"  # noqa: S105 - the name of a variable
KILL_SECONDS = 10.0
NEVER_STARTED = (126, 127, 128)
"""What the engine tells as the exit code of a command that it could not start, which then has no process id either."""
FIRST_FILE = "/proc/1/exe"

# Runs as the command's own user: only that user may read the environment of its processes. In plain bash, since the
# image may have nothing else. Repeats until a pass finds nothing, because what is being ended may still fork.
END_ALL_OF_ONE = r"""
for pass in 1 2 3 4 5; do
  sessions=' ' found=
  for folder in /proc/[0-9]*; do
    while IFS= read -r -d '' variable; do
      if [[ $variable == "SEATRIAL_EXEC=$0" ]]; then
        IFS= read -r stat <"$folder/stat" && set -- ${stat##*) } && sessions+="$4 "
      fi
    done 2>/dev/null <"$folder/environ"
  done 2>/dev/null
  for folder in /proc/[0-9]*; do
    id=${folder#/proc/}
    IFS= read -r stat <"$folder/stat" && set -- ${stat##*) } || continue
    [[ $id != 1 && $1 != Z && $4 != 0 && $4 != 1 && $sessions == *" $4 "* ]] && kill -9 "$id" && found=1
  done 2>/dev/null
  [[ $found ]] || break
done
"""


class Ended(msgspec.Struct, frozen=True):
    return_code: int | None
    timed_out: bool = False


class Execs:
    """The commands of one container. `user`: whom a command runs as that names nobody, the image's own user.

    (The container's own is root, for its first process; the engine would run commands as that.)
    """

    def __init__(self, engine: Engine, container: str, user: str) -> None:
        self._engine = engine
        self._container = container
        self._user = user
        self._killing: set[asyncio.Task[None]] = set()

    async def run(self, spec: ExecSpec, on_output: Output) -> Ended:
        """Raises ExecRefused, SandboxLost, EngineUnavailable, EngineRefused."""
        token = secrets.token_hex(16)
        user = self._user if spec.user is None else spec.user
        body: dict[str, Any] = {
            "Cmd": ["bash", "-c", spec.command],
            "Env": [f"{key}={value}" for key, value in spec.environment.items()] + [f"{TOKEN}={token}"],
            "User": user,
            "AttachStdout": True,
            "AttachStderr": True,
        }
        if spec.cwd is not None:
            body["WorkingDir"] = spec.cwd
        identity = await self._create(body)
        try:
            async with asyncio.timeout(spec.timeout_seconds):
                await self._pump(identity, on_output)
                return Ended(await self._return_code(identity))
        except TimeoutError:
            await self._end(token, user)
            return Ended(None, timed_out=True)
        except BaseException:  # a cancel, or an output that nobody can take any more
            await self._end(token, user)
            raise

    async def quiet(self, command: str, user: str, *arguments: str) -> None:
        """Run a command of our own for its effect alone.

        Root runs it by the first process's own file, which an agent cannot replace as it can /bin/bash.
        """

        async def ignore(stream: str, data: bytes) -> None:
            del stream, data

        shell = FIRST_FILE if user in ("0", "0:0", "root") else "bash"
        body = {"Cmd": [shell, "-c", command, *arguments], "User": user, "AttachStdout": True, "AttachStderr": True}
        identity = await self._create(body)
        await self._pump(identity, ignore)
        await self._return_code(identity)

    async def _create(self, body: dict[str, Any]) -> str:
        try:
            made = await self._engine.call("POST", f"containers/{self._container}/exec", body=body)
        except EngineRefused as error:
            if error.status == 400:
                raise ExecRefused(f"the engine did not take the command: {error.message}") from error
            raise
        return str(made["Id"])

    async def _pump(self, identity: str, on_output: Output) -> None:
        stream = Exec(self._engine.docker, identity, tty=False).start()
        try:
            while (message := await self._next(stream)) is not None:
                await on_output("stdout" if message.stream == 1 else "stderr", message.data)
        finally:
            await stream.close()

    async def _next(self, stream: Stream) -> Message | None:
        """The next piece of output; the first call starts the command."""
        try:
            return await stream.read_out()
        except DockerError as error:
            raise EngineRefused(error.status, error.message) from error
        except (aiohttp.ClientError, ConnectionError) as error:
            raise EngineUnavailable(f"the stream of a command broke ({type(error).__name__})") from error

    async def _return_code(self, identity: str) -> int:
        """Wait until the process has ended: one that closes its own output outlives its stream."""
        pause = 0.02
        while True:
            told = await self._engine.call("GET", f"exec/{identity}/json")
            if not told["Running"]:
                if told["ExitCode"] is None:
                    raise SandboxLost("the command was cut off")
                if told["ExitCode"] in NEVER_STARTED and not told["Pid"]:
                    raise ExecRefused("the engine could not start the command: its shell, user or folder is not there")
                return int(told["ExitCode"])
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)

    async def _end(self, token: str, user: str) -> None:
        """End what carries the token; goes on by itself when we are cancelled meanwhile."""
        task = asyncio.create_task(self._kill(token, user))
        self._killing.add(task)
        task.add_done_callback(self._killing.discard)
        await asyncio.shield(task)

    async def _kill(self, token: str, user: str) -> None:
        # A sandbox that is gone has nothing left to end; one that does not answer is removed as a whole later.
        with contextlib.suppress(EngineRefused, EngineUnavailable, ExecRefused, SandboxLost, TimeoutError):
            async with asyncio.timeout(KILL_SECONDS):
                await self.quiet(END_ALL_OF_ONE, user, token)
