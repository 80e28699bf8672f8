"""Seatrial whose dispatcher runs the trials of the agent `nop` without a sandbox: `python -m tests.journeys.no_op up`.

Not a setting of Seatrial: such a trial passes through everything else, the harness child too, and ends as errored
(`sandbox.none`), never as a score. So a chaos can have a thousand of them.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from app.domain.events import EvaluationCreated
from app.domain.pack import Pack
from app.domain.trial import Trial
from app.local import __main__ as local
from app.local import child, process
from workers.dispatcher import plan
from workers.dispatcher.harness.model import TrialSpec

AGENT = "nop"
CODE = "sandbox.none"
MODULE = "tests.journeys.no_op"

planned = plan.plan
spawned = child.spawn


def plan_without_sandbox(
    pack: Pack, created: EvaluationCreated, trial: Trial, place: plan.Place, files: frozenset[str] | None = None
) -> TrialSpec:
    spec = planned(pack, created, trial, place, files)
    return msgspec.structs.replace(spec, sandbox="none", verify=False) if created.agent.name == AGENT else spec


def spawn_ours(arguments: Sequence[str | Path], **more: Any) -> "subprocess.Popen[bytes]":
    """The dispatcher's process is this module; every other one is what it always is."""
    if "app.local.process" in arguments and "dispatcher" in str(arguments[-1]):
        arguments = [MODULE if one == "app.local.process" else one for one in arguments]
    return spawned(arguments, **more)


if __name__ == "__main__":
    if sys.argv[1:2] == ["up"]:
        child.spawn = spawn_ours
        sys.exit(local.main(sys.argv[1:]))
    plan.plan = plan_without_sandbox
    sys.exit(process.main(sys.argv[1:]))
