"""The dispatcher's process, with trials that have no sandbox: `BENCH_SANDBOX=none python -m tests.benchmarks.dispatcher ROLES`.

Not a setting of Seatrial: such a trial ends as errored (`sandbox.none`), never as a score, and is good for this alone.
"""

import os
import sys

import msgspec

from app.domain.events import EvaluationCreated
from app.domain.pack import Pack
from app.domain.trial import Trial
from app.local import process
from workers.dispatcher import plan
from workers.dispatcher.harness.model import TrialSpec

planned = plan.plan


def without_sandbox(
    pack: Pack, created: EvaluationCreated, trial: Trial, place: plan.Place, files: frozenset[str] | None = None
) -> TrialSpec:
    return msgspec.structs.replace(planned(pack, created, trial, place, files), sandbox="none", verify=False)


if __name__ == "__main__":
    if os.environ.get("BENCH_SANDBOX") != "none":
        sys.exit("BENCH_SANDBOX=none is not set: start the dispatcher as `seatrial up` does")
    plan.plan = without_sandbox
    sys.exit(process.main(sys.argv[1:]))
