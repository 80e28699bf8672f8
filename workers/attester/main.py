"""The attester: claims owed evidence, seals the archive, stores it, says so."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

import structlog

from app.boot import House, open_house
from app.bus.work import Due
from app.domain import evidence
from app.domain.events import EvidenceFailed
from app.domain.failures import Phase, failure
from app.domain.refusal import Refused
from app.domain.registry import Draft
from app.eventlog.model import NewWork
from app.eventlog.read import read_stream
from app.evidence.archive import EvidenceInputs, SourceChanged, build_archive
from app.objects.port import StoreError
from app.settings import Settings
from workers.attester.dossier import gather
from workers.attester.inventory import Inventories
from workers.builder.build.port import Backend, BuildFailure
from workers.lease import Crew, Lease
from workers.looper import AWAY, until
from workers.statements import statement
from workers.streams import EVIDENCE, Extras, LeaseLost, act

log = structlog.get_logger()

KIND = "evidence"
SLOTS = 2


async def run(settings: Settings, stop: asyncio.Event) -> None:
    from workers.builder.build.docker import open_backend

    async with open_house(settings) as house:
        backend = await open_backend(settings)
        try:
            await Attester(house, backend).run(stop)
        finally:
            await backend.close()


class Attester:
    def __init__(self, house: House, backend: Backend) -> None:
        self.house = house
        self.inventories = Inventories(house, backend)
        self.crew = Crew(house, KIND, SLOTS)

    async def run(self, stop: asyncio.Event) -> None:
        await self.crew.run(stop, self.handle)

    async def handle(self, due: Due) -> None:
        with self.crew.holding(due) as lease:
            state = await self._claim(lease)
            if state is None:
                return
            self.crew.claimed(lease)
            try:
                await self._end(lease, state, await self._seal(lease, state))
            except LeaseLost:
                log.warning("the lease is gone; this archive is void", evidence=lease.work_id)

    async def _claim(self, lease: Lease) -> evidence.Evidence | None:
        owed = (await load(self.house, EVIDENCE, lease.work_id)).state
        if owed is None:
            return None

        def extras(_: Sequence[Draft]) -> Extras:
            claimed = NewWork(id=lease.work_id, kind=KIND, owner=self.crew.worker)
            return Extras(lease=(lease.work_id, lease.epoch - 1), work=(claimed,))

        try:
            acted = await act(
                self.house, EVIDENCE, lease.work_id, lease.team,
                evidence.Start(worker=self.crew.worker, epoch=lease.epoch),
                actor=self.crew.worker, correlation=owed.run_id, extras=extras,
            )  # fmt: skip
        except LeaseLost:
            return None  # another worker was faster
        return None if isinstance(acted, Refused) else acted.state

    async def _seal(self, lease: Lease, state: evidence.Evidence) -> evidence.Seal | evidence.Fail:
        try:
            return await self._archive(state.evaluation_id)
        except BuildFailure as error:
            return evidence.Fail(failure=failure(error.code, phase=Phase.COLLECT), message=error.message)
        except SourceChanged as error:
            return evidence.Fail(failure=failure("store.corrupt", phase=Phase.COLLECT), message=str(error))
        except StoreError as error:
            message = f"the object store: {type(error).__name__}"
            return evidence.Fail(failure=failure("store.unavailable", phase=Phase.COLLECT), message=message)

    async def _archive(self, evaluation_id: str) -> evidence.Seal:
        dossier = await gather(self.house, evaluation_id)
        inventory = await self.inventories.of(dossier.image.reference, dossier.image.digest)
        with tempfile.TemporaryDirectory(prefix="seatrial-evidence-") as scratch:
            path = Path(scratch) / "archive"
            sbom = await asyncio.to_thread(render, dossier.provenance, inventory)
            inputs = EvidenceInputs(
                provenance=dossier.provenance, sbom=sbom, events=dossier.events, files=dossier.files
            )
            sealed = await build_archive(path, inputs)
            stored = await self.house.objects.put_blob(_chunks(path))
        return evidence.Seal(
            archive_key=stored.key,
            archive_digest=f"sha256:{sealed.sha256}",
            archive_bytes=sealed.size,
            manifest_digest=f"sha256:{sealed.manifest_sha256}",
            provenance_digest=f"sha256:{sealed.provenance_sha256}",
            sbom_digest=f"sha256:{sealed.sbom_sha256}",
            files=sealed.files,
        )
