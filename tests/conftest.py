"""The real servers that tests run against: one Postgres, one NATS and one container engine a session, a fresh database a test."""

import contextlib
import fcntl
import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from app.local.nats import Nats
from app.local.postgres import Postgres

ROOT = Path(__file__).parents[1]
TEMPLATE = "seatrial_template"
_numbers = itertools.count(1)


def pytest_configure() -> None:
    """A shell that starts us in the background has interrupts ignored, and whatever we start would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def with_database(url: str, name: str) -> str:
    """The same server and login, another database."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()


@pytest.fixture(scope="session")
def memory_folder() -> Iterator[Path]:
    """A folder on tmpfs where that is large enough, else on disk; other accounts may walk through it."""
    memory, sessions = Path("/dev/shm"), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > (1 + sessions) * 1024**3  # one takes 1.1 GiB
    parent = memory if roomy else Path(tempfile.gettempdir())
    _remove_left_behind(parent)
    folder = Path(tempfile.mkdtemp(prefix="seatrial-new-", dir=parent))
    folder.chmod(0o711)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = folder.rename(folder.with_name(folder.name.replace("-new-", "-test-")))
        yield folder
        shutil.rmtree(folder, ignore_errors=True)


def _remove_left_behind(parent: Path) -> None:
    """Folders of sessions that were killed: nobody holds their lock."""
    for folder in parent.glob("seatrial-test-*"):
        with contextlib.suppress(OSError), (folder / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for mount in (line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()):
                if mount.startswith(f"{folder}/"):
                    subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres(memory_folder: Path) -> Iterator[Postgres]:
    """A server without fsync. Its databases come and go with the tests: use `database`."""
    server = Postgres(memory_folder / "postgres", settings={"fsync": "off", "full_page_writes": "off"})
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
async def template(postgres: Postgres) -> str:
    """The name of a migrated database that nobody connects to."""
    connection = await asyncpg.connect(postgres.url)
    try:
        await connection.execute(f"create database {TEMPLATE}")
    finally:
        await connection.close()
    if importlib.util.find_spec("app.eventlog.migrate") is not None:
        from app.eventlog.migrate import migrate

        await migrate(with_database(postgres.url, TEMPLATE))
    return TEMPLATE


@contextlib.asynccontextmanager
async def _fresh_database(postgres: Postgres, template: str) -> AsyncIterator[str]:
    name = f"test_{next(_numbers)}"
    connection = await asyncpg.connect(postgres.url)
    try:
        await connection.execute(f"create database {name} template {template}")
        await _as_its_own_installation(with_database(postgres.url, name))
        yield with_database(postgres.url, name)
        await connection.execute(f"drop database {name} with (force)")
    finally:
        await connection.close()


async def _as_its_own_installation(url: str) -> None:
    """A copy of the template would share its id, and with it the sandboxes on the engine."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("update seatrial.installation set id = uuidv7()")
    finally:
        await connection.close()


@pytest.fixture
async def database(postgres: Postgres, template: str) -> AsyncIterator[str]:
    """The URL of a fresh, migrated database."""
    async with _fresh_database(postgres, template) as url:
        yield url


@pytest.fixture
async def other_database(postgres: Postgres, template: str) -> AsyncIterator[str]:
    """A second one, as another home has it."""
    async with _fresh_database(postgres, template) as url:
        yield url


@pytest.fixture(scope="session")
def nats_server(memory_folder: Path) -> Iterator[Nats]:
    server = Nats(memory_folder / "nats")
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def nats(nats_server: Nats) -> str:
    """The URL of a server that all tests share: name your streams and subjects after the test, or take `nats_clean`."""
    return nats_server.url


@pytest.fixture
async def nats_clean(nats: str) -> str:
    """The URL of the same server with every stream removed."""
    from nats import connect

    client = await connect(nats)
    try:
        context = client.jetstream()
        for stream in await context.streams_info():
            await context.delete_stream(str(stream.config.name))
    finally:
        await client.close()
    return nats


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of half a megabyte. It is mounted in another process's view of the file system, and reached through that."""
    (tmp_path / "disk").mkdir()
    enter = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--user", "--map-root-user"]
    script = 'mount -t tmpfs -o size=512k,mode=0777 none "$1" && echo mounted && read _'
    holder = subprocess.Popen(
        [*enter, "sh", "-c", script, "sh", str(tmp_path / "disk")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"mounted\n"
    yield Path(f"/proc/{holder.pid}/root{tmp_path / 'disk'}")
    holder.communicate(b"\n")


@pytest.fixture(scope="session")
def docker_host() -> str:
    """The address of the machine's container engine, installed and started when there is none, with the test base image.

    Two processes that share the tests make the image once.
    """
    from app.local.baseimage import TEST_BASE, ensure_image
    from app.local.engine import ensure
    from app.settings import load

    engine = ensure(load())
    lock = ROOT / ".seatrial" / "base-image.lock"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        ensure_image(engine, TEST_BASE)
    return engine.host


@pytest.fixture(scope="session")
def harness() -> Path:
    """The folder of the harness environment, built when it is missing or old."""
    path = ROOT / "harbor-patches" / "build.py"
    spec = importlib.util.spec_from_file_location("seatrial_harness_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    home = ROOT / ".seatrial" / "harness"
    module.build(home, lambda line: None)
    return home
