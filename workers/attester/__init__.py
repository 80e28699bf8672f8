"""From a completed evaluation to its sealed archive.

    main     claims what is owed, seals it, says so
    dossier  what the log and the object store know of one evaluation, as the inputs of its archive
    records  what the log says of each trial

Every terminal evaluation gets its evidence, also a failed or cancelled one. Equal inputs give equal bytes: the dossier
reads only what can no longer change.
"""

import asyncio

from app.settings import Settings


async def main(settings: Settings, stop: asyncio.Event) -> None:
    from workers.attester.main import run  # cyclonedx and the engine's client, for those who attest

    await run(settings, stop)
