"""The attester: claims owed evidence, seals the archive, stores it, says so."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path

import structlog

from app import digests
from app.boot import House, open_house
from app.bus.work import Due
from app.domain import evidence
from app.domain.failures import Failure, Phase, failure
from app.evidence.archive import EvidenceInputs, SourceChanged, build_archive
from app.evidence.sbom import SbomInputs, render
from app.images.packages import Inventory
from app.objects.port import CHUNK_BYTES, ObjectCorrupt, ObjectMissing, StoreError
from app.settings import Settings
from workers import disk
from workers.attester.dossier import Dossier, gather
from workers.attester.records import Incomplete
from workers.builder.build.port import Backend, BuildFailure
from workers.inventory import Inventories
from workers.lease import Crew, Lease
from workers.streams import EVIDENCE, load

log = structlog.get_logger()

KIND = "evidence"
SLOTS = 2


async def run(settings: Settings, stop: asyncio.Event) -> None:
    from workers.builder.build.docker import open_backend

    async with open_house(settings) as house:
        backend = await open_backend(settings, settings.home_path / "cache" / "engine")
        try:
            await Attester(house, backend).run(stop)
        finally:
            await backend.close()


class Attester:
    def __init__(self, house: House, backend: Backend) -> None:
        self.house = house
        self.inventories = Inventories(house, backend)
        self.crew = Crew(house, KIND, SLOTS, self.ready)

    async def run(self, stop: asyncio.Event) -> None:
        await self.crew.run(stop, self.handle)

    async def ready(self) -> bool:
        """Whether there is room for an archive where it is made."""
        return await disk.has_room(Path(tempfile.gettempdir()))

    async def handle(self, due: Due) -> None:
        with self.crew.holding(due) as lease:
            owed = (await load(self.house, EVIDENCE, lease.work_id)).state
            if owed is None:
                return
            start = evidence.Start(worker=self.crew.worker, epoch=lease.epoch)
            state = await self.crew.claim(EVIDENCE, lease, start, owed.run_id)
            if state is None:
                return
            await self.crew.perform(EVIDENCE, lease, state.run_id, self._work(lease, state), _failed)

    async def _work(self, lease: Lease, state: evidence.Evidence) -> None:
        await self.crew.finish(EVIDENCE, lease, await self._seal(state), state.run_id)

    async def _seal(self, state: evidence.Evidence) -> evidence.Seal | evidence.Fail:
        try:
            return await self._archive(state)
        except BuildFailure as error:
            return evidence.Fail(failure=failure(error.code, phase=Phase.COLLECT), message=error.message)
        except (SourceChanged, Incomplete, ObjectMissing, ObjectCorrupt) as error:
            return evidence.Fail(failure=failure("store.corrupt", phase=Phase.COLLECT), message=str(error))
        except StoreError as error:
            message = f"the object store: {type(error).__name__}"
            return evidence.Fail(failure=failure("store.unavailable", phase=Phase.COLLECT), message=message)

    async def _archive(self, state: evidence.Evidence) -> evidence.Seal:
        dossier = await gather(self.house, state.evaluation_id, state.platform)
        inventory = await self.inventories.of(dossier.image.reference, dossier.image.digest)
        with tempfile.TemporaryDirectory(prefix="seatrial-evidence-") as scratch:
            path = Path(scratch) / "archive"
            sbom = await asyncio.to_thread(
                render, _sbom_inputs(dossier, inventory), dossier.provenance.platform.version
            )
            inputs = EvidenceInputs(
                provenance=dossier.provenance, sbom=sbom, events=dossier.events, files=dossier.files
            )
            sealed = await build_archive(path, inputs)
            stored = await self.house.objects.put_blob(_read(path))
        return evidence.Seal(
            archive_key=stored.key,
            archive_digest=digests.spelled(sealed.sha256),
            archive_bytes=sealed.size,
            manifest_digest=digests.spelled(sealed.manifest_sha256),
            provenance_digest=digests.spelled(sealed.provenance_sha256),
            sbom_digest=digests.spelled(sealed.sbom_sha256),
            files=sealed.files,
        )


def _sbom_inputs(dossier: Dossier, inventory: Inventory | None) -> SbomInputs:
    provenance = dossier.provenance
    harnesses = {
        execution.harness for record in provenance.trials for execution in record.executions if execution.harness
    }
    return SbomInputs(
        image=dossier.image,
        inventory=inventory,
        pack_digest=provenance.pack.pack_digest,
        agent=provenance.agent,
        agent_digest=provenance.agent_digest,
        harnesses=tuple(sorted(harnesses, key=lambda record: (record.version, record.overlay_digest))),
    )


async def _read(path: Path) -> AsyncGenerator[bytes]:
    with path.open("rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk


def _failed(failed: Failure, message: str) -> evidence.Fail:
    return evidence.Fail(failure=failed, message=message)
