"""The builder: claims uploaded revisions, builds each into an image, and says how that ended."""

import asyncio
import tempfile
from pathlib import Path

import structlog

from app.boot import House, open_house
from app.bus.work import Due
from app.domain import revision
from app.domain.events import Image
from app.domain.failures import Failure, failure
from app.domain.pack import FromDockerfile, Pack, PackError, PackInvalid
from app.domain.pack_lint import warnings_of
from app.eventlog.model import NewReservation
from app.objects import keys
from app.objects.port import StoreError
from app.settings import Settings
from app.vault.redaction import NOTHING
from workers import disk
from workers.builder.build.port import Backend, BuildFailure, BuildLine, BuildSpec, EngineUnavailable, ImageMissing
from workers.inventory import Inventories
from workers.lease import Crew, Lease
from workers.logbook import Logbook
from workers.packs import PackCorrupt, Packs
from workers.streams import REVISION, LeaseLost

log = structlog.get_logger()

KIND = "build"
MESSAGE_LIMIT = 4000
NO_INVENTORY = "image: its package records cannot be read; SBOMs will not list its packages"


async def run(settings: Settings, stop: asyncio.Event) -> None:
    from workers.builder.build.docker import open_backend

    async with open_house(settings) as house:
        backend = await open_backend(settings, settings.home_path / "cache" / "engine")
        try:
            await Builder(house, backend).run(stop)
        finally:
            await backend.close()


class Builder:
    def __init__(self, house: House, backend: Backend) -> None:
        self.house, self.backend = house, backend
        self.inventories = Inventories(house, backend)
        self.packs = Packs(house.objects, house.settings.home_path / "cache" / "build-packs")
        self.crew = Crew(house, KIND, house.settings.build_slots, self.ready)

    async def run(self, stop: asyncio.Event) -> None:
        await self.crew.run(stop, self.handle)

    async def ready(self) -> bool:
        """Whether there is room on the disk. What else a build needs is asked for by the next one."""
        return await disk.has_room(self.packs.folder)

    async def handle(self, due: Due) -> None:
        with self.crew.holding(due) as lease:
            start = revision.StartBuild(worker=self.crew.worker, epoch=lease.epoch)
            state = await self.crew.claim(REVISION, lease, start, lease.work_id)
            if state is None:
                return
            await self.crew.perform(REVISION, lease, lease.work_id, self._work(lease, state), _failed)

    async def _work(self, lease: Lease, state: revision.Revision) -> None:
        name = NewReservation(revision.SCOPE, revision.pack_key(state.task_id, state.pack_digest))
        ended = await self._build(lease, state)
        await self.crew.finish(REVISION, lease, ended, lease.work_id, releases=(name,))

    async def _build(self, lease: Lease, state: revision.Revision) -> revision.FinishBuild | revision.FailBuild:
        """Build, stopping when the lease is lost (LeaseLost)."""
        building = asyncio.ensure_future(self._attempt(lease, state))
        lost = asyncio.ensure_future(lease.lost.wait())
        try:
            await asyncio.wait({building, lost}, return_when=asyncio.FIRST_COMPLETED)
            if not building.done():
                raise LeaseLost(lease.work_id)
            return building.result()
        finally:
            lost.cancel()
            building.cancel()
            await asyncio.gather(building, return_exceptions=True)

    async def _attempt(self, lease: Lease, state: revision.Revision) -> revision.FinishBuild | revision.FailBuild:
        try:
            async with self.packs.open(state.pack_digest, state.object_key) as local:
                return await self._build_pack(lease, state, local.folder, local.pack)
        except PackInvalid as error:
            code = "pack.unsupported" if error.unsupported else "pack.invalid"
            return _failed(failure(code), str(error), errors=error.errors)
        except PackCorrupt as error:
            return _failed(failure("pack.corrupt"), str(error))
        except StoreError as error:
            return _failed(failure("store.unavailable"), f"the object store: {type(error).__name__}")

    async def _build_pack(
        self, lease: Lease, state: revision.Revision, folder: Path, pack: Pack
    ) -> revision.FinishBuild | revision.FailBuild:
        warnings = warnings_of(pack, await asyncio.to_thread(_files, folder))
        with tempfile.TemporaryDirectory(prefix="seatrial-build-") as scratch:
            logbook = Logbook(
                self.house,
                team=lease.team,
                kind="revision",
                owner=lease.work_id,
                attempt=state.attempt,
                path=Path(scratch) / "log",
            )

            async def write(line: BuildLine) -> None:
                logbook.write(line.step or "build", "system" if line.stream == "builder" else line.stream, line.text)

            try:
                built = await self.backend.build(_spec(self.house, lease, state, folder, pack), write)
                if not await self._take_stock(built.image):
                    warnings = (*warnings, NO_INVENTORY)
            except BuildFailure as error:
                detail = f"{error.step}: {error.message}" if error.step else error.message
                return _failed(failure(error.code), detail, log_key=await self._keep(lease, state.attempt, logbook))
            finally:
                await logbook.close()
            return revision.FinishBuild(
                image=built.image,
                build_ms=built.build_ms,
                log_key=await self._keep(lease, state.attempt, logbook),
                warnings=warnings,
            )

    async def _take_stock(self, image: Image) -> bool:
        """Record what is in the image while it is surely there. Returns whether that could be read."""
        try:
            return await self.inventories.record(image.reference, image.digest) is not None
        except ImageMissing as error:
            raise EngineUnavailable("the image was removed right after its build") from error

    async def _keep(self, lease: Lease, attempt: int, logbook: Logbook) -> str:
        await logbook.close()
        content = await asyncio.to_thread(logbook.path.read_bytes)
        stored = await self.house.objects.put_new(keys.build(lease.work_id, f"{attempt}.jsonl"), content)
        return stored.key


def _spec(house: House, lease: Lease, state: revision.Revision, folder: Path, pack: Pack) -> BuildSpec:
    built = pack.image if isinstance(pack.image, FromDockerfile) else None
    return BuildSpec(
        revision=lease.work_id,
        team=lease.team,
        instance=str(house.installation),
        pack_digest=state.pack_digest,
        context=folder / built.folder if built else None,
        dockerfile=built.dockerfile if built else "Dockerfile",
        image=None if isinstance(pack.image, FromDockerfile) else pack.image.reference,
        timeout_seconds=pack.environment.build_timeout_seconds,
    )


def _failed(
    failed: Failure, message: str, *, errors: tuple[PackError, ...] = (), log_key: str | None = None
) -> revision.FailBuild:
    clean = NOTHING.mask_text(message)
    return revision.FailBuild(failure=failed, message=clean[:MESSAGE_LIMIT], errors=errors, log_key=log_key)


def _files(folder: Path) -> frozenset[str]:
    return frozenset(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
