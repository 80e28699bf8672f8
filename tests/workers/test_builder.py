"""The builder, on the real engine: an uploaded pack becomes an image, or fails as what it is; what it lost it does not write."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.archives.folder import pack_folder
from app.archives.read import scan
from app.boot import House
from app.bus.leases import Lost
from app.bus.work import Due, due
from app.domain.events import BuildFailed, RevisionReady, RevisionRejected
from app.images.packages import Inventory
from tests.workers import rig
from tests.workers.conftest import Open
from workers.builder.build.docker import DockerBackend
from workers.builder.build.port import ImageMissing, ImageUnreadable
from workers.builder.main import Builder
from workers.inventory import DECODER, Inventories
from workers.lost import end_lease
from workers.streams import REVISION

pytestmark = pytest.mark.docker

FILES = {
    "task.toml": 'version = "1.0"\n',
    "instruction.md": "Do it.\n",
    "environment/Dockerfile": "FROM seatrial-test-base:1\nWORKDIR /app\n",
    "solution/solve.sh": "true\n",
    "tests/test.sh": "true\n",
}


@pytest.fixture
async def backend(docker_host: str, tmp_path: Path) -> AsyncIterator[DockerBackend]:
    opened = DockerBackend(docker_host, tmp_path / "engine")
    yield opened
    await opened.close()


@pytest.fixture
async def builder(house: House, backend: DockerBackend) -> AsyncIterator[Builder]:
    yield Builder(house, backend)
    rows = await house.pool.fetch("select id from eventlog.stream where category = 'revision'")
    for row in rows:
        await backend.remove(row["id"])


async def push(
    house: House, folder: Path, files: dict[str, str | None] | None = None, digest: str | None = None
) -> Due:
    """Upload a pack (FILES, some of them changed, or gone: None); its build is due."""
    pack = folder / "pack"
    for path, content in (FILES | (files or {})).items():
        if content is not None:
            (pack / path).parent.mkdir(parents=True, exist_ok=True)
            (pack / path).write_text(content)
    packed = io.BytesIO()
    pack_folder(pack, packed)
    (folder / "pack.tar.zst").write_bytes(packed.getvalue())
    stored = await house.objects.put_blob(packed.getvalue())
    team = await rig.make_team(house)
    await rig.upload(house, team, stored.key, digest or scan(folder / "pack.tar.zst").digest)
    [one] = await due(house.pool, "build", 10)
    return one


async def last(house: House, revision_id: str) -> rig.Event:
    return (await rig.events_of(house, revision_id))[-1]


async def private_of(house: House, revision_id: str) -> dict[str, str]:
    query = "select private from eventlog.event where stream = $1 order by version desc limit 1"
    return json.loads(await house.pool.fetchval(query, revision_id))


async def text_of(house: House, key: str | None) -> str:
    assert key is not None
    return b"".join([chunk async for chunk in house.objects.open(key)]).decode()


async def test_a_pack_becomes_an_image_whose_packages_are_known(house: House, builder: Builder, tmp_path: Path) -> None:
    one = await push(house, tmp_path)
    await builder.handle(one)
    ready = await last(house, one.work_id)
    assert isinstance(ready, RevisionReady)
    assert ready.image.workdir == "/app"
    assert "WORKDIR /app" in await text_of(house, ready.log_key)
    row = await rig.row_of(house, one.work_id)
    assert (row["owner"], row["due_at"]) == (None, None)
    cached = await house.pool.fetchrow("select * from seatrial.sbom_cache")
    assert cached["image_digest"] == ready.image.digest
    inventory = DECODER.decode(await text_of(house, cached["object_key"]))
    assert inventory is not None
    assert inventory.os_id == "seatrial-test"


@pytest.mark.parametrize(
    ("files", "code", "said"),
    [
        ({"task.toml": "version = 3\n"}, "pack.invalid", "version"),
        ({"tests/test.sh": None}, "pack.invalid", "tests/test.sh"),
        ({"task.toml": 'version = "1.0"\n[environment]\nos = "windows"\n'}, "pack.unsupported", "os"),
        ({"environment/docker-compose.yaml": "services: {}\n"}, "pack.unsupported", "compose"),
        ({"environment/Dockerfile": "FROM seatrial-test-base:1\nRUN exit 7\n"}, "build.step_failed", "exit 7"),
        ({"environment/Dockerfile": "FORM seatrial-test-base:1\n"}, "build.dockerfile_invalid", "FORM"),
    ],
    ids=["field", "file", "system", "compose", "step", "dockerfile"],
)
async def test_a_fault_of_the_pack_rejects_it_for_good(
    house: House, builder: Builder, tmp_path: Path, files: dict[str, str | None], code: str, said: str
) -> None:
    one = await push(house, tmp_path, files)
    await builder.handle(one)
    rejected = await last(house, one.work_id)
    assert isinstance(rejected, RevisionRejected)
    assert (rejected.failure.code, rejected.failure.fault) == (code, "task")
    assert said in "".join((await private_of(house, one.work_id)).values())
    row = await rig.row_of(house, one.work_id)
    assert (row["owner"], row["due_at"]) == (None, None)


async def test_what_a_failed_step_said_is_kept(house: House, builder: Builder, tmp_path: Path) -> None:
    dockerfile = "FROM seatrial-test-base:1\nRUN echo last words; exit 7\n"
    one = await push(house, tmp_path, {"environment/Dockerfile": dockerfile})
    await builder.handle(one)
    rejected = await last(house, one.work_id)
    assert isinstance(rejected, RevisionRejected)
    assert "last words" in await text_of(house, rejected.log_key)


async def test_a_build_that_takes_too_long_is_the_packs_fault(house: House, builder: Builder, tmp_path: Path) -> None:
    files: dict[str, str | None] = {
        "task.toml": 'version = "1.0"\n[environment]\nbuild_timeout_sec = 2.0\n',
        "environment/Dockerfile": "FROM seatrial-test-base:1\nRUN sleep 600\n",
    }
    one = await push(house, tmp_path, files)
    await builder.handle(one)
    rejected = await last(house, one.work_id)
    assert isinstance(rejected, RevisionRejected)
    assert rejected.failure.code == "build.timed_out"


async def test_an_engine_that_is_away_is_waited_for(house: House, tmp_path: Path) -> None:
    one = await push(house, tmp_path)
    away = DockerBackend(f"unix://{tmp_path}/nobody.sock", tmp_path / "engine")
    await Builder(house, away).handle(one)
    failed = await last(house, one.work_id)
    assert isinstance(failed, BuildFailed)
    assert (failed.failure.code, failed.failure.fault) == ("build.engine_unavailable", "platform")
    row = await rig.row_of(house, one.work_id)
    assert row["owner"] is None
    assert row["due_at"] is not None
    await away.close()


async def test_stored_bytes_that_are_not_the_revisions_are_never_built(
    house: House, builder: Builder, tmp_path: Path
) -> None:
    one = await push(house, tmp_path, digest="sha256:" + "9" * 64)
    await builder.handle(one)
    failed = await last(house, one.work_id)
    assert failed.failure.code == "pack.corrupt"  # type: ignore[attr-defined]
    assert failed.failure.fault == "platform"  # type: ignore[attr-defined]


async def test_a_pack_whose_object_is_lost_is_the_stores_failure(
    house: House, builder: Builder, tmp_path: Path
) -> None:
    one = await push(house, tmp_path)
    state = await rig.state_of(house, REVISION, one.work_id)
    await house.objects.delete(state.object_key)
    await builder.handle(one)
    assert (await last(house, one.work_id)).failure.code == "store.unavailable"  # type: ignore[attr-defined]


async def test_a_build_delivered_twice_is_built_once(house: House, builder: Builder, tmp_path: Path) -> None:
    one = await push(house, tmp_path)
    await asyncio.gather(builder.handle(one), builder.handle(one))
    await builder.handle(one)
    assert await rig.types_of(house, one.work_id) == ["revision.uploaded", "revision.build_started", "revision.ready"]


async def test_a_lost_lease_stops_the_build_and_writes_nothing(house: House, builder: Builder, tmp_path: Path) -> None:
    dockerfile = "FROM seatrial-test-base:1\nRUN sleep 600\n"
    one = await push(house, tmp_path, {"environment/Dockerfile": dockerfile})
    building = asyncio.create_task(builder.handle(one))

    async def begun() -> bool:
        return (await rig.row_of(house, one.work_id))["owner"] is not None

    await rig.eventually(begun)
    await end_lease(house, Lost(one.work_id, "build", one.team, builder.crew.worker, one.epoch + 1))
    before = await rig.last_position(house)
    stop = asyncio.Event()
    stop.set()
    await builder.crew.beat(stop)  # registers
    await builder.crew.beat(stop)
    async with asyncio.timeout(30):
        await building
    assert await rig.last_position(house) == before
    assert (await last(house, one.work_id)).failure.code == "build.worker_lost"  # type: ignore[attr-defined]


class Unreadable(DockerBackend):
    """The real engine, of an image whose records nobody can read: as one of 256 MB of them would be, for less."""

    async def inventory(self, reference: str) -> Inventory:
        raise ImageUnreadable("its package records are larger than any real image's")


class TakenAway(DockerBackend):
    """The real engine, with somebody beside us who removes images."""

    async def inventory(self, reference: str) -> Inventory:
        raise ImageMissing(f"the engine has no image {reference}")


async def test_an_image_whose_records_cannot_be_read_is_ready_and_says_so(
    house: House, docker_host: str, tmp_path: Path
) -> None:
    backend = Unreadable(docker_host, tmp_path / "engine")
    one = await push(house, tmp_path)
    await Builder(house, backend).handle(one)
    ready = await last(house, one.work_id)
    assert isinstance(ready, RevisionReady)
    assert ready.warnings > 0
    assert "package records" in (await private_of(house, one.work_id))["warnings"]
    assert await Inventories(house, backend).of(ready.image.reference, ready.image.digest) is None
    await backend.remove(one.work_id)
    await backend.close()


async def test_an_image_that_is_removed_right_after_its_build_is_built_again(
    house: House, docker_host: str, tmp_path: Path
) -> None:
    backend = TakenAway(docker_host, tmp_path / "engine")
    one = await push(house, tmp_path)
    await Builder(house, backend).handle(one)
    failed = await last(house, one.work_id)
    assert isinstance(failed, BuildFailed)
    assert failed.failure.code == "build.engine_unavailable"
    await backend.remove(one.work_id)
    await backend.close()


async def test_the_loop_builds_what_is_uploaded(
    house: House, builder: Builder, tmp_path: Path, open_another: Open
) -> None:
    """The whole of it, with hints and claims: two builders at once, each pack built once."""
    other = Builder(await open_another(), builder.backend)
    stop = asyncio.Event()
    running = [asyncio.create_task(one.run(stop)) for one in (builder, other)]
    names: list[str] = []
    packed = io.BytesIO()
    for path, content in FILES.items():
        (tmp_path / "pack" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pack" / path).write_text(content)
    pack_folder(tmp_path / "pack", packed)
    (tmp_path / "pack.tar.zst").write_bytes(packed.getvalue())
    stored = await house.objects.put_blob(packed.getvalue())
    team = await rig.make_team(house)
    for _ in range(3):
        names.append(await rig.upload(house, team, stored.key, scan(tmp_path / "pack.tar.zst").digest))

    async def all_ready() -> bool:
        return all([(await last(house, name)).type == "revision.ready" for name in names])

    await rig.eventually(all_ready)
    stop.set()
    await asyncio.gather(*running)
    for name in names:
        assert (await rig.types_of(house, name)).count("revision.build_started") == 1
