"""Builds with the container engine's BuildKit, by `docker buildx build`, into the engine that runs the sandboxes.

The command and not the API: a BuildKit session is gRPC over a hijacked connection, which buildx speaks and which ends the
build when buildx ends. What went wrong is told by which step failed and by what the engine and the registry answer.
"""

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from app.domain.events import Image
from app.images import dockerfile, packages, reference
from app.settings import Settings
from workers.builder.build import buildx, port
from workers.builder.build.buildx import REPOSITORY
from workers.builder.build.engine import DEFAULT_HOST, Engine, ImageFacts, Refused
from workers.builder.build.port import BuildLine, BuildSpec, BuiltImage
from workers.builder.build.progress import Progress, Vertex

DOCKERFILE_BYTES = 1024 * 1024
FREE_BYTES = 64 * 1024**2
"""Less than this on the engine's disk, and a failed step is the disk's fault."""
OnLog = Callable[[BuildLine], Awaitable[None]]


async def open_backend(settings: Settings, scratch: Path) -> "DockerBackend":
    """A backend on the engine of the settings. `scratch`: a folder of its own, for small files during a build."""
    host = settings.docker_host or os.environ.get("DOCKER_HOST") or DEFAULT_HOST
    return DockerBackend(host, scratch)


class DockerBackend:
    """A Backend on one Docker engine with BuildKit."""

    def __init__(self, host: str, scratch: Path) -> None:
        self._engine = Engine(host)
        self._scratch = scratch
        scratch.mkdir(parents=True, exist_ok=True, mode=0o700)

    async def close(self) -> None:
        await self._engine.close()

    async def build(self, spec: BuildSpec, on_log: OnLog) -> BuiltImage:
        started = time.monotonic()
        log = _Log(on_log, spec.log_limit_bytes)
        try:
            async with asyncio.timeout(spec.timeout_seconds):
                if spec.context is not None:
                    facts, progress, bases = await self._built(spec, spec.context, log)
                else:
                    facts, progress, bases = await self._fetched(spec, log)
        except TimeoutError as error:
            raise port.BuildTimedOut(f"the build took longer than {spec.timeout_seconds:g} s") from error
        except Refused as refused:
            raise port.EngineUnavailable(f"the container engine refused: {refused.message}") from refused
        if spec.max_image_bytes is not None and facts.size > spec.max_image_bytes:
            await self.remove(spec.revision)
            raise port.ImageTooLarge(f"the image has {facts.size} bytes; {spec.max_image_bytes} are allowed")
        steps = progress.steps if progress else ()
        return BuiltImage(
            image=Image(
                reference=facts.id,
                digest=facts.id,
                size_bytes=facts.size,
                architecture=facts.architecture,
                workdir=(facts.config and facts.config.working_dir) or None,
                user=(facts.config and facts.config.user) or None,
                base_images=bases,
                prebuilt=spec.context is None,
                backend="docker",
            ),
            build_ms=round((time.monotonic() - started) * 1000),
            steps=len(steps),
            cached_steps=sum(step.cached for step in steps),
            log_truncated=log.truncated,
        )

    async def inventory(self, reference: str) -> packages.Inventory:
        try:
            async with self._engine.export(reference) as file:
                return await asyncio.to_thread(packages.read, file)
        except Refused as refused:
            if refused.status == 404:
                raise port.ImageMissing(f"the engine has no image {reference}") from refused
            raise port.EngineUnavailable(f"the container engine refused: {refused.message}") from refused
        except packages.ImageUnreadable as error:
            raise port.ImageUnreadable(f"the layers of {reference} cannot be read: {error}") from error

    async def remove(self, revision: str) -> None:
        try:
            await self._engine.remove_image(f"{REPOSITORY}/{revision}:latest")
        except Refused as refused:
            raise port.EngineUnavailable(f"the container engine refused: {refused.message}") from refused

    # ------------------------------------------------------------------ a prebuilt image

    async def _fetched(self, spec: BuildSpec, log: "_Log") -> tuple[ImageFacts, None, tuple[str, ...]]:
        """The image that the pack names, from the engine or else from its registry; tagged so that it is kept."""
        try:
            name = reference.parse(spec.image or "")
        except reference.ReferenceInvalid as error:
            raise port.ImageMissing(f"docker_image: {error}") from error
        _not_ours(str(name), port.ImageMissing)
        facts = await self._engine.image(str(name))
        if facts is None and spec.pull:
            await log(BuildLine("", "builder", f"fetching {name.familiar}\n"))
            facts = await self._pulled(str(name), name.familiar, log)
        if facts is None:
            raise port.ImageMissing(f"the engine has no image {name.familiar}")
        await self._engine.tag(facts.id, f"{REPOSITORY}/{spec.revision}", "latest")
        return facts, None, (_pinned(name.familiar, facts),)

    async def _pulled(self, name: str, familiar: str, log: "_Log") -> ImageFacts | None:
        lines: list[bytes] = []
        try:
            error = await self._engine.pull(name, lines.append)
        except Refused as refused:
            error = refused.message
        for line in lines[-20:]:
            await log(BuildLine("", "builder", line.decode("utf-8", "replace") + "\n"))
        facts = await self._engine.image(name)
        if facts is None:
            await self._judge_missing(name, familiar, port.ImageMissing, error)
        return facts

    async def _judge_missing(self, name: str, familiar: str, missing: type[port.BuildFailure], said: str) -> None:
        """Raise what an image that could not be fetched means: the registry has none, or fetching it went wrong."""
        if await self._engine.in_registry(name) is False:
            raise missing(f"there is no image {familiar}, or it may not be fetched: {said[:500]}")
        raise port.RegistryUnreachable(f"the image {familiar} could not be fetched from its registry: {said[:500]}")

    # ------------------------------------------------------------------ a Dockerfile

    async def _built(self, spec: BuildSpec, context: Path, log: "_Log") -> tuple[ImageFacts, Progress, tuple[str, ...]]:
        text = await asyncio.to_thread(_read, context, spec.dockerfile)
        try:
            parsed = dockerfile.read(text)
        except dockerfile.DockerfileUnreadable as error:
            raise port.DockerfileInvalid(str(error)) from error
        names = [_reference(image) for image in parsed.images]
        for name in names:
            _not_ours(str(name), port.DockerfileInvalid)
        if spec.network == "none" and parsed.remotes:
            raise port.DockerfileInvalid(f"ADD {parsed.remotes[0]}: this build has no network")
        if not spec.pull:
            for name in names:
                if await self._engine.image(str(name)) is None:
                    raise port.BaseImageMissing(f"the engine has no image {name.familiar}, and none may be fetched")
        with tempfile.TemporaryDirectory(prefix="build-", dir=self._scratch) as folder:
            here = Path(folder)
            file = _prepared(here, context, spec, text)
            code, progress, gone = await self._run(spec, context, file, here, log)
            if code != 0:
                await self._judge(progress, gone, code)
            image_id = (here / "iid").read_text().strip() if (here / "iid").exists() else ""
        facts = await self._engine.image(image_id) if image_id else None
        if facts is None:
            raise port.EngineUnavailable("the build ended well, and the engine does not have its image")
        bases = [_pinned(name.familiar, await self._engine.image(str(name))) for name in names]
        return facts, progress, tuple(bases)

    async def _run(
        self, spec: BuildSpec, context: Path, file: Path, here: Path, log: "_Log"
    ) -> tuple[int, Progress, bool]:
        """(exit code, what was told, whether the engine went away meanwhile)."""
        command = buildx.command(spec, context, file, here)
        environment = buildx.environment(self._engine.host, here)
        progress = Progress()
        async with self._engine.watched() as watch, buildx.process(command, environment) as process:
            assert process.stderr is not None
            while chunk := await process.stderr.read(64 * 1024):
                for line in progress.feed(chunk):
                    await log(line)
            for line in progress.end():
                await log(line)
            code = await process.wait()
            return code, progress, watch.ended

    async def _judge(self, progress: Progress, gone: bool, code: int) -> None:
        """Raise what the failure of a build means."""
        said = "\n".join(progress.words[-12:])
        if gone or not await self._engine.ping():
            raise port.EngineUnavailable("the container engine went away during the build")
        if await self._disk_full():
            raise port.EngineUnavailable("the container engine's disk is full")
        failed = progress.failed
        if failed is None:
            if not progress.vertexes:
                raise port.EngineUnavailable(
                    f"the engine cannot build (docker buildx, exit code {code}): {said[:1000]}"
                )
            raise port.DockerfileInvalid(said[:2000])
        if failed.metadata_of is not None:
            name = reference.parse(failed.metadata_of)
            await self._judge_missing(str(name), name.familiar, port.BaseImageMissing, failed.error)
        if failed.internal:
            raise port.EngineUnavailable(f"{failed.name}: {failed.error[:1000]}")
        raise port.StepFailed(_message(failed), step=failed.name, exit_code=failed.exit_code)

    async def _disk_full(self) -> bool:
        """Only told of an engine on this machine."""
        root = Path((await self._engine.facts()).docker_root_dir)
        if not self._engine.host.startswith("unix:") or not root.is_absolute():
            return False
        with contextlib.suppress(OSError):
            return shutil.disk_usage(root).free < FREE_BYTES
        return False


