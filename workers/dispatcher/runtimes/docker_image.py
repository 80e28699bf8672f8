"""An image as its engine knows it, as facts."""

from workers.dispatcher.runtimes.docker_engine import Engine, EngineRefused
from workers.dispatcher.runtimes.port import EngineUnavailable, ImageFacts, ImageMissing


async def inspect_image(engine: Engine, reference: str) -> ImageFacts:
    """Raises ImageMissing, EngineUnavailable."""
    try:
        found = await engine.call("GET", f"images/{reference}/json")
    except EngineRefused as error:
        if error.status == 404:
            raise ImageMissing(f"the engine does not have the image {reference}") from error
        raise EngineUnavailable(f"the engine cannot tell about the image {reference}: {error.message}") from error
    config = found.get("Config") or {}
    return ImageFacts(
        id=found["Id"],
        digests=tuple(found.get("RepoDigests") or ()),
        size_bytes=int(found.get("Size") or 0),
        workdir=config.get("WorkingDir") or "",
        user=config.get("User") or "",
        environment=tuple(config.get("Env") or ()),
    )
