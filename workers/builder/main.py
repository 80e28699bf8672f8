"""The builder: claims uploaded revisions, builds each into an image, and says how that ended."""

import asyncio
import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import structlog

from app.boot import House, open_house
from app.bus.work import Due
from app.domain import revision
from app.domain.events import BuildFailed
from app.domain.failures import Failure, failure
from app.domain.pack import FromDockerfile, Pack, PackInvalid
from app.domain.pack_lint import lint
from app.domain.refusal import Refused
from app.domain.registry import Draft
from app.eventlog.model import NewWork
from app.objects import keys
from app.objects.port import StoreError
from app.settings import Settings
from app.vault.redaction import Redactor
from workers.builder.build.port import Backend, BuildFailure, BuildLine, BuildSpec
from workers.lease import Crew, Lease
from workers.logbook import Logbook
from workers.looper import AWAY, until
from workers.packs import PackCorrupt, Packs
from workers.streams import REVISION, Extras, LeaseLost, act, load

log = structlog.get_logger()

KIND = "build"
MESSAGE_LIMIT = 4000


async def run(settings: Settings, stop: asyncio.Event) -> None:
    from workers.builder.build.docker import open_backend

    async with open_house(settings) as house:
        backend = await open_backend(settings)
        try:
            await Builder(house, backend).run(stop)
        finally:
            await backend.close()


class Builder:
    def __init__(self, house: House, backend: Backend) -> None:
        self.house, self.backend = house, backend
        self.packs = Packs(house.objects, house.settings.home_path / "cache" / "build-packs")
        self.crew = Crew(house, KIND, house.settings.build_slots)

    async def run(self, stop: asyncio.Event) -> None:
        await self.crew.run(stop, self.handle)

    async def handle(self, due: Due) -> None:
        with self.crew.holding(due) as lease:
            loaded = await load(self.house, REVISION, lease.work_id)
            if loaded.state is None or not await self._claim(lease):
                return
            self.crew.claimed(lease)
            with contextlib.suppress(LeaseLost):
                await self._end(lease, await self._build(lease, loaded.state))

    async def _claim(self, lease: Lease) -> bool:
        def extras(_: Sequence[Draft]) -> Extras:
            claimed = NewWork(id=lease.work_id, kind=KIND, owner=self.crew.worker)
            return Extras(lease=(lease.work_id, lease.epoch - 1), work=(claimed,))

        started = revision.StartBuild(worker=self.crew.worker, epoch=lease.epoch)
        try:
            acted = await act(
                self.house, REVISION, lease.work_id, lease.team, started,
                actor=self.crew.worker, correlation=lease.work_id, extras=extras,
            )  # fmt: skip
        except LeaseLost:
            return False  # another worker was faster
        return not isinstance(acted, Refused)

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
            return _failed(failure(code), str(error), errors=msgspec.json.encode(error.errors).decode())
        except PackCorrupt as error:
            return _failed(failure("pack.corrupt"), str(error))
        except StoreError as error:
            return _failed(failure("store.unavailable"), f"the object store: {type(error).__name__}")

    async def _build_pack(
        self, lease: Lease, state: revision.Revision, folder: Path, pack: Pack
    ) -> revision.FinishBuild | revision.FailBuild:
        warnings = tuple(
            f"{found.field}: {found.message}" for found in lint(pack, await asyncio.to_thread(_files, folder))
        )
        attempt = state.attempt + 1
        with tempfile.TemporaryDirectory(prefix="seatrial-build-") as scratch:
            logbook = Logbook(
                self.house,
                team=lease.team,
                kind="revision",
                owner=lease.work_id,
                attempt=attempt,
                path=Path(scratch) / "log",
            )

            async def write(line: BuildLine) -> None:
                logbook.write(line.step or "build", "system" if line.stream == "builder" else line.stream, line.text)

            try:
                built = await self.backend.build(_spec(self.house.settings, lease, state, folder, pack), write)
            except BuildFailure as error:
                detail = f"{error.step}: {error.message}" if error.step else error.message
                return _failed(failure(error.code), detail, log_key=await self._keep(lease, attempt, logbook))
            finally:
                await logbook.close()
            return revision.FinishBuild(
                image=built.image,
                build_ms=built.build_ms,
                log_key=await self._keep(lease, attempt, logbook),
                warnings=warnings,
            )

    async def _keep(self, lease: Lease, attempt: int, logbook: Logbook) -> str:
        await logbook.close()
        content = await asyncio.to_thread(logbook.path.read_bytes)
        stored = await self.house.objects.put_new(keys.build(lease.work_id, f"{attempt}.jsonl"), content)
        return stored.key

    async def _end(self, lease: Lease, command: revision.FinishBuild | revision.FailBuild) -> None:
        """Append the end and give the work back. Waits for a log that is away, as long as the lease is ours."""

        def extras(drafts: Sequence[Draft]) -> Extras:
            event = drafts[0].event
            due_at = event.retry_at if isinstance(event, BuildFailed) else None
            return Extras(lease=lease.guard, work=(NewWork(id=lease.work_id, kind=KIND, due_at=due_at),))

        while True:
            try:
                acted = await act(
                    self.house, REVISION, lease.work_id, lease.team, command,
                    actor=self.crew.worker, correlation=lease.work_id, extras=extras,
                )  # fmt: skip
            except AWAY as error:
                log.warning("the log does not take the end yet", revision=lease.work_id, error=type(error).__name__)
                if await until(lease.lost, 1.0):
                    raise LeaseLost(lease.work_id) from error
                continue
            if isinstance(acted, Refused):
                log.warning("the build does not end this way", revision=lease.work_id, reason=acted.code)
            return


def _spec(settings: Settings, lease: Lease, state: revision.Revision, folder: Path, pack: Pack) -> BuildSpec:
    built = pack.image if isinstance(pack.image, FromDockerfile) else None
    return BuildSpec(
        revision=lease.work_id,
        team=lease.team,
        instance=settings.instance,
        pack_digest=state.pack_digest,
        context=folder / built.folder if built else None,
        dockerfile=built.dockerfile if built else "Dockerfile",
        image=None if isinstance(pack.image, FromDockerfile) else pack.image.reference,
        timeout_seconds=pack.environment.build_timeout_seconds,
    )


def _failed(
    failed: Failure, message: str, *, errors: str | None = None, log_key: str | None = None
) -> revision.FailBuild:
    redactor = Redactor()
    clean = (redactor.feed(message.encode(errors="replace")) + redactor.flush()).decode(errors="replace")
    return revision.FailBuild(failure=failed, message=clean[:MESSAGE_LIMIT], errors=errors, log_key=log_key)


def _files(folder: Path) -> frozenset[str]:
    return frozenset(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
