"""A script whose output goes to a file is followed live, and runs as it would alone."""

import subprocess
from collections.abc import AsyncIterator

import pytest

from tests.conformance.runtimes import out, run, spec
from workers.dispatcher.harness import locate
from workers.dispatcher.runtimes.port import Runtime, Sandbox

pytestmark = [pytest.mark.docker, pytest.mark.harness]

FILE = "/logs/agent/oracle.txt"


@pytest.fixture(scope="module")
def followed(built: locate.Harness) -> str:
    """What the overlay makes of the command by which Harbor runs a script."""
    code = (
        "from harbor.utils.scripts import build_execution_command\n"
        "from seatrial_harness.environment import _TO_FILE, _followed\n"
        f"command = build_execution_command('/tmp/script.sh', stdout_path={FILE!r})\n"
        "print(_followed(_TO_FILE.match(command)), end='')"
    )
    return subprocess.run([built.python, "-I", "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
async def sandbox(runtime: Runtime) -> AsyncIterator[Sandbox]:
    sandbox = runtime.sandbox(spec(folders=("/logs/agent",)))
    await sandbox.start()
    yield sandbox
    await sandbox.stop()


async def write(sandbox: Sandbox, *lines: str) -> None:
    script = "\n".join(("#!/bin/bash", *lines, ""))
    await out(sandbox, f"cat >/tmp/script.sh <<'END'\n{script}END\nchmod 755 /tmp/script.sh")


async def test_output_comes_while_the_script_runs(sandbox: Sandbox, followed: str) -> None:
    await write(
        sandbox, "echo before", "while [ ! -e /tmp/go ]; do sleep 0.05; done", "echo after; echo wrong >&2", "exit 7"
    )
    seen: list[str] = []

    async def on_output(stream: str, data: bytes) -> None:
        seen.append(data.decode())
        if "before" in data.decode():
            await out(sandbox, "touch /tmp/go")

    from workers.dispatcher.runtimes.port import ExecSpec

    result = await sandbox.exec(ExecSpec(followed, timeout_seconds=60), on_output)
    assert result.return_code == 7, "the script's own, and it was seen before it ended"
    assert "".join(seen) == "before\nafter\nwrong\n"
    assert await out(sandbox, f"cat {FILE}") == "before\nafter\nwrong"


async def test_what_a_script_leaves_running_holds_nobody_up(sandbox: Sandbox, followed: str) -> None:
    await write(sandbox, "sleep 411 &", "setsid sleep 411 &", "echo done")
    result, said, _ = await run(sandbox, followed, timeout_seconds=60)
    assert (result.return_code, said) == (0, "done\n")
    assert await sandbox.kill_strays() == 2


async def test_signals_and_input_are_those_of_a_script_alone(sandbox: Sandbox, followed: str) -> None:
    await write(
        sandbox, "grep -E 'SigIgn|SigBlk' /proc/self/status", "readlink /proc/self/fd/0", "ls /proc/self/fd | wc -l"
    )
    _, said, _ = await run(sandbox, followed)
    alone = await out(sandbox, f"(/tmp/script.sh) > {FILE} 2>&1; cat {FILE}")
    assert said.strip() == alone


async def test_its_end_is_never_missed(sandbox: Sandbox, followed: str) -> None:
    """A reader that is told by a line misses one in a hundred, when the line comes as its `read` times out."""
    await write(sandbox, "echo $1")
    await out(sandbox, f"cat >/tmp/followed.sh <<'END'\n{followed}\nEND")
    loop = "for i in $(seq 250); do [ $(bash /tmp/followed.sh) ] && exit 1; done; echo all"
    result, said, _ = await run(sandbox, f"({loop}) & ({loop}) & ({loop}) & wait", timeout_seconds=120)
    assert (result.timed_out, said) == (False, "all\n" * 3)


async def test_where_the_file_cannot_be_made_the_script_runs_alone(sandbox: Sandbox, followed: str) -> None:
    await write(sandbox, "touch /tmp/ran")
    elsewhere = followed.replace(FILE, "/nowhere/oracle.txt")
    result, _, error = await run(sandbox, elsewhere)
    assert result.return_code != 0
    assert "/nowhere/oracle.txt" in error, "as the shell says it without us"
