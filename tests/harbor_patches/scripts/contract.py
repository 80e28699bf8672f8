"""Runs in the harness environment: does what the patches are about, and prints what came of it."""

import asyncio
import json
import os
import sys
import uuid
from pathlib import Path

from harbor.models.trial.config import TrialConfig
from harbor.models.trial.error_policy import ERROR_POLICIES, policy_for
from harbor.models.trial.result import ExceptionInfo
from harbor.trial.hooks import TrialEvent
from harbor.trial.trial import Trial

root = Path(sys.argv[1])
found = {"policies": len(ERROR_POLICIES)}
NO_ROOM, QUOTA, DENIED, WRAPPED = 28, 122, 13, 0


def raised(*numbers):
    """The name under which Harbor records an OSError with the first number, raised from one with the second, and so on."""
    error = None
    for number in reversed(numbers):
        outer = OSError(number, os.strerror(number)) if number else RuntimeError("wrapped")
        outer.__cause__, error = error, outer
    return ExceptionInfo.from_exception(error).exception_type


def pack():
    folder = root / "pack"
    for name in ("environment", "solution", "tests"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "environment" / "Dockerfile").write_text("FROM scratch\n")
    (folder / "solution" / "solve.sh").write_text("#!/bin/bash\n")
    (folder / "tests" / "test.sh").write_text("#!/bin/bash\n")
    (folder / "instruction.md").write_text("Do nothing.\n")
    (folder / "task.toml").write_text("[agent]\ntimeout_sec = 5.0\n[verifier.env]\nA_TOKEN = 'a-long-secret-value'\n")
    return folder


found["recorded"] = {
    "no room": raised(NO_ROOM),
    "quota": raised(QUOTA),
    "no room, wrapped": raised(WRAPPED, NO_ROOM),
    "denied": raised(DENIED),
    "wrapped": raised(WRAPPED, DENIED),
}


async def make(name, verify=False):
    config = TrialConfig.model_validate(
        {
            "task": {"path": str(pack())},
            "trial_name": name,
            "trials_dir": str(root),
            "agent": {"name": "nop"},
            "environment": {"import_path": "seatrial_harness.environment:NoEnvironment"},
            "verifier": {"disable": not verify},
        }
    )
    return await Trial.create(config, trial_id=uuid.uuid4())


async def events():
    trial, told = await make("events", verify=True), []
    for event in TrialEvent:

        async def hook(_, name=event.value):
            told.append(name)

        trial.add_hook(event, hook)
    await trial.run()
    return told


async def whole():
    """Files that are replaced leave what was linked to the old ones alone; files written in place do not."""
    folder = root / "whole"
    folder.mkdir()
    names = ["config.json", "result.json", "lock.json", "notes.txt"]
    for name in names:
        (folder / name).write_text("a-long-secret-value" if name == "notes.txt" else "old")
        os.link(folder / name, root / f"linked-{name}")
    trial = await make("whole")
    await trial.run()
    return {
        "replaced": [name for name in names if (root / f"linked-{name}").read_text() in ("old", "a-long-secret-value")],
        "new": [name for name in names if (folder / name).read_text() not in ("old", "a-long-secret-value")],
        "left": sorted(p.name for p in folder.iterdir() if p.name.startswith(".")),
    }


async def raising(event):
    trial = await make(f"raising-{event.value}")

    async def hook(_):
        raise LookupError("a hook failed")

    trial.add_hook(event, hook)
    try:
        result = await trial.run()
    except LookupError:
        return "escaped"
    return result.exception_info.exception_type if result.exception_info else "none"


async def cancelled_at_start():
    trial, entered = await make("cancelled"), asyncio.Event()

    async def hook(_):
        entered.set()
        await asyncio.sleep(30)

    trial.add_hook(TrialEvent.START, hook)
    task = asyncio.create_task(trial.run())
    await entered.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    path = root / "cancelled" / "result.json"
    return json.loads(path.read_text())["exception_info"]["exception_type"] if path.exists() else None


async def main():
    found["unknown"] = vars(policy_for("NobodyKnowsThisError"))
    found["known"] = {name: vars(policy_for(name)) for name in ("AgentTimeoutError", "VerifierTimeoutError")}
    found["events"] = await events()
    found["whole"] = await whole()
    found["raising"] = {e.value: await raising(e) for e in (TrialEvent.START, TrialEvent.AGENT_START, TrialEvent.END)}
    found["cancelled"] = await cancelled_at_start()


asyncio.run(main())
sys.stdout.write(json.dumps(found))
