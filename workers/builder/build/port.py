"""The seam between the builder and whatever builds images."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import msgspec

from app.domain.events import Image
from app.images.packages import Inventory


class BuildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What shall be built. Exactly one of `context` and `image` is set."""

    revision: str
    """The revision's id: names the image and labels it."""
    team: str
    instance: str
    """The installation: labels the image, so that two of them on one engine do not touch each other's."""
    pack_digest: str
    context: Path | None = None
    """The folder to build from, complete and not changed during the build."""
    dockerfile: str = "Dockerfile"
    """Below `context`."""
    image: str | None = None
    """An image to use as it is: present on the engine, or pulled."""
    timeout_seconds: float = 600.0
    network: str = "default"
    """Of RUN steps: `default` or `none`."""
    extra_ca: Path | None = None
    """A bundle of certificates that RUN steps may mount as the secret `ca`; lands in no layer."""
    pull: bool = True
    """Whether images that are not on the engine may be fetched from a registry."""
    fetch_frontend: bool = False
    """Whether a `# syntax=` line is obeyed. It names an image to fetch; without a registry that fails, so by default the
    engine's own frontend is used."""
    max_image_bytes: int | None = None
    log_limit_bytes: int = 16 * 1024**2


class BuildLine(msgspec.Struct, frozen=True):
    """One chunk of the build's log."""

    step: str
    """`[2/3] RUN make`, or empty for the builder's own words."""
    stream: str
    """stdout, stderr or builder."""
    text: str


class BuiltImage(msgspec.Struct, frozen=True, kw_only=True):
    image: Image
    build_ms: int
    steps: int = 0
    cached_steps: int = 0
    log_truncated: bool = False


class BuildFailure(Exception):
    """A build that failed for a known reason. `code` is one of app/domain/failures.py."""

    code = "internal.unknown"

    def __init__(self, message: str, *, step: str = "", exit_code: int | None = None) -> None:
        self.message, self.step, self.exit_code = message, step, exit_code
        super().__init__(message)


class StepFailed(BuildFailure):
    """A step of the Dockerfile failed. `step` is its line, `exit_code` that of its command where there was one."""

    code = "build.step_failed"


class DockerfileInvalid(BuildFailure):
    """The Dockerfile is missing or cannot be parsed."""

    code = "build.dockerfile_invalid"


class BaseImageMissing(BuildFailure):
    """An image that the Dockerfile names cannot be found."""

    code = "build.base_image_missing"


class ImageMissing(BuildFailure):
    """The pack's docker_image cannot be found."""

    code = "build.image_missing"


class ImageUnreadable(BuildFailure):
    """The image's layers hold records that cannot be read, or too many of them. It will be so each time."""

    code = "build.image_unreadable"


class RegistryUnreachable(BuildFailure):
    """An image has to be fetched, and its registry does not answer."""

    code = "build.registry_unreachable"


class ImageTooLarge(BuildFailure):
    """The image is larger than the installation allows. It was removed."""

    code = "build.image_too_large"


class BuildTimedOut(BuildFailure):
    """The build took longer than `timeout_seconds`, and was stopped."""

    code = "build.timed_out"


class EngineUnavailable(BuildFailure):
    """The engine cannot be reached, went away, or lacks what a build needs."""

    code = "build.engine_unavailable"


class Backend(Protocol):
    """Builds images where the runtime finds them.

    Every method raises BuildFailure and nothing else for what can go wrong outside of this process. A cancelled call stops
    its work on the engine before it returns.
    """

    async def build(self, spec: BuildSpec, on_log: Callable[[BuildLine], Awaitable[None]]) -> BuiltImage:
        """Build, or find, the image. Calling it again for the same revision gives an equivalent image and is cheap."""
        ...

    async def inventory(self, reference: str) -> Inventory:
        """The packages in the image `reference` (`Image.reference`), read from its layers.

        Raises ImageMissing, ImageUnreadable."""
        ...

    async def remove(self, revision: str) -> None:
        """Remove the revision's image; layers and images that others use stay. No error when there is none."""
        ...

    async def close(self) -> None: ...