class _Log:
    """Passes lines on until the limit, then says once that it stops."""

    def __init__(self, on_log: OnLog, limit: int) -> None:
        self._on_log, self._left = on_log, limit
        self.truncated = False

    async def __call__(self, line: BuildLine) -> None:
        self._left -= len(line.text)
        if self._left >= 0:
            await self._on_log(line)
        elif not self.truncated:
            self.truncated = True
            await self._on_log(BuildLine("", "builder", "the log is too long; the rest is not kept\n"))


def _read(context: Path, name: str) -> str:
    path = context / name
    try:
        content = path.read_bytes() if path.stat().st_size <= DOCKERFILE_BYTES else None
    except OSError as error:
        raise port.DockerfileInvalid(f"there is no {name}") from error
    if content is None:
        raise port.DockerfileInvalid(f"{name} has more than {DOCKERFILE_BYTES} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise port.DockerfileInvalid(f"{name} is not UTF-8 text") from error


def _prepared(here: Path, context: Path, spec: BuildSpec, text: str) -> Path:
    """The Dockerfile to use: the pack's own, or a copy without its `# syntax=` line, with the ignore file beside it."""
    if spec.fetch_frontend or dockerfile.syntax(text) is None:
        return context / spec.dockerfile
    file = here / "Dockerfile"
    file.write_text(dockerfile.without_syntax(text))
    ignore = context / f"{spec.dockerfile}.dockerignore"
    if ignore.is_file():
        shutil.copyfile(ignore, here / "Dockerfile.dockerignore")
    return file


def _reference(text: str) -> reference.ImageReference:
    try:
        return reference.parse(text)
    except reference.ReferenceInvalid as error:
        raise port.DockerfileInvalid(f"`{text[:200]}`: {error}") from error


def _not_ours(name: str, failure: type[port.BuildFailure]) -> None:
    """A pack may not build on another pack's image: those belong to teams."""
    if name.startswith(f"{reference.DEFAULT_DOMAIN}/{REPOSITORY}/"):
        raise failure(f"{name} is an image that Seatrial made; a pack cannot build on it")


def _pinned(name: str, facts: ImageFacts | None) -> str:
    """`name@digest`: the registry's digest where the engine knows one, else the id of the image itself."""
    if facts is None or "@" in name:
        return name
    digests = [digest.partition("@")[2] for digest in facts.repo_digests or ()]
    return f"{name}@{digests[0] if digests else facts.id}"


def _message(failed: Vertex) -> str:
    return failed.error[:2000] or failed.name
