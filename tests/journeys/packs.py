"""Task packs whose phases take as long as a test needs."""

from pathlib import Path

TASK = """schema_version = "1.4"

[agent]
timeout_sec = 120.0

[verifier]
timeout_sec = 120.0

[environment]
workdir = "/app"
memory_mb = 128
"""


def write_pack(
    folder: Path, *, agent_seconds: float = 0.0, verify_seconds: float = 0.0, reward: str = "1", dockerfile: str = ""
) -> Path:
    """A pack that the oracle solves. Verification is real: without the agent's work the reward is 0."""
    for name in ("environment", "solution", "tests"):
        (folder / name).mkdir(parents=True)
    (folder / "task.toml").write_text(TASK)
    (folder / "instruction.md").write_text("Write the word done into /app/answer.txt.\n")
    (folder / "environment" / "Dockerfile").write_text(dockerfile or "FROM seatrial-test-base:1\nWORKDIR /app\n")
    script(folder / "solution" / "solve.sh", f"sleep {agent_seconds}", "echo done >/app/answer.txt", "echo solved")
    script(
        folder / "tests" / "test.sh",
        f"sleep {verify_seconds}",
        f'[ "$(cat /app/answer.txt 2>/dev/null)" = done ] && reward={reward} || reward=0',
        'echo "$reward" >/logs/verifier/reward.txt',
    )
    return folder


def script(path: Path, *lines: str) -> None:
    path.write_text("\n".join(("#!/bin/bash", *lines)) + "\n")
    path.chmod(0o755)
