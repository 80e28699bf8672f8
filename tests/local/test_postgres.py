"""Embedded Postgres: one owner a folder, no orphan, a start after every end."""

import os
import shutil
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from app.local import child, postgres
from app.local.errors import PortTaken, ServerFailed, StoreInUse, StoreUnusable
from app.local.postgres import Postgres
from tests.local.waiting import is_alive, wait_for

QUICK = {"fsync": "off"}


@pytest.fixture
def folder(memory_folder: Path, request: pytest.FixtureRequest) -> Path:
    return memory_folder / request.node.name[:60] / "postgres"


@pytest.fixture
def server(folder: Path) -> Iterator[Postgres]:
    server = Postgres(folder, settings=QUICK)
    server.start()
    yield server
    server.stop()


def kill(server: Postgres) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    wait_for(lambda: server.poll() is not None)


async def count(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("create table if not exists kept (number int); insert into kept values (1)")
        return await connection.fetchval("select count(*) from kept")
    finally:
        await connection.close()


async def test_kill_9_loses_nothing_and_keeps_the_port(server: Postgres) -> None:
    url = server.url
    assert await count(url) == 1
    kill(server)
    assert server.poll() == -signal.SIGKILL
    server.start()
    assert server.url == url
    assert await count(url) == 2


async def test_an_open_transaction_does_not_hold_up_a_start_after_kill_9(server: Postgres) -> None:
    connection = await asyncpg.connect(server.url)
    try:
        await connection.execute("create table kept (number int)")
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("insert into kept values (1)")
        kill(server)
        server.start()
        assert await count(server.url) == 1
    finally:
        connection.terminate()


async def test_a_pid_file_that_names_a_living_stranger_is_no_obstacle(server: Postgres, folder: Path) -> None:
    kill(server)
    pid_file = folder / "data" / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    pid_file.write_text("\n".join([str(os.getppid()), *lines[1:]]) + "\n")
    server.start()
    assert await count(server.url) == 1


@pytest.mark.parametrize("content", ["", "not a number\n", "99999999\n"])
async def test_a_broken_pid_file_is_no_obstacle(server: Postgres, folder: Path, content: str) -> None:
    server.stop()
    (folder / "data" / "postmaster.pid").write_text(content)
    server.start()
    assert await count(server.url) == 1


async def test_a_second_server_on_one_folder_is_refused_and_harms_nothing(
    server: Postgres, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "LEASE_SECONDS", 0.1)
    with pytest.raises(StoreInUse, match="SEATRIAL_HOME"):
        Postgres(folder).start()
    assert await count(server.url) == 1


async def test_nothing_survives_a_killed_supervisor(folder: Path, program) -> None:
    supervisor = program(
        "from pathlib import Path; from app.local.postgres import Postgres; import time\n"
        f"server = Postgres(Path({str(folder)!r}), settings={QUICK!r}); server.start()\n"
        "print(server.pid, flush=True); time.sleep(600)"
    )
    pid = int(supervisor.stdout.readline())
    assert is_alive(pid)
    supervisor.kill()
    supervisor.wait()
    again = Postgres(folder, settings=QUICK)
    again.start()  # waits for the last process of the other
    try:
        assert not is_alive(pid)
        assert await count(again.url) == 1
    finally:
        again.stop()


async def test_only_the_password_opens_the_door(server: Postgres, folder: Path) -> None:
    assert stat.S_IMODE((folder / "password").stat().st_mode) == 0o600
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(server.url.replace((folder / "password").read_text(), "wrong"))


def test_no_secret_in_arguments_environment_or_log(server: Postgres, folder: Path) -> None:
    secret = (folder / "password").read_text().encode()
    for name in ("cmdline", "environ"):
        assert secret not in Path(f"/proc/{server.pid}/{name}").read_bytes()
    assert secret not in server.log.read_bytes()
    assert stat.S_IMODE(server.log.stat().st_mode) == 0o600


def test_a_port_that_was_asked_for_and_is_taken_is_named(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        with pytest.raises(PortTaken, match=str(port)):
            Postgres(folder, port=port, settings=QUICK).start()


async def test_a_remembered_port_that_is_taken_is_replaced(server: Postgres) -> None:
    port = server.port
    server.stop()
    with socket.create_server(("127.0.0.1", port)):
        server.start()
        assert server.port != port
        assert await count(server.url) == 1


def test_data_of_another_version_is_refused_with_the_remedy(server: Postgres, folder: Path) -> None:
    server.stop()
    (folder / "data" / "PG_VERSION").write_text("17\n")
    with pytest.raises(StoreUnusable, match="PostgreSQL 17"):
        server.start()


def test_a_setting_that_postgres_refuses_is_told_with_its_last_words(folder: Path) -> None:
    with pytest.raises(ServerFailed, match="max_connections"):
        Postgres(folder, settings={**QUICK, "max_connections": "many"}).start()


async def test_an_interrupted_first_start_leaves_nothing_in_the_way(folder: Path) -> None:
    (folder / "data.new" / "base").mkdir(parents=True)
    (folder / "data.new" / "PG_VERSION").write_text("18\n")
    folder.chmod(0o711)
    server = Postgres(folder, settings=QUICK)
    server.start()
    try:
        assert await count(server.url) == 1
    finally:
        server.stop()


async def test_data_that_its_account_cannot_reach_lies_elsewhere_and_no_mode_is_loosened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory_folder: Path
) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    elsewhere = memory_folder / "elsewhere"
    elsewhere.mkdir(mode=0o711)
    monkeypatch.setattr(postgres, "REACHABLE", elsewhere)
    server = Postgres(private / "postgres", settings=QUICK)
    server.start()
    try:
        assert await count(server.url) == 1
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
        data = (private / "postgres" / "data").resolve()
        inside = elsewhere if os.geteuid() == 0 else private
        assert data.is_relative_to(inside)
        assert data.stat().st_uid != 0
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        server.stop()
        server.start()
        assert await count(server.url) == 2
    finally:
        server.stop()


async def test_a_failing_row_does_not_get_into_the_log(server: Postgres) -> None:
    connection = await asyncpg.connect(server.url)
    try:
        await connection.execute("create table kept (name text unique); insert into kept values ('private-words')")
        with pytest.raises(asyncpg.UniqueViolationError):
            await connection.execute("insert into kept values ('private-words')")
    finally:
        await connection.close()
    assert "duplicate key" in server.log.read_text()
    assert "private-words" not in server.log.read_text()


def test_an_ordinary_user_runs_it_as_himself(memory_folder: Path) -> None:
    folder = memory_folder / "ordinary"
    folder.mkdir()
    folder.chmod(0o777)
    forked = os.fork()
    if forked == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            server = Postgres(folder / "postgres", settings=QUICK)
            server.start()
            owner = (folder / "postgres" / "data").stat().st_uid
            server.stop()
            code = 0 if owner == os.geteuid() and server.poll() == 0 else 2
        except BaseException as error:
            os.write(2, repr(error).encode())
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0


async def test_a_home_that_was_deleted_and_made_again_starts_empty(
    tmp_path: Path, memory_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "private"
    elsewhere = memory_folder / "again"
    elsewhere.mkdir(mode=0o711)
    monkeypatch.setattr(postgres, "REACHABLE", elsewhere)
    for _ in range(2):
        private.mkdir(mode=0o700)
        server = Postgres(private / "postgres", settings=QUICK)
        server.start()
        try:
            assert await count(server.url) == 1
        finally:
            server.stop()
        shutil.rmtree(private)


def test_data_whose_password_is_gone_is_told_with_the_remedy(server: Postgres, folder: Path) -> None:
    server.stop()
    (folder / "password").unlink()
    with pytest.raises(StoreUnusable, match="password"):
        server.start()


async def test_binaries_that_the_account_cannot_reach_are_copied_once_and_work(
    tmp_path: Path, folder: Path, memory_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root with the program under /root."""
    user = child.User(65534, 65534)
    site = tmp_path / "private" / "site-packages"
    package = postgres.binaries().parents[1]
    for name in (package.name, f"{package.name}.libs"):
        shutil.copytree(package.with_name(name), site / name, symlinks=True)
    site.parent.chmod(0o700)
    reachable = memory_folder / "reachable"
    reachable.mkdir(mode=0o711)
    monkeypatch.setattr(postgres, "REACHABLE", reachable)
    monkeypatch.setattr(postgres, "binaries", lambda: site / package.name / "pginstall" / "bin")
    found = postgres._reachable_binaries(user)
    assert found.is_relative_to(reachable)
    before = (found / "postgres").stat().st_ino
    assert postgres._reachable_binaries(user) == found
    assert (found / "postgres").stat().st_ino == before
    server = Postgres(folder, settings=QUICK)
    server.start()
    try:
        assert await count(server.url) == 1
    finally:
        server.stop()
