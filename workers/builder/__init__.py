"""From an uploaded pack to an image: fetch, check, lint, build, say so.

    main     claims revisions and ends them: revision.ready, revision.rejected, or another try
    build/   the backends that build (one protocol; the container engine's BuildKit for now)

Builds have slots of their own, beside those of trials.
"""

import asyncio

from app.settings import Settings


async def main(settings: Settings, stop: asyncio.Event) -> None:
    from workers.builder.main import run  # the engine's client and the archive readers, for those who build

    await run(settings, stop)
