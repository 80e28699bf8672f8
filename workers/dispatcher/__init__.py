"""From an admitted trial to its end: sandbox, harness, verdict.

main        claims trials and ends them; one process, `slots` trials at a time
plan        what shall run, from the pack and the evaluation (pure)
packs       the packs on this machine, by digest
logbook     output as it comes: redacted, published, kept
scratch     where trials have their files while they run
keeping     what an execution left, into the object store; result.json last
verdict     what happened, judged by the failure taxonomy (pure)
harness/    one child process a trial, forked from a server that has imported Harbor
runtimes/   the engines that run sandboxes
"""

import asyncio

from app.settings import Settings


async def main(settings: Settings, stop: asyncio.Event) -> None:
    from workers.dispatcher.main import run  # aiodocker and the packs' readers, for those who dispatch

    await run(settings, stop)
